package timed

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/liqod/liqod/e2e/lab"
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
	broken    error
}

func newObserver(t *testing.T, w *world) *observer {
	t.Helper()
	o := &observer{sightings: map[string][]sighting{}, present: map[string]map[types.UID]bool{}}
	for _, c := range []*lab.Cluster{w.rome.Cluster, w.milan.Cluster} {
		o.follow(t, c)
	}
	return o
}

// follow watches the pods of a cluster until the test ends.
func (o *observer) follow(t *testing.T, c *lab.Cluster) {
	t.Helper()
	pods := c.Client().CoreV1().Pods(corev1.NamespaceAll)
	list, err := pods.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for i := range list.Items {
		o.see(c.Name, watch.Event{Type: watch.Added, Object: &list.Items[i]})
	}
	// A busy API server ends watches now and then: this one goes on where it stopped.
	w, err := watchtools.NewRetryWatcherWithContext(t.Context(), list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return pods.Watch(ctx, options)
		},
	})
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for event := range w.ResultChan() {
			o.see(c.Name, event)
		}
	})
	t.Cleanup(func() {
		w.Stop()
		wg.Wait()
	})
}

func (o *observer) see(cluster string, event watch.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	pod, ok := event.Object.(*corev1.Pod)
	if event.Type == watch.Error {
		o.broken = fmt.Errorf("the watch of the pods of %s ended: %v", cluster, event.Object)
	}
	if !ok || !strings.HasPrefix(pod.Namespace, prefix) {
		return
	}
	o.sightings[pod.Namespace] = append(o.sightings[pod.Namespace], sighting{event.Type, essence(pod)})
	if o.present[pod.Namespace] == nil {
		o.present[pod.Namespace] = map[types.UID]bool{}
	}
	if event.Type == watch.Deleted {
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
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.broken != nil {
		return o.broken
	}
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
