package host

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/netfabric/kernel"
	"github.com/liqod/liqod/netfabric/plan"
)

var noon = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

func ranges(texts ...string) (out []netip.Prefix) {
	for _, t := range texts {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}

// publicKeys are those of as many gateways.
func publicKeys(t *testing.T, n int) (out []string) {
	t.Helper()
	for range n {
		out = append(out, newKey(t).Public())
	}
	return out
}

func newKey(t *testing.T) kernel.Key {
	t.Helper()
	key, err := kernel.GenerateKey()
	require.NoError(t, err)
	return key
}

// linked is the Connection to the peer that is the nth to come. Its pods are seen under
// 10.(200+n).0.0/16, its external range under 10.(100+n).0.0/16.
// everyPod is AllPods with networking.reach All.
func everyPod(corev1beta1.Trust) bool { return true }

func linked(peer string, n int, key string) *networkingv1beta1.Connection {
	view := func(second int) networkingv1beta1.CIDR {
		return networkingv1beta1.CIDR(fmt.Sprintf("10.%d.0.0/16", second+n))
	}
	return &networkingv1beta1.Connection{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1beta1.TenantNamespace(peer), Name: peer, Generation: 1, CreationTimestamp: metav1.NewTime(noon.Add(time.Duration(n) * time.Minute))},
		Spec: networkingv1beta1.ConnectionSpec{
			ClusterID: peer, MTU: 1400,
			Local: []networkingv1beta1.Mapping{
				{Own: "10.244.0.0/16", View: "10.50.0.0/16", Use: networkingv1beta1.RangePod},
				{Own: "10.70.0.0/16", View: "10.51.0.0/16", Use: networkingv1beta1.RangeExternal},
			},
			Remote: []networkingv1beta1.Mapping{
				{Own: "10.244.0.0/16", View: view(200), Use: networkingv1beta1.RangePod},
				{Own: "10.70.0.0/16", View: view(100), Use: networkingv1beta1.RangeExternal},
			},
			Gateways: []networkingv1beta1.Gateway{{Name: "gw", Number: 1, PublicKey: key, Endpoints: []networkingv1beta1.Endpoint{{Address: "203.0.113.7", Port: 51840}}}},
		},
	}
}

func hostNode(name, address string, podCIDRs ...string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDRs: podCIDRs},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}, {Type: corev1.NodeInternalIP, Address: address}}},
	}
}

func exposedIP(name, destination, given string, at time.Time) *ipamv1alpha1.IP {
	return &ipamv1alpha1.IP{
		ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: name, CreationTimestamp: metav1.NewTime(at)},
		Spec:       ipamv1alpha1.IPSpec{IP: networkingv1beta1.IP(destination)}, Status: ipamv1alpha1.IPStatus{IP: networkingv1beta1.IP(given)},
	}
}

func ownGateway(key string) Announcement {
	a := Announcement{Addresses: []string{"192.0.2.13"}, Alive: true}
	a.Name, a.Number, a.PublicKey = "gw-a", 1, key
	return a
}

// firstEndpoint takes the first address that is accepted.
func firstEndpoint(_ string, g networkingv1beta1.Gateway, accept func(netip.Addr) error) netip.AddrPort {
	for _, point := range g.Endpoints {
		if addr, err := netip.ParseAddr(point.Address); err == nil && accept(addr) == nil {
			return netip.AddrPortFrom(addr, uint16(point.Port))
		}
	}
	return netip.AddrPort{}
}

func TestBuildInput(t *testing.T) {
	t.Parallel()
	keys := publicKeys(t, 6)
	settings := Settings{
		ClusterID: "rome", Self: "gw-a", Ports: plan.Ports{Overlay: plan.OverlayPort, Tunnel: plan.TunnelPort}, MTU: 1500, Via: func(string) string { return "gw-a" },
		Use: map[string]int{"milan": 1, "oslo": 7}, Endpoint: firstEndpoint, AllPods: everyPod, Closed: []ipamv1alpha1.NamedRange{{Prefix: netip.MustParsePrefix("10.96.0.0/12"), Name: "a Service range"}},
	}
	good := func() Objects {
		return Objects{
			Connections: []*networkingv1beta1.Connection{linked("milan", 1, keys[1]), linked("oslo", 2, keys[2])},
			Nodes:       []*corev1.Node{hostNode("node-1", "192.0.2.11", "10.244.1.0/24"), hostNode("node-2", "192.0.2.12", "10.244.2.0/24")},
			IPs:         []*ipamv1alpha1.IP{exposedIP("api", "198.51.100.9", "10.70.0.20", noon)},
			Gateways:    []Announcement{ownGateway(keys[0])},
		}
	}
	peersOf := func(in plan.Input) (ids []string) {
		for _, p := range in.Peers {
			ids = append(ids, p.ID)
		}
		return ids
	}
	in, refused, err := BuildInput(good(), settings)
	require.NoError(t, err)
	require.Empty(t, refused)
	require.NoError(t, in.Check())
	require.Equal(t, []string{"milan", "oslo"}, peersOf(in))
	require.Equal(t, ranges("10.244.0.0/16"), in.Pods)
	require.Equal(t, ranges("10.70.0.0/16"), in.External)
	require.Equal(t, plan.Peer{
		ID: "milan", MTU: 1400, Use: 1, Via: "gw-a",
		Theirs:   plan.Ranges{Pods: ranges("10.201.0.0/16"), External: ranges("10.101.0.0/16")},
		Ours:     plan.Maps{{Own: ranges("10.244.0.0/16")[0], View: ranges("10.50.0.0/16")[0]}, {Own: ranges("10.70.0.0/16")[0], View: ranges("10.51.0.0/16")[0]}},
		Gateways: []plan.Remote{{Name: "gw", Number: 1, Key: keys[1], Endpoint: netip.MustParseAddrPort("203.0.113.7:51840")}},
		Reach:    ranges("10.244.0.0/16"),
	}, in.Peers[0])
	require.Zero(t, in.Peers[1].Use, "there is no gateway 7")
	require.Equal(t, []plan.IP{{External: netip.MustParseAddr("10.70.0.20"), Real: netip.MustParseAddr("198.51.100.9")}}, in.IPs)
	require.Equal(t, []plan.Host{
		{Name: "node-1", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.11")}, Pods: ranges("10.244.1.0/24")},
		{Name: "node-2", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.12")}, Pods: ranges("10.244.2.0/24")},
	}, in.Nodes)

	exposing := good()
	exposing.IPs[0].Namespace = "liqo-tenant-milan"
	exposing.IPs[0].Spec.Ports = []ipamv1alpha1.IPPort{{Protocol: corev1.ProtocolTCP, Port: 6443}, {Protocol: corev1.ProtocolUDP, Port: 53}}
	in, refused, err = BuildInput(exposing, settings)
	require.NoError(t, err)
	require.Empty(t, refused)
	require.Equal(t, []plan.IP{{
		External: netip.MustParseAddr("10.70.0.20"), Real: netip.MustParseAddr("198.51.100.9"),
		Peer: "milan", Ports: []plan.Service{{Proto: "tcp", Port: 6443}, {Proto: "udp", Port: 53}},
	}}, in.IPs)

	exposing.IPs[0].Labels = map[string]string{offloadingv1beta1.ManagedByLabel: ipamv1alpha1.ManagedByAPIServer}
	in, refused, err = BuildInput(exposing, settings)
	require.NoError(t, err)
	require.Empty(t, refused)
	require.Equal(t, in.IPs[0].External, in.IPs[0].Real, "gateways have the address of the API server")

	// Each change leaves out one object, and the others stay.
	for name, tc := range map[string]struct {
		change func(*Objects)
		peers  string // that stay
		ips    int
		says   string // of the object that is left out
	}{
		"no Connections":          {func(o *Objects) { o.Connections = nil }, "", 0, ""},
		"in another namespace":    {func(o *Objects) { o.Connections[0].Namespace = "apps" }, "oslo", 1, `Connection apps/milan is left out: spec.clusterID is "milan"`},
		"of another name":         {func(o *Objects) { o.Connections[0].Name = "other" }, "oslo", 1, "the Connection of a peer has its id as its name"},
		"being deleted":           {func(o *Objects) { o.Connections[0].DeletionTimestamp = &metav1.Time{Time: noon} }, "oslo", 1, ""},
		"no range":                {func(o *Objects) { o.Connections[0].Spec.Remote[0].View = "10.201.0.0" }, "oslo", 1, `spec.remote: "10.244.0.0/16" and "10.201.0.0": two ranges`},
		"ranges of two sizes":     {func(o *Objects) { o.Connections[0].Spec.Remote[0].View = "10.201.0.0/17" }, "oslo", 1, "different lengths"},
		"a use that is not known": {func(o *Objects) { o.Connections[0].Spec.Local[0].Use = "Node" }, "oslo", 1, `use is "Node"`},
		"a view of a node":        {func(o *Objects) { o.Connections[0].Spec.Remote[0] = remapped("10.0.0.0/24", "192.0.2.0/24") }, "oslo", 1, "192.0.2.0/24 overlaps 192.0.2.1"},
		"a view of own pods":      {func(o *Objects) { o.Connections[0].Spec.Remote[0].View = "10.244.0.0/16" }, "oslo", 1, "overlaps"},
		"a view of an older peer": {func(o *Objects) { o.Connections[1].Spec.Remote[0].View = "10.201.0.0/16" }, "milan", 1, "Connection liqo-tenant-oslo/oslo is left out"},
		"a key of an older peer":  {func(o *Objects) { o.Connections[1].Spec.Gateways[0].PublicKey = keys[1] }, "milan", 1, "is a key of peer"},
		"a key of this cluster":   {func(o *Objects) { o.Connections[1].Spec.Gateways[0].PublicKey = keys[0] }, "milan", 1, "is the key of gateway gw-a of this cluster"},
		"a key of all":            {func(o *Objects) { o.Connections[1].Spec.Gateways[0].PublicKey = strings.Repeat("A", 43) + "=" }, "milan", 1, "anybody can compute"},
		"another external range":  {func(o *Objects) { o.Connections[1].Spec.Local[1] = remapped("10.71.0.0/16", "10.51.0.0/16") }, "milan", 1, "10.71.0.0/16 is the second of IPv4"},
		"an MTU of nothing":       {func(o *Objects) { o.Connections[1].Spec.MTU = 20 }, "milan", 1, "peers.mtu: 20"},
		"a small MTU and IPv6": {func(o *Objects) {
			o.Connections[0].Spec.MTU = 600
			o.Connections[0].Spec.Remote = append(o.Connections[0].Spec.Remote, remapped("fd01::/48", "fd80::/48"))
		}, "oslo", 1, "Connection liqo-tenant-milan/milan is left out: peer \"milan\": peers.mtu: 600"},
		"a small MTU, and IPv6 of a younger peer": {func(o *Objects) {
			o.Connections[0].Spec.MTU = 600
			o.Connections[1].Spec.Remote = append(o.Connections[1].Spec.Remote, remapped("fd01::/48", "fd80::/48"))
		}, "milan oslo", 1, ""},
		"number 15":                {func(o *Objects) { o.Connections[1].Spec.Gateways[0].Number = 15 }, "milan", 1, "number 15"},
		"an IP of nobody":          {func(o *Objects) { o.IPs[0].Status.IP = "" }, "milan oslo", 0, ""},
		"an IP of a gateway":       {func(o *Objects) { o.IPs[0].Status.IP = "10.70.0.3" }, "milan oslo", 0, "IP apps/api is left out: ips: 10.70.0.3"},
		"an IP twice":              {func(o *Objects) { o.IPs = append(o.IPs, exposedIP("b", "198.51.100.10", "10.70.0.20", noon)) }, "milan oslo", 1, "IP apps/b is left out: status.ip 10.70.0.20"},
		"an IP of no port":         {func(o *Objects) { o.IPs[0].Spec.Ports = []ipamv1alpha1.IPPort{{Protocol: "TCP", Port: 1 << 16}} }, "milan oslo", 0, "port 0 of protocol"},
		"an IP of no protocol":     {func(o *Objects) { o.IPs[0].Spec.Ports = []ipamv1alpha1.IPPort{{Protocol: "SCTP", Port: 9}} }, "milan oslo", 0, `protocol "sctp"`},
		"an IP to itself":          {func(o *Objects) { o.IPs[0].Spec.IP = "10.70.0.20" }, "milan oslo", 0, "spec.ip 10.70.0.20 is the address that it has been given"},
		"an IP to the range":       {func(o *Objects) { o.IPs[0].Spec.IP = "10.70.0.30" }, "milan oslo", 0, "leads to 10.70.0.30"},
		"a younger IP to a peer":   {func(o *Objects) { o.IPs[0] = exposedIP("api", "10.201.0.9", "10.70.0.20", noon.Add(time.Hour)) }, "milan oslo", 0, "spec.ip 10.201.0.9 is an address of peer milan"},
		"an older IP within views": {func(o *Objects) { o.IPs[0].Spec.IP = "10.201.0.9" }, "oslo", 1, "Connection liqo-tenant-milan/milan is left out"},
		"a virtual node": {func(o *Objects) {
			o.Nodes = append(o.Nodes, hostNode("liqo-milan", "192.0.2.11"))
			o.Nodes[2].Labels = map[string]string{offloadingv1beta1.TypeLabel: offloadingv1beta1.TypeVirtualNode}
		}, "milan oslo", 1, ""},
		"a node without address":    {func(o *Objects) { o.Nodes = append(o.Nodes, hostNode("node-3", "", "10.244.3.0/24")) }, "milan oslo", 1, "Node node-3 is left out"},
		"a node of another's":       {func(o *Objects) { o.Nodes = append(o.Nodes, hostNode("node-3", "192.0.2.11", "10.244.3.0/24")) }, "milan oslo", 1, "Node node-3 is left out"},
		"a gateway that has gone":   {func(o *Objects) { o.Gateways = append([]Announcement{dead(ownGateway(keys[3]), 2)}, o.Gateways...) }, "milan oslo", 1, ""},
		"a gateway of no address":   {func(o *Objects) { o.Gateways = append(o.Gateways, Announcement{Addresses: []string{"x"}}) }, "milan oslo", 1, `addresses: "x"`},
		"podCIDRs of other ranges":  {func(o *Objects) { o.Nodes[1].Spec.PodCIDRs = []string{"10.9.0.0/24"} }, "milan oslo", 1, "its podCIDR 10.9.0.0/24 is in none of the pod ranges"},
		"podCIDRs of another's":     {func(o *Objects) { o.Nodes[1].Spec.PodCIDRs = o.Nodes[0].Spec.PodCIDRs }, "milan oslo", 1, "Node node-2 is left out: its podCIDR 10.244.1.0/24 overlaps one of node node-1"},
		"a name as endpoint, bad":   {func(o *Objects) { o.Connections[0].Spec.Gateways[0].Endpoints[0].Address = "x.svc" }, "milan oslo", 1, ""},
		"an endpoint of this place": {func(o *Objects) { o.Connections[0].Spec.Gateways[0].Endpoints[0].Address = "10.96.0.1" }, "milan oslo", 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := good()
			tc.change(&o)
			in, refused, err := BuildInput(o, settings)
			require.NoError(t, err)
			require.NoError(t, in.Check())
			require.Equal(t, tc.peers, strings.Join(peersOf(in), " "), "%v", refused)
			require.Len(t, in.IPs, tc.ips)
			if tc.says == "" {
				require.Empty(t, refused)
				return
			}
			require.Len(t, refused, 1)
			require.Contains(t, refused[0].String(), tc.says)
		})
	}
}

func remapped(own, view networkingv1beta1.CIDR) networkingv1beta1.Mapping {
	use := networkingv1beta1.RangePod
	if own == "10.71.0.0/16" {
		use = networkingv1beta1.RangeExternal
	}
	return networkingv1beta1.Mapping{Own: own, View: view, Use: use}
}

func dead(a Announcement, number int32) Announcement {
	a.Alive, a.Number = false, number
	return a
}

// Endpoints within this cluster, and of other peers, are not sent to; the next one is.
func TestEndpointsOfPeers(t *testing.T) {
	t.Parallel()
	keys := publicKeys(t, 3)
	for address, want := range map[string]string{
		"203.0.113.7": "203.0.113.7:51840", "10.96.0.1": "198.51.100.1:51840", "192.0.2.11": "198.51.100.1:51840", "10.244.1.1": "198.51.100.1:51840",
		"10.70.0.1": "198.51.100.1:51840", "10.202.0.1": "198.51.100.1:51840", "127.0.0.1": "198.51.100.1:51840", "169.254.169.254": "198.51.100.1:51840",
	} {
		c := linked("milan", 1, keys[1])
		c.Spec.Gateways[0].Endpoints = []networkingv1beta1.Endpoint{{Address: address, Port: 51840}, {Address: "198.51.100.1", Port: 51840}}
		in, _, err := BuildInput(Objects{
			Connections: []*networkingv1beta1.Connection{c, linked("oslo", 2, keys[2])}, Nodes: []*corev1.Node{hostNode("node-1", "192.0.2.11", "10.244.1.0/24")},
			Gateways: []Announcement{ownGateway(keys[0])},
		}, Settings{
			ClusterID: "rome", Self: "gw-a", Ports: plan.Ports{Overlay: 1, Tunnel: 2}, MTU: 1500, Endpoint: firstEndpoint,
			Closed: []ipamv1alpha1.NamedRange{{Prefix: netip.MustParsePrefix("10.96.0.0/12"), Name: "a Service range"}},
		})
		require.NoError(t, err)
		require.Equal(t, want, in.Peers[0].Gateways[0].Endpoint.String(), address)
	}
}

// Without podCIDRs the own pods of a node are all that have an address of the own ranges,
// and a gateway needs the addresses of Pods.
func TestNodesWithoutPodCIDRs(t *testing.T) {
	t.Parallel()
	keys := publicKeys(t, 2)
	o := Objects{
		Connections: []*networkingv1beta1.Connection{linked("milan", 1, keys[1])},
		Nodes:       []*corev1.Node{hostNode("node-1", "192.0.2.11"), hostNode("node-2", "192.0.2.12")}, Gateways: []Announcement{ownGateway(keys[0])},
		Pods: podAddresses([]*corev1.Pod{pod("a", "node-1", "10.244.7.1"), pod("b", "node-2", "10.244.7.2"), pod("c", "node-2", "10.9.0.1"), pod("d", "node-1", "10.244.7.9"), pod("e", "node-2", "10.244.7.9")}),
	}
	set := Settings{ClusterID: "rome", Ports: plan.Ports{Overlay: 1, Tunnel: 2}, MTU: 1500}
	set.Self = "gw-a"
	in, refused, err := BuildInput(o, set)
	require.NoError(t, err)
	require.Empty(t, refused)
	require.Equal(t, ranges("10.244.7.1/32"), in.Nodes[0].Pods)
	require.Equal(t, ranges("10.244.7.2/32"), in.Nodes[1].Pods)
	o.Pods = nil
	_, refused, err = BuildInput(o, set)
	require.NoError(t, err)
	require.Len(t, refused, 2)
	require.Contains(t, refused[0].String(), "Node node-1 is left out: it has no podCIDRs, so peers do not reach its pods: set gateway.podAddresses")
	set.Self = "node-2"
	in, _, err = BuildInput(o, set)
	require.NoError(t, err)
	require.Empty(t, in.Nodes[0].Pods)
	require.Equal(t, ranges("10.244.0.0/16"), in.Nodes[1].Pods)
	_, err = plan.Node(in)
	require.NoError(t, err)
}

func pod(name, node, ip string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: ip}}}}
}

func TestBuildInputOfAHostThatIsWrong(t *testing.T) {
	t.Parallel()
	_, _, err := BuildInput(Objects{}, Settings{Self: "gw-a", Ports: plan.Ports{Overlay: 1, Tunnel: 2}, MTU: 100})
	require.ErrorContains(t, err, "mtu: 100")
	_, _, err = BuildInput(Objects{}, Settings{Self: "gw-a", MTU: 1500})
	require.ErrorContains(t, err, "ports")
	_, _, err = BuildInput(Objects{Nodes: []*corev1.Node{hostNode("node-1", "127.0.0.1")}}, Settings{Self: "node-1", Ports: plan.Ports{Overlay: 1, Tunnel: 2}, MTU: 1500})
	require.ErrorContains(t, err, "127.0.0.1 is no address of a host")
}

func TestRelayedBy(t *testing.T) {
	t.Parallel()
	a, b := netip.MustParseAddr("10.70.0.20"), netip.MustParseAddr("192.168.0.1")
	in := plan.Input{IPs: []plan.IP{
		{External: a, Real: a, Ports: []plan.Service{{Proto: "tcp", Port: 443}, {Proto: "udp", Port: 443}}},
		{External: a.Next(), Real: b, Ports: []plan.Service{{Proto: "tcp", Port: 443}}},
	}}
	require.Equal(t, []netip.AddrPort{netip.AddrPortFrom(a, 443)}, relayedBy(in))
}
