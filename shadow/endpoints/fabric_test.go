package endpoints

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
)

var errNoConnection = errors.New("there is no Connection liqo-tenant-rome/rome yet") // a sentinel of the tests

// TestFabricAddresses: rome and milan have equal ranges, and spec.addressRanges does not
// count.
func TestFabricAddresses(t *testing.T) {
	owned := func(text string) discoveryv1.Endpoint { return ownedBy("milan", text) }
	for name, tc := range map[string]struct {
		endpoint discoveryv1.Endpoint
		missing  error
		want     string
		refused  string
	}{
		"a pod of the consumer":                      {endpoint: at("10.244.1.5"), want: "10.80.1.5"},
		"one on a virtual node, with an own address": {endpoint: owned("10.244.1.5"), want: "10.80.1.5"},
		"a pod here, as the consumer sees it":        {endpoint: owned("10.90.1.9"), want: "10.244.1.9"},
		"no pod here":                                {endpoint: owned("10.90.1.8"), refused: "10.90.1.8 is not in the ranges that cluster rome has in its Connection (10.244.0.0/16)"},
		"a pod here, without its node":               {endpoint: at("10.90.1.9"), want: "10.244.1.9"},
		"in spec.addressRanges":                      {endpoint: at("10.100.1.5"), refused: "10.100.1.5 is not in the ranges that cluster rome has in its Connection (10.244.0.0/16)"},
		"a pod here, by its address here":            {endpoint: owned("10.244.1.9"), want: "10.80.1.9"},
		"without a Connection":                       {endpoint: at("10.244.1.5"), missing: errNoConnection, refused: errNoConnection.Error()},
		"a pod here, without a Connection":           {endpoint: owned("10.90.1.9"), missing: errNoConnection, refused: errNoConnection.Error()},
		"a node's, once translated":                  {endpoint: at("10.244.200.1"), refused: "10.244.200.1 is the address of a node of this cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			r := addressRules{
				peer: origin, remap: &fabric{missing: tc.missing}, zone: func(string) string { return "" },
				node: func(a netip.Addr) bool { return a == netip.MustParseAddr("10.80.200.1") },
				pod: func(a netip.Addr) (ownPod, bool) {
					return ownPod{node: "milan-sim-2", ready: true}, a == netip.MustParseAddr("10.244.1.9")
				},
			}
			r.from(peer())
			endpoint, refused := forgeEndpoint(&tc.endpoint, discoveryv1.AddressTypeIPv4, r, true)
			require.Equal(t, tc.refused, refused)
			if tc.want != "" {
				require.Equal(t, []string{tc.want}, endpoint.Addresses)
			}
		})
	}
}

// TestFabricChanges: a changed view, and a Connection that goes and comes back, reach the
// EndpointSlice without a restart, and nothing is written before the Connections are known.
func TestFabricChanges(t *testing.T) {
	f := &fabric{}
	r := newRunningWith(t, f, newShadow(endpointsOf(at("10.244.1.5"))), twin())
	stop := r.lead()
	require.Eventually(t, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.asked
	}, time.Minute, 5*time.Millisecond, "Run waits for the Connections")
	r.becomes("gone")
	f.set(func() { f.synced = true })
	r.becomes("+10.80.1.5")
	f.set(func() { f.view = netip.MustParsePrefix("10.81.0.0/16") })
	r.becomes("+10.81.1.5")
	f.set(func() { f.missing = errNoConnection })
	r.becomes("none")
	r.says(offloadingv1beta1.ReasonEndpointsRefused)
	f.set(func() { f.missing = nil })
	r.becomes("+10.81.1.5")
	stop()
}

// TestFabricDirect: a pod in a third cluster is reached by this cluster's own way there while there is
// one for its namespace, and through the consumer else.
func TestFabricDirect(t *testing.T) {
	f := &fabric{synced: true}
	r := newRunningWith(t, f, newShadow(endpointsOf(at("10.244.9.5"))), twin(func(ns *corev1.Namespace) {
		ns.Annotations[offloadingv1beta1.OriginalNameAnnotation] = "shop"
	}))
	defer r.lead()()
	r.becomes("+10.80.9.5")
	f.set(func() { f.direct = "shop" })
	r.becomes("+10.99.9.5")
	f.set(func() { f.direct = "apps" })
	r.becomes("+10.80.9.5")
}

// TestFabricLegs: an endpoint in a third cluster is not ready while the consumer says so, as it does while its
// own tunnel there is down, nor while the tunnel to the consumer is down; and it is ready when both are up
// again. That is so by either way.
func TestFabricLegs(t *testing.T) {
	for way, address := range map[string]string{"": "10.80.9.5", "shop": "10.99.9.5"} {
		beyond := at("10.244.9.5")
		r := newRunningWith(t, &fabric{synced: true, direct: way}, newShadow(endpointsOf(beyond)), twin(func(ns *corev1.Namespace) {
			ns.Annotations[offloadingv1beta1.OriginalNameAnnotation] = "shop"
		}))
		stop := r.lead()
		said := func(ready bool) {
			beyond.Conditions.Ready = &ready
			kubetest.Update(t, r.liqod.OffloadingV1beta1().ShadowEndpointSlices(testNamespace), newShadow(endpointsOf(beyond)))
		}
		r.becomes("+" + address)
		said(false)
		r.becomes("-" + address)
		said(true)
		r.becomes("+" + address)
		r.setPeer(check(corev1beta1.ConditionNetwork, metav1.ConditionFalse, ago(0)))
		r.becomes("-" + address)
		r.setPeer(check(corev1beta1.ConditionNetwork, metav1.ConditionTrue, ago(0)))
		r.becomes("+" + address)
		stop()
	}
}

// TestFabricOwnPods: a pod that runs here for the consumer follows its state under the
// address that the consumer has for it.
func TestFabricOwnPods(t *testing.T) {
	r := newRunningWith(t, &fabric{synced: true}, newShadow(endpointsOf(ownedBy("milan", "10.90.1.9"))), twin())
	defer r.lead()()
	r.becomes("none")
	kubetest.Create(t, r.core.CoreV1().Pods(testNamespace), leader("10.244.1.9"))
	r.becomes("+10.244.1.9")
	require.NoError(t, r.core.CoreV1().Pods(testNamespace).Delete(t.Context(), "leader", metav1.DeleteOptions{}))
	r.becomes("none")
}
