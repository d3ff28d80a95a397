package plan

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// cloud is a cluster as some clouds make it: pods and nodes have addresses of one range, in
// no order. It sees milan as rome does, and milan sees it as it sees rome.
func cloud() Input {
	in := rome()
	in.Pods, in.External = prefixes("10.0.0.0/16"), prefixes("10.70.0.0/16")
	in.Nodes = []Host{
		{"rome-1", addrs("10.0.3.11"), prefixes("10.0.3.77/32", "10.0.9.16/28")},
		{"rome-2", addrs("10.0.4.12"), prefixes("10.0.3.78/32")},
	}
	in.Gateways = []Replica{{"gw-a", 1, addrs("10.0.3.200"), ""}}
	in.Peers = []Peer{{
		ID:       "milan",
		Theirs:   Ranges{Pods: prefixes("10.200.0.0/16"), External: prefixes("10.201.0.0/16")},
		Ours:     maps("10.0.0.0/16", "10.200.0.0/16", "10.70.0.0/16", "10.71.0.0/16"),
		Gateways: []Remote{{1, key(11), netip.MustParseAddrPort("10.200.7.7:51840"), "", ""}},
		Use:      1,
		Reach:    prefixes("10.0.0.0/16"),
	}}
	in.IPs = []IP{{External: addr("10.70.0.20"), Real: addr("10.0.4.12")}, {External: addr("10.70.0.21"), Real: addr("10.0.250.5")}}
	in.MTU = 9001
	return in
}

func clouds(t *testing.T, change func(rome, milan *Input)) *world {
	t.Helper()
	return romeAndMilan(t, func(rome, milan *Input) {
		*rome = cloud()
		milan.Peers[0].Theirs = Ranges{Pods: prefixes("10.200.0.0/16"), External: prefixes("10.71.0.0/16")}
		milan.Peers[0].Gateways = milan.Peers[0].Gateways[:1]
	}, change)
}

func TestNodesAndPodsInOneRange(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		from    string
		packet  Packet
		at, as  string
		verdict Verdict
	}{
		"a pod":                            {"rome rome-1", tcp("10.0.3.77", "10.200.2.20"), "milan milan-2", "10.200.3.77 > 10.244.2.20", Handed},
		"a pod of a small range":           {"rome rome-1", tcp("10.0.9.20", "10.200.2.20"), "milan milan-2", "10.200.9.20 > 10.244.2.20", Handed},
		"to a pod":                         {"milan milan-2", tcp("10.244.2.20", "10.200.3.78"), "rome rome-2", "10.200.2.20 > 10.0.3.78", Handed},
		"a node has its own address there": {"rome rome-1", local(tcp("10.0.3.11", "10.200.2.20")), "milan milan-2", "10.200.3.11 > 10.244.2.20", Handed},
		"a node that is exposed has the exposed one": {"rome rome-2", local(tcp("10.0.4.12", "10.200.2.20")), "milan milan-2", "10.71.0.20 > 10.244.2.20", Handed},
		"to a node that is exposed":                  {"milan milan-2", tcp("10.244.2.20", "10.71.0.20"), "rome rome-2", "10.200.2.20 > 10.0.4.12", Delivered},
		"to a machine of the range that is exposed":  {"milan milan-2", tcp("10.244.2.20", "10.71.0.21"), "rome gw-a", "10.0.3.200 > 10.0.250.5", Handed},
		"to a node that is not":                      {"milan milan-2", tcp("10.244.2.20", "10.200.3.11"), "rome gw-a", "10.200.2.20 > 10.0.3.11", Dropped},
		"to a machine of the range that is not":      {"milan milan-2", tcp("10.244.2.20", "10.200.250.9"), "rome gw-a", "10.200.2.20 > 10.0.250.9", Dropped},
		"to the gateway, as what it is at home":      {"milan milan-2", tcp("10.244.2.20", "10.200.3.200"), "rome gw-a", "10.200.2.20 > 10.0.3.200", Dropped},
		"to an exposed node by its own address":      {"milan milan-2", tcp("10.244.2.20", "10.200.4.12"), "rome rome-2", "10.200.2.20 > 10.0.4.12", Delivered},
		"to an exposed machine, by its own, too":     {"milan milan-2", tcp("10.244.2.20", "10.200.250.5"), "rome gw-a", "10.0.3.200 > 10.0.250.5", Handed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := clouds(t, nil)
			got, _ := w.arrives(tc.from, tc.packet, tc.at, tc.verdict, tc.as)
			if tc.verdict != Dropped {
				w.answered(tc.from, tc.packet, tc.at, got)
			}
		})
	}
}

// A node that shares a range with pods is reached by both of its addresses, and by both at
// the ports and from the peer of its IP only.
func TestANodeInARangeOfPodsAtAPort(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		peer  string
		ports []Service
		to    string
		rule  string // it is dropped by
	}{
		"by the exposed address":                  {"milan", []Service{{"tcp", 80}}, "10.71.0.20", ""},
		"by its own":                              {"milan", []Service{{"tcp", 80}}, "10.200.4.12", ""},
		"by the exposed address, at another port": {"milan", []Service{{"tcp", 443}}, "10.71.0.20", DropToPort},
		"by its own, at another port":             {"milan", []Service{{"tcp", 443}}, "10.200.4.12", DropToPort},
		"by the exposed address, another peer":    {"paris", nil, "10.71.0.20", DropToOutside},
		"by its own, another peer":                {"paris", nil, "10.200.4.12", DropToNode},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := clouds(t, func(rome, _ *Input) { rome.IPs[0].Peer, rome.IPs[0].Ports = tc.peer, tc.ports })
			if tc.rule != "" {
				w.drops("milan milan-2", tcp("10.244.2.20", tc.to), "rome gw-a", tc.rule)
				return
			}
			w.arrives("milan milan-2", tcp("10.244.2.20", tc.to), "rome rome-2", Delivered, "10.200.2.20 > 10.0.4.12")
		})
	}
}

// The endpoint of milan is an address that milan's pods have, too: the tunnel goes to the
// one, pods to the other.
func TestAnEndpointWithinAView(t *testing.T) {
	t.Parallel()
	w := clouds(t, nil)
	outer := Packet{Tuple: Tuple{Proto: "udp", Src: addr("10.0.3.200"), Dst: addr("10.200.7.7"), SrcPort: TunnelPort, DstPort: TunnelPort}, Mark: TunnelMark}
	w.arrives("rome gw-a", outer, "rome gw-a", Handed, outer.ends())
	outer.In, outer.Mark = "veth0", 0 // its node forwards it
	w.arrives("rome rome-1", outer, "rome rome-1", Handed, outer.ends())
	w.arrives("rome rome-1", tcp("10.0.3.77", "10.200.7.7"), "milan gw-a", Dropped, "10.200.3.77 > 10.244.7.7") // no node of milan has it
}

// newer has no IPv4 at all.
func newer(id string, n byte) Input {
	in := Input{
		Pods:     prefixes("fd00:10:244::/56"),
		External: prefixes("fd00:70::/64"),
		Nodes:    []Host{{id + "-1", addrs("2001:db8:" + id[:1] + "::11"), prefixes("fd00:10:244:1::/64")}},
		Gateways: []Replica{{"gw-a", 1, addrs("2001:db8:" + id[:1] + "::9"), ""}},
		Via:      "gw-a",
		Peers: []Peer{{
			ID:       "other",
			Theirs:   Ranges{Pods: prefixes("fd00:aa::/56"), External: prefixes("fd00:ab::/64")},
			Ours:     maps("fd00:10:244::/56", "fd00:aa::/56", "fd00:70::/64", "fd00:ab::/64"),
			Gateways: []Remote{{1, key(n), netip.MustParseAddrPort("[2001:db8:99::1]:51840"), "", ""}},
			Use:      1,
			Reach:    prefixes("fd00:10:244::/56"),
		}},
		Ports: Ports{OverlayPort, TunnelPort},
		MTU:   1500,
	}
	return in
}

func TestClustersOfIPv6Only(t *testing.T) {
	t.Parallel()
	w := &world{t: t, hosts: map[string]State{}, under: map[string]string{}, keys: map[string]string{}, flows: map[string]*Flow{}}
	w.cluster("a", newer("a", 2))
	w.cluster("b", newer("b", 1))
	w.keys = map[string]string{key(1): "a gw-a", key(2): "b gw-a"}

	node := w.hosts["a a-1"]
	require.Equal(t, 1430, node.Links[0].MTU)
	for _, r := range node.Rules {
		require.Equal(t, V6, r.Family)
	}
	p := tcp("fd00:10:244:1::5", "fd00:aa:0:1::7")
	got, _ := w.arrives("a a-1", p, "b b-1", Handed, "fd00:aa:0:1::5 > fd00:10:244:1::7")
	w.answered("a a-1", p, "b b-1", got)
	w.arrives("a a-1", local(tcp("2001:db8:a::11", "fd00:aa:0:1::7")), "b b-1", Handed, "fd00:ab::1 > fd00:10:244:1::7") // a node is seen as its gateway
}
