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

// prefix begins the names of the namespaces that are watched.
const prefix = "chaos-"

// podWatch records every change of the pods of both clusters, by watches that do not lead
// through the fronts of the API servers.
type podWatch struct {
	mu sync.Mutex
	// By namespace, in the order in which they happened.
	events  map[string][]podEvent
	present map[string]map[types.UID]bool
	watches []*site.Watch
}

func newPodWatch(t *testing.T, w *world) *podWatch {
	t.Helper()
	p := &podWatch{events: map[string][]podEvent{}, present: map[string]map[types.UID]bool{}}
	for _, c := range []*lab.Cluster{w.Rome.Cluster, w.Milan.Cluster} {
		pods, err := site.WatchPods(t.Context(), c.Client(), corev1.NamespaceAll, p.see)
		require.NoError(t, err)
		t.Cleanup(pods.Stop)
		p.watches = append(p.watches, pods)
	}
	return p
}

func (p *podWatch) see(event watch.EventType, pod *corev1.Pod) {
	if !strings.HasPrefix(pod.Namespace, prefix) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events[pod.Namespace] = append(p.events[pod.Namespace], podEvent{event, stripped(pod)})
	if p.present[pod.Namespace] == nil {
		p.present[pod.Namespace] = map[types.UID]bool{}
	}
	if event == watch.Deleted {
		delete(p.present[pod.Namespace], pod.UID)
	} else {
		p.present[pod.Namespace][pod.UID] = true
	}
}

// stripped is a pod with the fields that are checked.
func stripped(pod *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{Spec: corev1.PodSpec{NodeName: pod.Spec.NodeName}, Status: corev1.PodStatus{
		Phase: pod.Status.Phase, Reason: pod.Status.Reason, Message: pod.Status.Message, ContainerStatuses: pod.Status.ContainerStatuses,
	}}
	out.Namespace, out.Name, out.UID, out.Labels = pod.Namespace, pod.Name, pod.UID, pod.Labels
	out.DeletionTimestamp, out.DeletionGracePeriodSeconds = pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds
	return out
}

// empty returns an error while pods of a namespace exist, as far as the watches have seen.
func (p *podWatch) empty(namespace string) error {
	for _, w := range p.watches {
		if err := w.Err(); err != nil {
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.present[namespace]); n > 0 {
		return fmt.Errorf("%d pods in namespace %s", n, namespace)
	}
	return lab.Wrong(nil, len(p.events[namespace]) == 0 && len(p.events[twinOf(namespace)]) > 0,
		"pods of namespace %s were seen in the provider only: the watch at home is late", namespace)
}

// take returns the events of a namespace, and forgets them.
func (p *podWatch) take(namespace string) []podEvent {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer delete(p.events, namespace)
	return p.events[namespace]
}

// check checks the pods of a namespace and of its twin.
func (p *podWatch) check(namespace string, want func(types.UID) expected) []string {
	return checkPods(p.take(namespace), p.take(twinOf(namespace)), want)
}
