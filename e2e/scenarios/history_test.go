package scenarios

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/site"
)

// moment is a pod as a watcher saw it.
type moment struct {
	kind watch.EventType
	pod  *corev1.Pod
	at   time.Time
}

// history is everything that a watcher sees of the pods of a namespace.
type history struct {
	watch *site.Watch

	mu      sync.Mutex
	moments []moment
}

// watchPods records until the test ends, from what is there now.
func watchPods(t *testing.T, s *site.Site, namespace string) *history {
	t.Helper()
	h := &history{}
	pods := must(site.WatchPods(t.Context(), s.Client(), namespace, func(event watch.EventType, pod *corev1.Pod) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.moments = append(h.moments, moment{event, pod, time.Now()})
	}))(t)
	t.Cleanup(pods.Stop)
	h.watch = pods
	return h
}

func (h *history) all() []moment {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.moments)
}

// of is what was seen of one pod.
func (h *history) of(uid types.UID) []moment {
	return slices.DeleteFunc(h.all(), func(m moment) bool { return m.pod.UID != uid })
}

// first is the place in the history of the first moment that matches, or -1.
func (h *history) first(match func(moment) bool) int {
	return slices.IndexFunc(h.all(), match)
}

// latency logs how long the pods took from one state to another, as the watcher saw it.
func (h *history) latency(t *testing.T, what string, from, to func(moment) bool) {
	t.Helper()
	begin, took := map[types.UID]time.Time{}, map[types.UID]time.Duration{}
	for _, m := range h.all() {
		if _, begun := begin[m.pod.UID]; !begun && from(m) {
			begin[m.pod.UID] = m.at
		}
		if at, begun := begin[m.pod.UID]; begun && took[m.pod.UID] == 0 && to(m) {
			took[m.pod.UID] = m.at.Sub(at)
		}
	}
	all := slices.Sorted(maps.Values(took))
	require.NotEmpty(t, all)
	t.Logf("%s, %d pods: median %s, 99 of 100 within %s, longest %s", what, len(all), all[len(all)/2].Round(time.Millisecond),
		all[len(all)*99/100].Round(time.Millisecond), all[len(all)-1].Round(time.Millisecond))
}

// statusChanges counts how often the status of a pod changed since begin, beside the
// scheduler's part of it.
func (h *history) statusChanges(begin time.Time) (n int) {
	before := map[types.UID]*corev1.Pod{}
	for _, m := range h.all() {
		have := before[m.pod.UID]
		before[m.pod.UID] = m.pod
		if have != nil && m.at.After(begin) && have.Spec.NodeName == m.pod.Spec.NodeName && !equality.Semantic.DeepEqual(have.Status, m.pod.Status) {
			n++
		}
	}
	return n
}

// last is how a deleted pod looked when it went, and when that was seen.
func (h *history) last(ctx context.Context, t *testing.T, uid types.UID) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	within(t, 30*time.Second, "the pod is gone", func(context.Context) error {
		if m := h.of(uid); len(m) > 0 && m[len(m)-1].kind == watch.Deleted {
			pod = m[len(m)-1].pod
			return nil
		}
		return fmt.Errorf("pod %s is still there", uid)
	})
	return pod
}

// requireHome checks what must hold of every pod of the consumer at every moment: its
// restart counts never fall, an ended pod stays ended, and it ends before it goes unless
// it was forced to.
func (h *history) requireHome(t *testing.T, forced ...string) {
	t.Helper()
	require.NoError(t, h.watch.Err())
	byUID := map[types.UID][]moment{}
	for _, m := range h.all() {
		byUID[m.pod.UID] = append(byUID[m.pod.UID], m)
	}
	for moments := range maps.Values(byUID) {
		var before *corev1.Pod
		for _, m := range moments {
			if before != nil {
				requireStep(t, before, m.pod)
			}
			if m.kind == watch.Deleted && !slices.Contains(forced, m.pod.Name) {
				require.True(t, endedPod(m.pod), "pod %s went without an end: %s", m.pod.Name, m.pod.Status.Phase)
			}
			before = m.pod
		}
	}
}

func requireStep(t *testing.T, before, after *corev1.Pod) {
	t.Helper()
	if endedPod(before) {
		require.Equal(t, before.Status.Phase, after.Status.Phase, "pod %s left its end", after.Name)
	}
	for _, b := range before.Status.ContainerStatuses {
		for _, a := range after.Status.ContainerStatuses {
			if a.Name == b.Name {
				require.GreaterOrEqual(t, a.RestartCount, b.RestartCount, "the restart count of pod %s fell", after.Name)
			}
		}
	}
}

// requireProvider checks that no pod of the consumer ever ran twice at once: the second
// remote pod of a local one appears after the first is gone.
func (h *history) requireProvider(t *testing.T) {
	t.Helper()
	require.NoError(t, h.watch.Err())
	alive := map[string]types.UID{}
	for _, m := range h.all() {
		local := m.pod.Labels[offloadingv1beta1.LocalPodUIDLabel]
		if m.kind == watch.Deleted {
			delete(alive, local)
			continue
		}
		other, there := alive[local]
		require.True(t, !there || other == m.pod.UID, "pod %s runs twice", m.pod.Name)
		alive[local] = m.pod.UID
	}
}
