package kernel

import (
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/liqod/liqod/netfabric/plan"
)

// nodePort leads to the echo of the pod on node 0, as kube-proxy's node ports do.
const nodePort = 30080

// listenUDP notes in w what arrives at a port of all addresses in a namespace.
func (w *witness) listenUDP(t *testing.T, where string, s *space, port int) {
	t.Helper()
	var c *net.UDPConn
	var err error
	s.do(func() { c, err = net.ListenUDP("udp", &net.UDPAddr{Port: port}) })
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 4000)
		for {
			n, err := c.Read(buf)
			if err != nil {
				return
			}
			w.mu.Lock()
			w.heard = append(w.heard, where+": "+string(buf[:n]))
			w.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = c.Close()
		<-done
	})
}

// listenTCP accepts connections at a port of all addresses in a namespace.
func listenTCP(t *testing.T, s *space, port int) {
	t.Helper()
	var l net.Listener
	var err error
	s.do(func() { l, err = net.Listen("tcp", fmt.Sprintf(":%d", port)) })
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
}

// vxlan wraps a packet for the overlay device of node 0 of the lab.
func vxlan(inner []byte) string {
	head := binary.BigEndian.AppendUint32(nil, 0x08000000)
	head = binary.BigEndian.AppendUint32(head, plan.OverlayID<<8)
	mac := []byte{0x02, 0xfa, 192, 168, 0, 11}
	return string(slices.Concat(head, mac, []byte{0x02, 0xfa, 192, 168, 0, 13}, []byte{0x08, 0x00}, inner))
}

// A CNI gives each node addresses within the range of its pods. A peer reaches none of them,
// at no port, also not a node port or the overlay. What an IP names is reached.
func TestNetnsPeerReachesNoNode(t *testing.T) {
	t.Parallel()
	internet, rome, _ := twins(t)
	m := newMallory(t, internet, rome, seenByMallory)
	w := &witness{}
	node := rome.nodes[0]
	node.run(t, "sh", "-ec", `nft -f - <<EOF
table inet nodeports {
	chain pre { type nat hook prerouting priority -100;
		fib daddr type local meta nfproto ipv4 udp dport 30080 dnat ip to 10.244.1.10:7000
		fib daddr type local meta nfproto ipv6 udp dport 30080 dnat ip6 to [fd00:10:244:1::10]:7000
		fib daddr type local meta nfproto ipv4 tcp dport 30080 dnat ip to 10.244.1.10:7000
	}
}
EOF`)
	node.address(t, "lo", "10.244.1.0/32") // as some CNIs give the node the first of the range
	for _, port := range []int{22, 6093, 6443, 10250} {
		listenTCP(t, node, port)
	}
	w.noConnection(t, m)
	w.listenUDP(t, "node 0", node, 9999)
	w.listenUDP(t, "node 0, IP", node, echoPort)
	w.listen(t, "pod 0", rome.pods[0])

	spoofed := datagram("10.200.1.10", "10.244.1.10", echoPort, hostile+"in VXLAN").packet()
	type attack struct {
		name, counter string
		onNode        bool
		packet        segment
	}
	var connections []attack
	for _, to := range []string{"10.220.1.0", "10.220.1.1", "fd00:da:0:1::1"} {
		from := map[bool]string{true: "10.210.1.1", false: "fd00:ca::1"}[addr(to).Is4()]
		for _, port := range []uint16{22, 6093, 6443, 10250, nodePort, 9} {
			connections = append(connections, attack{fmt.Sprintf("connection to %s, port %d", to, port), plan.DropToNode, true, tcpSegment(from, to, port, 0x02, "")})
		}
	}
	for _, tc := range append(connections, []attack{
		{"address of the CNI", plan.DropToNode, true, datagram("10.210.1.1", "10.220.1.1", 9999, hostile)},
		{"address of the CNI, IPv6", plan.DropToNode, true, datagram("fd00:ca::1", "fd00:da:0:1::1", 9999, hostile)},
		{"node port", plan.DropToNode, true, datagram("10.210.1.1", "10.220.1.1", nodePort, hostile)},
		{"node port, IPv6", plan.DropToNode, true, datagram("fd00:ca::1", "fd00:da:0:1::1", nodePort, hostile)},
		{"middle of a connection", plan.DropToNode, true, tcpSegment("10.210.1.1", "10.220.1.1", 10255, 0x18, hostile)},
		{"answer of no connection", plan.DropInvalid, false, tcpSegment("10.210.1.1", "10.220.1.1", 10256, 0x12, "")},
		{"reset of no connection", plan.DropInvalid, false, tcpSegment("10.210.1.1", "10.220.1.1", 10257, 0x04, "")},
		{"IPIP", plan.DropToNode, true, segment{from: "10.210.1.1", to: "10.220.1.1", proto: 4, body: spoofed, checksum: -1}},
		{"overlay of a CNI", plan.DropToNode, true, datagram("10.210.1.1", "10.220.1.0", 8472, vxlan(spoofed))},
		{"echo request", plan.DropToNode, true, segment{from: "10.210.1.1", to: "10.220.1.1", proto: 1, body: []byte{8, 0, 0xf7, 0xfd, 0, 1, 0, 1}, checksum: -1}},
		{"broadcast", plan.DropToNode, true, datagram("10.210.1.1", "10.220.1.255", 9999, hostile)},
		{"other source port", plan.DropToNode, true, datagramFrom("10.210.1.1", "10.220.1.1", plan.ProbePort, 9999, hostile)},
		{"overlay of the node", plan.DropOverlay, false, datagram("10.210.1.1", "10.220.1.1", plan.OverlayPort, vxlan(spoofed))},
		{"overlay of the node, IPv6", plan.DropOverlay, false, datagram("fd00:ca::1", "fd00:da:0:1::1", plan.OverlayPort, vxlan(spoofed))},
		{"overlay, to a pod", plan.DropOverlay, false, datagram("10.210.1.1", "10.220.1.10", plan.OverlayPort, vxlan(spoofed))},
	}...) {
		count := func() uint64 {
			if !tc.onNode {
				return m.counters(t)[tc.counter]
			}
			all, err := rome.kernels[0].Counters(t.Context())
			require.NoError(t, err)
			return all[tc.counter]
		}
		before := count()
		m.inject(t, tc.packet.packet())
		require.Eventually(t, func() bool { return count() > before }, time.Minute, 10*time.Millisecond, "%s: %s does not count", tc.name, tc.counter)
	}
	require.Eventually(t, func() bool {
		m.inject(t, datagram("10.210.1.1", "10.220.1.10", echoPort, welcome+"pod").packet())
		return w.has("pod 0: " + welcome + "pod")
	}, time.Minute, 50*time.Millisecond, "pods are reached")
	require.False(t, w.has(hostile), "%q", w.heard)

	// What an IP names at all ports is reached at all of its ports.
	rome.in.IPs = append(rome.in.IPs, plan.IP{External: addr("10.70.0.32"), Real: nodeAddrs(0)[0]})
	rome.apply(t)
	require.Eventually(t, func() bool {
		m.inject(t, datagram("10.210.1.1", "10.221.0.32", echoPort, welcome+"IP").packet())
		return w.has("node 0, IP: " + welcome + "IP")
	}, time.Minute, 50*time.Millisecond, "an IP for all ports of the node is reached")
}

// Pods and strangers are no ends of the overlay: neither a node nor a gateway takes VXLAN from
// them, whose packet inside could have any source. A pod on the node of a gateway is none
// either, though the CNI gives its packets the address of that node. With AnySender they are.
func TestNetnsOverlayTakesKnownSenders(t *testing.T) {
	t.Parallel()
	_, rome, _ := twins(t)
	rome.in.Gateways[0].Node = "node-1"
	rome.apply(t)
	stranger := newSpace(t)
	rome.plug(t, "stranger", stranger, "192.168.0.99/24")
	w := &witness{}
	w.listen(t, "pod 0", rome.pods[0])
	inside := func(text string) string {
		return vxlan(datagram("10.200.1.10", "10.244.1.10", echoPort, text).packet())
	}
	dropped := func() uint64 {
		sum := rome.counters(t)[plan.DropOverlay]
		for _, k := range rome.kernels {
			all, err := k.Counters(t.Context())
			require.NoError(t, err)
			sum += all[plan.DropOverlay]
		}
		return sum
	}
	const node, gateway = "192.168.0.11", "192.168.0.13"
	for name, tc := range map[string]struct {
		from     *space
		source   string
		to, text string
	}{
		"stranger to node":           {stranger, "192.168.0.99", node, hostile},
		"stranger to gateway":        {stranger, "192.168.0.99", gateway, hostile},
		"pod to node":                {rome.pods[0], "10.244.1.10", "192.168.0.12", hostile}, // the CNI puts in the address of node 0
		"pod beside gateway to node": {rome.pods[1], "10.244.2.10", node, hostile},
		"pod to gateway":             {rome.pods[0], "10.244.1.10", gateway, hostile},
		"pod to its own node":        {rome.pods[1], "10.244.2.10", "192.168.0.12", hostile},
	} {
		before := dropped()
		raw(t, tc.from, datagram(tc.source, tc.to, plan.OverlayPort, inside(tc.text)))
		require.Eventually(t, func() bool { return dropped() > before }, 10*time.Second, 10*time.Millisecond, name)
	}
	require.False(t, w.has(hostile), "%q", w.heard)

	// What is open: a host in the network of the nodes that forges the address of a gateway.
	require.Eventually(t, func() bool {
		raw(t, stranger, datagram(gateway, node, plan.OverlayPort, inside(welcome+"forged")))
		return w.has("pod 0: " + welcome + "forged")
	}, time.Minute, 50*time.Millisecond)

	rome.in.AnySender = true
	rome.apply(t)
	require.Eventually(t, func() bool {
		raw(t, rome.pods[1], datagram("10.244.2.10", node, plan.OverlayPort, inside(welcome+"any")))
		return w.has("pod 0: " + welcome + "any")
	}, time.Minute, 50*time.Millisecond)
}

// raw sends an IPv4 packet with any source by the routes of a namespace.
func raw(t *testing.T, from *space, s segment) {
	t.Helper()
	var fd int
	var err error
	from.do(func() { fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW) })
	require.NoError(t, err)
	defer unix.Close(fd)
	require.NoError(t, unix.Sendto(fd, s.packet(), 0, &unix.SockaddrInet4{Addr: addr(s.to).As4()}))
}

// A pod that may send any packet does not reach gateways, and sends to peers neither in the
// name of another peer nor of a pod on another node. A host in the network of the nodes does not
// pass the gateway. What is open: it passes a node, as which the peer sees it.
func TestNetnsHostilePodAndHost(t *testing.T) {
	t.Parallel()
	_, rome, milan := twins(t)
	pod, node := rome.pods[1], rome.nodes[1]
	node.run(t, "sh", "-c", "echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter; echo 0 > /proc/sys/net/ipv4/conf/pod/rp_filter") // nor does the CNI check sources
	for name, tc := range map[string]struct {
		counter string
		packet  segment
	}{
		"source of a peer":             {plan.DropFromNode, datagram("10.200.1.10", "10.200.2.10", echoPort, hostile)},
		"gateway":                      {plan.DropToGateway, datagram("10.244.2.10", "10.70.0.1", 22, hostile)},
		"its tunnel":                   {plan.DropToGateway, datagram("10.244.2.10", "10.70.0.2", plan.TunnelPort, hostile)},
		"connection to a gateway":      {plan.DropToGateway, tcpSegment("10.244.2.10", "10.70.0.2", 8080, 0x02, "")},
		"VXLAN to a gateway":           {plan.DropOverlay, datagram("10.244.2.10", "10.70.0.1", plan.OverlayPort, hostile)},
		"address that no peer has":     {plan.DropFromNode, datagram("10.244.2.10", "10.70.0.99", echoPort, hostile)},
		"error about another's packet": {plan.DropInvalid, fault("10.244.2.10", "10.70.0.1", 3, 4, 600, datagram("192.168.0.13", "203.0.113.9", plan.TunnelPort, "?"))},
	} {
		before := rome.counters(t)[tc.counter]
		raw(t, pod, tc.packet)
		require.Eventually(t, func() bool { return rome.counters(t)[tc.counter] > before }, 10*time.Second, 10*time.Millisecond, "%s: %s does not count", name, tc.counter)
	}

	gateway := moved(plan.GatewayAddr(rome.in.External[0]), romeSeen.ext4).String()
	sources := make(chan string, 100)
	sniff(t, milan.pods[0], func(packet []byte) { // behind an Ethernet header of 14 bytes
		if strings.Contains(string(packet), welcome) {
			sources <- net.IP(packet[14+12 : 14+16]).String()
		}
	})
	arrived := func() string {
		select {
		case source := <-sources:
			return source
		case <-time.After(time.Minute):
			return "nobody"
		}
	}
	raw(t, pod, datagram("10.244.1.10", "10.200.1.10", echoPort, welcome))
	require.Equal(t, gateway, arrived(), "a pod in the name of one on another node")

	stranger := newSpace(t)
	rome.plug(t, "stranger", stranger, "192.168.0.99/24")
	stranger.run(t, "ip", "route", "add", "10.200.0.0/16", "via", "192.168.0.13")
	before := rome.counters(t)[plan.DropFromOutside]
	raw(t, stranger, datagram("192.168.0.99", "10.200.1.10", echoPort, hostile))
	require.Eventually(t, func() bool { return rome.counters(t)[plan.DropFromOutside] > before }, 10*time.Second, 10*time.Millisecond)
	stranger.run(t, "ip", "route", "replace", "10.200.0.0/16", "via", "192.168.0.12")
	raw(t, stranger, datagram("192.168.0.99", "10.200.1.10", echoPort, welcome))
	require.Equal(t, gateway, arrived(), "a host by way of a node")
}
