package timed

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// verdicts remember what objects say of others, by object and condition, and each change.
type verdicts struct {
	mu      sync.Mutex
	last    map[string]map[string]string // by object and condition
	changed []string
}

// take takes what an object says by now; nil: it is gone.
func (v *verdicts) take(object string, says map[string]string, at time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	have, known := v.last[object]
	if known {
		for what := range allKeys(have, says) {
			if have[what] != says[what] {
				v.changed = append(v.changed, fmt.Sprintf("%s %s: %s was %q and is %q", at.Format("15:04:05.000"), object, what, have[what], says[what]))
			}
		}
	}
	v.last[object] = says
}

func allKeys(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, b)
	return out
}

// all are the verdicts of now.
func (v *verdicts) all() (out []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for object, says := range v.last {
		for what, is := range says {
			out = append(out, fmt.Sprintf("%s: %s is %q", object, what, is))
		}
	}
	slices.Sort(out)
	return out
}

func (v *verdicts) changes() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.changed)
}

// watch follows all that may say that something is down, until the test ends. It returns when
// everything has been seen once.
func (w alarmWorld) watch(t *testing.T) *verdicts {
	t.Helper()
	v := &verdicts{last: map[string]map[string]string{}}
	for s, namespace := range w.namespaces() {
		peers := externalversions.NewSharedInformerFactory(s.Liqod(), 0)
		nodes := informers.NewSharedInformerFactory(s.Client(), 0)
		services := informers.NewSharedInformerFactoryWithOptions(s.Client(), 0, informers.WithNamespace(namespace))
		t.Cleanup(func() { // the context of the test has ended
			peers.Shutdown()
			nodes.Shutdown()
			services.Shutdown()
		})
		for kind, informer := range map[string]cache.SharedIndexInformer{
			"ForeignCluster": peers.Core().V1beta1().ForeignClusters().Informer(),
			"Node":           nodes.Core().V1().Nodes().Informer(),
			"EndpointSlice":  services.Discovery().V1().EndpointSlices().Informer(),
		} {
			_, err := informer.AddEventHandler(v.handler(s.Name + " " + kind))
			require.NoError(t, err)
		}
		peers.Start(t.Context().Done())
		nodes.Start(t.Context().Done())
		services.Start(t.Context().Done())
		peers.WaitForCacheSync(t.Context().Done())
		nodes.WaitForCacheSync(t.Context().Done())
		services.WaitForCacheSync(t.Context().Done())
	}
	return v
}

func (v *verdicts) handler(kind string) cache.ResourceEventHandler {
	take := func(object any) {
		o := object.(metav1.Object)
		if says := verdictsOf(object); says != nil {
			v.take(kind+" "+o.GetName(), says, time.Now())
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    take,
		UpdateFunc: func(_, object any) { take(object) },
		DeleteFunc: func(object any) {
			if o, ok := object.(metav1.Object); ok {
				v.take(kind+" "+o.GetName(), nil, time.Now())
			}
		},
	}
}

// verdictsOf are what an object says of others; nil: nothing.
func verdictsOf(object any) map[string]string {
	out := map[string]string{}
	switch o := object.(type) {
	case *corev1beta1.ForeignCluster:
		for _, c := range o.Status.Conditions {
			out[c.Type] = string(c.Status)
		}
	case *corev1.Node:
		if o.Labels[offloadingv1beta1.TypeLabel] != offloadingv1beta1.TypeVirtualNode {
			return nil
		}
		for _, c := range o.Status.Conditions {
			out[string(c.Type)] = string(c.Status)
		}
	case *discoveryv1.EndpointSlice:
		for _, e := range o.Endpoints {
			out[fmt.Sprint(e.Addresses)] = fmt.Sprintf("ready=%t serving=%t", ptr.Deref(e.Conditions.Ready, true), ptr.Deref(e.Conditions.Serving, true))
		}
	}
	return out
}

// TestVerdicts: each change is remembered, also one that is taken back.
func TestVerdicts(t *testing.T) {
	v := &verdicts{last: map[string]map[string]string{}}
	node := func(labels map[string]string, ready corev1.ConditionStatus) map[string]string {
		n := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}}
		n.Labels = labels
		return verdictsOf(n)
	}
	virtual := map[string]string{offloadingv1beta1.TypeLabel: offloadingv1beta1.TypeVirtualNode}
	require.Nil(t, node(nil, corev1.ConditionTrue), "a node of its own says nothing of others")
	at := time.Unix(0, 0).UTC()
	v.take("Node milan", node(virtual, corev1.ConditionTrue), at)
	v.take("Node milan", node(virtual, corev1.ConditionTrue), at)
	require.Empty(t, v.changes())
	v.take("Node milan", node(virtual, corev1.ConditionFalse), at)
	v.take("Node milan", node(virtual, corev1.ConditionTrue), at)
	v.take("Node milan", nil, at)
	require.Equal(t, []string{
		`00:00:00.000 Node milan: Ready was "True" and is "False"`,
		`00:00:00.000 Node milan: Ready was "False" and is "True"`,
		`00:00:00.000 Node milan: Ready was "True" and is ""`,
	}, v.changes())
	slice := &discoveryv1.EndpointSlice{Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false)}}}}
	require.Equal(t, map[string]string{"[10.0.0.1]": "ready=false serving=true"}, verdictsOf(slice))
	peer := &corev1beta1.ForeignCluster{Status: corev1beta1.ForeignClusterStatus{Conditions: []metav1.Condition{{Type: "NetworkStatus", Status: metav1.ConditionUnknown}}}}
	require.Equal(t, map[string]string{"NetworkStatus": "Unknown"}, verdictsOf(peer))
}
