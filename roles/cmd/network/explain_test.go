package network

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/netfabric/host"
)

// everyPod is AllPods with networking.reach All.
func everyPod(corev1beta1.Trust) bool { return true }

func node(name, address, podCIDR string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDRs: []string{podCIDR}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}},
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	const own, theirs = "0X1vSNI1lDJ2VZ2rG0Rj0iNRcTlnDT0NAyFZGW3pm3g=", "wQbqqmhd8eqtVLHAGTvmTj2VPJHm6Sn2wHBPpLq0e1c="
	c := &networkingv1beta1.Connection{ObjectMeta: metav1.ObjectMeta{Namespace: corev1beta1.TenantNamespace("milan"), Name: "milan"}, Spec: networkingv1beta1.ConnectionSpec{
		ClusterID: "milan", MTU: 1400,
		Local:    []networkingv1beta1.Mapping{map4("10.244.0.0/16", "10.50.0.0/16", networkingv1beta1.RangePod), map4("10.70.0.0/16", "10.51.0.0/16", networkingv1beta1.RangeExternal)},
		Remote:   []networkingv1beta1.Mapping{map4("10.244.0.0/16", "10.201.0.0/16", networkingv1beta1.RangePod), map4("10.70.0.0/16", "10.101.0.0/16", networkingv1beta1.RangeExternal)},
		Gateways: []networkingv1beta1.Gateway{{Name: "gw", Number: 1, PublicKey: theirs, Endpoints: []networkingv1beta1.Endpoint{{Address: "203.0.113.7", Port: 51840}}}},
	}}
	gateway := host.Announcement{Addresses: []string{"192.0.2.13"}, Alive: true}
	gateway.Name, gateway.Number, gateway.PublicKey = "gw-a", 1, own
	o := host.Objects{
		Connections: []*networkingv1beta1.Connection{c},
		Nodes:       []*corev1.Node{node("node-1", "192.0.2.11", "10.244.1.0/24"), node("node-2", "192.0.2.12", "10.244.2.0/24")},
		Gateways:    []host.Announcement{gateway},
	}
	to, from := netip.MustParseAddr("10.201.3.4"), netip.MustParseAddr("10.244.2.9")
	require.ErrorContains(t, errOf(Explain(o, to, from, everyPod)), `the way is planned, but Connection liqo-tenant-milan/milan is ""`)
	c.Status.Value = networkingv1beta1.Connected
	text, err := Explain(o, to, from, everyPod)
	require.NoError(t, err, text)
	for _, line := range []string{
		"from 10.244.2.9 to 10.201.3.4, in peer milan:\nnode node-2\n", "sent to 192.0.2.13\ngateway gw-a\n", "[10.50.2.9 > 10.201.3.4] sent to " + theirs,
		"peer milan, gateway gw\n  it sees 10.50.2.9 > 10.201.3.4, and translates 10.201.3.4 to its own 10.244.3.4;",
		"and back:\ngateway gw-a\n", "handed to the host\npod 10.244.2.9\n  it has the answer from 10.201.3.4\n", "answer each other's probes",
	} {
		require.Contains(t, text, line)
	}
	text, err = Explain(o, to, netip.Addr{}, everyPod)
	require.NoError(t, err, text)
	require.Contains(t, text, "no pod is given: 10.244.1.1 stands for one on node-1")
	for address, says := range map[string]string{
		"10.244.1.9": "10.244.1.9 is one of a pod range of this cluster; the peers of this cluster have 10.201.0.0/16 (milan), 10.101.0.0/16 (milan)",
		"8.8.8.8":    "outside of the fabric", "192.0.2.12": "that of node node-2", "10.70.0.99": "an external range",
	} {
		_, err = Explain(o, netip.MustParseAddr(address), from, everyPod)
		require.True(t, errors.Is(err, ErrNoPeer))
		require.ErrorContains(t, err, says)
	}
	for says, ip := range map[string]*ipamv1alpha1.IP{
		"for 198.51.100.9, which all peers reach at all ports": {},
		"for 198.51.100.9, which peer milan alone reaches at tcp 6443, udp 53 only;": {
			ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan"},
			Spec:       ipamv1alpha1.IPSpec{Ports: []ipamv1alpha1.IPPort{{Protocol: corev1.ProtocolTCP, Port: 6443}, {Protocol: corev1.ProtocolUDP, Port: 53}}},
		},
	} {
		ip.Spec.IP, ip.Status.IP = "198.51.100.9", "10.70.0.99"
		o.IPs = []*ipamv1alpha1.IP{ip}
		require.ErrorContains(t, errOf(Explain(o, netip.MustParseAddr("10.70.0.99"), from, everyPod)), says)
	}
	require.ErrorContains(t, errOf(Explain(o, to, netip.MustParseAddr("10.9.9.9"), everyPod)), "10.9.9.9 is not in the podCIDRs of a Node")

	// To a pod of the peer that lives at home, here, an address of the peer is its own one.
	twin := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop-milan", Labels: map[string]string{corev1beta1.RemoteClusterIDLabel: "milan"}, Annotations: map[string]string{
		offloadingv1beta1.ManagedByNamespaceMapAnnotation: corev1beta1.TenantNamespace("milan") + "/milan",
		offloadingv1beta1.ServicesAnnotation:              string(offloadingv1beta1.ServicesHome),
	}}}
	guest := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: twin.Name, Name: "guest", Labels: map[string]string{offloadingv1beta1.OriginLabel: "milan"}},
		Spec:       corev1.PodSpec{NodeName: "node-2"}, Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: from.String()}}},
	}
	at := o
	at.Shared = host.Shared{Twins: []*corev1.Namespace{twin}, Pods: []*corev1.Pod{guest}}
	text, err = Explain(at, netip.MustParseAddr("10.244.3.4"), from, everyPod)
	require.NoError(t, err, text)
	require.Contains(t, text, "10.244.2.9 lives in the address space of peer milan (services Home): 10.244.3.4 is 10.201.3.4 here")

	// What a packet to a cluster behind a peer becomes is in no hand of this cluster.
	c.Spec.Remote = append(c.Spec.Remote, map4("10.99.0.0/16", "10.98.0.0/16", networkingv1beta1.RangeTransit))
	text, err = Explain(o, netip.MustParseAddr("10.98.0.1"), from, everyPod)
	require.NoError(t, err, text)
	require.Contains(t, text, "and translates 10.98.0.1 to 10.99.0.1, by which it sees a pod in a third cluster;")

	// A check compares the address that a pod in the peer sees with the planned one, and says where the plan drops packets.
	view := must(planned(o, to, from))
	require.Equal(t, "10.50.2.9", view.String())
	o.Gateways = nil
	_, err = Explain(o, to, from, everyPod)
	require.ErrorContains(t, err, "no gateway of this cluster has announced itself")
	_, err = planned(o, to, from)
	require.NotErrorIs(t, err, errEnds, "what is not planned at all says nothing about packets")
}
