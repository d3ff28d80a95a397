package kernel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"go.uber.org/zap"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/netfabric/plan"
)

// gatewayKey is the environment variable with the private key of a test process that is a
// gateway, and nothing else.
const gatewayKey = "LIQOD_TEST_GATEWAY"

func TestMain(m *testing.M) {
	if text := os.Getenv(gatewayKey); text != "" {
		if err := serve(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// request is what a gateway is to do: apply the state, and then dial a peer.
type request struct {
	State  plan.State
	Redial string
}

// answer is what a gateway says to it: the error, its peers and its counters.
type answer struct {
	Error    string
	Peers    map[string]Peer
	Counters map[string]uint64
}

// serve does what comes in, one after the other.
func serve(key string) error {
	private, err := ParseKey(key)
	if err != nil {
		return err
	}
	k := New(Config{Key: private, Log: zap.NewNop()})
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var do request
		if err := in.Decode(&do); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var a answer
		err := k.Apply(context.Background(), do.State)
		if err == nil && do.Redial != "" {
			err = k.Redial(do.State.Device, do.Redial)
		}
		if err == nil {
			_, a.Peers, err = k.Tunnel()
		}
		if err == nil {
			a.Counters, err = k.Counters(context.Background())
		}
		if err != nil {
			a.Error = err.Error()
		}
		if err := out.Encode(a); err != nil {
			return err
		}
	}
}

// gateway is a gateway in a namespace, with a process of its own.
type gateway struct {
	*space
	key Key
	mu  sync.Mutex
	in  *json.Encoder
	out *json.Decoder
}

func (g *gateway) start(t *testing.T) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), gatewayKey+"="+g.key.Private())
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	g.do(func() { err = cmd.Start() })
	require.NoError(t, err)
	g.in, g.out = json.NewEncoder(stdin), json.NewDecoder(stdout)
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
}

func (g *gateway) apply(t *testing.T, want plan.State) map[string]Peer {
	t.Helper()
	return g.ask(t, request{State: want}).Peers
}

func (g *gateway) ask(t *testing.T, do request) answer {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	require.NoError(t, g.in.Encode(do))
	var a answer
	require.NoError(t, g.out.Decode(&a))
	require.Empty(t, a.Error)
	return a
}

// city is a cluster of the lab: a gateway and two nodes on one network, a pod on each node.
// All cities have the same addresses of nodes.
type city struct {
	name          string
	pod, external int        // second number of the ranges
	public        netip.Addr // of the gateway

	in      plan.Input
	net     *space // the switch
	gateway *gateway
	nodes   []*space
	kernels []*Kernel
	pods    []*space
}

func (c *city) podAddrs(i int) (v4, v6 netip.Addr) {
	return addr(fmt.Sprintf("10.%d.%d.10", c.pod, i+1)), addr(fmt.Sprintf("fd00:10:%d:%d::10", c.pod, i+1))
}

// own are the ranges of the city as it has them.
func (c *city) own() views {
	return views{
		prefix(fmt.Sprintf("10.%d.0.0/16", c.pod)), prefix(fmt.Sprintf("10.%d.0.0/16", c.external)),
		prefix(fmt.Sprintf("fd00:10:%d::/56", c.pod)), prefix(fmt.Sprintf("fd00:%d::/64", c.external)),
	}
}

func nodeAddrs(i int) []netip.Addr {
	return addrs(fmt.Sprintf("192.168.0.%d", 11+i), fmt.Sprintf("fd00:1::%d", 11+i))
}

// build builds the network of a cluster as a plain one is, with a CNI that masquerades
// whatever leaves the pod range.
func (c *city) build(t *testing.T, internet *space) {
	t.Helper()
	key, err := GenerateKey()
	require.NoError(t, err)
	c.net, c.gateway = newSpace(t), &gateway{space: newSpace(t), key: key}
	own, public := c.own(), c.public
	c.in = plan.Input{
		Pods:     []netip.Prefix{own.pods4, own.pods6},
		External: []netip.Prefix{own.ext4, own.ext6},
		Gateways: []plan.Replica{{Name: "gw", Number: 1, Addrs: addrs("192.168.0.13", "fd00:1::13")}},
		Via:      "gw",
		Ports:    plan.Ports{Overlay: plan.OverlayPort, Tunnel: plan.TunnelPort},
		MTU:      1500,
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "sw"
	require.NoError(t, c.net.nl.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}))
	c.net.run(t, "ip", "link", "set", "sw", "up")
	c.plug(t, "gw", c.gateway.space, "192.168.0.13/24", "fd00:1::13/64")

	kubetest.Cable(t, internet.Netns, "to-"+c.name, c.gateway.space.Netns, "wan")
	internet.address(t, "to-"+c.name, public.Prev().String()+"/30")
	c.gateway.address(t, "wan", public.String()+"/30")
	c.gateway.run(t, "ip", "route", "add", "default", "via", public.Prev().String())
	for i := range 2 {
		c.node(t, i)
	}
	c.gateway.start(t)
}

func (c *city) plug(t *testing.T, port string, s *space, cidrs ...string) {
	t.Helper()
	kubetest.Cable(t, c.net.Netns, port, s.Netns, "eth0")
	c.net.run(t, "ip", "link", "set", port, "master", "sw")
	s.address(t, "eth0", cidrs...)
}

func (c *city) node(t *testing.T, i int) {
	t.Helper()
	v4, v6 := c.podAddrs(i)
	host := plan.Host{
		Name: fmt.Sprintf("node-%d", i), Addrs: nodeAddrs(i),
		Pods: prefixes(fmt.Sprintf("10.%d.%d.0/24", c.pod, i+1), fmt.Sprintf("fd00:10:%d:%d::/64", c.pod, i+1)),
	}
	c.in.Nodes = append(c.in.Nodes, host)
	n, p := newSpace(t), newSpace(t)
	c.nodes, c.pods = append(c.nodes, n), append(c.pods, p)
	c.plug(t, host.Name, n, host.Addrs[0].String()+"/24", host.Addrs[1].String()+"/64")
	kubetest.Cable(t, n.Netns, "pod", p.Netns, "eth0")
	n.address(t, "pod", host.Pods[0].Addr().Next().String()+"/24", host.Pods[1].Addr().Next().String()+"/64")
	p.address(t, "eth0", v4.String()+"/24", v6.String()+"/64")
	p.run(t, "sh", "-ec", fmt.Sprintf("ip route add default via %s; ip -6 route add default via %s", host.Pods[0].Addr().Next(), host.Pods[1].Addr().Next()))
	other := 1 - i
	n.run(t, "sh", "-ec", fmt.Sprintf(`
echo 1 > /proc/sys/net/ipv4/ip_forward
echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
echo 1 > /proc/sys/net/ipv4/conf/all/rp_filter
ip route add 10.%[1]d.%[2]d.0/24 via %[3]s
ip -6 route add fd00:10:%[1]d:%[2]d::/64 via %[4]s
nft -f - <<EOF
table inet cni {
	chain post { type nat hook postrouting priority 100;
		ip saddr 10.%[1]d.0.0/16 ip daddr != 10.%[1]d.0.0/16 masquerade
		ip6 saddr fd00:10:%[1]d::/56 ip6 daddr != fd00:10:%[1]d::/56 masquerade
	}
}
EOF`, c.pod, other+1, nodeAddrs(other)[0], nodeAddrs(other)[1]))
	k, _ := kernelAt(t, n.FD)
	c.kernels = append(c.kernels, k)
}

// views are the ranges under which one city sees the other's pods and external range.
type views struct{ pods4, ext4, pods6, ext6 netip.Prefix }

func seen(pods4, ext4, pods6, ext6 string) views {
	return views{prefix(pods4), prefix(ext4), prefix(pods6), prefix(ext6)}
}

// meet makes a and b peers, a seen as va by b, b seen as vb by a. b waits to be dialled.
func meet(a, b *city, va, vb views) {
	a.in.Peers = append(a.in.Peers[:0:0], a.peer(b, va, vb, netip.AddrPortFrom(b.public, plan.TunnelPort)))
	b.in.Peers = append(b.in.Peers[:0:0], b.peer(a, vb, va, netip.AddrPort{}))
}

func (c *city) peer(other *city, ours, theirs views, endpoint netip.AddrPort) plan.Peer {
	return plan.Peer{
		ID:     other.name,
		Theirs: plan.Ranges{Pods: []netip.Prefix{theirs.pods4, theirs.pods6}, External: []netip.Prefix{theirs.ext4, theirs.ext6}},
		Ours: plan.Maps{
			{Own: c.in.Pods[0], View: ours.pods4}, {Own: c.in.External[0], View: ours.ext4},
			{Own: c.in.Pods[1], View: ours.pods6}, {Own: c.in.External[1], View: ours.ext6},
		},
		Gateways: []plan.Remote{{Number: 1, Key: other.gateway.key.Public(), Endpoint: endpoint}},
		Use:      1,
		Reach:    c.in.Pods,
	}
}

// state plans a host of the city.
func (c *city) state(t *testing.T, self string, build func(plan.Input) (plan.State, error)) plan.State {
	t.Helper()
	in := c.in
	in.Self = self
	s, err := build(in)
	require.NoError(t, err)
	return s
}

func (c *city) apply(t *testing.T) {
	t.Helper()
	c.gateway.apply(t, c.state(t, "gw", plan.Gateway))
	for i, k := range c.kernels {
		require.NoError(t, k.Apply(t.Context(), c.state(t, fmt.Sprintf("node-%d", i), plan.Node)))
	}
}

// newLab is two cities, a seen as va by b, and b as vb by a, and the internet between them.
func newLab(t *testing.T, a, b *city, va, vb views) (internet *space) {
	t.Helper()
	internet = newSpace(t)
	internet.run(t, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
	for i, c := range []*city{a, b} {
		c.public = addr([]string{"203.0.113.2", "198.51.100.2"}[i])
		c.build(t, internet)
	}
	meet(a, b, va, vb)
	b.apply(t) // it waits to be dialled
	a.apply(t)
	for _, p := range append(a.pods[:2:2], b.pods...) {
		echo(t, p)
	}
	s4, _ := b.podAddrs(0)
	require.Eventually(t, func() bool {
		_, err := udp(a.pods[0], moved(s4, vb.pods4), time.Second)
		return err == nil
	}, time.Minute, 50*time.Millisecond, "there is no first answer")
	return internet
}

// twins are two cities with the same ranges, which see each other under the same ones, too.
func twins(t *testing.T) (internet *space, rome, milan *city) {
	t.Helper()
	rome, milan = &city{name: "rome", pod: 244, external: 70}, &city{name: "milan", pod: 244, external: 70}
	return newLab(t, rome, milan, romeSeen, milanSeen), rome, milan
}

// romeSeen and milanSeen are how twins see each other.
var (
	romeSeen  = seen("10.200.0.0/16", "10.201.0.0/16", "fd00:aa::/56", "fd00:ab::/64")
	milanSeen = seen("10.200.0.0/16", "10.71.0.0/16", "fd00:aa::/56", "fd00:bb::/64")
)

// moved is the address a in the range view, as one of another range of that size.
func moved(a netip.Addr, view netip.Prefix) netip.Addr {
	out, _ := plan.Map{Own: netip.PrefixFrom(a, view.Bits()).Masked(), View: view}.Out(a)
	return out
}

const echoPort = 7000

// echo answers everything on TCP and UDP with the address that it comes from.
func echo(t *testing.T, s *space) {
	t.Helper()
	for _, network := range []string{"4", "6"} {
		var packets net.PacketConn
		var connections net.Listener
		var err, err2 error
		s.do(func() {
			packets, err = net.ListenPacket("udp"+network, fmt.Sprintf(":%d", echoPort))
			connections, err2 = net.Listen("tcp"+network, fmt.Sprintf(":%d", echoPort))
		})
		require.NoError(t, errors.Join(err, err2))
		t.Cleanup(func() {
			_ = packets.Close()
			_ = connections.Close()
		})
		go func() {
			buf := make([]byte, 2000)
			for {
				_, from, err := packets.ReadFrom(buf)
				if err != nil {
					return
				}
				_, _ = packets.WriteTo([]byte(from.String()), from)
			}
		}()
		go func() {
			for {
				c, err := connections.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(c, c.RemoteAddr().String())
				_ = c.Close()
			}
		}()
	}
}

// dial opens a connection to the echo server at an address.
func dial(from *space, network string, to netip.Addr, timeout time.Duration) (c net.Conn, err error) {
	from.do(func() {
		d := net.Dialer{Timeout: timeout}
		c, err = d.Dial(network, netip.AddrPortFrom(to, echoPort).String())
	})
	if err == nil {
		err = c.SetDeadline(time.Now().Add(timeout))
	}
	return c, err
}

// tcp says under which address the echo server at an address sees a TCP client.
func tcp(from *space, to netip.Addr) (netip.Addr, error) {
	c, err := dial(from, "tcp", to, 10*time.Second)
	if err != nil {
		return netip.Addr{}, err
	}
	defer c.Close()
	text, err := io.ReadAll(c)
	if err != nil {
		return netip.Addr{}, err
	}
	return sourceOf(string(text))
}

func udp(from *space, to netip.Addr, timeout time.Duration) (netip.Addr, error) {
	c, err := dial(from, "udp", to, timeout)
	if err != nil {
		return netip.Addr{}, err
	}
	defer c.Close()
	return ask(c)
}

// ask sends one packet on a UDP connection and waits for its answer.
func ask(c net.Conn) (netip.Addr, error) {
	if _, err := io.WriteString(c, "?"); err != nil {
		return netip.Addr{}, err
	}
	buf := make([]byte, 100)
	n, err := c.Read(buf)
	if err != nil {
		return netip.Addr{}, err
	}
	return sourceOf(string(buf[:n]))
}

// nobody asks at a port of UDP that nobody listens on.
func nobody(from *space, to netip.Addr) (err error) {
	var c net.Conn
	from.do(func() { c, err = net.Dial("udp", netip.AddrPortFrom(to, echoPort+1).String()) })
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	_, err = ask(c)
	return err
}

func sourceOf(text string) (netip.Addr, error) {
	a, err := netip.ParseAddrPort(text)
	return a.Addr().Unmap(), err
}

// ping sends an ICMP echo request and waits for its answer.
func ping(from *space, to netip.Addr) error {
	network, request, protocol := "ip4:icmp", icmp.Type(ipv4.ICMPTypeEcho), 1
	var reply icmp.Type = ipv4.ICMPTypeEchoReply
	if to.Is6() {
		network, request, reply, protocol = "ip6:ipv6-icmp", ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply, 58
	}
	var c *icmp.PacketConn
	var err error
	from.do(func() { c, err = icmp.ListenPacket(network, map[bool]string{false: "0.0.0.0", true: "::"}[to.Is6()]) })
	if err != nil {
		return err
	}
	defer c.Close()
	text, err := (&icmp.Message{Type: request, Body: &icmp.Echo{ID: 77, Seq: 1, Data: []byte("hello")}}).Marshal(nil)
	if err != nil {
		return err
	}
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	if _, err := c.WriteTo(text, &net.IPAddr{IP: to.AsSlice()}); err != nil {
		return err
	}
	buf := make([]byte, 1500)
	for {
		n, peer, err := c.ReadFrom(buf)
		if err != nil {
			return err
		}
		m, err := icmp.ParseMessage(protocol, buf[:n])
		if err == nil && m.Type == reply && strings.HasPrefix(peer.String(), to.String()) {
			return nil
		}
	}
}
