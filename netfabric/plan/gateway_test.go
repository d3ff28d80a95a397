package plan

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// planGateway plans gw-a of an input.
func planGateway(t *testing.T, in Input) State {
	t.Helper()
	s := planHost(t, Gateway, in, "gw-a")
	checkState(t, s)
	return s
}

func TestGatewayLinksAndAddresses(t *testing.T) {
	t.Parallel()
	s := planGateway(t, small())
	require.Equal(t, []string{
		"liqod-vx mtu 1450 address 02:fa:0a:f4:01:09 type vxlan id 6091 local 10.244.1.9 dstport 6091 nolearning",
		"liqod-wg mtu 1420 type wireguard",
	}, texts(s.Links))
	require.Equal(t, []string{"10.70.0.1/32 dev liqod-wg nodad", "10.70.0.2/32 dev liqod-wg nodad"}, texts(s.Addrs))
	require.Equal(t, []string{
		"net/ipv4/conf/all/rp_filter = 0", "net/ipv4/conf/default/rp_filter = 0", "net/ipv4/ip_forward = 1",
		"net/netfilter/nf_conntrack_tcp_be_liberal = 1",
	}, texts(s.Sysctls))
}

func TestGatewayDevice(t *testing.T) {
	t.Parallel()
	one, two := key(11), key(12)
	endpoint := netip.MustParseAddrPort("203.0.113.20:51840")
	for name, tc := range map[string]struct {
		change  func(*Peer)
		peers   []Tunnel
		allowed []Allowed
	}{
		"one gateway": {
			func(*Peer) {},
			[]Tunnel{{one, endpoint, TunnelKeepalive}},
			[]Allowed{{one, prefix("10.200.0.0/16")}, {one, prefix("10.201.0.0/16")}, {one, prefix("10.201.0.2/32")}},
		},
		"two gateways, the first in use": {
			func(p *Peer) { p.Gateways = append(p.Gateways, Remote{2, two, netip.AddrPort{}, "", ""}) },
			[]Tunnel{{one, endpoint, TunnelKeepalive}, {two, netip.AddrPort{}, TunnelKeepalive}},
			[]Allowed{
				{one, prefix("10.200.0.0/16")}, {one, prefix("10.201.0.0/16")},
				{one, prefix("10.201.0.2/32")}, {two, prefix("10.201.0.3/32")},
			},
		},
		"a gateway with another key": {
			func(p *Peer) { p.Gateways[0].Next = two },
			[]Tunnel{{one, endpoint, TunnelKeepalive}, {two, endpoint, TunnelKeepalive}},
			[]Allowed{{one, prefix("10.200.0.0/16")}, {one, prefix("10.201.0.0/16")}, {one, prefix("10.201.0.2/32")}},
		},
		"two gateways, the second in use": {
			func(p *Peer) { p.Gateways, p.Use = append(p.Gateways, Remote{2, two, netip.AddrPort{}, "", ""}), 2 },
			[]Tunnel{{one, endpoint, TunnelKeepalive}, {two, netip.AddrPort{}, TunnelKeepalive}},
			[]Allowed{
				{two, prefix("10.200.0.0/16")}, {two, prefix("10.201.0.0/16")},
				{one, prefix("10.201.0.2/32")}, {two, prefix("10.201.0.3/32")},
			},
		},
		"none in use": {
			func(p *Peer) { p.Use = 0 },
			[]Tunnel{{one, endpoint, TunnelKeepalive}},
			[]Allowed{{one, prefix("10.201.0.2/32")}},
		},
		"none yet": {
			func(p *Peer) { p.Use, p.Gateways = 0, nil },
			nil,
			nil,
		},
		"a peer without external range": {
			func(p *Peer) { p.Theirs.External = nil },
			[]Tunnel{{one, endpoint, TunnelKeepalive}},
			[]Allowed{{one, prefix("10.200.0.0/16")}},
		},
		"a hub": {
			func(p *Peer) { p.Theirs.Transit = prefixes("10.9.0.0/16", "10.8.0.0/16") },
			[]Tunnel{{one, endpoint, TunnelKeepalive}},
			[]Allowed{
				{one, prefix("10.200.0.0/16")}, {one, prefix("10.201.0.0/16")}, {one, prefix("10.201.0.2/32")},
				{one, prefix("10.8.0.0/16")}, {one, prefix("10.9.0.0/16")},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := small()
			tc.change(&in.Peers[0])
			d := planGateway(t, in).Device
			require.Equal(t, Device{Name: TunnelDevice, Port: TunnelPort, Mark: TunnelMark, Peers: tc.peers, Allowed: tc.allowed}, d)
		})
	}
}

func TestGatewayRules(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{
		"-4 priority 90 fwmark 0x6c71 goto 93",
		"-4 priority 91 lookup 6171",
		"-4 priority 92 from 10.70.0.1/32 lookup 6172",
		"-4 priority 92 from 10.70.0.2/32 lookup 6172",
		"-4 priority 92 iif liqod-wg lookup 6172",
		"-4 priority 93 nop",
	}, texts(planGateway(t, small()).Rules))
}

func TestGatewayRoutes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*Input)
		want   []string // without protocol
	}{
		"to peers and nodes": {
			func(*Input) {},
			[]string{
				"table 6171 10.200.0.0/16 dev liqod-wg src 10.70.0.1 mtu 1420",
				"table 6171 10.201.0.0/16 dev liqod-wg src 10.70.0.1 mtu 1420",
				"table 6172 10.244.1.0/24 via 192.168.0.11 dev liqod-vx onlink",
				"table 6172 192.168.0.11/32 via 192.168.0.11 dev liqod-vx onlink",
			},
		},
		"whichever of its gateways is in use, or none": {
			func(in *Input) { in.Peers[0].Use, in.Nodes, in.Peers[0].Theirs.External = 0, nil, nil },
			[]string{"table 6171 10.200.0.0/16 dev liqod-wg src 10.70.0.1 mtu 1420"},
		},
		"a peer with a narrow way": {
			func(in *Input) { in.Peers[0].MTU, in.Nodes, in.Peers[0].Theirs.External = 1300, nil, nil },
			[]string{"table 6171 10.200.0.0/16 dev liqod-wg src 10.70.0.1 mtu 1300"},
		},
		"without own external range": {
			func(in *Input) {
				in.External, in.Nodes, in.Peers[0].Theirs.External = nil, nil, nil
				in.Peers[0].Ours = in.Peers[0].Ours[:1]
			},
			[]string{"table 6171 10.200.0.0/16 dev liqod-wg mtu 1420"},
		},
		"a node without pod range": {
			func(in *Input) { in.Peers, in.Nodes[0].Pods = nil, nil },
			[]string{"table 6172 192.168.0.11/32 via 192.168.0.11 dev liqod-vx onlink"},
		},
		"a node with many": {
			func(in *Input) { in.Peers, in.Nodes[0].Pods = nil, prefixes("10.244.7.16/28", "10.244.9.9/32") },
			[]string{
				"table 6172 10.244.7.16/28 via 192.168.0.11 dev liqod-vx onlink",
				"table 6172 10.244.9.9/32 via 192.168.0.11 dev liqod-vx onlink",
				"table 6172 192.168.0.11/32 via 192.168.0.11 dev liqod-vx onlink",
			},
		},
		"a node whose address is one of its pods' range": {
			func(in *Input) {
				in.Peers, in.Nodes[0].Addrs, in.Nodes[0].Pods = nil, addrs("10.244.5.5"), prefixes("10.244.5.5/32")
			},
			[]string{"table 6172 10.244.5.5/32 via 10.244.5.5 dev liqod-vx onlink"},
		},
		"IPv6 addresses where nothing else has them": {
			func(in *Input) {
				in.Peers, in.Nodes[0].Pods, in.Nodes[0].Addrs = nil, nil, addrs("192.168.0.11", "fd00:1::11")
			},
			[]string{"table 6172 192.168.0.11/32 via 192.168.0.11 dev liqod-vx onlink"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := small()
			tc.change(&in)
			got := texts(planGateway(t, in).Routes)
			for i := range got {
				got[i] = strings.TrimSuffix(got[i], " proto 108")
			}
			require.Equal(t, tc.want, got)
		})
	}
}

func TestGatewayElements(t *testing.T) {
	t.Parallel()
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
	for name, tc := range map[string]struct {
		change func(*Input)
		set    string
		want   []string
	}{
		"pairs": {nil, "pairs", []string{
			"10.200.0.0/16 . 10.80.0.0/16", "10.200.0.0/16 . 10.81.0.0/16", "10.201.0.0/16 . 10.80.0.0/16", "10.201.0.0/16 . 10.81.0.0/16",
		}},
		"destinations": {nil, "dnat", []string{
			"10.200.0.0/16 . 10.80.0.0/16 : 10.244.0.0/16", "10.200.0.0/16 . 10.81.0.0/16 : 10.70.0.0/16",
			"10.201.0.0/16 . 10.80.0.0/16 : 10.244.0.0/16", "10.201.0.0/16 . 10.81.0.0/16 : 10.70.0.0/16",
		}},
		"sources": {nil, "snat", []string{
			"10.200.0.0/16 . 10.244.0.0/16 : 10.80.0.0/16", "10.200.0.0/16 . 10.70.0.0/16 : 10.81.0.0/16",
			"10.201.0.0/16 . 10.244.0.0/16 : 10.80.0.0/16", "10.201.0.0/16 . 10.70.0.0/16 : 10.81.0.0/16",
		}},
		"the gateway":            {nil, "gateway", []string{"10.200.0.0/16 : 10.81.0.1", "10.201.0.0/16 : 10.81.0.1"}},
		"ranges of peers":        {nil, "peers", []string{"10.200.0.0/16", "10.201.0.0/16"}},
		"translated else":        {nil, "own", []string{"10.200.0.0/16", "10.244.0.0/16", "10.70.0.0/16"}},
		"nothing exposed":        {nil, "hosts_in", nil},
		"nothing outside":        {nil, "targets", nil},
		"nothing closed":         {nil, "closed", nil},
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
		"at no other port": {ported, "limited", []string{"10.200.0.0/16 . 172.16.5.5"}},
		"at ports, and by another address at all": {
			func(in *Input) { ported(in); in.IPs[1].Ports = nil }, "limited", nil,
		},
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
		"exposed, to a peer without external range": {
			func(in *Input) { exposed(in); in.Peers[0].Ours = in.Peers[0].Ours[:1] },
			"hosts_in",
			nil,
		},
		"nor has such a peer a gateway to see": {
			func(in *Input) { in.Peers[0].Ours = in.Peers[0].Ours[:1] },
			"gateway",
			nil,
		},
		"a peer that is given nothing": {func(in *Input) { in.Peers[0].Ours = nil }, "pairs", nil},
		"a peer of another family": {
			func(in *Input) { in.Peers[0].Theirs = Ranges{Pods: prefixes("fd00:aa::/56")} },
			"pairs",
			nil,
		},
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
			[]string{
				"10.200.0.0/16 . 10.80.0.0/16 : 10.244.0.0/16", "10.200.0.0/16 . 10.81.0.0/16 : 10.70.0.0/16",
				"10.210.0.0/16 . 10.80.0.0/16 : 10.70.0.0/16",
			},
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
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := small()
			if tc.change != nil {
				tc.change(&in)
			}
			require.Equal(t, tc.want, elementsOf(planGateway(t, in), tc.set))
		})
	}
}

// Elements grow with the peers, not with the pairs of peers; rules do not grow at all.
func TestGatewayScales(t *testing.T) {
	t.Parallel()
	size := func(peers int) (rules, elements, others int) {
		in := small()
		in.Peers = nil
		for i := range peers {
			theirs := netip.PrefixFrom(netip.AddrFrom4([4]byte{11, byte(i), 0, 0}), 16)
			in.Peers = append(in.Peers, Peer{
				ID:       theirs.String(),
				Theirs:   Ranges{Pods: []netip.Prefix{theirs}},
				Ours:     maps("10.244.0.0/16", "10.80.0.0/16", "10.70.0.0/16", "10.81.0.0/16"),
				Gateways: []Remote{{1, key(byte(i)), netip.AddrPort{}, "", ""}},
				Use:      1,
			})
		}
		s := planGateway(t, in)
		for _, c := range s.Table.Chains {
			rules += len(c.Rules)
		}
		return rules, len(s.Table.Elements), len(s.Links) + len(s.Addrs) + len(s.Rules) + len(s.Neighs)
	}
	rules, elements, others := size(1)
	rules100, elements100, others100 := size(100)
	require.Equal(t, rules, rules100)
	require.Equal(t, others, others100)
	require.Less(t, elements100, 100*elements)
}
