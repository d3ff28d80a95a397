package plan

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// clone copies in, so that a change of one is none of the other.
func clone(in Input) Input {
	in.Nodes = slices.Clone(in.Nodes)
	in.Gateways = slices.Clone(in.Gateways)
	in.Pods, in.External, in.Services = slices.Clone(in.Pods), slices.Clone(in.External), slices.Clone(in.Services)
	in.IPs = slices.Clone(in.IPs)
	in.Peers = slices.Clone(in.Peers)
	for i := range in.Peers {
		p := &in.Peers[i]
		p.Ours, p.Gateways, p.Reach, p.Through = slices.Clone(p.Ours), slices.Clone(p.Gateways), slices.Clone(p.Reach), slices.Clone(p.Through)
		p.Home, p.Meant, p.Served, p.Ports = slices.Clone(p.Home), slices.Clone(p.Meant), slices.Clone(p.Served), slices.Clone(p.Ports)
		p.Theirs = Ranges{slices.Clone(p.Theirs.Pods), slices.Clone(p.Theirs.External), slices.Clone(p.Theirs.Transit), slices.Clone(p.Theirs.Services)}
	}
	return in
}

// hub is rome, where milan and paris see each other.
func hub() Input {
	in := rome()
	in.Peers[0].Ours = append(in.Peers[0].Ours, Map{prefix("10.1.0.0/16"), prefix("10.203.0.0/16")})
	in.Peers[1].Ours = append(in.Peers[1].Ours, Map{prefix("10.200.0.0/16"), prefix("10.204.0.0/16")})
	in.Peers[0].Through, in.Peers[1].Through = prefixes("10.1.1.5/32"), prefixes("10.200.2.20/32")
	return in
}

// mutations are what happens to a cluster.
var mutations = []func(*tape, Input) Input{
	func(t *tape, in Input) Input { // a node comes
		n := 20 + t.n(200)
		in.Nodes = append(in.Nodes, Host{
			fmt.Sprint("new-", n),
			[]netip.Addr{addr(fmt.Sprintf("192.168.0.%d", n)), addr(fmt.Sprintf("fd00:1::%d", n))},
			prefixes(fmt.Sprintf("10.244.%d.0/24", n), fmt.Sprintf("fd00:10:244:%d::/64", n)),
		})
		return in
	},
	func(t *tape, in Input) Input { // a node goes
		if i := len(in.Nodes); i > 1 && in.Nodes[i-1].Name != in.Self {
			in.Nodes = in.Nodes[:i-1]
		}
		return in
	},
	func(t *tape, in Input) Input { // a node gets another address
		in.Nodes[t.n(len(in.Nodes))].Addrs = addrs(fmt.Sprintf("192.168.1.%d", t.n(250)+1))
		return in
	},
	func(t *tape, in Input) Input { // a peer comes
		n := 100 + t.n(90)
		in.Peers = append(in.Peers, Peer{
			ID:       fmt.Sprint("peer-", n),
			Theirs:   Ranges{Pods: prefixes(fmt.Sprintf("10.%d.0.0/16", n)), External: prefixes(fmt.Sprintf("172.20.%d.0/24", n))},
			Ours:     Maps{{in.Pods[0], in.Pods[0]}, {in.External[0], prefix("10.2.0.0/16")}},
			Gateways: []Remote{{1, key(byte(n)), netip.MustParseAddrPort("192.0.2.1:51840"), "", ""}},
			Use:      t.n(2),
		})
		return in
	},
	func(t *tape, in Input) Input { // a peer goes
		if len(in.Peers) > 0 {
			i := t.n(len(in.Peers))
			in.Peers = slices.Delete(in.Peers, i, i+1)
		}
		return in
	},
	func(t *tape, in Input) Input { // a peer's gateway is lost
		if len(in.Peers) > 0 {
			p := &in.Peers[t.n(len(in.Peers))]
			p.Use = t.n(len(p.Gateways) + 1)
		}
		return in
	},
	func(t *tape, in Input) Input { // a peer is seen, or sees, under other ranges
		if len(in.Peers) > 0 {
			p := &in.Peers[t.n(len(in.Peers))]
			n := 210 + t.n(40)
			p.Theirs.Pods[0] = prefix(fmt.Sprintf("10.%d.0.0/16", n))
			if len(p.Ours) > 0 {
				p.Ours[0].View = prefix(fmt.Sprintf("10.%d.0.0/16", n-t.n(30)))
			}
		}
		return in
	},
	func(t *tape, in Input) Input { // a peer is given less
		if len(in.Peers) > 0 {
			p := &in.Peers[t.n(len(in.Peers))]
			p.Ours = p.Ours[:t.n(len(p.Ours)+1)]
		}
		return in
	},
	func(t *tape, in Input) Input { // a pod becomes shared, or is no longer
		if len(in.Peers) == 0 {
			return in
		}
		p, pod := &in.Peers[t.n(len(in.Peers))], Single(addr(fmt.Sprintf("10.244.1.%d", t.n(20))))
		if i := slices.Index(p.Reach, pod); i >= 0 {
			p.Reach = slices.Delete(p.Reach, i, i+1)
			return in
		}
		p.Reach = append(p.Reach, pod)
		return in
	},
	func(t *tape, in Input) Input { // a node port is answered, or no longer
		if len(in.Peers) == 0 {
			return in
		}
		p, at := &in.Peers[t.n(len(in.Peers))], netip.AddrPortFrom(addr(fmt.Sprintf("10.244.1.%d", t.n(20))), uint16(80+t.n(2)))
		if i := slices.Index(p.Ports, at); i >= 0 {
			p.Ports = slices.Delete(p.Ports, i, i+1)
			return in
		}
		p.Ports = append(p.Ports, at)
		return in
	},
	func(t *tape, in Input) Input { // a pod of a third cluster becomes shared, or is no longer
		if len(in.Peers) < 2 || len(in.Peers[0].Ours) == 0 {
			return in
		}
		p, pod := &in.Peers[0], Single(addr(fmt.Sprintf("10.1.1.%d", t.n(20))))
		if i := slices.Index(p.Through, pod); i >= 0 {
			p.Through = slices.Delete(p.Through, i, i+1)
			return in
		}
		p.Through = append(p.Through, pod)
		return in
	},
	func(t *tape, in Input) Input { // an address is exposed, or no longer
		n := 16 + t.n(200)
		if i := slices.IndexFunc(in.IPs, func(ip IP) bool { return ip.External == nth(in.External[0], n) }); i >= 0 {
			in.IPs = slices.Delete(in.IPs, i, i+1)
			return in
		}
		ip := IP{External: nth(in.External[0], n), Real: addr(fmt.Sprintf("172.16.9.%d", 1+n%5))}
		if len(in.Peers) > 0 && n%2 == 0 {
			ip.Peer = in.Peers[t.n(len(in.Peers))].ID
		}
		for range t.n(3) {
			ip.Ports = append(ip.Ports, Service{"tcp", uint16(80 + t.n(2))})
		}
		in.IPs = append(in.IPs, ip)
		return in
	},
	func(t *tape, in Input) Input { // an address is exposed to others, or at other ports
		if len(in.IPs) > 0 {
			ip := &in.IPs[t.n(len(in.IPs))]
			ip.Peer, ip.Ports = []string{"", "milan", "nobody"}[t.n(3)], []Service{{"udp", 53}, {"tcp", 80}}[:t.n(3)]
		}
		return in
	},
	func(t *tape, in Input) Input { // nodes move to another gateway
		in.Via = []string{"", "gw-a", "gw-b"}[t.n(3)]
		return in
	},
	func(t *tape, in Input) Input { // a gateway comes or goes
		if len(in.Gateways) > 2 {
			in.Gateways = in.Gateways[:2]
			return in
		}
		in.Gateways = append(in.Gateways, Replica{"gw-c", 3, addrs("10.244.3.9", "fd00:10:244:3::9"), ""})
		return in
	},
	func(t *tape, in Input) Input { // the network is another
		in.MTU = []int{1500, 1450, 9000}[t.n(3)]
		return in
	},
	func(t *tape, in Input) Input { // a hub opens, or closes
		if len(in.Peers) < 2 || len(in.Peers[1].Theirs.Pods) == 0 {
			return in
		}
		if n := len(in.Peers[0].Ours); n > 4 {
			in.Peers[0].Ours = in.Peers[0].Ours[:4]
			return in
		}
		in.Peers[0].Ours = append(in.Peers[0].Ours, Map{in.Peers[1].Theirs.Pods[0], prefix("10.203.0.0/16")})
		return in
	},
}

// Whatever happens to a cluster, one thing after the other, what is planned is sound, and IPs are reached by those that
// they are for. netfabric/kernel applies such plans one after the other.
func TestRandomWalk(t *testing.T) {
	t.Parallel()
	passed := map[bool]int{}
	for self, build := range map[string]func(Input) (State, error){"rome-1": Node, "gw-a": Gateway} {
		for seed := range uint64(6) {
			r, in := rand.New(rand.NewPCG(seed, 11)), rome()
			in.Self = self
			for range 40 {
				tp := randomTape(r, 20)
				next := mutations[tp.n(len(mutations))](tp, clone(in))
				if next.Check() == nil {
					in = next
				}
				s := planHost(t, build, in, self)
				checkState(t, s)
				if self == "gw-a" {
					checkExposed(t, in, s, passed)
				}
			}
		}
	}
	require.Greater(t, min(passed[true], passed[false]), 100, "too few packets to show anything: %v", passed)
}

// difference is what changes between two inputs on one host, as lines.
func difference(t *testing.T, self string, build func(Input) (State, error), before, after Input) []string {
	t.Helper()
	have, want := planHost(t, build, before, self), planHost(t, build, after, self)
	add, del := Diff(strings.Split(want.String(), "\n"), strings.Split(have.String(), "\n"))
	return append(add, del...)
}

// A change of one peer, node or address changes nothing that others need.
func TestChangesAreLocal(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		before        func() Input // nil: rome
		change        func(*Input)
		node, gateway string // what each changed line has in it; empty: nothing changes
	}{
		"a peer goes": {
			change: func(in *Input) { in.Peers = in.Peers[:1] },
			node:   "10.1.0.0/16|10.202.0.0/16", gateway: "10.1.0.0/16|10.202.0.0/16|10.202.0.2|" + key(21),
		},
		"a peer comes": {
			change: func(in *Input) {
				in.Peers = append(in.Peers, Peer{ID: "turin", Theirs: Ranges{Pods: prefixes("10.8.0.0/16")}, Ours: maps("10.244.0.0/16", "10.200.0.0/16")})
			},
			node: "10.8.0.0/16", gateway: "10.8.0.0/16",
		},
		"a peer's gateway is another":  {change: func(in *Input) { in.Peers[0].Use = 2 }, gateway: key(11) + "|" + key(12)},
		"a peer's endpoint is another": {change: func(in *Input) { in.Peers[1].Gateways[0].Endpoint = netip.MustParseAddrPort("192.0.2.9:51840") }, gateway: key(21)},
		"a peer's way is narrower":     {change: func(in *Input) { in.Peers[1].MTU = 1300 }, node: "10.1.0.0/16|10.202.0.0/16", gateway: "10.1.0.0/16|10.202.0.0/16"},
		"a peer sees us otherwise":     {change: func(in *Input) { in.Peers[1].Ours[0].View = prefix("10.77.0.0/16") }, gateway: "10.1.0.0/16|10.202.0.0/16"},
		"another node comes": {
			change: func(in *Input) {
				in.Nodes = append(in.Nodes, Host{"rome-3", addrs("192.168.0.13"), prefixes("10.244.3.0/24")})
			},
			gateway: "192.168.0.13|10.244.3.0/24|02:fa:c0:a8:00:0d",
		},
		"another node goes":               {change: func(in *Input) { in.Nodes = in.Nodes[:1] }, gateway: "192.168.0.12|10.244.2.0/24|02:fa:c0:a8:00:0c|fd00:1::12|fd00:10:244:2::"},
		"another node gets pods":          {change: func(in *Input) { in.Nodes[1].Pods = append(in.Nodes[1].Pods, prefix("10.244.9.0/24")) }, gateway: "10.244.9.0/24"},
		"a gateway moves to another node": {change: func(in *Input) { in.Gateways[0].Node = "rome-2" }, node: "senders4 { 192.168.0.12 }|senders6 { fd00:1::12 }"},
		"an address is exposed": {
			change: func(in *Input) { in.IPs = append(in.IPs, IP{External: addr("10.70.0.99"), Real: addr("172.16.7.7")}) },
			node:   "10.70.0.99", gateway: "172.16.7.7",
		},
		"an address is exposed to one peer, at a port": {
			change: func(in *Input) {
				in.IPs = append(in.IPs, IP{External: addr("10.70.0.99"), Real: addr("172.16.7.7"), Peer: "paris", Ports: []Service{{"tcp", 80}}})
			},
			node: "10.70.0.99", gateway: "10.1.0.0/16 . 172.16.7.7|10.1.0.0/16 . 10.|10.202.0.0/16 . 172.16.7.7|10.202.0.0/16 . 10.",
		},
		"a pod becomes shared": {
			change: func(in *Input) { in.Peers[1].Reach = append(in.Peers[1].Reach, prefix("10.244.1.77/32")) },
			node:   "add element inet liqod reach4 { 10.1.0.0/16 . 10.244.1.77 }|add element inet liqod reach4 { 10.202.0.0/16 . 10.244.1.77 }",
		},
		"a node port of a vkubelet on the node": {
			change: func(in *Input) { in.Peers[1].Ports = []netip.AddrPort{netip.MustParseAddrPort("10.244.1.8:30080")} },
			node:   "add element inet liqod ports4 { 10.1.0.0/16 . 10.244.1.8 . tcp . 30080 }|add element inet liqod ports4 { 10.202.0.0/16 . 10.244.1.8 . tcp . 30080 }",
		},
		"a pod behind a hub becomes shared": {
			before: hub, change: func(in *Input) { in.Peers[0].Through = append(in.Peers[0].Through, prefix("10.1.1.6/32")) },
			gateway: "add element inet liqod through4 { 10.200.0.0/16 . 10.1.1.6 }|add element inet liqod through4 { 10.201.0.0/16 . 10.1.1.6 }",
		},
		"the node uses another gateway": {change: func(in *Input) { in.Via = "gw-b" }, node: "route table 6171"},
		"another gateway comes": {
			change: func(in *Input) { in.Gateways = append(in.Gateways, Replica{"gw-c", 3, addrs("10.244.3.9"), ""}) },
			node:   "10.244.3.9|02:fa:0a:f4:03:09|10.70.0.4|fd00:70::4",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.before == nil {
				tc.before = rome
			}
			after := clone(tc.before())
			tc.change(&after)
			for self, one := range map[string]struct {
				build func(Input) (State, error)
				want  string
			}{"rome-1": {Node, tc.node}, "gw-a": {Gateway, tc.gateway}} {
				lines := difference(t, self, one.build, tc.before(), after)
				require.Equal(t, one.want == "", len(lines) == 0, "%s: %v", self, lines)
				for _, line := range lines {
					ok := slices.ContainsFunc(strings.Split(one.want, "|"), func(part string) bool { return strings.Contains(line, part) })
					require.True(t, ok, "%s: %s", self, line)
				}
			}
		})
	}
}

// The fixed part of the table depends on the ports only.
func TestChainsAreTheSameForAll(t *testing.T) {
	t.Parallel()
	for self, build := range map[string]func(Input) (State, error){"rome-1": Node, "gw-a": Gateway} {
		marker := func(change func(*Input)) string {
			in := clone(rome())
			in.Self = self
			change(&in)
			return planHost(t, build, in, in.Self).Table.Marker()
		}
		want := marker(func(*Input) {})
		require.Equal(t, want, marker(func(in *Input) { in.Peers, in.IPs = nil, nil }), self)
		require.Equal(t, want, marker(func(in *Input) { in.MTU = 9000; in.Nodes = in.Nodes[:1] }), self)
		require.Equal(t, want, marker(func(in *Input) { *in = clone(milan()); in.Self = strings.Replace(self, "rome", "milan", 1) }), self)
		require.NotEqual(t, want, marker(func(in *Input) { in.Ports.Overlay = 4789 }), self)
	}
}
