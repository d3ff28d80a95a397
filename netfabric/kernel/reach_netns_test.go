package kernel

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"github.com/stretchr/testify/require"

	"github.com/liqod/liqod/netfabric/plan"
)

// whole are the prefixes of single addresses.
func whole(list ...netip.Addr) (out []netip.Prefix) {
	for _, a := range list {
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
	}
	return out
}

// A peer that sends to every address of every node reaches the pod that is shared with it, what
// an IP names at its port, and nothing else.
func TestNetnsPeerReachesWhatIsShared(t *testing.T) {
	t.Parallel()
	internet, rome, _ := twins(t)
	m := newMallory(t, internet, rome, seenByMallory)
	w := &witness{}
	w.listen(t, "pod 0", rome.pods[0])
	w.listen(t, "pod 1", rome.pods[1])
	pod4, pod6 := rome.podAddrs(0)
	other, _ := rome.podAddrs(1)
	rome.in.Peers[1].Reach = whole(pod4, pod6)
	rome.in.IPs = append(rome.in.IPs,
		plan.IP{External: addr("10.70.0.40"), Real: other, Peer: "mallory", Ports: []plan.Service{{Proto: "udp", Port: echoPort}}},
		plan.IP{External: addr("10.70.0.41"), Real: other, Peer: "milan"})
	rome.apply(t)

	icmp := func(from, to string) segment {
		return segment{from: from, to: to, proto: 1, body: append([]byte{8, 0, 0, 0, 0, 1, 0, 1}, hostile...), checksum: 2}
	}
	for _, tc := range []struct {
		name   string
		node   int
		packet segment
	}{
		{"another pod by IPv6", 1, datagram("fd00:ca::1", "fd00:da:0:2::10", echoPort, hostile)},
		{"another pod by TCP", 1, tcpSegment("fd00:ca::1", "fd00:da:0:2::10", echoPort, 0x02, hostile)},
		{"in the middle of a connection", 1, tcpSegment("fd00:ca::1", "fd00:da:0:2::10", echoPort+1, 0x10, hostile)},
		{"with the port that it listens on as source", 1, datagramFrom("fd00:ca::1", "fd00:da:0:2::10", echoPort, echoPort, hostile)},
		{"from a node of the peer", 1, datagram("fd00:cb::1", "fd00:da:0:2::10", echoPort, hostile)},
		{"an address without a pod", 0, datagram("10.210.1.1", "10.220.1.77", echoPort, hostile)},
		{"the first address of a node", 0, datagram("10.210.1.1", "10.220.1.0", echoPort, hostile)},
	} {
		count := func() uint64 {
			all, err := rome.kernels[tc.node].Counters(t.Context())
			require.NoError(t, err)
			return all[plan.DropToPod] + all[plan.DropToNode]
		}
		before := count()
		m.inject(t, tc.packet.packet())
		require.Eventually(t, func() bool { return count() > before }, time.Minute, 10*time.Millisecond, "%s: it does not count", tc.name)
	}
	// The drops of both nodes are all mallory's.
	for i, k := range rome.kernels[:2] {
		all, err := k.Counters(t.Context())
		require.NoError(t, err)
		require.NotZero(t, all[plan.DropToPod])
		require.Equal(t, all[plan.DropToPod]+all[plan.DropToNode], refused(t, k, mallorySeen), "node %d", i)
		require.Zero(t, refused(t, k, milanSeen), "node %d", i)
	}
	// What an IP names at one port is refused at others ahead of the node.
	m.inject(t, datagram("10.210.1.1", "10.220.2.10", 9999, hostile).packet(), icmp("10.210.1.1", "10.220.2.10").packet(), datagram("10.210.1.1", "10.221.0.41", echoPort, hostile).packet())
	for where, p := range map[string]segment{
		"pod 0: " + welcome + "pod": datagram("10.210.1.1", "10.220.1.10", echoPort, welcome+"pod"),
		"pod 0: " + welcome + "six": datagram("fd00:ca::1", "fd00:da:0:1::10", echoPort, welcome+"six"),
		"pod 1: " + welcome + "IP":  datagram("10.210.1.1", "10.221.0.40", echoPort, welcome+"IP"),
	} {
		require.Eventually(t, func() bool {
			m.inject(t, p.packet())
			return w.has(where)
		}, time.Minute, 50*time.Millisecond, where)
	}
	require.False(t, w.has(hostile), "%q", w.heard)
	gateway, _ := kernelAt(t, rome.gateway.FD)
	require.Eventually(t, func() bool { return refused(t, gateway, mallorySeen) > 0 }, time.Minute, 10*time.Millisecond)
	require.Zero(t, refused(t, gateway, milanSeen))

	// Another plan leaves the numbers as they are.
	before := refused(t, rome.kernels[1], mallorySeen)
	rome.in.Peers[1].Reach = nil
	rome.apply(t)
	require.Equal(t, before, refused(t, rome.kernels[1], mallorySeen))
}

// refused returns how many packets of a peer a host has dropped.
func refused(t *testing.T, k *Kernel, of views) (n uint64) {
	t.Helper()
	all, err := k.Refused()
	require.NoError(t, err)
	require.NotEmpty(t, all)
	for _, p := range []netip.Prefix{of.pods4, of.ext4, of.pods6, of.ext6} {
		n += all[p]
	}
	return n
}

// A pod that is no longer shared is closed, known connections too. Its own connections, and
// those of pods that were never shared, go on.
func TestNetnsWhatIsNoLongerSharedIsClosed(t *testing.T) {
	t.Parallel()
	_, rome, milan := twins(t)
	pod4, pod6 := rome.podAddrs(0)
	s4, s6 := milan.podAddrs(0)
	type flow struct {
		from *space
		to   netip.Addr
	}
	ours := []flow{{rome.pods[0], moved(s4, milanSeen.pods4)}, {rome.pods[0], moved(s6, milanSeen.pods6)}, {rome.pods[1], moved(s4, milanSeen.pods4)}}
	theirs := []flow{{milan.pods[0], moved(pod4, romeSeen.pods4)}, {milan.pods[0], moved(pod6, romeSeen.pods6)}}
	share := func(pods ...netip.Prefix) {
		rome.in.Peers[0].Reach = pods
		rome.apply(t)
	}
	share(whole(pod4, pod6)...)
	asks := map[flow]func() error{}
	for _, f := range append(ours[:3:3], theirs...) {
		c, err := dial(f.from, "udp", f.to, time.Hour)
		require.NoError(t, err)
		defer c.Close()
		asks[f] = func() error {
			require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Second)))
			_, err := ask(c)
			return err
		}
		require.Eventually(t, func() bool { return asks[f]() == nil }, time.Minute, time.Millisecond, "%v", f)
	}
	for _, shared := range []bool{false, true, false} {
		share(whole(pod4, pod6)[:map[bool]int{true: 2}[shared]]...)
		for _, f := range theirs {
			require.Equal(t, shared, asks[f]() == nil, "a known connection to %s", f.to)
			_, err := udp(f.from, f.to, time.Second)
			require.Equal(t, shared, err == nil, "a new connection to %s: %v", f.to, err)
		}
		for _, f := range ours {
			require.Eventually(t, func() bool { return asks[f]() == nil }, time.Minute, time.Millisecond, "a known connection of a pod")
			got, err := tcp(f.from, f.to)
			require.NoError(t, err, "a new connection of a pod")
			require.True(t, got.IsValid())
			require.NoError(t, ping(f.from, f.to))
			require.ErrorContains(t, nobody(f.from, f.to), "connection refused", "errors come back")
		}
	}
}

// A node with 250 pods and 20 peers writes at most five messages for a pod that becomes shared,
// is no longer, or is replaced by another.
func TestSharingAPodIsAFewMessages(t *testing.T) {
	t.Parallel()
	in := plan.Input{
		Self: "node", Pods: prefixes("10.244.0.0/16", "fd00:10:244::/56"), External: prefixes("10.70.0.0/16"),
		Nodes: []plan.Host{{Name: "node", Addrs: addrs("192.168.0.11"), Pods: prefixes("10.244.1.0/24", "fd00:10:244:1::/64")}},
		Ports: plan.Ports{Overlay: plan.OverlayPort, Tunnel: plan.TunnelPort}, MTU: 1500,
	}
	pod := func(i int) []netip.Prefix {
		return prefixes(fmt.Sprintf("10.244.1.%d/32", i), fmt.Sprintf("fd00:10:244:1::%x/128", i))
	}
	for i := range 20 {
		p := plan.Peer{ID: fmt.Sprintf("peer-%d", i), Theirs: plan.Ranges{
			Pods:     prefixes(fmt.Sprintf("10.%d.0.0/16", 100+i), fmt.Sprintf("fd00:%x::/56", 100+i)),
			External: prefixes(fmt.Sprintf("10.%d.0.0/16", 150+i)),
		}}
		for n := range 250 / 20 {
			p.Reach = append(p.Reach, pod(12*i+n+1)...)
		}
		in.Peers = append(in.Peers, p)
	}
	build := func(reach []netip.Prefix) plan.Table {
		one := in
		one.Peers = append(in.Peers[:19:19], in.Peers[19])
		one.Peers[19].Reach = reach
		s, err := plan.Node(one)
		require.NoError(t, err)
		return s.Table
	}
	before := in.Peers[19].Reach
	for name, tc := range map[string]struct{ have, want []netip.Prefix }{
		"shared":                      {before, append(before[:24:24], pod(250)...)},
		"no longer":                   {before, before[2:]},
		"replaced, of one family":     {before[1:], append(before[3:24:24], pod(250)[1])},
		"all of a namespace at once":  {nil, before},
		"and none of it, of a family": {before, pod(0)[:0]},
	} {
		want := build(tc.want)
		add, del := plan.Diff(want.Elements, build(tc.have).Elements)
		messages := 0
		conn, err := nftables.New(nftables.WithTestDial(func(batch []netlink.Message) ([]netlink.Message, error) {
			messages += len(batch)
			return nil, nil
		}))
		require.NoError(t, err)
		require.NoError(t, queue(conn, want, add, del))
		_ = conn.Flush()
		require.NotZero(t, messages)
		require.LessOrEqual(t, messages, 5, name)
	}
}
