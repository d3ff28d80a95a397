package kernel

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/liqod/liqod/netfabric/plan"
)

// fault is an ICMP error about a packet of UDP.
func fault(from, to string, kind, code byte, mtu uint32, about segment) segment {
	body := append([]byte{kind, code, 0, 0}, binary.BigEndian.AppendUint32(nil, mtu)...)
	proto := byte(unix.IPPROTO_ICMP)
	if addr(from).Is6() {
		proto = unix.IPPROTO_ICMPV6
	} else if checksum := sumOf(append(body, about.packet()...)); true {
		binary.BigEndian.PutUint16(body[2:], checksum)
	}
	s := segment{from: from, to: to, proto: proto, body: append(body, about.packet()...), checksum: -1}
	if proto == unix.IPPROTO_ICMPV6 { // its checksum is over the addresses, too
		s.checksum = 2
	}
	return s
}

// talk is a connection by UDP from a fixed port, over which an answer has come.
func talk(t *testing.T, from *space, port int, to netip.Addr) net.Conn {
	t.Helper()
	var c net.Conn
	var err error
	from.do(func() {
		c, err = net.DialUDP(map[bool]string{true: "udp4", false: "udp6"}[to.Is4()], &net.UDPAddr{Port: port}, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, echoPort)))
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(10*time.Second)))
	_, err = ask(c)
	require.NoError(t, err)
	return c
}

// A peer sees this cluster as it likes, also as another peer does. It then sends ICMP errors
// about connections with the other peer, which connection tracking takes for true. Neither
// they nor errors about the tunnel itself have an effect.
func TestNetnsForgedErrors(t *testing.T) {
	t.Parallel()
	internet, rome, milan := twins(t)
	m := newMallory(t, internet, rome, romeSeen)
	const port = 33333
	s4, s6 := milan.podAddrs(1)
	s4, s6 = moved(s4, milanSeen.pods4), moved(s6, milanSeen.pods6)
	pod4, pod6 := rome.podAddrs(0)
	me4, me6 := moved(pod4, romeSeen.pods4).String(), moved(pod6, romeSeen.pods6).String()
	node4 := moved(addr("10.70.0.30"), romeSeen.ext4).String() // an IP for milan names node 1
	gateway4 := moved(plan.GatewayAddr(rome.in.External[0]), romeSeen.ext4).String()
	connections := []net.Conn{talk(t, rome.pods[0], port, s4), talk(t, rome.pods[0], port, s6), talk(t, rome.nodes[1], port+1, s4)}
	from := func(source string, port uint16, to netip.Addr) segment {
		return datagramFrom(source, to.String(), port, echoPort, "?")
	}

	for _, tc := range []struct {
		name, counter string
		packet        segment
	}{
		{"port of a pod's connection", plan.DropFromPeer, fault("10.210.1.1", me4, 3, 3, 0, from(me4, port, s4))},
		{"size of a pod's packets", plan.DropFromPeer, fault("10.210.1.1", me4, 3, 4, 600, from(me4, port, s4))},
		{"port of a pod's connection, IPv6", plan.DropFromPeer, fault("fd00:ca::1", me6, 1, 4, 0, from(me6, port, s6))},
		{"size of a pod's packets, IPv6", plan.DropFromPeer, fault("fd00:ca::1", me6, 2, 0, 1280, from(me6, port, s6))},
		{"port of a node's connection", plan.DropFromPeer, fault("10.210.1.1", node4, 3, 3, 0, from(node4, port+1, s4))},
		{"size of the packets of a tunnel", plan.DropInvalid, fault("10.211.0.2", gateway4, 3, 4, 600,
			datagramFrom(rome.public.String(), milan.public.String(), plan.TunnelPort, plan.TunnelPort, "?"))},
		{"size of packets of no connection", plan.DropInvalid, fault("10.210.1.1", me4, 3, 4, 600, from(me4, 9, s4))},
	} {
		before := m.counters(t)
		before[tc.counter]++
		m.inject(t, tc.packet.packet())
		var after map[string]uint64
		require.Eventually(t, func() bool {
			after = m.counters(t)
			return after[tc.counter] >= before[tc.counter]
		}, 10*time.Second, 10*time.Millisecond, "%s: %s does not count", tc.name, tc.counter)
		require.Equal(t, before, after, tc.name)
	}
	for _, c := range connections {
		_, err := ask(c)
		require.NoError(t, err, "a connection with the other peer goes on")
	}
	require.Contains(t, rome.gateway.run(t, "nft", "list", "table", "inet", plan.TableName), "ip saddr . @th,192,32 != @back4", "nft lists what it cannot read")
	require.NotContains(t, rome.gateway.run(t, "ip", "route", "get", milan.public.String()), "mtu")
	require.NotContains(t, rome.pods[0].run(t, "ip", "route", "get", s4.String()), "mtu 600")

	// Of connections with itself a peer sends errors, to whom they are for.
	c, err := net.Conn(nil), error(nil)
	rome.pods[1].do(func() {
		c, err = net.DialUDP("udp", &net.UDPAddr{Port: port}, &net.UDPAddr{IP: net.ParseIP("10.210.1.1"), Port: 9})
	})
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(10*time.Second)))
	_, err = c.Write([]byte("?"))
	require.NoError(t, err)
	pod4, _ = rome.podAddrs(1)
	me4 = moved(pod4, romeSeen.pods4).String()
	m.inject(t, fault("10.210.7.7", me4, 3, 3, 0, datagramFrom(me4, "10.210.1.1", port, 9, "?")).packet())
	_, err = c.Read(make([]byte, 1))
	require.ErrorIs(t, err, unix.ECONNREFUSED)
}
