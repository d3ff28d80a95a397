package kernel

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/netfabric/plan"
)

// hostile begins the payload of each packet that must not arrive, and welcome that of others.
const (
	hostile = "hostile packet: "
	welcome = "welcome packet: "
)

// mallory is a peer of rome with a key that rome knows, and with a tunnel of its own making:
// it sends whatever it likes. Rome sees it under theirs, and gave it the views ours.
type mallory struct {
	*gateway
	victim       *city
	ours, theirs views
}

var (
	mallorySeen   = seen("10.210.0.0/16", "10.211.0.0/16", "fd00:ca::/56", "fd00:cb::/64")
	seenByMallory = seen("10.220.0.0/16", "10.221.0.0/16", "fd00:da::/56", "fd00:db::/64")
)

// newMallory connects mallory to the internet and makes it a peer of victim, which it sees as
// ours.
func newMallory(t *testing.T, internet *space, victim *city, ours views) *mallory {
	t.Helper()
	key, err := GenerateKey()
	require.NoError(t, err)
	m := &mallory{&gateway{space: newSpace(t), key: key}, victim, ours, mallorySeen}
	// Its kernel must not send packets that nobody asked for.
	m.run(t, "sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6")
	kubetest.Cable(t, internet.Netns, "to-mallory", m.space.Netns, "wan")
	internet.address(t, "to-mallory", "192.0.2.1/30")
	m.address(t, "wan", "192.0.2.2/30")
	m.run(t, "ip", "route", "add", "default", "via", "192.0.2.1")
	m.start(t)

	peer := victim.peer(&city{name: "mallory", gateway: m.gateway}, m.ours, m.theirs, netip.AddrPort{})
	victim.in.Peers = append(victim.in.Peers, peer)
	tcpOnly := []plan.Service{{Proto: "tcp", Port: echoPort}}
	victim.in.IPs = []plan.IP{ // of node 1 for milan, of node 0 for all
		{External: addr("10.70.0.30"), Real: nodeAddrs(1)[0], Peer: "milan", Ports: tcpOnly},
		{External: addr("10.70.0.31"), Real: nodeAddrs(0)[0], Ports: tcpOnly},
		{External: addr("fd00:70::31"), Real: nodeAddrs(0)[1], Ports: tcpOnly},
	}
	victim.apply(t)
	public := victim.gateway.key.Public()
	m.apply(t, plan.State{
		Links: []plan.Link{{Name: plan.TunnelDevice, Kind: plan.WireGuard, MTU: 1420}},
		Device: plan.Device{
			Name: plan.TunnelDevice, Port: plan.TunnelPort,
			Peers:   []plan.Tunnel{{Key: public, Endpoint: netip.AddrPortFrom(victim.public, plan.TunnelPort), Keepalive: 25 * time.Second}},
			Allowed: []plan.Allowed{{Key: public, Prefix: prefix("0.0.0.0/0")}, {Key: public, Prefix: prefix("::/0")}},
		},
	})
	return m
}

// inject sends IP packets into the tunnel as they are.
func (m *mallory) inject(t *testing.T, packets ...[]byte) {
	t.Helper()
	l, err := m.nl.LinkByName(plan.TunnelDevice)
	require.NoError(t, err)
	var fd int
	m.do(func() { fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM, 0) })
	require.NoError(t, err)
	defer unix.Close(fd)
	for _, p := range packets {
		protocol := uint16(unix.ETH_P_IP)
		if p[0]>>4 == 6 {
			protocol = unix.ETH_P_IPV6
		}
		to := unix.SockaddrLinklayer{Protocol: protocol<<8 | protocol>>8, Ifindex: l.Attrs().Index}
		require.NoError(t, unix.Sendto(fd, p, 0, &to))
	}
}

// shout sends UDP packets to the WireGuard port of the victim, outside of the tunnel.
func (m *mallory) shout(t *testing.T, packets ...[]byte) {
	t.Helper()
	var c net.Conn
	var err error
	m.do(func() { c, err = net.Dial("udp", netip.AddrPortFrom(m.victim.public, plan.TunnelPort).String()) })
	require.NoError(t, err)
	defer c.Close()
	for _, p := range packets {
		_, err := c.Write(p)
		require.NoError(t, err)
	}
}

// segment is an IP packet in the making.
type segment struct {
	from, to string
	proto    byte
	body     []byte // with the header of the transport, and room for its checksum
	checksum int    // where in body the checksum is; below 0: nowhere
	fragment uint16 // flags and offset, of IPv4
}

func datagram(from, to string, port uint16, text string) segment {
	return datagramFrom(from, to, 40000, port, text)
}

func datagramFrom(from, to string, source, port uint16, text string) segment {
	body := binary.BigEndian.AppendUint16(nil, source)
	body = binary.BigEndian.AppendUint16(body, port)
	body = binary.BigEndian.AppendUint16(body, uint16(8+len(text)))
	return segment{from: from, to: to, proto: unix.IPPROTO_UDP, body: append(append(body, 0, 0), text...), checksum: 6}
}

func tcpSegment(from, to string, port uint16, flags byte, text string) segment {
	body := make([]byte, 20, 20+len(text))
	binary.BigEndian.PutUint16(body, 40000)
	binary.BigEndian.PutUint16(body[2:], port)
	body[12], body[13] = 5<<4, flags
	return segment{from: from, to: to, proto: unix.IPPROTO_TCP, body: append(body, text...), checksum: 16}
}

// packet writes the headers and the checksums.
func (s segment) packet() []byte {
	from, to, body := addr(s.from), addr(s.to), slices.Clone(s.body)
	if s.checksum >= 0 {
		pseudo := binary.BigEndian.AppendUint32(slices.Concat(from.AsSlice(), to.AsSlice()), uint32(len(body)))
		sum := sumOf(slices.Concat(pseudo, []byte{0, 0, 0, s.proto}, body))
		binary.BigEndian.PutUint16(body[s.checksum:], sum)
	}
	if from.Is6() {
		head := []byte{0x60, 0, 0, 0, byte(len(body) >> 8), byte(len(body)), s.proto, 64}
		return slices.Concat(head, from.AsSlice(), to.AsSlice(), body)
	}
	head := []byte{0x45, 0, 0, 0, 0x77, 0x77, byte(s.fragment >> 8), byte(s.fragment), 64, s.proto, 0, 0}
	binary.BigEndian.PutUint16(head[2:], uint16(20+len(body)))
	head = slices.Concat(head, from.AsSlice(), to.AsSlice())
	binary.BigEndian.PutUint16(head[10:], sumOf(head))
	return append(head, body...)
}

// halves are the two fragments of a UDP packet.
func halves(s segment) [][]byte {
	whole := s.packet()[20:] // with the checksum
	first, second := s, s
	first.body, first.checksum, first.fragment = whole[:16], -1, 0x2000
	second.body, second.checksum, second.fragment = whole[16:], -1, 2
	return [][]byte{first.packet(), second.packet()}
}

// sumOf is the checksum of the Internet.
func sumOf(data []byte) uint16 {
	total := uint32(0)
	for i, b := range data {
		total += uint32(b) << (8 * (1 - i%2))
	}
	for total > 0xffff {
		total = total&0xffff + total>>16
	}
	return ^uint16(total)
}

// witness hears all packets in some namespaces, in whatever they are wrapped.
type witness struct {
	mu    sync.Mutex
	heard []string // where and what
}

func (w *witness) listen(t *testing.T, where string, s *space) {
	t.Helper()
	sniff(t, s, func(packet []byte) {
		for _, kind := range []string{hostile, welcome} {
			if _, text, found := strings.Cut(string(packet), kind); found {
				w.mu.Lock()
				w.heard = append(w.heard, where+": "+kind+text)
				w.mu.Unlock()
			}
		}
	})
}

// noConnection notes in w each packet of TCP that the tunnel of mallory answers with.
func (w *witness) noConnection(t *testing.T, m *mallory) {
	t.Helper()
	sniff(t, m.space, func(packet []byte) {
		proto := 9
		if packet[0]>>4 == 6 {
			proto = 6
		}
		if version := packet[0] >> 4; (version == 4 || version == 6) && packet[proto] == unix.IPPROTO_TCP {
			w.mu.Lock()
			w.heard = append(w.heard, fmt.Sprintf("mallory: %sTCP %x", hostile, packet))
			w.mu.Unlock()
		}
	})
}

// sniff calls heard with each packet that comes into a namespace, as the device has it.
func sniff(t *testing.T, s *space, heard func([]byte)) {
	t.Helper()
	var fd int
	var err error
	all := uint16(unix.ETH_P_ALL)
	s.do(func() { fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, int(all<<8|all>>8)) })
	require.NoError(t, err)
	require.NoError(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}))
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 4000)
		for ctx.Err() == nil {
			n, from, err := unix.Recvfrom(fd, buf, 0)
			if err == nil && n > 0 && from.(*unix.SockaddrLinklayer).Pkttype != unix.PACKET_OUTGOING {
				heard(buf[:n])
			}
		}
	}()
	t.Cleanup(func() {
		stop()
		<-done
		_ = unix.Close(fd)
	})
}

func (w *witness) has(part string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.heard, func(s string) bool { return strings.Contains(s, part) })
}

// counters are those of the victim's gateway, without what it sends by itself.
func (m *mallory) counters(t *testing.T) map[string]uint64 {
	t.Helper()
	got := m.victim.gateway.ask(t, request{State: m.victim.state(t, "gw", plan.Gateway)}).Counters
	delete(got, plan.DropToPeer) // its kernel sends multicasts of IPv6
	return got
}

// One peer of two does its worst. Nothing of it arrives, anywhere, and everything counts.
func TestNetnsHostilePeer(t *testing.T) {
	t.Parallel()
	internet, rome, milan := twins(t)
	m := newMallory(t, internet, rome, seenByMallory)
	w := &witness{}
	for name, s := range map[string]*space{
		"rome's switch": rome.net, "rome's pod 0": rome.pods[0], "rome's pod 1": rome.pods[1], "rome's node 0": rome.nodes[0],
		"rome's node 1": rome.nodes[1], "milan's gateway": milan.gateway.space, "milan's pod": milan.pods[0], "the internet": internet,
	} {
		w.listen(t, name, s)
	}
	w.noConnection(t, m)
	greets := func(text string) {
		require.Eventually(t, func() bool {
			m.inject(t, datagram("10.210.1.1", "10.220.1.10", echoPort, welcome+text+" 4").packet(),
				datagram("fd00:ca::1", "fd00:da:0:1::10", echoPort, welcome+text+" 6").packet())
			return w.has("rome's pod 0: "+welcome+text+" 4") && w.has("rome's pod 0: "+welcome+text+" 6")
		}, time.Minute, 50*time.Millisecond, "what is allowed arrives")
	}
	greets("first")
	for _, tc := range hostilePackets() {
		before := m.counters(t)
		before[tc.counter] += max(tc.times, 1)
		if tc.outside {
			m.shout(t, tc.packets...)
		} else {
			m.inject(t, tc.packets...)
		}
		var after map[string]uint64
		require.Eventually(t, func() bool {
			after = m.counters(t)
			return after[tc.counter] >= before[tc.counter]
		}, time.Minute, 10*time.Millisecond, "%s: %s does not count", tc.name, tc.counter)
		require.Equal(t, before, after, tc.name)
	}
	garbageProbes(t, m)
	greets("last")
	require.False(t, w.has(hostile), "%q", w.heard)

	s4, _ := milan.podAddrs(0)
	_, err := udp(rome.pods[0], moved(s4, milanSeen.pods4), time.Minute)
	require.NoError(t, err, "the other peer goes on")
}

// TestNetnsFloodOfAPeer: a peer that opens connections without end has its share of the places in the tables of the
// gateway and of the node. The other peer notices nothing.
func TestNetnsFloodOfAPeer(t *testing.T) {
	t.Parallel()
	internet, rome, milan := twins(t)
	m := newMallory(t, internet, rome, seenByMallory)
	w := &witness{}
	w.listen(t, "rome's pod 0", rome.pods[0])
	require.Eventually(t, func() bool {
		m.inject(t, datagram("10.210.1.1", "10.220.1.10", echoPort, welcome).packet())
		return w.has(welcome)
	}, time.Minute, 50*time.Millisecond)
	began := time.Now()
	for port := range 30 {
		var packets [][]byte
		for source := range 1000 {
			packets = append(packets, datagramFrom(fmt.Sprintf("10.210.%d.%d", 1+source/250, 1+source%250), "10.220.1.10", 40000, uint16(20000+port), "x").packet())
		}
		m.inject(t, packets...)
	}
	require.Eventually(t, func() bool { return m.counters(t)[plan.DropTooMany] > 0 }, time.Minute, 10*time.Millisecond)
	for _, s := range []*space{rome.gateway.space, rome.nodes[0]} {
		tracked, err := strconv.Atoi(strings.TrimSpace(s.run(t, "cat", "/proc/sys/net/netfilter/nf_conntrack_count")))
		require.NoError(t, err)
		require.LessOrEqual(t, tracked, 4000+500*int(time.Since(began)/time.Second+2))
	}
	s4, _ := milan.podAddrs(0)
	_, err := udp(rome.pods[0], moved(s4, milanSeen.pods4), time.Minute)
	require.NoError(t, err, "what rome opens goes on")
	c4, _ := rome.podAddrs(0)
	_, err = udp(milan.pods[0], moved(c4, romeSeen.pods4), time.Minute)
	require.NoError(t, err, "the other peer goes on")
}

type hostilePacket struct {
	name    string
	counter string
	times   uint64 // how often it counts; 0: once
	outside bool   // of the tunnel
	packets [][]byte
}

// hostilePackets has one thing of each kind. The addresses of mallory are 10.210.0.0/16 and
// 10.211.0.0/16, it was given 10.220.0.0/16 for pods and 10.221.0.0/16 for the external range.
func hostilePackets() []hostilePacket {
	var out []hostilePacket
	for _, d := range []struct{ name, counter, from, to string }{
		{"source of nobody", DropTunnelSource, "10.50.0.1", "10.220.1.10"},
		{"source of another peer", DropTunnelSource, "10.200.1.10", "10.220.1.10"},
		{"source of the other peer's gateway", DropTunnelSource, "10.71.0.2", "10.221.0.2"},
		{"source of a pod", DropTunnelSource, "10.244.2.10", "10.220.1.10"},
		{"source of a node", DropTunnelSource, "192.168.0.12", "10.220.1.10"},
		{"source is the host itself", DropTunnelSource, "127.0.0.1", "10.220.1.10"},
		{"source of nobody, IPv6", DropTunnelSource, "fd00:99::1", "fd00:da:0:1::10"},
		{"source of another peer, IPv6", DropTunnelSource, "fd00:aa:0:1::10", "fd00:da:0:1::10"},

		{"untranslated", plan.DropFromPeer, "10.210.1.1", "10.244.1.10"},
		{"untranslated, IPv6", plan.DropFromPeer, "fd00:ca::1", "fd00:10:244:1::10"},
		{"node", plan.DropFromPeer, "10.210.1.1", "192.168.0.11"},
		{"node, IPv6", plan.DropFromPeer, "fd00:ca::1", "fd00:1::11"},
		{"gateway on the network of nodes", plan.DropFromPeer, "10.210.1.1", "192.168.0.13"},
		{"gateway in the internet", plan.DropFromPeer, "10.210.1.1", "203.0.113.2"},
		{"gateway untranslated", plan.DropFromPeer, "10.211.0.2", "10.70.0.2"},
		{"service", plan.DropFromPeer, "10.210.1.1", "10.96.0.10"},
		{"pod of another peer", plan.DropFromPeer, "10.210.1.1", "10.200.1.10"},
		{"pod of another peer, IPv6", plan.DropFromPeer, "fd00:ca::1", "fd00:aa:0:1::10"},
		{"gateway of another peer", plan.DropFromPeer, "10.211.0.2", "10.71.0.2"},
		{"view of another peer", plan.DropFromPeer, "10.210.1.1", "10.201.0.20"},
		{"itself", plan.DropFromPeer, "10.210.1.1", "10.210.1.2"},
		{"the internet", plan.DropFromPeer, "10.210.1.1", "198.51.100.2"},
		{"the host itself", plan.DropFromPeer, "10.210.1.1", "127.0.0.1"},
		{"multicast", plan.DropFromPeer, "10.210.1.1", "224.0.0.1"},
		{"multicast, IPv6", plan.DropFromPeer, "fd00:ca::1", "ff02::1"},
		{"broadcast", plan.DropFromPeer, "10.210.1.1", "255.255.255.255"},
		{"link-local, IPv6", plan.DropFromPeer, "fd00:ca::1", "fe80::1"},
		{"metadata of a cloud", plan.DropFromPeer, "10.210.1.1", "169.254.169.254"},
		{"metadata of a cloud, IPv6", plan.DropFromPeer, "fd00:ca::1", "fd00:ec2::254"},
		{"pods of no node", plan.DropToOutside, "10.210.1.1", "10.220.99.1"},

		{"external address that no IP names", plan.DropToOutside, "10.210.1.1", "10.221.0.99"},
		{"IP of another peer", plan.DropToOutside, "10.210.1.1", "10.221.0.30"},
		{"IP, by another protocol", plan.DropToPort, "10.210.1.1", "10.221.0.31"},
		{"IP, by another protocol, IPv6", plan.DropToPort, "fd00:ca::1", "fd00:db::31"},
		{"gateway", plan.DropToGateway, "10.210.1.1", "10.221.0.1"},
		{"gateway, IPv6", plan.DropToGateway, "fd00:ca::1", "fd00:db::1"},
	} {
		out = append(out, hostilePacket{name: d.name, counter: d.counter, packets: [][]byte{datagram(d.from, d.to, echoPort, hostile+d.name).packet()}})
	}
	named := func(s string) string { return hostile + s }
	for _, port := range []uint16{22, 443, 6093, 6443, 10250, nodePort} {
		out = append(out, hostilePacket{name: fmt.Sprintf("connections to port %d of nodes and Services", port), counter: plan.DropFromPeer, times: 3, packets: [][]byte{
			tcpSegment("10.210.1.1", "192.168.0.11", port, 0x02, "").packet(), tcpSegment("fd00:ca::1", "fd00:1::11", port, 0x02, "").packet(),
			tcpSegment("10.210.1.1", "10.96.0.1", port, 0x02, "").packet(),
		}})
	}
	for _, proto := range []byte{unix.IPPROTO_IPIP, unix.IPPROTO_IPV6, unix.IPPROTO_ESP} {
		inner := datagram("10.200.1.10", "10.244.1.10", echoPort, named("tunnels of others")).packet()
		out = append(out, hostilePacket{name: fmt.Sprintf("protocol %d to the gateway", proto), counter: plan.DropToGateway, packets: [][]byte{
			segment{from: "10.210.1.1", to: "10.221.0.1", proto: proto, body: inner, checksum: -1}.packet(),
		}})
	}
	return append(out,
		hostilePacket{name: "fragments", counter: plan.DropFromPeer, packets: halves(datagram("10.210.1.1", "10.244.1.10", echoPort, named("fragments")))},
		hostilePacket{name: "overlay inside the tunnel", counter: plan.DropOverlay, packets: [][]byte{datagram("10.210.1.1", "10.221.0.1", plan.OverlayPort, named("overlay")).packet()}},
		hostilePacket{name: "tunnel inside the tunnel", counter: plan.DropToGateway, packets: [][]byte{datagram("10.210.1.1", "10.221.0.2", plan.TunnelPort, named("tunnel")).packet()}},
		hostilePacket{name: "connection to the gateway", counter: plan.DropToGateway, packets: [][]byte{tcpSegment("10.210.1.1", "10.221.0.2", 22, 0x02, "").packet()}},
		hostilePacket{name: "IP of another peer, at its port", counter: plan.DropToOutside, packets: [][]byte{tcpSegment("10.210.1.1", "10.221.0.30", echoPort, 0x02, "").packet()}},
		hostilePacket{name: "IP, at another port", counter: plan.DropToPort, packets: [][]byte{tcpSegment("10.210.1.1", "10.221.0.31", 22, 0x02, "").packet()}},
		hostilePacket{name: "IP, at another port, IPv6", counter: plan.DropToPort, packets: [][]byte{tcpSegment("fd00:ca::1", "fd00:db::31", 22, 0x02, "").packet()}},
		hostilePacket{name: "IP, at another port, in the middle of a connection", counter: plan.DropToPort, packets: [][]byte{
			tcpSegment("10.210.1.1", "10.221.0.31", 22, 0x18, named("middle")).packet(),
		}},
		hostilePacket{name: "IP, in fragments", counter: plan.DropToPort, packets: halves(datagram("10.210.1.1", "10.221.0.31", echoPort, named("parts")))},
		hostilePacket{name: "IP, the other way round", counter: plan.DropToPort, packets: [][]byte{datagramFrom("10.210.1.1", "10.221.0.31", echoPort, 22, named("turned")).packet()}},
		hostilePacket{name: "reset of no connection", counter: plan.DropInvalid, packets: [][]byte{tcpSegment("10.210.1.1", "10.220.1.10", echoPort, 0x04, named("reset")).packet()}},
		hostilePacket{name: "all flags of TCP", counter: plan.DropInvalid, packets: [][]byte{tcpSegment("10.210.1.1", "10.220.1.10", echoPort, 0x3f, named("flags")).packet()}},
		hostilePacket{name: "garbage to the WireGuard port", counter: DropTunnelGarbage, times: 2, outside: true, packets: [][]byte{
			[]byte(strings.Repeat("garbage ", 8)),
			append([]byte{1, 0, 0, 0}, make([]byte, 144)...), // as long as the first packet of a handshake
			[]byte("short"), // not even read
		}},
	)
}

// garbageProbes sends to the port of probes, which is open: the guards let it pass, and the
// gateway's Echo, which listens there, counts it by reason.
func garbageProbes(t *testing.T, m *mallory) {
	t.Helper()
	var socket *net.UDPConn
	var err error
	m.victim.gateway.do(func() {
		socket, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(10, 70, 0, 2), Port: plan.ProbePort})
	})
	require.NoError(t, err)
	defer socket.Close()
	require.NoError(t, socket.SetReadDeadline(time.Now().Add(time.Minute)))
	for _, from := range []string{"10.211.0.2", "10.211.0.3", "10.210.1.1"} {
		m.inject(t, datagram(from, "10.221.0.2", plan.ProbePort, hostile).packet())
		b := make([]byte, 100)
		n, source, err := socket.ReadFromUDPAddrPort(b)
		require.NoError(t, err)
		require.Equal(t, hostile, string(b[:n]))
		require.Equal(t, from, source.Addr().Unmap().String(), "the source is not translated")
	}
}
