package kernel

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/netfabric/plan"
)

func TestNetnsPodsOfTwins(t *testing.T) {
	t.Parallel()
	_, rome, milan := twins(t)
	everyPod(t, rome, milan, romeSeen, milanSeen)
	everyPod(t, milan, rome, milanSeen, romeSeen)
	fromNodes(t, rome, milan, romeSeen, milanSeen)
	errorsComeBack(t, rome, milan, milanSeen)

	// The checksum of the answer is 0xffff on the tunnel.
	_, s6 := milan.podAddrs(1)
	var special net.Conn
	var err error
	rome.pods[1].do(func() {
		special, err = net.DialUDP("udp", &net.UDPAddr{Port: 49461}, net.UDPAddrFromAddrPort(netip.AddrPortFrom(moved(s6, milanSeen.pods6), echoPort)))
	})
	require.NoError(t, err)
	defer special.Close()
	require.NoError(t, special.SetDeadline(time.Now().Add(10*time.Second)))
	_, err = ask(special)
	require.NoError(t, err)

	s4, _ := rome.podAddrs(1)
	c4, _ := rome.podAddrs(0)
	got, err := tcp(rome.pods[0], s4)
	require.NoError(t, err)
	require.Equal(t, c4, got, "nothing within a cluster is translated")
}

// Where ranges differ nothing is translated, and only sources that no pod has are changed.
func TestNetnsPodsOfClustersThatDiffer(t *testing.T) {
	t.Parallel()
	rome, paris := &city{name: "rome", pod: 244, external: 70}, &city{name: "paris", pod: 50, external: 51}
	newLab(t, rome, paris, rome.own(), paris.own())
	everyPod(t, rome, paris, rome.own(), paris.own())
	everyPod(t, paris, rome, paris.own(), rome.own())
	fromNodes(t, rome, paris, rome.own(), paris.own())
	errorsComeBack(t, rome, paris, paris.own())
}

// everyPod connects each pod of from with each of to, in every way.
func everyPod(t *testing.T, from, to *city, fromSeen, toSeen views) {
	t.Helper()
	for i, client := range from.pods {
		for j := range to.pods {
			c4, c6 := from.podAddrs(i)
			s4, s6 := to.podAddrs(j)
			for _, f := range []struct{ client, server netip.Addr }{
				{moved(c4, fromSeen.pods4), moved(s4, toSeen.pods4)},
				{moved(c6, fromSeen.pods6), moved(s6, toSeen.pods6)},
			} {
				name := from.name + ": " + f.client.String() + " > " + f.server.String()
				got, err := tcp(client, f.server)
				require.NoError(t, err, name)
				require.Equal(t, f.client, got, name)
				got, err = udp(client, f.server, 10*time.Second)
				require.NoError(t, err, name)
				require.Equal(t, f.client, got, name)
				require.NoError(t, ping(client, f.server), name)
			}
		}
	}
}

// fromNodes connects processes of nodes, which are seen under the address of the gateway.
func fromNodes(t *testing.T, from, to *city, fromSeen, toSeen views) {
	t.Helper()
	for i, client := range from.nodes {
		s4, s6 := to.podAddrs(i)
		got, err := tcp(client, moved(s4, toSeen.pods4))
		require.NoError(t, err)
		require.Equal(t, moved(plan.GatewayAddr(from.in.External[0]), fromSeen.ext4), got)
		got, err = tcp(client, moved(s6, toSeen.pods6))
		require.NoError(t, err)
		require.Equal(t, moved(plan.GatewayAddr(from.in.External[1]), fromSeen.ext6), got)
	}
}

// errorsComeBack provokes ICMP errors of pods, and of nodes, whose addresses the peer does
// not know. An error with a wrong checksum would not be heard.
func errorsComeBack(t *testing.T, from, to *city, toSeen views) {
	t.Helper()
	s4, s6 := to.podAddrs(0)
	for _, server := range []netip.Addr{moved(s4, toSeen.pods4), moved(s6, toSeen.pods6)} {
		require.ErrorIs(t, nobody(from.pods[0], server), unix.ECONNREFUSED, "%s", server)
	}
	none4, none6 := s4.Next(), s6.Next()
	to.nodes[0].run(t, "ip", "route", "add", "prohibit", none4.String())
	to.nodes[0].run(t, "ip", "-6", "route", "add", "prohibit", none6.String())
	for _, server := range []netip.Addr{moved(none4, toSeen.pods4), moved(none6, toSeen.pods6)} {
		_, err := udp(from.pods[0], server, 10*time.Second)
		var errno unix.Errno
		require.ErrorAs(t, err, &errno, "%s", server)
		require.Contains(t, []unix.Errno{unix.EACCES, unix.EHOSTUNREACH}, errno, "%s", server)
	}
}

// An IP leads the peers that it is for to its ports, and nobody to anything else. The host
// opens connections as before.
func TestNetnsExposedAtAPort(t *testing.T) {
	t.Parallel()
	internet, rome, milan := twins(t)
	echo(t, rome.nodes[0])
	echo(t, internet)
	external := map[netip.Addr]netip.Addr{
		addr("10.70.0.20"): nodeAddrs(0)[0], addr("fd00:70::20"): nodeAddrs(0)[1], addr("10.70.0.21"): rome.public.Prev(),
	}
	view := func(a netip.Addr) netip.Addr {
		if a.Is4() {
			return moved(a, romeSeen.ext4)
		}
		return moved(a, romeSeen.ext6)
	}
	expose := func(peer string, ports ...plan.Service) {
		rome.in.IPs = nil
		for e, real := range external {
			rome.in.IPs = append(rome.in.IPs, plan.IP{External: e, Real: real, Peer: peer, Ports: ports})
		}
		rome.apply(t)
	}
	reached := func(network string, want bool, counter map[bool]string) {
		t.Helper()
		for e := range external {
			before := rome.counters(t)
			ask := map[string]func() error{
				"tcp": func() error { _, err := tcp(milan.pods[0], view(e)); return err },
				"udp": func() error { _, err := udp(milan.pods[0], view(e), time.Minute); return err },
			}[network]
			if want {
				require.NoError(t, ask(), "%s to %s", network, e)
				continue
			}
			c, err := dial(milan.pods[0], network, view(e), time.Second)
			if network == "udp" {
				_, err = c.Write([]byte("?"))
				require.NoError(t, err)
				_ = c.Close()
			} else {
				require.Error(t, err)
			}
			name := counter[e == addr("fd00:70::20")]
			require.Eventually(t, func() bool { return name == "" || rome.counters(t)[name] > before[name] }, time.Minute, 10*time.Millisecond,
				"%s to %s is not counted as %s", network, e, name)
		}
	}
	atPort := plan.Service{Proto: "tcp", Port: echoPort}
	toPort := map[bool]string{false: plan.DropToPort, true: plan.DropToPort}

	expose("milan", atPort)
	reached("tcp", true, nil)
	reached("udp", false, toPort)
	s4, _ := milan.podAddrs(0)
	got, err := tcp(rome.nodes[0], moved(s4, milanSeen.pods4))
	require.NoError(t, err, "the host begins")
	require.Equal(t, view(addr("10.70.0.20")), got)
	require.NoError(t, ping(rome.nodes[0], moved(s4, milanSeen.pods4)))

	expose("", plan.Service{Proto: "udp", Port: echoPort}, plan.Service{Proto: "tcp", Port: echoPort + 1})
	reached("udp", true, nil)
	reached("tcp", false, toPort)

	// No route leads to an IPv6 address of the external range, so nothing drops it.
	expose("paris", atPort)
	reached("tcp", false, map[bool]string{false: plan.DropToOutside})

	expose("milan")
	reached("tcp", true, nil)
	reached("udp", true, nil)
}

// counters are those of the gateway.
func (c *city) counters(t *testing.T) map[string]uint64 {
	t.Helper()
	return c.gateway.ask(t, request{State: c.state(t, "gw", plan.Gateway)}).Counters
}

// The source of an ICMP error is written with the checksums that go with it: the error is
// not heard otherwise.
func TestNetnsSourceOfErrors(t *testing.T) {
	t.Parallel()
	client, router := newSpace(t), newSpace(t)
	kubetest.Cable(t, client.Netns, "eth0", router.Netns, "eth0")
	client.address(t, "eth0", "10.9.0.1/24", "fd09::1/64")
	router.address(t, "eth0", "10.9.0.2/24", "fd09::2/64")
	router.run(t, "sh", "-ec", `
echo 1 > /proc/sys/net/ipv4/ip_forward
echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
ip route add prohibit 10.8.0.0/16
ip -6 route add prohibit fd08::/16`)
	client.run(t, "sh", "-ec", "ip route add default via 10.9.0.2; ip -6 route add default via fd09::2")
	k, c := kernelAt(t, router.FD)
	applied(t, k, c, plan.State{Table: plan.Table{
		Name: plan.TableName,
		Sets: []plan.Set{
			{Name: "gateway4", Family: plan.V4, Keys: 1, Value: plan.Address},
			{Name: "gateway6", Family: plan.V6, Keys: 1, Value: plan.Address},
		},
		Chains: []plan.Chain{{Name: "guard_out", Hook: plan.HookPostrouting, Priority: plan.LastGuardPriority, Rules: []plan.Match{
			{Family: plan.V4, Proto: "icmp", Do: plan.SetSrc, Map: plan.Lookup{Name: "gateway4", Key: plan.Dst}},
			{Family: plan.V6, Proto: "icmp", Do: plan.SetSrc, Map: plan.Lookup{Name: "gateway6", Key: plan.Dst}},
		}}},
		Elements: []plan.Element{
			{Set: "gateway4", A: prefix("10.9.0.1/32"), Value: prefix("10.7.0.1/32")},
			{Set: "gateway6", A: prefix("fd09::1/128"), Value: prefix("fd07::1/128")},
		},
	}})
	for _, tc := range []struct{ network, server, source string }{
		{"ip4:icmp", "10.8.0.1", "10.7.0.1"},
		{"ip6:ipv6-icmp", "fd08::1", "fd07::1"},
	} {
		var packets net.PacketConn
		var err error
		client.do(func() { packets, err = net.ListenPacket(tc.network, "") })
		require.NoError(t, err)
		defer packets.Close()
		require.NoError(t, packets.SetDeadline(time.Now().Add(10*time.Second)))
		require.Error(t, nobody(client, addr(tc.server)))
		for found := false; !found; {
			buf := make([]byte, 1500)
			_, from, err := packets.ReadFrom(buf)
			require.NoError(t, err, tc.source)
			found = from.String() == tc.source
		}
	}
}
