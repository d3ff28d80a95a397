package kernel

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

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
	settled := func() *wgtypes.Device {
		return &wgtypes.Device{
			PrivateKey: wgtypes.Key(key), ListenPort: 1, FirewallMark: 2,
			Peers: []wgtypes.Peer{{
				PublicKey: wireKey(t, a), Endpoint: net.UDPAddrFromAddrPort(home), LastHandshakeTime: now, PersistentKeepaliveInterval: keepalive, AllowedIPs: nets("10.1.0.0/16"),
			}},
		}
	}
	planned := func() plan.Device {
		return plan.Device{
			Name: plan.TunnelDevice, Port: 1, Mark: 2,
			Peers:   []plan.Tunnel{{Key: a, Endpoint: home, Keepalive: keepalive}},
			Allowed: []plan.Allowed{{Key: a, Prefix: prefix("10.1.0.0/16")}},
		}
	}
	port, mark, first, second, spare := 1, 2, wireKey(t, a), wireKey(t, b), wgtypes.Key([]byte(parked))

	for name, tc := range map[string]struct {
		want     func(*plan.Device)
		have     func(*wgtypes.Device)
		up, down wgtypes.Config
	}{
		"in place": {},
		"a new device": {
			have: func(s *wgtypes.Device) { *s = wgtypes.Device{} },
			up: wgtypes.Config{PrivateKey: new(wgtypes.Key(key)), ListenPort: &port, FirewallMark: &mark, Peers: []wgtypes.PeerConfig{
				{PublicKey: first, Endpoint: net.UDPAddrFromAddrPort(home), PersistentKeepaliveInterval: &keepalive, AllowedIPs: nets("10.1.0.0/16")},
			}},
		},
		"another key": {have: func(s *wgtypes.Device) { s.PrivateKey = wgtypes.Key{16} }, up: wgtypes.Config{PrivateKey: new(wgtypes.Key(key))}},
		"a peer that moved keeps its address": {
			have: func(s *wgtypes.Device) { s.Peers[0].Endpoint = net.UDPAddrFromAddrPort(away) },
		},
		"a peer that is silent is sought where it was": {
			have: func(s *wgtypes.Device) {
				s.Peers[0].Endpoint, s.Peers[0].LastHandshakeTime = net.UDPAddrFromAddrPort(away), now.Add(-4*time.Minute)
			},
			up: wgtypes.Config{Peers: []wgtypes.PeerConfig{{PublicKey: first, Endpoint: net.UDPAddrFromAddrPort(home)}}},
		},
		"and is not told twice": {
			have: func(s *wgtypes.Device) { s.Peers[0].LastHandshakeTime = time.Time{} },
		},
		"a peer that dials is not forgotten": {
			want: func(d *plan.Device) { d.Peers[0].Endpoint = netip.AddrPort{} },
			have: func(s *wgtypes.Device) { s.Peers[0].LastHandshakeTime = time.Time{} },
		},
		"no keepalive": {
			want: func(d *plan.Device) { d.Peers[0].Keepalive = 0 },
			up:   wgtypes.Config{Peers: []wgtypes.PeerConfig{{PublicKey: first, PersistentKeepaliveInterval: &none}}},
		},
		"a prefix more": {
			want: func(d *plan.Device) {
				d.Allowed = append(d.Allowed, plan.Allowed{Key: a, Prefix: prefix("10.2.0.0/16")})
			},
			up: wgtypes.Config{Peers: []wgtypes.PeerConfig{{PublicKey: first, AllowedIPs: nets("10.2.0.0/16")}}},
		},
		"a prefix less": {
			want: func(d *plan.Device) { d.Allowed = nil },
			down: wgtypes.Config{Peers: []wgtypes.PeerConfig{{PublicKey: spare, AllowedIPs: nets("10.1.0.0/16")}, {PublicKey: spare, Remove: true}}},
		},
		"a prefix moves": {
			want: func(d *plan.Device) {
				d.Peers = append(d.Peers, plan.Tunnel{Key: b, Keepalive: keepalive})
				d.Allowed[0].Key = b
			},
			have: func(s *wgtypes.Device) {
				s.Peers = append(s.Peers, wgtypes.Peer{PublicKey: second, PersistentKeepaliveInterval: keepalive})
			},
			up: wgtypes.Config{Peers: []wgtypes.PeerConfig{{PublicKey: second, AllowedIPs: nets("10.1.0.0/16")}}},
		},
		"a peer goes": {
			want: func(d *plan.Device) { d.Peers, d.Allowed = nil, nil },
			down: wgtypes.Config{Peers: []wgtypes.PeerConfig{{PublicKey: first, Remove: true}}},
		},
		"another peer in its place": {
			want: func(d *plan.Device) { d.Peers[0].Key, d.Allowed[0].Key = b, b },
			up:   wgtypes.Config{Peers: []wgtypes.PeerConfig{{PublicKey: second, Endpoint: net.UDPAddrFromAddrPort(home), PersistentKeepaliveInterval: &keepalive, AllowedIPs: nets("10.1.0.0/16")}}},
			down: wgtypes.Config{Peers: []wgtypes.PeerConfig{{PublicKey: first, Remove: true}}},
		},
		"a parked prefix is left over": {
			have: func(s *wgtypes.Device) {
				s.Peers = append(s.Peers, wgtypes.Peer{PublicKey: spare, AllowedIPs: nets("10.9.0.0/16")})
			},
			down: wgtypes.Config{Peers: []wgtypes.PeerConfig{{PublicKey: spare, Remove: true}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, have := planned(), settled()
			if tc.want != nil {
				tc.want(&want)
			}
			if tc.have != nil {
				tc.have(have)
			}
			up, down, err := delta(want, have, key, now)
			require.NoError(t, err)
			require.Equal(t, tc.up, up)
			require.Equal(t, tc.down, down)
		})
	}
}

// wireguard-go takes the configuration of a device as a text, with all that a Config of wgctrl has.
func TestConfigText(t *testing.T) {
	t.Parallel()
	key, keepalive := wgtypes.Key{8, 31: 64}, 25*time.Second
	text := configText(wgtypes.Config{PrivateKey: &key, ListenPort: new(51840), FirewallMark: new(7), Peers: []wgtypes.PeerConfig{
		{PublicKey: wireKey(t, keys[0]), Remove: true},
		{
			PublicKey: wireKey(t, keys[1]), Endpoint: net.UDPAddrFromAddrPort(netip.MustParseAddrPort("[2001:db8::1]:7")), PersistentKeepaliveInterval: &keepalive,
			AllowedIPs: nets("10.1.0.0/16", "fd00::/48"),
		},
	}})
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
}

// A key that is none changes nothing.
func TestDeltaOfABadKey(t *testing.T) {
	t.Parallel()
	_, _, err := delta(plan.Device{Peers: []plan.Tunnel{{Key: "short"}}}, &wgtypes.Device{}, Key{}, time.Now())
	require.ErrorContains(t, err, `parsing the public key "short"`)
}

func wireKey(t *testing.T, text string) wgtypes.Key {
	t.Helper()
	key, err := wgtypes.ParseKey(text)
	require.NoError(t, err)
	return key
}

func nets(texts ...string) (out []net.IPNet) {
	for _, text := range texts {
		out = append(out, *ipNet(prefix(text)))
	}
	return out
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
	require.Equal(t, &wgtypes.Device{
		PrivateKey: wgtypes.Key{8, 31: 64}, ListenPort: 51840, FirewallMark: 7,
		Peers: []wgtypes.Peer{
			{
				PublicKey: wireKey(t, keys[0]), Endpoint: net.UDPAddrFromAddrPort(netip.MustParseAddrPort("[::ffff:192.0.2.1]:7")),
				LastHandshakeTime: time.Unix(1700000000, 5), ReceiveBytes: 1, TransmitBytes: 2, PersistentKeepaliveInterval: 25 * time.Second, AllowedIPs: nets("10.1.0.0/16"),
			},
			{PublicKey: wireKey(t, keys[1]), LastHandshakeTime: time.Unix(0, 0), AllowedIPs: nets("fd00::/48")},
		},
	}, got)
	require.Equal(t, Peer{Endpoint: netip.MustParseAddrPort("192.0.2.1:7"), Handshake: time.Unix(1700000000, 5), Received: 1, Sent: 2}, tunnelPeer(got.Peers[0]))
	require.Equal(t, Peer{}, tunnelPeer(got.Peers[1]))
	for _, bad := range []string{"listen_port=x", "fwmark=-", "private_key=zz", "public_key=zz", "public_key=01\nallowed_ip=x", "public_key=01\nrx_bytes=x"} {
		_, err := parseStatus(bad)
		require.ErrorContains(t, err, "parsing ", bad)
	}
}
