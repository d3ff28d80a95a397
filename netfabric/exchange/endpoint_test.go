package exchange

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	corefake "k8s.io/client-go/kubernetes/fake"

	"github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
)

// endpointSlice is one of namespace shop with a TCP port.
func endpointSlice(name string, port int32, addresses ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: &port}}}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	return s
}

// endpointsRig is an Endpoints with its informers, in a bubble.
func endpointsRig(t *testing.T, core *corefake.Clientset, liqo *fake.Clientset, off bool) {
	t.Helper()
	kube, own := informers.NewSharedInformerFactory(core, 0), externalversions.NewSharedInformerFactory(liqo, 0)
	cfg := IPConfig{
		Base: Base{Env: loop.Env{Log: zap.NewNop()}, Client: liqo}, Kube: core, Slices: kube.Discovery().V1().EndpointSlices(), Offloadings: own.Offloading().V1beta1().NamespaceOffloadings(),
		IPs: own.IPAM().V1alpha1().IPs(), Known: func() ([]netip.Prefix, error) { return ranges("10.70.0.0/16", "10.80.0.0/16", "10.1.0.0/16"), nil },
	}
	if off {
		cfg.Slices, cfg.NoIPAM = nil, true
	}
	e := NewEndpoints(cfg)
	kube.Start(t.Context().Done())
	own.Start(t.Context().Done())
	go func() { _ = e.Run(t.Context(), 2) }()
}

// TestEndpoints: endpoints that are no pods have an IP with their ports for each provider of the namespace, as
// long as they are there. Others have none.
func TestEndpoints(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		offloading := &offloadingv1beta1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "offloading"},
			Status: offloadingv1beta1.NamespaceOffloadingStatus{RemoteNamespacesConditions: map[string][]metav1.Condition{"milan": nil, "oslo": nil}}}
		elsewhere := endpointSlice("a", 80, "192.168.0.9")
		elsewhere.Namespace = "default"
		noPorts := endpointSlice("b", 80, "192.168.0.8")
		noPorts.Ports = nil
		foreign := endpointSlice("c", 80, "192.168.0.6")
		foreign.Labels = map[string]string{discoveryv1.LabelManagedBy: offloadingv1beta1.ManagedByShadowEndpointSlice}
		skipped := endpointSlice("d", 80, "192.168.0.5")
		skipped.Annotations = map[string]string{offloadingv1beta1.SkipReflectionAnnotation: "true"}
		core := corefake.NewClientset(elsewhere, noPorts, foreign, skipped, endpointSlice("web", 80, "10.1.0.5", "192.168.0.7", "10.80.3.4", "10.70.0.20", "127.0.0.1"))
		liqo := fake.NewSimpleClientset(offloading)
		kubetest.WatchFromList(core)
		kubetest.WatchFromList(liqo)
		have := func() (out []ipamv1alpha1.IP) {
			kubetest.Settled(time.Minute)
			list := kubetest.List(t, liqo.IPAMV1alpha1().IPs(""))
			return list.Items
		}
		endpointsRig(t, core, liqo, false)
		made := have()
		require.Len(t, made, 2)
		for _, ip := range made {
			require.Equal(t, "192.168.0.7", string(ip.Spec.IP))
			require.Equal(t, EndpointIP("shop", "192.168.0.7"), ip.Name)
			require.Equal(t, []ipamv1alpha1.IPPort{{Protocol: corev1.ProtocolTCP, Port: 80}}, ip.Spec.Ports)
		}
		require.ElementsMatch(t, []string{"liqo-tenant-milan", "liqo-tenant-oslo"}, []string{made[0].Namespace, made[1].Namespace})

		endpointSlices := core.DiscoveryV1().EndpointSlices("shop")
		kubetest.Create(t, endpointSlices, endpointSlice("more", 53, "192.168.0.7"))
		for _, ip := range have() {
			require.Equal(t, []int32{53, 80}, []int32{ip.Spec.Ports[0].Port, ip.Spec.Ports[1].Port})
		}
		ended := offloading.DeepCopy()
		delete(ended.Status.RemoteNamespacesConditions, "oslo")
		kubetest.Update(t, liqo.OffloadingV1beta1().NamespaceOffloadings("shop"), ended)
		require.True(t, !slices.ContainsFunc(have(), func(ip ipamv1alpha1.IP) bool { return ip.Namespace == "liqo-tenant-oslo" }))
		require.Len(t, have(), 1)
		require.NoError(t, endpointSlices.Delete(t.Context(), "web", metav1.DeleteOptions{}))
		require.Len(t, have(), 1, "another slice has the address")
		require.NoError(t, endpointSlices.Delete(t.Context(), "more", metav1.DeleteOptions{}))
		require.Empty(t, have())
	})
}

// TestEndpointsOff: without the setting the IPs of before are deleted, and without role ipam its finalizer is
// taken from them. Those of people stay.
func TestEndpointsOff(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		of := func(name string, labels map[string]string) *ipamv1alpha1.IP {
			return &ipamv1alpha1.IP{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name, Labels: labels}}
		}
		ours := map[string]string{offloadingv1beta1.ManagedByLabel: ipamv1alpha1.ManagedByEndpoints, ipamv1alpha1.EndpointNamespaceLabel: "shop"}
		going := of("going", ours)
		going.DeletionTimestamp, going.Finalizers = new(metav1.Now()), []string{ipamv1alpha1.IPFinalizer}
		liqo, core := fake.NewSimpleClientset(of("ours", ours), going, of("theirs", nil)), corefake.NewClientset(endpointSlice("web", 80, "192.168.0.7"))
		kubetest.WatchFromList(core)
		kubetest.WatchFromList(liqo)
		endpointsRig(t, core, liqo, true)
		kubetest.Settled(time.Minute)
		list := kubetest.List(t, liqo.IPAMV1alpha1().IPs(""))
		var left []string
		for _, ip := range list.Items {
			left = append(left, ip.Name)
			require.Empty(t, ip.Finalizers)
		}
		require.NotContains(t, left, "ours")
		require.Contains(t, left, "theirs")
	})
}

// TestEndpointAddress: the address counts when the IP is ready, and is for this address.
func TestEndpointAddress(t *testing.T) {
	t.Parallel()
	own := externalversions.NewSharedInformerFactory(fake.NewSimpleClientset(), 0)
	ips := own.IPAM().V1alpha1().IPs()
	ip := &ipamv1alpha1.IP{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: EndpointIP("shop", "192.168.0.7")}, Spec: ipamv1alpha1.IPSpec{IP: "192.168.0.7"}, Status: ipamv1alpha1.IPStatus{IP: "10.70.0.17"}}
	require.NoError(t, ips.Informer().GetStore().Add(ip))
	require.Empty(t, EndpointAddress(ips.Lister(), tenant, "shop", "192.168.0.7"), "not ready")
	ip.Status.Conditions = []metav1.Condition{{Type: ipamv1alpha1.ConditionReady, Status: metav1.ConditionTrue}}
	require.Equal(t, "10.70.0.17", EndpointAddress(ips.Lister(), tenant, "shop", "192.168.0.7"))
	for _, other := range [][3]string{{"liqo-tenant-oslo", "shop", "192.168.0.7"}, {tenant, "other", "192.168.0.7"}, {tenant, "shop", "192.168.0.8"}} {
		require.Empty(t, EndpointAddress(ips.Lister(), other[0], other[1], other[2]))
	}
}

// TestEndpointNamespace: a change of an IP concerns the namespace of its endpoint if peers have another address then.
func TestEndpointNamespace(t *testing.T) {
	t.Parallel()
	ip := func(address networkingv1beta1.IP, ready metav1.ConditionStatus, labels map[string]string) *ipamv1alpha1.IP {
		return &ipamv1alpha1.IP{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: ipamv1alpha1.IPSpec{IP: "192.168.0.7"},
			Status: ipamv1alpha1.IPStatus{IP: address, Conditions: []metav1.Condition{{Type: ipamv1alpha1.ConditionReady, Status: ready}}},
		}
	}
	shop := map[string]string{offloadingv1beta1.ManagedByLabel: ipamv1alpha1.ManagedByEndpoints, ipamv1alpha1.EndpointNamespaceLabel: "shop"}
	ready := ip("10.70.0.17", metav1.ConditionTrue, shop)
	labelled := ready.DeepCopy()
	labelled.Labels["a"] = "b"
	for name, tc := range map[string]struct {
		before, after *ipamv1alpha1.IP
		want          string
	}{
		"not ready yet":   {nil, ip("", metav1.ConditionFalse, shop), ""},
		"ready":           {ip("", metav1.ConditionFalse, shop), ready, "shop"},
		"ready at once":   {nil, ready, "shop"},
		"another address": {ready, ip("10.70.0.18", metav1.ConditionTrue, shop), "shop"},
		"another label":   {ready, labelled, ""},
		"no longer ready": {ready, ip("10.70.0.17", metav1.ConditionFalse, shop), "shop"},
		"gone":            {ready, nil, "shop"},
		"of no endpoint":  {nil, ip("10.70.0.17", metav1.ConditionTrue, nil), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, EndpointNamespace(tc.before, tc.after))
		})
	}
}
