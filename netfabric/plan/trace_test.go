package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// world is all hosts of some clusters, and what connection tracking on each holds of the
// one connection that a test follows.
type world struct {
	t     *testing.T
	hosts map[string]State
	under map[string]string // underlay address -> host
	keys  map[string]string // public key -> host
	flows map[string]*Flow
}

// romeAndMilan is a world of the two, with the changes that tests make.
func romeAndMilan(t *testing.T, changes ...func(rome, milan *Input)) *world {
	t.Helper()
	r, m := rome(), milan()
	for _, change := range changes {
		if change != nil {
			change(&r, &m)
		}
	}
	w := &world{t: t, hosts: map[string]State{}, under: map[string]string{}, keys: map[string]string{}, flows: map[string]*Flow{}}
	w.cluster("rome", r)
	w.cluster("milan", m)
	w.keys = map[string]string{key(1): "rome gw-a", key(2): "rome gw-b", key(11): "milan gw-a", key(12): "milan gw-b", key(21): "paris"}
	return w
}

func (w *world) cluster(name string, in Input) {
	w.t.Helper()
	add := func(host string, a netip.Addr, build func(Input) (State, error)) {
		w.hosts[name+" "+host] = planHost(w.t, build, in, host)
		w.under[a.String()] = name + " " + host
	}
	for _, h := range in.Nodes {
		add(h.Name, h.Addrs[0], Node)
	}
	for _, g := range in.Gateways {
		add(g.Name, g.Addrs[0], Gateway)
	}
}

func (w *world) keyOf(host string) string {
	for k, h := range w.keys {
		if h == host {
			return k
		}
	}
	return ""
}

// follow sends p from a host until it is dropped or leaves the fabric. It returns the host
// where that is, the last step there, and the hosts on the way.
func (w *world) follow(host string, p Packet) (string, Step, string) {
	w.t.Helper()
	way := []string{host}
	for range 8 {
		p.Flow = w.flows[host]
		steps := Trace(w.hosts[host], p)
		require.NotEmpty(w.t, steps)
		last := steps[len(steps)-1]
		for i, s := range steps {
			require.Equal(w.t, i == len(steps)-1, s.Verdict != "", "%v", s)
		}
		w.flows[host] = last.Packet.Flow
		if last.Verdict != Sent {
			return host, last, strings.Join(way, ", ")
		}
		host, p = w.next(host, last)
		way = append(way, host)
	}
	require.Fail(w.t, "the packet goes round in circles", "%v", way)
	return "", Step{}, ""
}

// next is where a packet that has been sent arrives, and how.
func (w *world) next(host string, sent Step) (string, Packet) {
	w.t.Helper()
	p := Packet{In: OverlayDevice, Tuple: sent.Packet.Tuple, SYN: sent.Packet.SYN, Error: sent.Packet.Error}
	next := w.under[sent.To]
	if next == "" {
		p.In, p.Key, next = TunnelDevice, w.keyOf(host), w.keys[sent.To]
	}
	require.Contains(w.t, w.hosts, next, "%v", sent)
	return next, p
}

func tcp(src, dst string) Packet {
	return Packet{In: "veth0", SYN: true, Tuple: Tuple{Proto: "tcp", Src: addr(src), Dst: addr(dst), SrcPort: 40000, DstPort: 80}}
}

// served gives milan, and nobody else, a port of an address that rome's gateways have.
func served(rome, _ *Input) {
	e := addr("10.70.0.40")
	rome.IPs = append(rome.IPs, IP{External: e, Real: e, Peer: "milan", Ports: []Service{{"tcp", 80}}})
}

// fromPeer is a packet out of the tunnel of the peer with key number n.
func fromPeer(n byte, src, dst string) Packet {
	p := tcp(src, dst)
	p.In, p.Key = TunnelDevice, key(n)
	return p
}

// answer is what the receiver of p sends back.
func answer(p Packet, in string) Packet {
	return Packet{In: in, Tuple: p.reverse()}
}

// answered sends the answer to a packet that has arrived. It requires that the sender gets it, with the addresses
// exchanged.
func (w *world) answered(from string, sent Packet, at string, got Step) {
	w.t.Helper()
	back := answer(got.Packet, "veth0")
	if got.Verdict == Delivered {
		back.In = ""
	}
	home, last, _ := w.follow(at, back)
	require.Equal(w.t, from, home, "%v", last)
	require.NotEqual(w.t, Dropped, last.Verdict, "%v", last)
	require.Equal(w.t, sent.reverse(), last.Packet.Tuple, "the answer comes from the address that was asked")
}

// arrives requires that a packet from a host gets to another one, how, and with which addresses. It returns the last
// step and the hosts on the way.
func (w *world) arrives(from string, p Packet, at string, verdict Verdict, as string) (Step, string) {
	w.t.Helper()
	end, got, way := w.follow(from, p)
	require.Equal(w.t, at, end, "%v", got)
	require.Equal(w.t, verdict, got.Verdict, "%v", got)
	require.Equal(w.t, as, got.Packet.ends())
	return got, way
}

// ends are the addresses of a packet.
func (p Packet) ends() string { return p.Src.String() + " > " + p.Dst.String() }

// drops requires that a packet from a host is dropped at another one, and what the last step says.
func (w *world) drops(from string, p Packet, at string, says ...string) {
	w.t.Helper()
	end, got, _ := w.follow(from, p)
	require.Equal(w.t, at, end, "%v", got)
	require.Equal(w.t, Dropped, got.Verdict, "%v", got)
	for _, part := range says {
		require.Contains(w.t, got.String(), part)
	}
}

// later is a packet of a connection after its first.
func later(p Packet) Packet {
	p.SYN = false
	return p
}

// local is a packet that a process of the host itself sends.
func local(p Packet) Packet {
	p.In = ""
	return p
}

func probe(src, dst string) Packet {
	return Packet{Tuple: Tuple{Proto: "udp", Src: addr(src), Dst: addr(dst), SrcPort: ProbePort, DstPort: ProbePort}}
}

// A connection of every kind, there and back: who sends what, where it arrives and as what,
// and that the answer arrives as the answer to what was sent.
func TestConnections(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change  func(rome, milan *Input)
		from    string
		packet  Packet
		at, as  string  // where it arrives, and its addresses there
		verdict Verdict // Handed if empty
		way     string  // hosts on the way, if they matter
	}{
		"pod to pod": {from: "rome rome-1", packet: tcp("10.244.1.10", "10.200.2.20"), at: "milan milan-2", as: "10.200.1.10 > 10.244.2.20",
			way: "rome rome-1, rome gw-a, milan gw-a, milan milan-2"},
		"and the other way": {from: "milan milan-2", packet: tcp("10.244.2.20", "10.200.1.10"), at: "rome rome-1", as: "10.200.2.20 > 10.244.1.10",
			way: "milan milan-2, milan gw-a, rome gw-a, rome rome-1"},
		"pods with one and the same address": {from: "rome rome-1", packet: tcp("10.244.1.10", "10.200.1.10"), at: "milan milan-1", as: "10.200.1.10 > 10.244.1.10"},
		"IPv6":                               {from: "rome rome-1", packet: tcp("fd00:10:244:1::10", "fd00:aa:0:2::20"), at: "milan milan-2", as: "fd00:ba:0:1::10 > fd00:10:244:2::20"},
		"by the other gateway of each": {from: "rome rome-1", packet: tcp("10.244.1.10", "10.200.2.20"), at: "milan milan-2", as: "10.200.1.10 > 10.244.2.20", change: func(rome, milan *Input) {
			rome.Via, rome.Peers[0].Use, milan.Via, milan.Peers[0].Use = "gw-b", 2, "gw-b", 2
		},
			way: "rome rome-1, rome gw-b, milan gw-b, milan milan-2"},
		"a node":                                {from: "rome rome-1", packet: local(tcp("192.168.0.11", "10.200.2.20")), at: "milan milan-2", as: "10.71.0.1 > 10.244.2.20"},
		"a node over IPv6":                      {from: "rome rome-1", packet: local(tcp("fd00:1::11", "fd00:aa:0:2::20")), at: "milan milan-2", as: "fd00:bb::1 > fd00:10:244:2::20"},
		"a node with an external address":       {from: "rome rome-2", packet: local(tcp("192.168.0.12", "10.200.2.20")), at: "milan milan-2", as: "10.71.0.20 > 10.244.2.20"},
		"from outside, by a node port":          {from: "rome rome-1", packet: tcp("198.51.100.7", "10.200.2.20"), at: "milan milan-2", as: "10.71.0.1 > 10.244.2.20"},
		"a pod of another node, by a node port": {from: "rome rome-1", packet: tcp("10.244.2.77", "10.200.2.20"), at: "milan milan-2", as: "10.71.0.1 > 10.244.2.20"},
		"to a pod in the host network":          {from: "milan milan-2", packet: tcp("10.244.2.20", "10.71.0.20"), at: "rome rome-2", as: "10.200.2.20 > 192.168.0.12", verdict: Delivered},
		"to a host outside":                     {from: "milan milan-2", packet: tcp("10.244.2.20", "10.71.0.21"), at: "rome gw-a", as: "10.244.1.9 > 172.16.5.5"},
		"to a host outside, at home": {from: "rome rome-1", packet: tcp("10.244.1.10", "10.70.0.21"), at: "rome rome-1", as: "10.244.1.10 > 172.16.5.5",
			way: "rome rome-1"},
		"to a host outside, of a node": {from: "rome rome-1", packet: local(tcp("192.168.0.11", "10.70.0.21")), at: "rome rome-1", as: "192.168.0.11 > 172.16.5.5",
			way: "rome rome-1"},
		"to a port that gateways serve": {from: "milan milan-2", packet: tcp("10.244.2.20", "10.71.0.40"), at: "rome gw-a", as: "10.200.2.20 > 10.70.0.40", verdict: Delivered, change: served,
			way: "milan milan-2, milan gw-a, rome gw-a"},
		"a probe": {from: "rome gw-a", packet: probe("10.70.0.2", "10.201.0.2"), at: "milan gw-a", as: "10.71.0.2 > 10.70.0.2", verdict: Delivered},
		"a probe between gateways that are not in use": {from: "rome gw-b", packet: probe("10.70.0.3", "10.201.0.3"), at: "milan gw-b", as: "10.71.0.3 > 10.70.0.3", verdict: Delivered},
		"a probe across":             {from: "rome gw-a", packet: probe("10.70.0.2", "10.201.0.3"), at: "milan gw-b", as: "10.71.0.2 > 10.70.0.3", verdict: Delivered},
		"a node probes its gateways": {from: "rome rome-1", packet: probe("192.168.0.11", "10.70.0.3"), at: "rome gw-b", as: "192.168.0.11 > 10.70.0.3", verdict: Delivered},
		"a ping to a peer's gateway": {from: "rome rome-1", packet: Packet{In: "veth0", Tuple: Tuple{Proto: "icmp", Src: addr("10.244.1.10"), Dst: addr("10.201.0.1")}}, at: "milan gw-a", as: "10.200.1.10 > 10.70.0.1", verdict: Delivered},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := romeAndMilan(t, tc.change)
			got, way := w.arrives(tc.from, tc.packet, tc.at, cmp.Or(tc.verdict, Handed), tc.as)
			if tc.way != "" {
				require.Equal(t, tc.way, way)
			}
			w.answered(tc.from, tc.packet, tc.at, got)
			w.arrives(tc.from, tc.packet, tc.at, got.Verdict, tc.as) // the next packet goes where the first went
		})
	}
}

// What must not pass, where it ends and by which rule.
func TestDrops(t *testing.T) {
	t.Parallel()
	fromMilan := func(src, dst string) Packet { return fromPeer(11, src, dst) }
	over := func(p Packet) Packet {
		p.In = OverlayDevice
		return p
	}
	failed := func(p Packet) Packet { // an error about nothing
		p.Proto, p.Error, p.SYN = "icmp", true, false
		return p
	}
	for name, tc := range map[string]struct {
		change func(rome, milan *Input)
		at     string
		packet Packet
		where  string
		what   string // part
	}{
		"a source of nobody":         {at: "rome gw-a", packet: fromMilan("8.8.8.8", "10.200.1.10"), where: TunnelDevice, what: "8.8.8.8 is not allowed"},
		"a source of another peer":   {at: "rome gw-a", packet: fromMilan("10.1.0.5", "10.200.1.10"), where: TunnelDevice, what: "10.1.0.5 is not allowed of " + key(11)},
		"our own source":             {at: "rome gw-a", packet: fromMilan("10.244.1.10", "10.200.1.11"), where: TunnelDevice, what: "is not allowed"},
		"the real address of a pod":  {at: "rome gw-a", packet: fromMilan("10.200.2.20", "10.244.1.10"), where: "prerouting guard_in", what: "@pairs4"},
		"the real address of a node": {at: "rome gw-a", packet: fromMilan("10.200.2.20", "192.168.0.11"), where: "prerouting guard_in", what: "@pairs4"},
		"another peer's view of us":  {at: "rome gw-a", packet: fromMilan("10.200.2.20", "10.70.0.20"), where: "prerouting guard_in", what: "@pairs4"},
		"another peer":               {at: "rome gw-a", packet: fromMilan("10.200.2.20", "10.1.0.5"), where: "prerouting guard_in", what: "@pairs4"},
		"the Internet":               {at: "rome gw-a", packet: fromMilan("10.200.2.20", "8.8.8.8"), where: "prerouting guard_in", what: "@pairs4"},
		"a view of IPv6":             {at: "rome gw-a", packet: fromMilan("fd00:aa:0:2::20", "fd00:10:244:1::10"), where: "prerouting guard_in", what: "@pairs6"},
		"an address that nobody has": {at: "rome gw-a", packet: fromMilan("10.200.2.20", "10.71.0.99"), where: "forward pass", what: "@targets4"},
		"a pod of no node":           {at: "rome gw-a", packet: fromMilan("10.200.2.20", "10.200.77.1"), where: "forward pass", what: "@targets4"},
		"a port of the gateway":      {at: "rome gw-a", packet: fromMilan("10.200.2.20", "10.71.0.1"), where: "input local_in", what: "drop"},
		"a port that gateways serve, for others": {
			change: func(rome, milan *Input) { served(rome, milan); rome.IPs[3].Peer = "paris" },
			at:     "rome gw-a", packet: fromMilan("10.200.2.20", "10.71.0.40"), where: "input local_in", what: "drop",
		},
		"another port than gateways serve": {
			change: func(rome, milan *Input) { served(rome, milan); rome.IPs[3].Ports[0].Port = 443 },
			at:     "rome gw-a", packet: fromMilan("10.200.2.20", "10.71.0.40"), where: "input local_in", what: "drop",
		},
		"a port that gateways serve, for own pods": {
			change: served,
			at:     "rome gw-a", packet: over(tcp("10.244.1.10", "10.70.0.40")), where: "input local_in", what: "drop",
		},
		"an error about nothing":       {at: "rome gw-a", packet: failed(fromMilan("10.200.2.20", "10.200.1.10")), where: "forward pass", what: "invalid"},
		"a port of it, for own pods":   {at: "rome gw-a", packet: over(tcp("10.244.1.10", "10.70.0.1")), where: "input local_in", what: "drop"},
		"a peer's source, from a node": {at: "rome gw-a", packet: over(tcp("10.1.0.5", "10.200.1.10")), where: "prerouting guard_in", what: "@peers4"},
		"the Internet, from a node":    {at: "rome gw-a", packet: over(tcp("10.244.1.10", "8.8.8.8")), where: "forward pass", what: `oifname != "liqod-wg"`},
		"a stranger beside a gateway":  {at: "rome gw-a", packet: tcp("172.16.5.6", "10.200.1.10"), where: "forward pass", what: "@targets4"},
		"a pod, out of the overlay":    {at: "rome rome-1", packet: over(tcp("10.244.2.20", "10.244.1.10")), where: "prerouting guard_in", what: "@fabric4"},
		"anybody, out of the overlay":  {at: "rome rome-1", packet: over(tcp("8.8.8.8", "10.244.1.10")), where: "prerouting guard_in", what: "@fabric4"},
		"a peer's pod, to a node":      {at: "rome rome-1", packet: over(tcp("10.200.2.20", "192.168.0.11")), where: "prerouting reach_in", what: "to_node"},
		"a node without a gateway": {
			change: func(rome, _ *Input) { rome.Via = "" },
			at:     "rome rome-1", packet: tcp("10.244.1.10", "10.200.2.20"), where: "rule 91", what: "unreachable",
		},
		"a peer without a gateway in use": {
			change: func(rome, _ *Input) { rome.Peers[0].Use = 0 },
			at:     "rome gw-a", packet: over(tcp("10.244.1.10", "10.200.2.20")), where: TunnelDevice, what: "no peer has 10.200.2.20",
		},
		"a peer that was given nothing": {
			change: func(rome, _ *Input) { rome.Peers[0].Ours = nil },
			at:     "rome gw-a", packet: over(tcp("10.244.1.10", "10.200.2.20")), where: "postrouting guard_out", what: "@pairs4",
		},
		"nor may its nodes": {
			change: func(rome, _ *Input) { rome.Peers[0].Ours = nil },
			at:     "rome gw-a", packet: over(tcp("192.168.0.11", "10.200.2.20")), where: "postrouting guard_out", what: "@pairs4",
		},
		"a peer that was given IPv6 only": {
			change: func(rome, _ *Input) { rome.Peers[0].Ours = rome.Peers[0].Ours[2:] },
			at:     "rome gw-a", packet: over(tcp("10.244.1.10", "10.200.2.20")), where: "postrouting guard_out", what: "@pairs4",
		},
		"a peer that was given addresses, not pods": {
			change: func(rome, _ *Input) { rome.Peers[0].Ours = rome.Peers[0].Ours[1:] },
			at:     "rome gw-a", packet: over(tcp("10.244.1.10", "10.200.2.20")), where: "postrouting guard_out", what: "@pairs4",
		},
		"a node within the pod range": {
			change: func(rome, _ *Input) { rome.Nodes[0].Addrs[0] = addr("10.244.99.1") },
			at:     "rome gw-a", packet: fromMilan("10.200.2.20", "10.200.99.1"), where: "forward pass", what: "@closed4",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := romeAndMilan(t, tc.change)
			steps := Trace(w.hosts[tc.at], tc.packet)
			last := steps[len(steps)-1]
			require.Equal(t, Dropped, last.Verdict, "%v", steps)
			require.Equal(t, tc.where, last.Where, "%v", steps)
			rules := slices.DeleteFunc(steps, func(s Step) bool { return s.Where != tc.where })
			require.Contains(t, fmt.Sprint(rules), tc.what, "the rule, or one that leads to it")
		})
	}
}

// The packets that carry the fabric are none of it, whatever addresses their ends have.
func TestOuterPackets(t *testing.T) {
	t.Parallel()
	udp := func(src, dst string, sport, dport uint16) Packet {
		return Packet{Tuple: Tuple{Proto: "udp", Src: addr(src), Dst: addr(dst), SrcPort: sport, DstPort: dport}}
	}
	in := func(p Packet) Packet {
		p.In = "eth0"
		return p
	}
	marked := func(p Packet) Packet {
		p.Mark = TunnelMark
		return p
	}
	for name, tc := range map[string]struct {
		at      string
		packet  Packet
		want    Verdict
		tracked bool
	}{
		"a gateway sends to a peer":                    {at: "rome gw-a", packet: marked(udp("10.244.1.9", "203.0.113.20", TunnelPort, 51820)), want: Handed},
		"a gateway sends to an endpoint in a view":     {at: "rome gw-a", packet: marked(udp("10.244.1.9", "10.200.9.9", TunnelPort, 51820)), want: Handed},
		"a gateway hears from a peer":                  {at: "rome gw-a", packet: in(udp("203.0.113.20", "10.244.1.9", 51820, TunnelPort)), want: Delivered},
		"a gateway sends to a node":                    {at: "rome gw-a", packet: udp("10.244.1.9", "192.168.0.12", 33333, OverlayPort), want: Handed},
		"a gateway hears from a node":                  {at: "rome gw-a", packet: in(udp("192.168.0.12", "10.244.1.9", 33333, OverlayPort)), want: Delivered},
		"a node sends to a gateway":                    {at: "rome rome-1", packet: udp("192.168.0.11", "10.244.2.9", 33333, OverlayPort), want: Handed},
		"a node hears from a gateway":                  {at: "rome rome-1", packet: in(udp("10.244.2.9", "192.168.0.11", 33333, OverlayPort)), want: Delivered},
		"a node forwards its gateway pod to a peer":    {at: "rome rome-1", packet: in(udp("10.244.1.9", "203.0.113.20", TunnelPort, 51820)), want: Handed, tracked: true},
		"a node forwards it to an endpoint in a view":  {at: "rome rome-1", packet: in(udp("10.244.1.9", "10.200.9.9", TunnelPort, 51820)), want: Handed, tracked: true},
		"a node forwards its gateway pod to a node":    {at: "rome rome-1", packet: in(udp("10.244.1.9", "192.168.0.12", 33333, OverlayPort)), want: Handed, tracked: true},
		"a pod may use our ports for its own":          {at: "rome rome-1", packet: in(udp("10.244.1.10", "10.200.2.20", 33333, OverlayPort)), want: Sent, tracked: true},
		"and within the cluster":                       {at: "rome rome-1", packet: in(udp("10.244.1.10", "10.244.2.20", 33333, OverlayPort)), want: Handed, tracked: true},
		"a pod is no gateway":                          {at: "rome rome-1", packet: in(udp("10.244.1.10", "192.168.0.12", 33333, OverlayPort)), want: Dropped, tracked: true},
		"a process of a node may use our ports, too":   {at: "rome rome-1", packet: udp("192.168.0.11", "10.200.2.20", TunnelPort, OverlayPort), want: Sent, tracked: true},
		"what it sends is translated at the gateway":   {at: "rome gw-a", packet: Packet{In: OverlayDevice, Tuple: Tuple{Proto: "udp", Src: addr("192.168.0.11"), Dst: addr("10.200.2.20"), DstPort: TunnelPort}}, want: Sent, tracked: true},
		"no VXLAN out of the tunnel":                   {at: "rome gw-a", packet: Packet{In: TunnelDevice, Tuple: Tuple{Proto: "udp", Src: addr("10.200.2.20"), Dst: addr("10.200.1.10"), DstPort: OverlayPort}}, want: Dropped},
		"no VXLAN in VXLAN":                            {at: "rome rome-1", packet: Packet{In: OverlayDevice, Tuple: Tuple{Proto: "udp", Src: addr("10.200.2.20"), Dst: addr("10.244.1.10"), DstPort: OverlayPort}}, want: Dropped},
		"a probe is tracked":                           {at: "rome gw-a", packet: probe("10.70.0.2", "10.201.0.2"), want: Sent, tracked: true},
		"what is no business of the fabric is let be":  {at: "rome rome-1", packet: in(udp("10.244.1.10", "8.8.8.8", 33333, 53)), want: Handed, tracked: true},
		"nor is what a gateway asks its name server":   {at: "rome gw-a", packet: udp("10.244.1.9", "10.96.0.10", 33333, 53), want: Handed, tracked: true},
		"nor what it answers those who read metrics":   {at: "rome gw-a", packet: udp("10.244.1.9", "10.244.2.20", 8080, 33333), want: Handed, tracked: true},
		"nor pods of the cluster to one another":       {at: "rome rome-1", packet: in(udp("10.244.1.10", "10.244.2.20", 33333, 80)), want: Handed, tracked: true},
		"nor what goes through a gateway on a host":    {at: "milan gw-a", packet: in(udp("172.16.0.1", "8.8.8.8", 33333, 53)), want: Handed, tracked: true},
		"a gateway reaches nodes as its host reaches":  {at: "milan gw-a", packet: udp("192.168.0.23", "192.168.0.21", 33333, 22), want: Handed, tracked: true},
		"a gateway reaches peers as what it is to all": {at: "milan gw-a", packet: udp("192.168.0.23", "10.71.0.20", 33333, 22), want: Sent, tracked: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := romeAndMilan(t)
			steps := Trace(w.hosts[tc.at], tc.packet)
			last := steps[len(steps)-1]
			require.Equal(t, tc.want, last.Verdict, "%v", steps)
			tracked := slices.ContainsFunc(steps, func(s Step) bool { return s.Where == "conntrack" })
			require.Equal(t, tc.tracked, tracked, "%v", steps)
		})
	}
}

// An error about a connection comes from an address that the peer takes, and reaches who
// opened the connection. Where addresses are translated it comes from the pod's.
func TestICMPErrors(t *testing.T) {
	t.Parallel()
	w := romeAndMilan(t)
	got, _ := w.arrives("rome rome-1", tcp("10.244.1.10", "10.200.2.20"), "milan milan-2", Handed, "10.200.1.10 > 10.244.2.20")
	fault := Packet{Error: true, Tuple: Tuple{Proto: "icmp", Src: addr("192.168.0.22"), Dst: got.Packet.Src}}
	w.arrives("milan milan-2", fault, "rome rome-1", Handed, "10.200.2.20 > 10.244.1.10")
}

// Where addresses are not translated the kernel leaves the source of an error as it is: a
// rule gives it the gateway's.
func TestICMPErrorsWithoutTranslation(t *testing.T) {
	t.Parallel()
	w := romeAndMilan(t)
	gw := w.hosts["rome gw-a"]
	steps := Trace(gw, fromPeer(21, "10.1.0.5", "10.244.1.10"))
	flow := steps[len(steps)-1].Packet.Flow

	fault := Packet{In: OverlayDevice, Error: true, Flow: flow, Tuple: Tuple{Proto: "icmp", Src: addr("192.168.0.11"), Dst: addr("10.1.0.5")}}
	steps = Trace(gw, fault)
	last := steps[len(steps)-1]
	require.Equal(t, Sent, last.Verdict, "%v", steps)
	require.Equal(t, "10.70.0.1 > 10.1.0.5", last.Packet.ends())

	fault.In, fault.Src = "", addr("10.70.0.1")
	steps = Trace(gw, fault)
	require.Equal(t, Sent, steps[len(steps)-1].Verdict, "made by the gateway itself: %v", steps)

	fault.Proto, fault.Error = "tcp", false
	fault.In, fault.Src = OverlayDevice, addr("10.1.0.5")
	steps = Trace(gw, fault)
	require.Equal(t, Dropped, steps[len(steps)-1].Verdict)
}
