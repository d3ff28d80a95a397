package plan

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// planHost plans a host of an input.
func planHost(t testing.TB, build func(Input) (State, error), in Input, self string) State {
	t.Helper()
	in.Self = self
	s, err := build(in)
	require.NoError(t, err)
	return s
}

// planNode plans rome-1 of an input.
func planNode(t *testing.T, in Input) State {
	t.Helper()
	s := planHost(t, Node, in, "rome-1")
	checkState(t, s)
	return s
}

// texts are elements as lines.
func texts[T interface{ String() string }](list []T) (out []string) {
	for _, one := range list {
		out = append(out, one.String())
	}
	return out
}

// elementsOf are the elements of a set of both families, without its name.
func elementsOf(s State, set string) (out []string) {
	for _, e := range s.Table.Elements {
		if strings.TrimRight(e.Set, "46") == set {
			_, text, _ := strings.Cut(e.String(), " ")
			out = append(out, strings.Trim(text, "{} "))
		}
	}
	return out
}

// small is a cluster of IPv4 with one peer, and little else.
func small() Input {
	return Input{
		Pods:     prefixes("10.244.0.0/16"),
		External: prefixes("10.70.0.0/16"),
		Nodes:    []Host{{"rome-1", addrs("192.168.0.11"), prefixes("10.244.1.0/24")}},
		Gateways: []Replica{{"gw-a", 1, addrs("10.244.1.9"), ""}},
		Via:      "gw-a",
		Peers: []Peer{{
			ID:       "milan",
			Theirs:   Ranges{Pods: prefixes("10.200.0.0/16"), External: prefixes("10.201.0.0/16")},
			Ours:     maps("10.244.0.0/16", "10.80.0.0/16", "10.70.0.0/16", "10.81.0.0/16"),
			Gateways: []Remote{{1, key(11), netip.MustParseAddrPort("203.0.113.20:51840"), "", ""}},
			Use:      1,
		}},
		Ports: Ports{Overlay: OverlayPort, Tunnel: TunnelPort},
		MTU:   1500,
	}
}

// planRow is a change of small, and what a part of the plan of a host is then.
type planRow struct {
	change func(*Input)
	part   string // rules, routes, peers or allowed addresses of the tunnel, or a set of both families
	want   []string
}

func checkPlanRows(t *testing.T, plan func(*testing.T, Input) State, rows map[string]planRow) {
	t.Helper()
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := small()
			row.change(&in)
			s := plan(t, in)
			got, ok := map[string][]string{"rules": texts(s.Rules), "routes": texts(s.Routes), "peers": texts(s.Device.Peers), "allowed": texts(s.Device.Allowed)}[row.part]
			if !ok {
				got = elementsOf(s, row.part)
			}
			for i := range got {
				got[i] = strings.TrimPrefix(strings.TrimSuffix(got[i], " proto 108"), "table 6171 ")
			}
			require.Equal(t, row.want, got)
		})
	}
}

// What golden texts do not say of nodes.
func TestNodes(t *testing.T) {
	t.Parallel()
	const by = " via 10.244.1.9 dev liqod-vx onlink src 192.168.0.11"
	const byB = " via 10.244.2.9 dev liqod-vx onlink src 192.168.0.11"
	second := func(in *Input) { in.Gateways = append(in.Gateways, Replica{"gw-b", 2, addrs("10.244.2.9"), ""}) }
	theirs := func(r Ranges) func(*Input) { // and nothing else
		return func(in *Input) { in.External, in.Peers[0].Ours, in.Peers[0].Theirs = nil, nil, r }
	}
	pods6 := theirs(Ranges{Pods: prefixes("fd00:aa::/56")})
	checkPlanRows(t, planNode, map[string]planRow{
		"no gateway yet": {func(in *Input) { in.Gateways, in.Via = nil, "" }, "rules", []string{"-4 priority 91 lookup 6171", "-4 priority 93 nop"}},
		"no peer yet":    {func(in *Input) { in.Peers = nil }, "rules", []string{"-4 priority 90 from 10.244.1.9/32 goto 93", "-4 priority 91 lookup 6171", "-4 priority 93 nop"}},
		"a peer brings IPv6": {
			func(in *Input) { in.Peers[0].Theirs.Pods = append(in.Peers[0].Theirs.Pods, prefix("fd00:aa::/56")) }, "rules",
			[]string{"-4 priority 90 from 10.244.1.9/32 goto 93", "-4 priority 91 lookup 6171", "-4 priority 93 nop", "-6 priority 91 lookup 6171", "-6 priority 93 nop"},
		},
		"no range of any": {func(in *Input) { *in = Input{Nodes: in.Nodes, Ports: in.Ports, MTU: 1500}; in.Nodes[0].Pods = nil }, "rules", nil},

		"by the other gateway": {
			func(in *Input) { second(in); in.Via = "gw-b"; theirs(Ranges{Pods: prefixes("10.200.0.0/16")})(in) }, "routes",
			[]string{"10.200.0.0/16" + byB + " mtu 1420"},
		},
		"its peer by another gateway": {
			func(in *Input) { second(in); in.Peers[0].Via = "gw-b" }, "routes",
			[]string{"10.200.0.0/16" + byB + " mtu 1420", "10.201.0.0/16" + byB + " mtu 1420", "10.70.0.0/16" + by, "10.70.0.2/32" + by, "10.70.0.3/32" + byB},
		},
		"without a gateway": {
			func(in *Input) { in.Via = "" }, "routes",
			[]string{"10.70.0.2/32" + by, "unreachable 10.200.0.0/16", "unreachable 10.201.0.0/16", "unreachable 10.70.0.0/16"},
		},
		"a range beyond a hub": {theirs(Ranges{Transit: prefixes("10.9.0.0/16")}), "routes", []string{"10.9.0.0/16" + by + " mtu 1420"}},
		"a peer with a narrow way": {
			func(in *Input) { theirs(Ranges{Pods: prefixes("10.200.0.0/16")})(in); in.Peers[0].MTU = 1300 }, "routes",
			[]string{"10.200.0.0/16" + by + " mtu 1300"},
		},
		"IPv6, on a node without": {pods6, "routes", []string{"fd00:aa::/56 via fe80::fa:aff:fef4:109 dev liqod-vx onlink mtu 1420"}},
		"IPv6, on a node with it": {
			func(in *Input) { pods6(in); in.Nodes[0].Addrs = addrs("192.168.0.11", "fd00:1::11") }, "routes",
			[]string{"fd00:aa::/56 via fe80::fa:aff:fef4:109 dev liqod-vx onlink src fd00:1::11 mtu 1420"},
		},

		"no exposed address": {func(*Input) {}, "hosts", nil},
		"exposed addresses": {
			func(in *Input) {
				in.IPs = []IP{{External: addr("10.70.0.20"), Real: addr("192.168.0.11")}, {External: addr("10.70.0.21"), Real: addr("172.16.5.5")}}
			}, "hosts",
			[]string{"10.70.0.20 : 192.168.0.11", "10.70.0.21 : 172.16.5.5"},
		},
		"pods of other nodes do not keep their source here": {
			func(in *Input) {
				in.Nodes = append(in.Nodes, Host{"rome-2", addrs("192.168.0.12"), prefixes("10.244.2.0/24")})
				in.External, in.Peers = nil, nil
			}, "keep",
			[]string{"10.244.1.0/24 : 10.244.1.0/24"},
		},
		"pods in many small ranges": {
			func(in *Input) {
				in.Nodes[0].Pods = prefixes("10.244.1.0/28", "10.244.7.16/28", "10.244.9.9/32")
				in.External, in.Peers = nil, nil
			}, "keep",
			[]string{"10.244.1.0/28 : 10.244.1.0/28", "10.244.7.16/28 : 10.244.7.16/28", "10.244.9.9 : 10.244.9.9"},
		},
		"no address of the family": {pods6, "node", nil},
	})
	in := small()
	in.Ports.Overlay, in.MTU = 4789, 9000
	link := planNode(t, in).Links[0]
	require.Equal(t, uint16(4789), link.Port)
	require.Equal(t, 8950, link.MTU)
}

// All that concerns peers is gone from a node when they are, and no gateway is left out.
func TestNodeWithoutPeers(t *testing.T) {
	t.Parallel()
	in := rome()
	in.Peers, in.IPs = nil, nil
	s := planNode(t, in)
	for _, r := range s.Routes {
		own := slices.ContainsFunc(in.External, func(p netip.Prefix) bool { return p.Overlaps(r.Dst) })
		require.True(t, own, "%s", r)
	}
	require.Len(t, s.FDB, 2)
	require.Equal(t, []string{"10.70.0.0/16", "fd00:70::/64"}, elementsOf(s, "fabric"))
}

func TestAHostThatIsNotThere(t *testing.T) {
	t.Parallel()
	for name, build := range map[string]func(Input) (State, error){"node": Node, "gateway": Gateway} {
		for _, self := range []string{"", "rome-9", map[string]string{"node": "gw-a", "gateway": "rome-1"}[name]} {
			in := small()
			in.Self = self
			s, err := build(in)
			require.Equal(t, State{}, s)
			require.Equal(t, &FieldError{Host: self, Field: "self", Text: "there is no such " + name}, err)
		}
	}
}

// Nothing of an input is written to, whatever is planned from it.
func TestInputsAreNotChanged(t *testing.T) {
	t.Parallel()
	in := rome()
	planHost(t, Node, in, "rome-2")
	planHost(t, Gateway, in, "gw-b")
	require.Equal(t, rome(), in)
}
