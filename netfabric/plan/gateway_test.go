package plan

import (
	"net/netip"
	"testing"
)

// planGateway plans gw-a of an input.
func planGateway(t *testing.T, in Input) State {
	t.Helper()
	s := planHost(t, Gateway, in, "gw-a")
	checkState(t, s)
	return s
}

// What golden texts do not say of gateways.
func TestGateways(t *testing.T) {
	t.Parallel()
	one, two := key(11), key(12)
	const keptAlive = " persistent-keepalive 25"
	peer := func(change func(*Peer)) func(*Input) { return func(in *Input) { change(&in.Peers[0]) } }
	another := func(p *Peer) { p.Gateways = append(p.Gateways, Remote{2, two, netip.AddrPort{}, "", ""}) }
	none := func(*Input) {}
	nodePods := func(texts ...string) func(*Input) {
		return func(in *Input) { in.Peers, in.Nodes[0].Pods = nil, prefixes(texts...) }
	}
	alone := func(in *Input) { in.Nodes, in.Peers[0].Theirs.External = nil, nil } // the peer, and its pods only
	exposed := func(in *Input) {
		in.IPs = []IP{
			{External: addr("10.70.0.22"), Real: addr("172.16.5.5")},
			{External: addr("10.70.0.21"), Real: addr("172.16.5.5")},
			{External: addr("10.70.0.20"), Real: addr("192.168.0.11")},
		}
		in.Peers[0].Theirs.External = nil
	}
	elsewhere := func(in *Input) {
		exposed(in)
		for i := range in.IPs {
			in.IPs[i].Peer = "turin"
		}
	}
	ported := func(in *Input) {
		exposed(in)
		in.IPs = in.IPs[:2]
		in.IPs[0].Peer, in.IPs[0].Ports = in.Peers[0].ID, []Service{{"tcp", 6443}, {"udp", 53}}
		in.IPs[1].Ports = []Service{{"tcp", 22}, {"tcp", 6443}}
	}
	shared := func(in *Input) { // nodes and pods in one range, as in some clouds
		in.Nodes[0].Addrs = addrs("10.244.200.1")
		in.Nodes = append(in.Nodes, Host{"rome-2", addrs("10.244.200.2"), nil}, Host{"rome-3", addrs("192.168.0.13"), nil})
	}
	const toNode = "table 6172 192.168.0.11/32 via 192.168.0.11 dev liqod-vx onlink"
	checkPlanRows(t, planGateway, map[string]planRow{
		"a gateway with another key": {
			peer(func(p *Peer) { p.Gateways[0].Next = two }), "peers",
			[]string{one + " endpoint 203.0.113.20:51840" + keptAlive, two + " endpoint 203.0.113.20:51840" + keptAlive},
		},
		"which is for nothing yet":          {peer(func(p *Peer) { p.Gateways[0].Next = two }), "allowed", []string{"10.200.0.0/16 of " + one, "10.201.0.0/16 of " + one, "10.201.0.2/32 of " + one}},
		"two gateways, without an endpoint": {peer(another), "peers", []string{one + " endpoint 203.0.113.20:51840" + keptAlive, two + keptAlive}},
		"the second in use": {
			peer(func(p *Peer) { another(p); p.Use = 2 }), "allowed",
			[]string{"10.200.0.0/16 of " + two, "10.201.0.0/16 of " + two, "10.201.0.2/32 of " + one, "10.201.0.3/32 of " + two},
		},
		"none in use":                   {peer(func(p *Peer) { p.Use = 0 }), "allowed", []string{"10.201.0.2/32 of " + one}},
		"no gateway yet":                {peer(func(p *Peer) { p.Use, p.Gateways = 0, nil }), "peers", nil},
		"a peer without external range": {peer(func(p *Peer) { p.Theirs.External = nil }), "allowed", []string{"10.200.0.0/16 of " + one}},
		"ranges behind a hub": {
			peer(func(p *Peer) { p.Theirs.Transit = prefixes("10.9.0.0/16", "10.8.0.0/16") }), "allowed",
			[]string{"10.200.0.0/16 of " + one, "10.201.0.0/16 of " + one, "10.201.0.2/32 of " + one, "10.8.0.0/16 of " + one, "10.9.0.0/16 of " + one},
		},

		"whichever of its gateways is in use, or none": {
			func(in *Input) { alone(in); in.Peers[0].Use = 0 }, "routes", []string{"10.200.0.0/16 dev liqod-wg src 10.70.0.1 mtu 1420"},
		},
		"a peer with a narrow way": {func(in *Input) { alone(in); in.Peers[0].MTU = 1300 }, "routes", []string{"10.200.0.0/16 dev liqod-wg src 10.70.0.1 mtu 1300"}},
		"without own external range": {
			func(in *Input) { alone(in); in.External, in.Peers[0].Ours = nil, in.Peers[0].Ours[:1] }, "routes", []string{"10.200.0.0/16 dev liqod-wg mtu 1420"},
		},
		"a node without pod range": {nodePods(), "routes", []string{toNode}},
		"a node with many": {
			nodePods("10.244.7.16/28", "10.244.9.9/32"), "routes",
			[]string{"table 6172 10.244.7.16/28 via 192.168.0.11 dev liqod-vx onlink", "table 6172 10.244.9.9/32 via 192.168.0.11 dev liqod-vx onlink", toNode},
		},
		"a node whose address is one of its pods' range": {
			func(in *Input) { nodePods("10.244.5.5/32")(in); in.Nodes[0].Addrs = addrs("10.244.5.5") }, "routes",
			[]string{"table 6172 10.244.5.5/32 via 10.244.5.5 dev liqod-vx onlink"},
		},
		"IPv6 addresses where nothing else has them": {func(in *Input) { nodePods()(in); in.Nodes[0].Addrs = addrs("192.168.0.11", "fd00:1::11") }, "routes", []string{toNode}},

		"nothing exposed":        {none, "hosts_in", nil},
		"nothing outside":        {none, "targets", nil},
		"nothing closed":         {none, "closed", nil},
		"exposed, in":            {exposed, "hosts_in", []string{"10.200.0.0/16 . 10.81.0.20 : 192.168.0.11", "10.200.0.0/16 . 10.81.0.21 : 172.16.5.5", "10.200.0.0/16 . 10.81.0.22 : 172.16.5.5"}},
		"exposed, out":           {exposed, "hosts_out", []string{"10.200.0.0/16 . 172.16.5.5 : 10.81.0.21", "10.200.0.0/16 . 192.168.0.11 : 10.81.0.20"}},
		"exposed, outside":       {exposed, "targets", []string{"10.200.0.0/16 . 172.16.5.5"}},
		"nodes that are no pods": {shared, "closed", []string{"10.244.200.1", "10.244.200.2"}},
		"nodes that are exposed": {
			func(in *Input) { shared(in); in.IPs = []IP{{External: addr("10.70.0.20"), Real: addr("10.244.200.2")}} },
			"open",
			[]string{"10.200.0.0/16 . 10.244.200.2", "10.201.0.0/16 . 10.244.200.2"},
		},
		"nodes that are no pods, and not closed": {exposed, "open", nil},
		"exposed to another peer, in":            {elsewhere, "hosts_in", nil},
		"exposed to another peer, out":           {elsewhere, "hosts_out", nil},
		"exposed to another peer, outside":       {elsewhere, "targets", nil},
		"exposed to this peer":                   {ported, "hosts_in", []string{"10.200.0.0/16 . 10.81.0.21 : 172.16.5.5", "10.200.0.0/16 . 10.81.0.22 : 172.16.5.5"}},
		"exposed at ports": {
			ported, "ports",
			[]string{"10.200.0.0/16 . 172.16.5.5 . tcp . 22", "10.200.0.0/16 . 172.16.5.5 . tcp . 6443", "10.200.0.0/16 . 172.16.5.5 . udp . 53"},
		},
		"at no other port":                        {ported, "limited", []string{"10.200.0.0/16 . 172.16.5.5"}},
		"at ports, and by another address at all": {func(in *Input) { ported(in); in.IPs[1].Ports = nil }, "limited", nil},
		"at ports, and by another peer's address at all": {
			func(in *Input) { ported(in); in.IPs[1].Peer, in.IPs[1].Ports = "turin", nil },
			"ports",
			[]string{"10.200.0.0/16 . 172.16.5.5 . tcp . 6443", "10.200.0.0/16 . 172.16.5.5 . udp . 53"},
		},
		"a node that is exposed at ports is not open": {
			func(in *Input) {
				shared(in)
				in.IPs = []IP{{External: addr("10.70.0.20"), Real: addr("10.244.200.2"), Ports: []Service{{"tcp", 6443}}}}
			},
			"open", nil,
		},
		"exposed, to a peer without external range": {func(in *Input) { exposed(in); in.Peers[0].Ours = in.Peers[0].Ours[:1] }, "hosts_in", nil},
		"nor has such a peer a gateway to see":      {func(in *Input) { in.Peers[0].Ours = in.Peers[0].Ours[:1] }, "gateway", nil},
		"a peer that is given nothing":              {func(in *Input) { in.Peers[0].Ours = nil }, "pairs", nil},
		"a peer of another family":                  {func(in *Input) { in.Peers[0].Theirs = Ranges{Pods: prefixes("fd00:aa::/56")} }, "pairs", nil},
		"ranges that are seen as they are": {
			func(in *Input) { in.Peers[0].Ours[0].View = in.Pods[0]; in.Peers[0].Theirs.External = nil },
			"snat",
			[]string{"10.200.0.0/16 . 10.244.0.0/16 : 10.244.0.0/16", "10.200.0.0/16 . 10.70.0.0/16 : 10.81.0.0/16"},
		},
		"two peers that give us the same view": {
			func(in *Input) {
				in.Peers[0].Theirs.External = nil
				in.Peers = append(in.Peers, Peer{ID: "turin", Theirs: Ranges{Pods: prefixes("10.210.0.0/16")}, Ours: maps("10.70.0.0/16", "10.80.0.0/16")})
			},
			"dnat",
			[]string{"10.200.0.0/16 . 10.80.0.0/16 : 10.244.0.0/16", "10.200.0.0/16 . 10.81.0.0/16 : 10.70.0.0/16", "10.210.0.0/16 . 10.80.0.0/16 : 10.70.0.0/16"},
		},
		"a peer that sees us as we see it": {
			func(in *Input) { in.Peers[0].Theirs.External = nil; in.Peers[0].Ours[0].View = prefix("10.200.0.0/16") },
			"dnat",
			[]string{"10.200.0.0/16 . 10.200.0.0/16 : 10.244.0.0/16", "10.200.0.0/16 . 10.81.0.0/16 : 10.70.0.0/16"},
		},
		"a hub": {
			func(in *Input) {
				in.Peers[0].Theirs.External = nil
				in.Peers = append(in.Peers, Peer{ID: "turin", Theirs: Ranges{Pods: prefixes("10.210.0.0/16")}, Ours: maps("10.200.0.0/16", "10.99.0.0/16")})
				in.Peers[0].Ours = maps("10.210.0.0/16", "10.98.0.0/16")
			},
			"snat",
			[]string{"10.200.0.0/16 . 10.210.0.0/16 : 10.98.0.0/16", "10.210.0.0/16 . 10.200.0.0/16 : 10.99.0.0/16"},
		},
	})
}
