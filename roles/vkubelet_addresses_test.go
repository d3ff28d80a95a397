package roles

import (
	"context"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	liqodfake "github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/roles/config"
)

// TestVKubeletAddresses: the active replica hears of every change of the translation, and of
// the address of the API server; a standby of none. Pods of a peer without the fabric keep
// their addresses.
func TestVKubeletAddresses(t *testing.T) {
	t.Parallel()
	const tenant = "liqo-tenant-milan"
	cluster := &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "milan"}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: "milan"}}
	liqod, core := liqodfake.NewSimpleClientset(cluster), fake.NewClientset()
	settings := &config.Effective{}
	settings.Networking.Enabled = true
	v := &vkubelet{
		env: Env{Log: zap.NewNop(), Config: settings, Clock: clock.RealClock{}}, home: home{plain: clients{kube: core, liqo: liqod}}, namespace: tenant, name: "milan-2",
		tenant: externalversions.NewSharedInformerFactoryWithOptions(liqod, 0, externalversions.WithNamespace(tenant)),
		kube:   informers.NewSharedInformerFactory(core, 0),
	}
	v.nodes = v.kube
	require.NoError(t, v.watchAddresses())
	require.False(t, v.addressesKnown())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() { done <- v.runCaches(ctx) }()
	go func() { done <- v.runAddresses(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
		require.NoError(t, <-done)
	})
	require.Eventually(t, v.addressesKnown, time.Minute, 5*time.Millisecond)

	var calls atomic.Int64
	v.addressed.Swap(addressed{"milan", func() { calls.Add(1) }, nil})
	addr := netip.MustParseAddr("10.244.1.5")
	remap := v.remapper("milan")
	becomes := func(want string) {
		t.Helper()
		require.Eventually(t, func() bool {
			got, _, ok := remap.Remap(addr)
			return calls.Load() > 0 && (ok && got.String() == want || !ok && want == "none")
		}, time.Minute, 5*time.Millisecond, want)
		calls.Store(0)
	}
	mapping := func(own, view networkingv1beta1.CIDR, use networkingv1beta1.RangeUse) []networkingv1beta1.Mapping {
		return []networkingv1beta1.Mapping{{Own: own, View: view, Use: use}}
	}
	kubetest.Create(t, liqod.NetworkingV1beta1().Connections(tenant), &networkingv1beta1.Connection{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "milan"},
		Spec: networkingv1beta1.ConnectionSpec{
			ClusterID: "milan", Local: mapping("10.70.0.0/16", "10.91.0.0/16", networkingv1beta1.RangeExternal),
			Remote: mapping("10.244.0.0/16", "10.80.0.0/16", networkingv1beta1.RangePod),
		},
	})
	becomes("10.80.1.5")

	api := v.homeAPI("milan")
	require.ErrorContains(t, errOf(api.Address(false)), "there is no IP "+tenant+"/milan-2-api-server")
	kubetest.Create(t, liqod.IPAMV1alpha1().IPs(tenant), &ipamv1alpha1.IP{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "milan-2-api-server"},
		Spec:       ipamv1alpha1.IPSpec{IP: "192.0.2.1", Ports: []ipamv1alpha1.IPPort{{Protocol: corev1.ProtocolTCP, Port: 6443}}},
		Status:     ipamv1alpha1.IPStatus{IP: "10.70.0.20", Conditions: []metav1.Condition{{Type: ipamv1alpha1.ConditionReady, Status: metav1.ConditionTrue}}},
	})
	becomes("10.80.1.5")
	server := must(api.Address(false))
	require.Equal(t, "10.91.0.20:6443", server.String())

	require.NoError(t, liqod.NetworkingV1beta1().Connections(tenant).Delete(ctx, "milan", metav1.DeleteOptions{}))
	becomes("10.80.1.5") // for a while the last one counts
	without := cluster.DeepCopy()
	without.Spec.NetworkingEnabled = new(false)
	kubetest.Update(t, liqod.CoreV1beta1().ForeignClusters(), without)
	becomes("10.244.1.5")
	require.False(t, api.Fabric())

	v.addressed.Swap(addressed{})
	v.tellRemapped("milan")
	require.Zero(t, calls.Load(), "a standby has no pods")
}

// TestAddressOfAnEndpoint: the objects with endpoints of its namespace are enqueued, and no pods.
func TestAddressOfAnEndpoint(t *testing.T) {
	t.Parallel()
	v := &vkubelet{name: "milan-2"}
	ip := &ipamv1alpha1.IP{
		ObjectMeta: metav1.ObjectMeta{Name: "endpoint", Labels: map[string]string{ipamv1alpha1.EndpointNamespaceLabel: "shop"}},
		Spec:       ipamv1alpha1.IPSpec{IP: "192.168.0.7"},
		Status:     ipamv1alpha1.IPStatus{IP: "10.70.0.17", Conditions: []metav1.Condition{{Type: ipamv1alpha1.ConditionReady, Status: metav1.ConditionTrue}}},
	}
	v.addressChanged(nil, ip) // in a standby
	var pods int
	var namespaces []string
	v.addressed.Swap(addressed{"milan", func() { pods++ }, func(namespace string) { namespaces = append(namespaces, namespace) }})
	v.addressChanged(nil, ip)
	v.addressChanged(ip, ip)
	v.addressChanged(ip, nil)
	require.Equal(t, []string{"shop", "shop"}, namespaces)
	require.Zero(t, pods)
}

// TestVKubeletWithoutFabric: pods keep the addresses that they have in the provider, but none
// of this cluster's own.
func TestVKubeletWithoutFabric(t *testing.T) {
	t.Parallel()
	core := fake.NewClientset(
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{PodCIDRs: []string{"10.1.0.0/24"}},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.168.1.7"}}}},
		&networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/16"}}},
	)
	liqod := liqodfake.NewSimpleClientset()
	v := &vkubelet{env: Env{Config: &config.Effective{}, Clock: clock.RealClock{}, Log: zap.NewNop()}, home: home{plain: clients{kube: core, liqo: liqod}}, namespace: "liqo-tenant-milan"}
	require.NoError(t, v.watchAddresses())
	require.False(t, v.addressesKnown())
	require.NoError(t, v.readRanges(t.Context()))
	require.True(t, v.addressesKnown())
	require.Nil(t, v.homeAPI("milan"))
	remap := v.remapper("milan")
	check := func(addr, why string) {
		t.Helper()
		got, refused, ok := remap.Remap(netip.MustParseAddr(addr))
		if why == "" {
			require.Equal(t, addr, got.String())
			require.Empty(t, refused)
		} else {
			require.Contains(t, refused, why)
		}
		require.Equal(t, why == "", ok)
	}
	check("10.2.0.5", "")
	check("2001:db8::5", "")
	for addr, why := range map[string]string{
		"127.0.0.1": "loopback", "169.254.169.254": "link-local", "64:ff9b::a9fe:a9fe": "NAT64", "100.100.100.200": "metadata", "224.0.0.1": "multicast",
		"192.168.1.7": "this cluster's own", "10.1.0.9": "this cluster's own (10.1.0.0/24)", "10.96.0.1": "this cluster's own",
	} {
		check(addr, why)
	}
	kubetest.Create(t, liqod.CoreV1beta1().ForeignClusters(), &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "milan"}, Spec: corev1beta1.ForeignClusterSpec{
		ClusterID: "milan", AddressRanges: []string{"10.1.0.0/25", "192.168.0.0/16"},
	}})
	var calls atomic.Int64
	v.addressed.Swap(addressed{"milan", func() { calls.Add(1) }, nil})
	require.NoError(t, v.readRanges(t.Context()))
	require.EqualValues(t, 1, calls.Load(), "pods are looked at again")
	require.NoError(t, v.readRanges(t.Context()))
	require.EqualValues(t, 1, calls.Load())
	check("10.1.0.9", "")
	check("10.1.0.200", "not in spec.addressRanges")
	check("10.2.0.5", "not in spec.addressRanges")
	check("192.168.1.7", "this cluster's own (192.168.1.7/32)")
}

func TestNetworkingOf(t *testing.T) {
	t.Parallel()
	fc := &corev1beta1.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "milan", UID: "u", ResourceVersion: "7", Labels: map[string]string{"a": "b"}},
		Spec:       corev1beta1.ForeignClusterSpec{ClusterID: "milan", NetworkingEnabled: new(false), AddressRanges: []string{"10.0.0.0/8"}},
	}
	got := must(networkingOf(fc))
	require.Equal(t, &corev1beta1.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "milan", UID: "u", ResourceVersion: "7"},
		Spec:       corev1beta1.ForeignClusterSpec{ClusterID: "milan", NetworkingEnabled: new(false)},
	}, got)
}
