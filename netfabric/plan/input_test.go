package plan

import (
	"encoding/base64"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// key is the public key number n.
func key(n byte) string {
	raw := make([]byte, 32)
	raw[0] = n
	return base64.StdEncoding.EncodeToString(raw)
}

func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, prefix(s))
	}
	return out
}

func addrs(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, addr(s))
	}
	return out
}

func maps(pairs ...string) (out Maps) {
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, Map{prefix(pairs[i]), prefix(pairs[i+1])})
	}
	return out
}

// rome is a cluster with two nodes, two gateways and two peers. milan has the same ranges as
// rome, and each sees the other's pods under one and the same view. paris has ranges of its
// own, and nothing is translated between the two.
func rome() Input {
	return Input{
		Self:     "rome-1",
		Pods:     prefixes("10.244.0.0/16", "fd00:10:244::/56"),
		External: prefixes("10.70.0.0/16", "fd00:70::/64"),
		Nodes: []Host{
			{"rome-1", addrs("192.168.0.11", "fd00:1::11"), prefixes("10.244.1.0/24", "fd00:10:244:1::/64")},
			{"rome-2", addrs("192.168.0.12", "fd00:1::12"), prefixes("10.244.2.0/24", "fd00:10:244:2::/64")},
		},
		Gateways: []Replica{{"gw-a", 1, addrs("10.244.1.9", "fd00:10:244:1::9"), ""}, {"gw-b", 2, addrs("10.244.2.9", "fd00:10:244:2::9"), ""}},
		Via:      "gw-a",
		Peers: []Peer{
			{
				ID:     "milan",
				Theirs: Ranges{Pods: prefixes("10.200.0.0/16", "fd00:aa::/56"), External: prefixes("10.201.0.0/16", "fd00:ab::/64")},
				Ours: maps(
					"10.244.0.0/16", "10.200.0.0/16", "10.70.0.0/16", "10.71.0.0/16",
					"fd00:10:244::/56", "fd00:ba::/56", "fd00:70::/64", "fd00:bb::/64"),
				Gateways: []Remote{
					{1, key(11), netip.MustParseAddrPort("203.0.113.20:51840"), "", ""},
					{2, key(12), netip.MustParseAddrPort("[2001:db8::20]:51840"), "", ""},
				},
				Use:   1,
				Reach: prefixes("10.244.0.0/16", "fd00:10:244::/56"),
			},
			{
				ID:       "paris",
				Theirs:   Ranges{Pods: prefixes("10.1.0.0/16"), External: prefixes("10.202.0.0/16")},
				Ours:     maps("10.244.0.0/16", "10.244.0.0/16", "10.70.0.0/16", "10.70.0.0/16"),
				Gateways: []Remote{{1, key(21), netip.AddrPort{}, "", ""}},
				Use:      1,
				MTU:      1370,
				Reach:    prefixes("10.244.1.10/32", "10.244.2.10/32"),
			},
		},
		IPs: []IP{
			{External: addr("10.70.0.20"), Real: addr("192.168.0.12")}, // a pod in the host network of rome-2
			{External: addr("10.70.0.21"), Real: addr("172.16.5.5")},   // a printer
			{External: addr("10.70.0.22"), Real: addr("172.16.5.5")},   // and again
		},
		Ports: Ports{Overlay: OverlayPort, Tunnel: TunnelPort},
		MTU:   1500,
	}
}

// milan is the other end of rome's peering with it.
func milan() Input {
	return Input{
		Self:     "milan-1",
		Pods:     prefixes("10.244.0.0/16", "fd00:10:244::/56"),
		External: prefixes("10.70.0.0/16", "fd00:70::/64"),
		Nodes: []Host{
			{"milan-1", addrs("192.168.0.21", "fd00:2::21"), prefixes("10.244.1.0/24", "fd00:10:244:1::/64")},
			{"milan-2", addrs("192.168.0.22", "fd00:2::22"), prefixes("10.244.2.0/24", "fd00:10:244:2::/64")},
		},
		Gateways: []Replica{{"gw-a", 1, addrs("192.168.0.23", "fd00:2::23"), ""}, {"gw-b", 2, addrs("192.168.0.24", "fd00:2::24"), ""}},
		Via:      "gw-a",
		Peers: []Peer{{
			ID:     "rome",
			Theirs: Ranges{Pods: prefixes("10.200.0.0/16", "fd00:ba::/56"), External: prefixes("10.71.0.0/16", "fd00:bb::/64")},
			Ours: maps(
				"10.244.0.0/16", "10.200.0.0/16", "10.70.0.0/16", "10.201.0.0/16",
				"fd00:10:244::/56", "fd00:aa::/56", "fd00:70::/64", "fd00:ab::/64"),
			Gateways: []Remote{{1, key(1), netip.AddrPort{}, "", ""}, {2, key(2), netip.AddrPort{}, "", ""}},
			Use:      1,
			Reach:    prefixes("10.244.0.0/16", "fd00:10:244::/56"),
		}},
		Ports: Ports{Overlay: OverlayPort, Tunnel: TunnelPort},
		MTU:   1500,
	}
}

func TestWhatAnInputMayLack(t *testing.T) {
	t.Parallel()
	require.NoError(t, Input{Ports: Ports{1, 2}, MTU: 1500}.Check(), "a cluster without anything")
	small := rome()
	small.Peers[1].MTU = 1000
	require.NoError(t, small.Check(), "IPv6 of others does not matter to a peer without IPv6")
}

func TestGatewayAddresses(t *testing.T) {
	t.Parallel()
	require.Equal(t, addr("10.70.0.1"), GatewayAddr(prefix("10.70.0.0/16")))
	require.Equal(t, addr("10.70.0.2"), ReplicaAddr(prefix("10.70.0.0/16"), 1))
	require.Equal(t, addr("10.70.0.15"), ReplicaAddr(prefix("10.70.0.0/16"), MaxReplicas))
	require.Equal(t, addr("10.70.0.225"), GatewayAddr(prefix("10.70.0.224/27")))
	require.Equal(t, addr("fd00:70::3"), ReplicaAddr(prefix("fd00:70::/64"), 2))
	require.Equal(t, addr("fd00:70::e3"), ReplicaAddr(prefix("fd00:70::e0/123"), 2))
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*Input)
		want   string // a line for each error, with a part of its text
	}{
		"a pod range with host bits":          {func(in *Input) { in.Pods[0] = prefix("10.244.0.1/16") }, "pods: 10.244.0.1/16 has bits beyond its length: write 10.244.0.0/16"},
		"the same pod range twice":            {func(in *Input) { in.Pods = append(in.Pods, prefix("10.244.0.0/16")) }, "pods: overlaps 10.244.0.0/16 of pods"},
		"external within pods":                {func(in *Input) { in.External[0], in.IPs = prefix("10.244.128.0/24"), nil; in.Peers = nil }, "external: 10.244.128.0/24 overlaps 10.244.0.0/16 of pods"},
		"two external ranges of IPv4":         {func(in *Input) { in.External = append(in.External, prefix("10.75.0.0/16")) }, "external: second of IPv4: one is accepted"},
		"a narrow external range":             {func(in *Input) { in.External[0], in.IPs = prefix("10.70.0.0/28"), nil }, "external: narrower than /27"},
		"a narrow external range of IPv6":     {func(in *Input) { in.External[1] = prefix("fd00:70::/124") }, "external: narrower than /123"},
		"no port":                             {func(in *Input) { in.Ports.Tunnel = 0 }, "ports: 6091 and 0"},
		"one port":                            {func(in *Input) { in.Ports.Tunnel = 6091 }, "ports: two different"},
		"no MTU":                              {func(in *Input) { in.MTU = 0 }, "mtu: 1360 to 65535 is accepted"},
		"small MTU":                           {func(in *Input) { in.MTU = 1359 }, "mtu: leaves 1279 to packets"},
		"large MTU":                           {func(in *Input) { in.MTU = 65536 }, "mtu: accepted"},
		"a peer's MTU":                        {func(in *Input) { in.Peers[0].MTU = 1279 }, `peer "milan": peers.mtu: 0, and 1280 to 65535`},
		"the MTU of a peer without IPv6":      {func(in *Input) { in.Peers[1].MTU = 575 }, `peer "paris": peers.mtu: 0, and 576 to 65535`},
		"a node without name":                 {func(in *Input) { in.Nodes[1].Name = "" }, "nodes: a name is missing"},
		"a node twice":                        {func(in *Input) { in.Nodes[1].Name = "rome-1" }, `host "rome-1": nodes: twice`},
		"a node without address":              {func(in *Input) { in.Nodes[1].Addrs = nil }, `host "rome-2": nodes: it has no IPv4 address`},
		"a node without the gateways' family": {func(in *Input) { in.Nodes[1].Addrs = addrs("fd00:1::12") }, `host "rome-2": nodes: it has no IPv4 address`},
		"a node with two addresses":           {func(in *Input) { in.Nodes[1].Addrs = addrs("192.168.0.12", "192.168.0.13") }, `host "rome-2": nodes: second address of IPv4`},
		"a node with a strange address":       {func(in *Input) { in.Nodes[1].Addrs = addrs("127.0.0.1", "192.168.0.12") }, `host "rome-2": nodes: 127.0.0.1 is no address of a host`},
		"a node with a zone":                  {func(in *Input) { in.Nodes[1].Addrs = addrs("192.168.0.12", "fe80::1%eth0") }, `host "rome-2": nodes: plain IPv4 and IPv6`},
		"two nodes with one address":          {func(in *Input) { in.Nodes[1].Addrs = addrs("192.168.0.11") }, `host "rome-2": nodes: 192.168.0.11 is the address of "rome-1"`},
		"a gateway with a node's address":     {func(in *Input) { in.Gateways[1].Addrs = addrs("192.168.0.11") }, `host "gw-b": gateways: 192.168.0.11 is the address of "rome-1"`},
		"pods outside the ranges":             {func(in *Input) { in.Nodes[1].Pods[0] = prefix("10.9.0.0/24") }, `host "rome-2": nodes.pods: not within the own pod ranges`},
		"pods wider than the ranges":          {func(in *Input) { in.Nodes[1].Pods[0] = prefix("10.0.0.0/8") }, `host "rome-2": nodes.pods: not within the own pod ranges`},
		"pods of another node":                {func(in *Input) { in.Nodes[1].Pods[0] = prefix("10.244.1.128/25") }, `host "rome-2": nodes.pods: 10.244.1.128/25 overlaps 10.244.1.0/24 of nodes.pods rome-1`},
		"a gateway twice":                     {func(in *Input) { in.Gateways[1].Name = "gw-a" }, `host "gw-a": gateways: twice`},
		"a number twice":                      {func(in *Input) { in.Gateways[1].Number = 1 }, `host "gw-b": gateways: number 1 is that of "gw-a"`},
		"no number":                           {func(in *Input) { in.Gateways[1].Number = 0 }, `host "gw-b": gateways: number 0: 1 to 14 is accepted`},
		"a large number":                      {func(in *Input) { in.Gateways[1].Number = 15 }, `host "gw-b": gateways: number 15`},
		"by an unknown gateway":               {func(in *Input) { in.Via = "gw-z" }, `via: there is no gateway "gw-z"`},
		"a peer without id":                   {func(in *Input) { in.Peers[1].ID = "" }, "peers.id: missing"},
		"a peer twice":                        {func(in *Input) { in.Peers[1].ID = "milan" }, `peer "milan": peers.id: twice`},
		"a peer's range with host bits":       {func(in *Input) { in.Peers[1].Theirs.Transit = prefixes("10.5.5.5/16") }, `peer "paris": peers.theirs: write 10.5.0.0/16`},
		"a peer that is the Internet":         {func(in *Input) { in.Peers[1].Theirs.Pods = prefixes("0.0.0.0/0") }, `peer "paris": peers.theirs: wider than /8`},
		"a peer's narrow external range":      {func(in *Input) { in.Peers[1].Theirs.External[0] = prefix("10.202.0.0/30") }, `peer "paris": peers.theirs.external: narrower than /27`},
		"a peer in the own pods":              {func(in *Input) { in.Peers[1].Theirs.Pods[0] = prefix("10.244.7.0/24") }, `peer "paris": peers.theirs: 10.244.7.0/24 overlaps 10.244.0.0/16 of pods`},
		"a peer around the own pods":          {func(in *Input) { in.Peers[1].Theirs.Pods[0] = prefix("10.240.0.0/12") }, `peer "paris": peers.theirs: 10.240.0.0/12 overlaps 10.244.0.0/16 of pods`},
		"a peer in another":                   {func(in *Input) { in.Peers[1].Theirs.Pods[0] = prefix("10.200.9.0/24") }, `peer "paris": peers.theirs: 10.200.9.0/24 overlaps 10.200.0.0/16 of peers.theirs milan`},
		"a peer over a node": {func(in *Input) { in.Peers[1].Theirs.Pods[0] = prefix("192.168.0.0/24") }, `peer "paris": peers.theirs: 192.168.0.0/24 overlaps 192.168.0.11/32 of nodes rome-1
peer "paris": peers.theirs: 192.168.0.0/24 overlaps 192.168.0.12/32 of nodes rome-2
peer "paris": peers.theirs: 192.168.0.0/24 overlaps 192.168.0.12/32 of ips`},
		"a view of another length": {func(in *Input) { in.Peers[1].Ours[0].View = prefix("10.244.0.0/17") }, `peer "paris": peers.ours: different lengths`},
		"two views that overlap":   {func(in *Input) { in.Peers[1].Ours[0].View = prefix("10.70.0.0/16") }, `peer "paris": peers.ours: 10.70.0.0/16 overlaps 10.70.0.0/16 of peers.ours paris`},
		"a range given twice":      {func(in *Input) { in.Peers[1].Ours[1] = Map{prefix("10.244.0.0/16"), prefix("10.99.0.0/16")} }, `peer "paris": peers.ours: 10.244.0.0/16 overlaps 10.244.0.0/16`},
		"a range that is not ours": {func(in *Input) { in.Peers[1].Ours[0] = Map{prefix("10.9.0.0/16"), prefix("10.9.0.0/16")} }, `peer "paris": peers.ours: 10.9.0.0/16 is neither an own range nor one of another peer`},
		"a peer's own range":       {func(in *Input) { in.Peers[1].Ours[0] = Map{prefix("10.1.0.0/16"), prefix("10.1.0.0/16")} }, `peer "paris": peers.ours: 10.1.0.0/16 is neither an own range nor one of another peer`},
		"a short key":              {func(in *Input) { in.Peers[1].Gateways[0].Key = "c2hvcnQ=" }, `peer "paris": peers.gateways.key: the base64 of 32 bytes`},
		"a key of another peer":    {func(in *Input) { in.Peers[1].Gateways[0].Key = key(11) }, `peer "paris": peers.gateways.key: is a key of peer "milan"`},
		"an endpoint without port": {func(in *Input) { in.Peers[1].Gateways[0].Endpoint = netip.MustParseAddrPort("192.0.2.1:0") }, `peer "paris": peers.gateways.endpoint: has no port`},
		"an endpoint here":         {func(in *Input) { in.Peers[1].Gateways[0].Endpoint = netip.MustParseAddrPort("[::1]:51840") }, `peer "paris": peers.gateways.endpoint: ::1 is no address of a host`},
		"a peer's number": {func(in *Input) { in.Peers[1].Gateways[0].Number = -1 }, `peer "paris": peers.gateways: number -1
peer "paris": peers.use: there is no gateway 1`},
		"a gateway that is gone":                {func(in *Input) { in.Peers[1].Use = 2 }, `peer "paris": peers.use: there is no gateway 2`},
		"an address of gateways without a port": {func(in *Input) { in.IPs[0].Real = in.IPs[0].External }, "ips: 10.70.0.20 is an address of gateways, and has no port"},
		"an external address elsewhere":         {func(in *Input) { in.IPs[0].External = addr("10.99.0.20") }, "ips: 10.99.0.20 is not an address of the external ranges"},
		"an external address of the gateways":   {func(in *Input) { in.IPs[0].External = addr("10.70.0.15") }, "ips: behind their first 16"},
		"an external address twice":             {func(in *Input) { in.IPs[0].External = addr("10.70.0.21") }, "ips: 10.70.0.21 is there twice"},
		"addresses of both families":            {func(in *Input) { in.IPs[0].Real = addr("fd00:1::12") }, "ips: different IP versions"},
		"the cloud's metadata":                  {func(in *Input) { in.IPs[0].Real = addr("169.254.169.254") }, "ips: 169.254.169.254 is no address of a host"},
		"a port of a protocol without ports":    {func(in *Input) { in.IPs[0].Ports = []Service{{"tcp", 80}, {"icmp", 8}} }, `ips: port 8 of protocol "icmp" of 10.70.0.20`},
		"port 0":                                {func(in *Input) { in.IPs[0].Ports = []Service{{"udp", 0}} }, `ips: port 0 of protocol "udp" of 10.70.0.20`},
		"a real address in the external range":  {func(in *Input) { in.IPs[0].Real = addr("10.70.0.99") }, "ips: 10.70.0.20 leads to 10.70.0.99 of the external range"},
		"a real address of a peer":              {func(in *Input) { in.IPs[0].Real = addr("10.1.0.7") }, `peer "paris": peers.theirs: 10.1.0.0/16 overlaps 10.1.0.7/32 of ips`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := rome()
			tc.change(&in)
			got := fieldErrors(in.Check())
			want := strings.Split(tc.want, "\n")
			require.Len(t, got, len(want))
			for i, e := range got {
				part, ok := strings.CutPrefix(want[i], strings.TrimSuffix(e.Error(), e.Text))
				require.True(t, ok, e.Error())
				require.Contains(t, e.Text, part)
			}
			for _, build := range []func(Input) (State, error){Node, Gateway} {
				s, err := build(in)
				require.Error(t, err)
				require.Equal(t, State{}, s)
			}
		})
	}
}

func fieldErrors(err error) (out []FieldError) {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil
	}
	for _, one := range joined.Unwrap() {
		if e, ok := one.(*FieldError); ok {
			out = append(out, *e)
		}
	}
	return out
}

func TestAllErrorsAreTold(t *testing.T) {
	t.Parallel()
	in := rome()
	in.MTU, in.Ports.Overlay, in.Peers[0].Gateways[0].Key, in.Nodes[0].Addrs = 9, 0, "", nil
	require.EqualError(t, in.Check(), `ports: 0 and 51840: two different ports from 1 to 65535 are accepted
host "rome-1": nodes: it has no IPv4 address, which the others are reached by
peer "milan": peers.gateways.key: "": the base64 of 32 bytes is accepted
mtu: 9 leaves -71 to packets: 1360 to 65535 is accepted`)
}

func TestTheUnderlayIsIPv6WhereAGatewayOrEveryNodeHasNothingElse(t *testing.T) {
	t.Parallel()
	in := rome()
	require.Equal(t, V4, in.underlay())
	for i := range in.Nodes {
		in.Nodes[i].Addrs = addrs("fd00:10:244:2::" + string('a'+rune(i)))
	}
	require.Equal(t, V6, in.underlay(), "the gateways have both")
	require.NoError(t, in.Check())
	in.Nodes[0].Addrs = addrs("192.168.0.11")
	require.Equal(t, V4, in.underlay(), "one node has no IPv6")
	in = rome()
	in.Gateways[1].Addrs = addrs("fd00:10:244:2::9")
	require.Equal(t, V6, in.underlay())
	require.NoError(t, in.Check())
	in.Nodes[1].Addrs = addrs("192.168.0.12")
	require.Equal(t, "it has no IPv6 address, which the others are reached by", fieldErrors(in.Check())[0].Text)
}

// What a peer reaches is of own pods, or of ranges of third clusters that it is given, each once. An address
// means one thing to a pod that lives at home: what a peer says of its ranges does not stop the others.
func TestPartsOfRanges(t *testing.T) {
	t.Parallel()
	lives := livesAtHome(milan())
	require.NoError(t, hub().Check())
	require.NoError(t, lives.Check())
	refused := func(in Input, field, name string, change func(*Peer)) {
		change(&in.Peers[0])
		require.ErrorContains(t, in.Check(), field, name)
	}
	for name, reach := range map[string][]netip.Prefix{
		"a node":           prefixes("192.168.0.11/32"),
		"the peer itself":  prefixes("10.200.1.1/32"),
		"host bits":        prefixes("10.244.1.10/24"),
		"nothing":          {{}},
		"a pod twice":      prefixes("10.244.1.10/32", "10.244.1.10/32"),
		"a pod in a range": prefixes("10.244.1.10/32", "10.244.0.0/16"),
	} {
		refused(rome(), "peers.reach", name, func(p *Peer) { p.Reach = reach })
	}
	for name, through := range map[string][]netip.Prefix{
		"an own pod":       prefixes("10.244.1.10/32"),
		"the peer itself":  prefixes("10.200.2.20/32"),
		"not given":        prefixes("10.202.0.1/32"),
		"host bits":        prefixes("10.1.1.5/24"),
		"a pod twice":      prefixes("10.1.1.5/32", "10.1.1.5/32"),
		"a pod in a range": prefixes("10.1.1.5/32", "10.1.0.0/16"),
	} {
		refused(hub(), "peers.through", name, func(p *Peer) { p.Through = through })
	}
	for _, at := range []string{"192.168.0.11:30080", "10.200.1.1:30080", "10.244.1.8:0"} {
		refused(rome(), "peers.ports", at, func(p *Peer) { p.Ports = []netip.AddrPort{netip.MustParseAddrPort(at)} })
	}
	refused(rome(), "peers.ports", "nothing", func(p *Peer) { p.Ports = []netip.AddrPort{{}} })
	refused(lives, "peers.meant", "two things", func(p *Peer) { p.Meant = append(p.Meant, maps("10.96.128.0/24", "10.99.0.0/24")...) })
}
