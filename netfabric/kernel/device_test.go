package kernel

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/liqod/liqod/netfabric/plan"
)

func TestKeysDoNotPrint(t *testing.T) {
	t.Parallel()
	key, err := GenerateKey()
	require.NoError(t, err)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%q", "%d"} {
		printed := fmt.Sprintf(verb, Config{Key: key})
		require.NotContains(t, printed, key.Private(), verb)
		require.NotContains(t, printed, fmt.Sprintf("%x", key[:4]), verb)
		require.NotContains(t, printed, strings.Trim(fmt.Sprint(key[:4]), "[]"), verb)
	}
	again, err := ParseKey(key.Private())
	require.NoError(t, err)
	require.Equal(t, key, again)
	require.Equal(t, key.Public(), again.Public())

	_, err = ParseKey("c2VjcmV0")
	require.ErrorContains(t, err, "32 bytes in base64")
	require.NotContains(t, err.Error(), "c2VjcmV0")

	loose, err := ParseKey("//////////////////////////////////////////8=")
	require.NoError(t, err)
	require.Equal(t, byte(0xf8), loose[0])
	require.Equal(t, byte(0x7f), loose[31])
}

func TestDelta(t *testing.T) {
	t.Parallel()
	now := time.Now()
	a, b := keys[0], keys[1]
	home, away := netip.MustParseAddrPort("192.0.2.1:1"), netip.MustParseAddrPort("198.51.100.7:7")
	keepalive, none := 25*time.Second, time.Duration(0)
	key := Key{8}
	settled := func() status {
		return status{
			key: key, port: 1, mark: 2,
			peers:   []Peer{{Key: a, Endpoint: home, Handshake: now, keepalive: keepalive}},
			allowed: []plan.Allowed{{Key: a, Prefix: prefix("10.1.0.0/16")}},
		}
	}
	planned := func() plan.Device {
		return plan.Device{
			Name: plan.TunnelDevice, Port: 1, Mark: 2,
			Peers:   []plan.Tunnel{{Key: a, Endpoint: home, Keepalive: keepalive}},
			Allowed: []plan.Allowed{{Key: a, Prefix: prefix("10.1.0.0/16")}},
		}
	}
	port, mark := uint16(1), uint32(2)

	for name, tc := range map[string]struct {
		want     func(*plan.Device)
		have     func(*status)
		up, down change
	}{
		"in place": {},
		"a new device": {
			have: func(s *status) { *s = status{} },
			up: change{key: &key, port: &port, mark: &mark, peers: []peerChange{
				{key: a, endpoint: home, keepalive: &keepalive, allowed: []netip.Prefix{prefix("10.1.0.0/16")}},
			}},
		},
		"another key": {have: func(s *status) { s.key = Key{16} }, up: change{key: &key}},
		"a peer that moved keeps its address": {
			have: func(s *status) { s.peers[0].Endpoint = away },
		},
		"a peer that is silent is sought where it was": {
			have: func(s *status) { s.peers[0].Endpoint, s.peers[0].Handshake = away, now.Add(-4*time.Minute) },
			up:   change{peers: []peerChange{{key: a, endpoint: home}}},
		},
		"and is not told twice": {
			have: func(s *status) { s.peers[0].Handshake = time.Time{} },
		},
		"a peer that dials is not forgotten": {
			want: func(d *plan.Device) { d.Peers[0].Endpoint = netip.AddrPort{} },
			have: func(s *status) { s.peers[0].Handshake = time.Time{} },
		},
		"no keepalive": {
			want: func(d *plan.Device) { d.Peers[0].Keepalive = 0 },
			up:   change{peers: []peerChange{{key: a, keepalive: &none}}},
		},
		"a prefix more": {
			want: func(d *plan.Device) {
				d.Allowed = append(d.Allowed, plan.Allowed{Key: a, Prefix: prefix("10.2.0.0/16")})
			},
			up: change{peers: []peerChange{{key: a, allowed: []netip.Prefix{prefix("10.2.0.0/16")}}}},
		},
		"a prefix less": {
			want: func(d *plan.Device) { d.Allowed = nil },
			down: change{peers: []peerChange{{key: parked, allowed: []netip.Prefix{prefix("10.1.0.0/16")}}, {key: parked, remove: true}}},
		},
		"a prefix moves": {
			want: func(d *plan.Device) {
				d.Peers = append(d.Peers, plan.Tunnel{Key: b, Keepalive: keepalive})
				d.Allowed[0].Key = b
			},
			have: func(s *status) { s.peers = append(s.peers, Peer{Key: b, keepalive: keepalive}) },
			up:   change{peers: []peerChange{{key: b, allowed: []netip.Prefix{prefix("10.1.0.0/16")}}}},
		},
		"a peer goes": {
			want: func(d *plan.Device) { d.Peers, d.Allowed = nil, nil },
			down: change{peers: []peerChange{{key: a, remove: true}}},
		},
		"another peer in its place": {
			want: func(d *plan.Device) { d.Peers[0].Key, d.Allowed[0].Key = b, b },
			up:   change{peers: []peerChange{{key: b, endpoint: home, keepalive: &keepalive, allowed: []netip.Prefix{prefix("10.1.0.0/16")}}}},
			down: change{peers: []peerChange{{key: a, remove: true}}},
		},
		"a parked prefix is left over": {
			have: func(s *status) {
				s.peers = append(s.peers, Peer{Key: parked})
				s.allowed = append(s.allowed, plan.Allowed{Key: parked, Prefix: prefix("10.9.0.0/16")})
			},
			down: change{peers: []peerChange{{key: parked, remove: true}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, have := planned(), settled()
			if tc.want != nil {
				tc.want(&want)
			}
			if tc.have != nil {
				tc.have(&have)
			}
			up, down := delta(want, have, key, now)
			require.Equal(t, tc.up, up)
			require.Equal(t, tc.down, down)
		})
	}
}

// The two ways of telling a change say the same.
func TestChangeInBothLanguages(t *testing.T) {
	t.Parallel()
	key, port, mark, keepalive := Key{8, 31: 64}, uint16(51840), uint32(7), 25*time.Second
	c := change{key: &key, port: &port, mark: &mark, peers: []peerChange{
		{key: keys[0], remove: true},
		{key: keys[1], endpoint: netip.MustParseAddrPort("[2001:db8::1]:7"), keepalive: &keepalive, allowed: []netip.Prefix{prefix("10.1.0.0/16"), prefix("fd00::/48")}},
	}}
	text, err := c.text()
	require.NoError(t, err)
	require.Equal(t, `private_key=0800000000000000000000000000000000000000000000000000000000000040
listen_port=51840
fwmark=7
public_key=0101010101010101010101010101010101010101010101010101010101010101
remove=true
public_key=0202020202020202020202020202020202020202020202020202020202020202
endpoint=[2001:db8::1]:7
persistent_keepalive_interval=25
allowed_ip=10.1.0.0/16
allowed_ip=fd00::/48
`, text)

	config, err := c.config()
	require.NoError(t, err)
	require.Equal(t, key.Private(), config.PrivateKey.String())
	require.Equal(t, 51840, *config.ListenPort)
	require.Equal(t, 7, *config.FirewallMark)
	require.False(t, config.ReplacePeers)
	require.Len(t, config.Peers, 2)
	require.True(t, config.Peers[0].Remove)
	require.Equal(t, keys[1], config.Peers[1].PublicKey.String())
	require.Equal(t, "[2001:db8::1]:7", config.Peers[1].Endpoint.String())
	require.Equal(t, keepalive, *config.Peers[1].PersistentKeepaliveInterval)
	require.False(t, config.Peers[1].ReplaceAllowedIPs)
	require.Equal(t, "10.1.0.0/16", config.Peers[1].AllowedIPs[0].String())
	require.Equal(t, "fd00::/48", config.Peers[1].AllowedIPs[1].String())

	c.peers[0].key = "short"
	_, err = c.text()
	require.ErrorContains(t, err, `parsing the public key "short"`)
	_, err = c.config()
	require.ErrorContains(t, err, `parsing the public key "short"`)
}

func TestParseStatus(t *testing.T) {
	t.Parallel()
	got, err := parseStatus(`private_key=0800000000000000000000000000000000000000000000000000000000000040
listen_port=51840
fwmark=7
protocol_version=1
public_key=0101010101010101010101010101010101010101010101010101010101010101
preshared_key=0000000000000000000000000000000000000000000000000000000000000000
endpoint=[::ffff:192.0.2.1]:7
last_handshake_time_sec=1700000000
last_handshake_time_nsec=5
tx_bytes=2
rx_bytes=1
persistent_keepalive_interval=25
allowed_ip=10.1.0.0/16
public_key=0202020202020202020202020202020202020202020202020202020202020202
last_handshake_time_sec=0
allowed_ip=fd00::/48
`)
	require.NoError(t, err)
	require.Equal(t, status{
		key: Key{8, 31: 64}, port: 51840, mark: 7,
		peers: []Peer{
			{Key: keys[0], Endpoint: netip.MustParseAddrPort("192.0.2.1:7"), Handshake: time.Unix(1700000000, 5), Received: 1, Sent: 2, keepalive: 25 * time.Second},
			{Key: keys[1]},
		},
		allowed: []plan.Allowed{{Key: keys[0], Prefix: prefix("10.1.0.0/16")}, {Key: keys[1], Prefix: prefix("fd00::/48")}},
	}, got)
	for _, bad := range []string{"listen_port=x", "fwmark=-", "private_key=zz", "public_key=zz", "public_key=01\nallowed_ip=x", "public_key=01\nrx_bytes=x"} {
		_, err := parseStatus(bad)
		require.ErrorContains(t, err, "parsing ", bad)
	}
}
