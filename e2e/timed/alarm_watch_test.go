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
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/site"
)

// statuses has the status of each object, by condition or address, and each change of it.
type statuses struct {
	mu      sync.Mutex
	last    map[string]map[string]string // by object and condition
	changed []string
	watches []*site.Watch
}

// take takes the status that an object has now; nil: it is deleted.
func (s *statuses) take(object string, now map[string]string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	have, known := s.last[object]
	if known {
		for what := range allKeys(have, now) {
			if have[what] != now[what] {
				s.changed = append(s.changed, fmt.Sprintf("%s %s: %s was %q and is %q", at.Format("15:04:05.000"), object, what, have[what], now[what]))
			}
		}
	}
	s.last[object] = now
}

func allKeys(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, b)
	return out
}

// all are the statuses of now.
func (s *statuses) all() (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for object, now := range s.last {
		for what, is := range now {
			out = append(out, fmt.Sprintf("%s: %s is %q", object, what, is))
		}
	}
	slices.Sort(out)
	return out
}

// changes are the changes so far, and the errors of the watches.
func (s *statuses) changes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := slices.Clone(s.changed)
	for _, w := range s.watches {
		if err := w.Err(); err != nil {
			out = append(out, err.Error())
		}
	}
	return out
}

// watch watches all objects whose status may report a failure, until the test ends. It returns when
// each has been seen once.
func (w alarmWorld) watch(t *testing.T) *statuses {
	t.Helper()
	seen := &statuses{last: map[string]map[string]string{}}
	for s, namespace := range w.namespaces() {
		for kind, source := range map[string]*cache.ListWatch{
			"ForeignCluster": cache.NewListWatchFromClient(s.Liqod().CoreV1beta1().RESTClient(), "foreignclusters", "", fields.Everything()),
			"Node":           cache.NewListWatchFromClient(s.Client().CoreV1().RESTClient(), "nodes", "", fields.Everything()),
			"EndpointSlice":  cache.NewListWatchFromClient(s.Client().DiscoveryV1().RESTClient(), "endpointslices", namespace, fields.Everything()),
		} {
			events, err := site.NewWatch(t.Context(), source, func(event watch.EventType, object runtime.Object) {
				now := statusOf(object)
				if now == nil {
					return
				}
				if event == watch.Deleted {
					now = nil
				}
				seen.take(s.Name+" "+kind+" "+object.(metav1.Object).GetName(), now, time.Now())
			})
			require.NoError(t, err)
			t.Cleanup(events.Stop)
			seen.watches = append(seen.watches, events)
		}
	}
	return seen
}

// statusOf is the status of an object by condition or address; nil: it does not matter.
func statusOf(object any) map[string]string {
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

// TestStatuses: each change is recorded, also one that is undone.
func TestStatuses(t *testing.T) {
	s := &statuses{last: map[string]map[string]string{}}
	node := func(labels map[string]string, ready corev1.ConditionStatus) map[string]string {
		n := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}}
		n.Labels = labels
		return statusOf(n)
	}
	virtual := map[string]string{offloadingv1beta1.TypeLabel: offloadingv1beta1.TypeVirtualNode}
	require.Nil(t, node(nil, corev1.ConditionTrue), "the status of a real node does not matter")
	at := time.Unix(0, 0).UTC()
	s.take("Node milan", node(virtual, corev1.ConditionTrue), at)
	s.take("Node milan", node(virtual, corev1.ConditionTrue), at)
	require.Empty(t, s.changes())
	s.take("Node milan", node(virtual, corev1.ConditionFalse), at)
	s.take("Node milan", node(virtual, corev1.ConditionTrue), at)
	s.take("Node milan", nil, at)
	require.Equal(t, []string{
		`00:00:00.000 Node milan: Ready was "True" and is "False"`,
		`00:00:00.000 Node milan: Ready was "False" and is "True"`,
		`00:00:00.000 Node milan: Ready was "True" and is ""`,
	}, s.changes())
	slice := &discoveryv1.EndpointSlice{Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false)}}}}
	require.Equal(t, map[string]string{"[10.0.0.1]": "ready=false serving=true"}, statusOf(slice))
	peer := &corev1beta1.ForeignCluster{Status: corev1beta1.ForeignClusterStatus{Conditions: []metav1.Condition{{Type: "NetworkStatus", Status: metav1.ConditionUnknown}}}}
	require.Equal(t, map[string]string{"NetworkStatus": "Unknown"}, statusOf(peer))
}
