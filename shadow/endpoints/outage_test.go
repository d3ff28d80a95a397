package endpoints

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
)

// TestConsumerOutage: what its owner says of an endpoint, and what the verdict on the
// consumer makes of it, there and back.
func TestConsumerOutage(t *testing.T) {
	const consumers, own, onward = "10.100.1.5", "10.200.1.9", "10.210.1.9"
	yes, no := new(true), new(false)
	is := func(ready, serving, terminating *bool) discoveryv1.EndpointConditions {
		return discoveryv1.EndpointConditions{Ready: ready, Serving: serving, Terminating: terminating}
	}
	up, off, unsaid := is(yes, yes, no), is(no, no, no), is(no, no, nil)
	for name, tc := range map[string]struct {
		address          string
		down             bool                           // the pod in this cluster is not ready
		said, well, away discoveryv1.EndpointConditions // what its owner says, and what is shown while the consumer is well, and is not
	}{
		"the consumer's pod":                           {consumers, false, up, up, off},
		"one of which nothing is said":                 {consumers, false, is(nil, nil, nil), is(yes, nil, nil), unsaid},
		"one that is not ready":                        {consumers, false, off, off, off},
		"one that ends":                                {consumers, false, is(no, yes, yes), is(no, yes, yes), is(no, no, yes)}, // proxies take those if none is ready
		"one that is published before it is ready":     {consumers, false, is(yes, no, nil), is(yes, no, nil), unsaid},
		"a pod that runs here":                         {own, false, up, up, up},
		"one here that the consumer says is not ready": {own, false, is(no, nil, nil), is(no, nil, nil), is(no, nil, nil)},
		"one here that is not ready itself":            {own, true, is(yes, yes, nil), is(yes, yes, nil), unsaid},
		"a pod that this cluster has offloaded onward": {onward, false, up, up, up},
	} {
		t.Run(name, func(t *testing.T) {
			endpoint := at(tc.address)
			endpoint.Conditions, endpoint.NodeName = tc.said, new("milan")
			r := newRig(t, newShadow(endpointsOf(endpoint)))
			for _, address := range []string{own, onward} {
				r.pod(address, func(p *corev1.Pod) {
					if address == onward {
						p.Spec.NodeName = "turin"
					}
					if tc.down {
						p.Status.Conditions[0].Status = corev1.ConditionFalse
					}
				})
			}
			for i, step := range []struct {
				status metav1.ConditionStatus
				want   discoveryv1.EndpointConditions
			}{
				{metav1.ConditionTrue, tc.well}, {metav1.ConditionUnknown, tc.well}, {metav1.ConditionFalse, tc.away},
				{metav1.ConditionUnknown, tc.away}, {metav1.ConditionTrue, tc.well}, {metav1.ConditionFalse, tc.away}, {metav1.ConditionTrue, tc.well},
			} {
				for _, kind := range []string{corev1beta1.ConditionAPIServer, corev1beta1.ConditionNetwork} {
					r.peer(check(kind, step.status, metav1.NewTime(r.clock.Now())))
					r.settle()
					require.Equal(t, step.want, r.slice().Endpoints[0].Conditions, "step %d, %s %s", i, kind, step.status)
				}
			}
		})
	}
}

// TestConsumerOutageOfManySlices: all EndpointSlices of a consumer follow one verdict, each
// with one write, and so back.
func TestConsumerOutageOfManySlices(t *testing.T) {
	const services = 80 // a watch of the fakes holds 100 events
	r := newRunningWith(t, same{}, newShadow(), twin())
	shadows := r.liqod.OffloadingV1beta1().ShadowEndpointSlices(testNamespace)
	for i := range services {
		shadow := newShadow()
		shadow.Name, shadow.UID = fmt.Sprintf("%s-%d", testName, i), types.UID(fmt.Sprintf("shadow-%d", i+2))
		kubetest.Create(t, shadows, shadow)
	}
	defer r.lead()()
	r.allReady(services+1, true)
	for _, well := range []bool{false, true} {
		r.core.ClearActions()
		status := metav1.ConditionFalse
		if well {
			status = metav1.ConditionTrue
		}
		r.setPeer(check(corev1beta1.ConditionAPIServer, status, ago(0)))
		r.allReady(services+1, well)
		updates := 0
		for _, a := range r.core.Actions() {
			if a.Matches("update", "endpointslices") {
				updates++
			}
		}
		require.Equal(t, services+1, updates)
	}
}

// allReady waits until there are n EndpointSlices, the endpoints of all of which are ready
// or of none.
func (r running) allReady(n int, ready bool) {
	r.Helper()
	have := 0
	require.Eventually(r, func() bool {
		have = 0
		for _, obj := range r.e.cfg.Slices.GetStore().List() {
			slice, ok := obj.(*discoveryv1.EndpointSlice)
			if ok && slice.Labels[offloadingv1beta1.OriginLabel] == origin && len(slice.Endpoints) == 1 && *slice.Endpoints[0].Conditions.Ready == ready {
				have++
			}
		}
		return have == n
	}, 2*time.Minute, 5*time.Millisecond, "%d of %d", have, n)
}
