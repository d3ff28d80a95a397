package kernel

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/liqod/liqod/netfabric/plan"
)

// damage is what else may happen on a node, as commands.
var damage = map[string]string{
	"a rule deleted":             "ip rule del priority 91",
	"all rules deleted":          "ip rule flush; ip -6 rule flush; ip rule add priority 32766 lookup main",
	"a rule added":               "ip rule add priority 91 to 10.0.0.0/8 lookup 6171 protocol 108",
	"routes flushed":             "ip route flush table 6171; ip -6 route flush table 6171",
	"a route replaced":           "ip route replace unreachable 10.1.0.0/16 table 6171 proto 108",
	"a route with other advice":  "ip route replace 10.1.0.0/16 dev liqod-vx table 6171 proto 108 mtu 1000",
	"a route beside ours":        "ip route add 10.1.0.0/16 dev lo table 6171 proto 108 metric 5",
	"an IPv6 route beside ours":  "ip -6 route add fd00:b1::/64 dev lo table 6171 proto 108 metric 5",
	"a route more":               "ip route add 10.98.0.0/16 dev lo table 6172 proto 108",
	"the table deleted":          "nft delete table inet liqod",
	"the ruleset flushed":        "nft flush ruleset",
	"the rules flushed":          "nft flush table inet liqod",
	"a chain flushed":            "nft flush chain inet liqod guard_in",
	"a chain deleted":            "nft flush chain inet liqod guard_in; nft delete chain inet liqod guard_in",
	"a chain added":              "nft add chain inet liqod other",
	"a rule of nft added":        "nft add rule inet liqod guard_in accept",
	"a set added":                "nft add set inet liqod other '{ type ipv4_addr; }'",
	"a set flushed":              "nft flush map inet liqod keep4",
	"an element deleted":         "nft delete element inet liqod fabric4 '{ 10.1.0.0/16 }'",
	"an element added":           "nft add element inet liqod fabric4 '{ 10.99.0.0/16 }'",
	"an element that is a range": "nft add element inet liqod fabric4 '{ 10.99.0.1-10.99.0.6 }'",
	"the table put to sleep":     "nft add table inet liqod '{ flags dormant; }'",
	"the overlay set down":       "ip link set liqod-vx down",
	"the overlay flapping":       "ip link set liqod-vx down; ip link set liqod-vx up",
	"the overlay deleted":        "ip link del liqod-vx",
	"another MTU":                "ip link set liqod-vx mtu 1200",
	"another hardware address":   "ip link set liqod-vx address 02:00:00:00:00:99",
	"another overlay":            "ip link del liqod-vx; ip link add liqod-vx type vxlan id 7 dstport 6091 local 192.168.0.10 nolearning",
	"one that learns":            "ip link del liqod-vx; ip link add liqod-vx mtu 1400 type vxlan id 6091 dstport 6091 local 192.168.0.10",
	"no overlay at all":          "ip link del liqod-vx; ip link add liqod-vx type bridge",
	"a device more":              "ip link add liqod-x type bridge",
	"an address more":            "ip address add 10.99.0.1/32 dev liqod-vx",
	"neighbours flushed":         "ip neigh flush dev liqod-vx nud permanent",
	"a neighbour changed":        "ip neigh replace 192.168.1.10 lladdr 02:00:00:00:00:99 dev liqod-vx nud permanent",
	"a neighbour more":           "ip neigh add 192.168.1.99 lladdr 02:00:00:00:00:99 dev liqod-vx nud permanent",
	"a forwarding entry more":    "bridge fdb add 02:00:00:00:00:99 dev liqod-vx dst 192.168.1.99 self permanent",
	"a forwarding entry less":    "bridge fdb del 02:fa:c0:a8:01:0a dev liqod-vx dst 192.168.1.10 self",
	"a forwarding entry moved":   "bridge fdb replace 02:fa:c0:a8:01:0a dev liqod-vx dst 192.168.1.99 self permanent",
}

// fixed is a cluster with everything that the damage is about.
func fixed() plan.Input {
	in := part{rand.New(rand.NewPCG(7, 8))}.cluster()
	in.Gateways = []plan.Replica{{Name: "host-0", Number: 1, Addrs: addrs("192.168.1.10")}}
	in.Via = "host-0"
	in.Peers = []plan.Peer{{
		ID:     "milan",
		Theirs: plan.Ranges{Pods: prefixes("10.1.0.0/16", "fd00:a1::/56"), External: prefixes("10.11.0.0/16", "fd00:b1::/64")},
		Ours: plan.Maps{
			{Own: prefix("10.244.0.0/16"), View: prefix("10.101.0.0/16")},
			{Own: prefix("10.70.0.0/16"), View: prefix("10.102.0.0/16")},
		},
		Gateways: []plan.Remote{{Number: 1, Key: publicKey(1)}},
		Use:      1,
	}}
	return in
}

func TestNetnsDamageIsRepaired(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.address(t, "lo", "192.168.0.10/32", "fd00:1::10/128")
	k, c := kernelAt(t, s.FD)
	want, err := plan.Node(fixed())
	require.NoError(t, err)
	applied(t, k, c, want)
	for name, commands := range damage {
		s.run(t, "sh", "-ec", commands)
		before := c.total()
		require.NoError(t, k.Apply(t.Context(), want), name)
		require.Greater(t, c.total(), before, "%s: nothing was to be repaired", name)
		applied(t, k, c, want)
	}
}

func TestNetnsDamageToTheTunnelIsRepaired(t *testing.T) {
	t.Parallel()
	if !alone(t) {
		return
	}
	s := here(t)
	k, c := kernelAt(t, 0)
	want, err := plan.Gateway(fixed())
	require.NoError(t, err)
	applied(t, k, c, want)
	for name, commands := range map[string]string{
		"set down":          "ip link set liqod-wg down",
		"flapping":          "ip link set liqod-wg down; ip link set liqod-wg up",
		"deleted":           "ip link del liqod-wg",
		"another MTU":       "ip link set liqod-wg mtu 1300",
		"addresses flushed": "ip addr flush dev liqod-wg",
		"an address more":   "ip addr add 10.99.0.1/32 dev liqod-wg",
	} {
		s.run(t, "sh", "-ec", commands)
		before := c.total()
		require.NoError(t, k.Apply(t.Context(), want), name)
		require.Greater(t, c.total(), before, "%s: nothing was to be repaired", name)
		applied(t, k, c, want)
	}

	mode, peers, err := k.Tunnel()
	require.NoError(t, err)
	require.Len(t, peers, 1)
	require.Contains(t, peers, publicKey(1))
	require.Contains(t, []Mode{InKernel, InProcess}, mode)
}

// A TUN device that somebody else made is not taken over, and told of.
func TestNetnsTunnelOfAnotherProcess(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.run(t, "ip", "tuntap", "add", plan.TunnelDevice, "mode", "tun")
	k, c := kernelAt(t, s.FD)
	want, err := plan.Gateway(fixed())
	require.NoError(t, err)
	want.Sysctls = nil
	err = k.Apply(t.Context(), want)
	require.ErrorContains(t, err, "setting device liqod-wg: another process holds it")
	require.ErrorContains(t, err, "ip link delete liqod-wg")
	require.NotZero(t, c["table"], "the rest has been done")
	require.Equal(t, "2: liqod-wg", s.run(t, "ip", "-o", "link", "show", plan.TunnelDevice)[:11])
}
