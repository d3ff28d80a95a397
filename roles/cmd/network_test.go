package cmd

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/netfabric/host"
)

func TestNetworkExplain(t *testing.T) {
	t.Parallel()
	const own, peers = "0X1vSNI1lDJ2VZ2rG0Rj0iNRcTlnDT0NAyFZGW3pm3g=", "wQbqqmhd8eqtVLHAGTvmTj2VPJHm6Sn2wHBPpLq0e1c="
	c := newCluster(&networkingv1beta1.Connection{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"},
		Spec: networkingv1beta1.ConnectionSpec{
			ClusterID: "milan",
			Local:     []networkingv1beta1.Mapping{{Own: "10.244.0.0/16", View: "10.50.0.0/16", Use: networkingv1beta1.RangePod}, {Own: "10.70.0.0/16", View: "10.51.0.0/16", Use: networkingv1beta1.RangeExternal}},
			Remote:    []networkingv1beta1.Mapping{{Own: "10.244.0.0/16", View: "10.200.0.0/16", Use: networkingv1beta1.RangePod}, {Own: "10.70.0.0/16", View: "10.201.0.0/16", Use: networkingv1beta1.RangeExternal}},
			Gateways:  []networkingv1beta1.Gateway{{Name: "gw-m", Number: 1, PublicKey: peers}},
		},
		Status: networkingv1beta1.ConnectionStatus{Value: networkingv1beta1.Connected},
	})
	announce(t, c.core, 1, func(a *host.Announcement) { a.Name, a.PublicKey = "gw-a", own })
	c.add(t, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Spec: corev1.NodeSpec{PodCIDRs: []string{"10.244.1.0/24"}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.11"}}},
	})
	settings := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqod", Name: "liqod", Labels: map[string]string{"app.kubernetes.io/name": "liqod"}},
		Data:       map[string]string{"config.yaml": "clusterID: rome\nsharing: {trust: Organisation}"},
	}
	c.add(t, settings)
	out := c.ran(t, "network", "explain", "10.200.1.10", "--from", "10.244.1.7")
	require.Contains(t, out, "from 10.244.1.7 to 10.200.1.10, in peer milan:\nnode node-1\n")
	require.Contains(t, out, "peer milan, gateway gw-m\n  it sees 10.50.1.7 > 10.200.1.10, and translates 10.200.1.10 to its own 10.244.1.10;")
	arriving := []string{"network", "explain", "10.244.1.7", "--from", "10.200.1.10"}
	out = c.ran(t, arriving...)
	require.Contains(t, out, "from 10.200.1.10, in peer milan, to 10.244.1.7, which it calls 10.50.1.7:\ngateway gw-a\n")
	require.Contains(t, out, "\npod 10.244.1.7\n")
	settings.Data["config.yaml"] = "clusterID: rome"
	kubetest.Update(t, c.core.CoreV1().ConfigMaps("liqod"), settings)
	out, err := c.run(t, arriving...)
	require.ErrorContains(t, err, "networking.reach is Shared, and no pod with the address 10.244.1.7 is shared with peer milan: offload the namespace of the pod to it,")
	require.Contains(t, out, "counter drop comment \"to_pod\"")
	require.Equal(t, ExitProblem, code(err), out)
	connections := c.liqod.NetworkingV1beta1().Connections("liqo-tenant-milan")
	for _, trust := range []corev1beta1.Trust{corev1beta1.TrustOrganisation, corev1beta1.TrustStrict} {
		milan := must(connections.Get(t.Context(), "milan", metav1.GetOptions{}))
		milan.Spec.Trust = string(trust)
		kubetest.Update(t, connections, milan)
		out, err := c.run(t, arriving...)
		require.Equal(t, trust == corev1beta1.TrustOrganisation, err == nil, "%s: %v: %s", trust, err, out)
	}
	c.add(t, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.PodSpec{NodeName: "node-1"}, Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.244.1.7"}}},
	})
	kubetest.Create(t, c.liqod.OffloadingV1beta1().NamespaceOffloadings("shop"), &offloadingv1beta1.NamespaceOffloading{
		ObjectMeta: metav1.ObjectMeta{Name: offloadingv1beta1.NamespaceOffloadingName},
		Status: offloadingv1beta1.NamespaceOffloadingStatus{RemoteNamespaceName: "shop-rome", RemoteNamespacesConditions: map[string][]metav1.Condition{
			"milan": {{Type: offloadingv1beta1.RemoteNamespaceOffloadingRequired, Status: metav1.ConditionTrue}},
		}},
	})
	c.ran(t, arriving...)
	for pod, addr := range map[string]string{"near": "10.244.1.7", "far": "10.200.1.10", "new": ""} {
		c.add(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "named", Name: pod}, Status: corev1.PodStatus{PodIP: addr}})
	}
	out = c.ran(t, "network", "explain", "named/far", "--from", "named/near")
	require.Contains(t, out, "from 10.244.1.7 to 10.200.1.10, in peer milan:\n")
	for pod, say := range map[string]string{"named/new": "pod named/new has no address yet", "named/none": `pods "none" not found`} {
		c.fails(t, ExitUnknown, say, "network", "explain", pod)
	}
	c.fails(t, ExitProblem, "the address belongs to no peer: 10.9.9.9 is outside of the fabric", "network", "explain", "10.9.9.9")
	for _, args := range [][]string{{"network"}, {"network", "explain"}, {"network", "explain", "milan"}, {"network", "explain", "10.200.1.10", "--from", "x"}} {
		_, err := c.run(t, args...)
		require.Equal(t, ExitUsage, code(err), "%v", args)
	}
}
