package timed

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
)

// prefix begins the names of the namespaces that are observed.
const prefix = "chaos-"

// observer sees every change of the pods of both clusters, by watches of its own, past
// the fronts.
type observer struct {
	mu sync.Mutex
	// By namespace, in the order in which they happened.
	sightings map[string][]sighting
	present   map[string]map[types.UID]bool
	watches   []*site.Watch
}

func newObserver(t *testing.T, w *world) *observer {
	t.Helper()
	o := &observer{sightings: map[string][]sighting{}, present: map[string]map[types.UID]bool{}}
	for _, c := range []*lab.Cluster{w.rome.Cluster, w.milan.Cluster} {
		pods, err := site.WatchPods(t.Context(), c.Client(), corev1.NamespaceAll, o.see)
		require.NoError(t, err)
		t.Cleanup(pods.Stop)
		o.watches = append(o.watches, pods)
	}
	return o
}

func (o *observer) see(event watch.EventType, pod *corev1.Pod) {
	if !strings.HasPrefix(pod.Namespace, prefix) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sightings[pod.Namespace] = append(o.sightings[pod.Namespace], sighting{event, essence(pod)})
	if o.present[pod.Namespace] == nil {
		o.present[pod.Namespace] = map[types.UID]bool{}
	}
	if event == watch.Deleted {
		delete(o.present[pod.Namespace], pod.UID)
	} else {
		o.present[pod.Namespace][pod.UID] = true
	}
}

// essence is what a judgement rests on.
func essence(pod *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{Spec: corev1.PodSpec{NodeName: pod.Spec.NodeName}, Status: corev1.PodStatus{
		Phase: pod.Status.Phase, Reason: pod.Status.Reason, Message: pod.Status.Message, ContainerStatuses: pod.Status.ContainerStatuses,
	}}
	out.Namespace, out.Name, out.UID, out.Labels = pod.Namespace, pod.Name, pod.UID, pod.Labels
	out.DeletionTimestamp, out.DeletionGracePeriodSeconds = pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds
	return out
}

// empty says what a namespace still holds, as far as has been seen.
func (o *observer) empty(namespace string) error {
	for _, w := range o.watches {
		if err := w.Err(); err != nil {
			return err
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := len(o.present[namespace]); n > 0 {
		return fmt.Errorf("%d pods in namespace %s", n, namespace)
	}
	if len(o.sightings[namespace]) == 0 && len(o.sightings[twinOf(namespace)]) > 0 {
		return fmt.Errorf("pods of namespace %s were seen in the provider only: the watch at home is late", namespace)
	}
	return nil
}

// take returns what was seen in a namespace, and forgets it.
func (o *observer) take(namespace string) []sighting {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer delete(o.sightings, namespace)
	return o.sightings[namespace]
}

// judge judges the pods of a namespace and of its twin.
func (o *observer) judge(namespace string, want func(types.UID) destiny) []string {
	return judge(o.take(namespace), o.take(twinOf(namespace)), want)
}
