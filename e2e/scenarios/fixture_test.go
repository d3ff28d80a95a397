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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

func endedPod(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func podCondition(pod *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.PodCondition{}
}

func restarts(pod *corev1.Pod) int32 {
	var n int32
	for _, s := range pod.Status.ContainerStatuses {
		n += s.RestartCount
	}
	return n
}

// exitCode is that of the first container, -1 while it has not ended.
func exitCode(pod *corev1.Pod) int32 {
	if len(pod.Status.ContainerStatuses) == 0 || pod.Status.ContainerStatuses[0].State.Terminated == nil {
		return -1
	}
	return pod.Status.ContainerStatuses[0].State.Terminated.ExitCode
}

// fixture is one namespace of a world, with its twin, and all that happens to their pods.
type fixture struct {
	*world
	namespace, twin string
	home, provider  *history
}

// fixture offloads a fresh namespace for a subtest and watches it from both sides.
func (w *world) fixture(t *testing.T, namespace string) *fixture {
	t.Helper()
	w.offload(t, namespace, offloadingv1beta1.NamespaceOffloadingSpec{})
	c := &fixture{world: w, namespace: namespace, twin: namespace + "-" + w.rome.Name}
	c.home, c.provider = watchPods(t, w.rome, c.namespace), watchPods(t, w.milan, c.twin)
	return c
}

// create creates a pod in the consumer.
func (c *fixture) create(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	return kubetest.Create(t, c.rome.Client().CoreV1().Pods(c.namespace), pod)
}

func (c *fixture) local(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	return kubetest.Get(t, c.rome.Client().CoreV1().Pods(c.namespace), name)
}

func (c *fixture) remote(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	return kubetest.Get(t, c.milan.Client().CoreV1().Pods(c.twin), name)
}

// untilLocal waits for a state of a pod in the consumer.
func (c *fixture) untilLocal(t *testing.T, patience time.Duration, name, what string, is func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	return untilPod(t, c.rome, patience, c.namespace, name, what, is)
}

// untilRemote waits for a state of a pod in the provider.
func (c *fixture) untilRemote(t *testing.T, patience time.Duration, name, what string, is func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	return untilPod(t, c.milan, patience, c.twin, name, what, is)
}

func untilPod(t *testing.T, s *site.Site, patience time.Duration, namespace, name, what string, is func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	var seen *corev1.Pod
	within(t, patience, fmt.Sprintf("%s/%s %s", s.Name, name, what), lab.Is(s.Client().CoreV1().Pods(namespace), name, func(pod *corev1.Pod) bool {
		seen = pod
		return is(pod)
	}))
	return seen
}

// untilSome waits until one of the pods at home with labels is as wanted.
func (c *fixture) untilSome(t *testing.T, patience time.Duration, labels, what string, is func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	var seen *corev1.Pod
	within(t, patience, what, lab.Some(c.rome.Client().CoreV1().Pods(c.namespace), metav1.ListOptions{LabelSelector: labels}, func(pod *corev1.Pod) bool {
		seen = pod
		return is(pod)
	}))
	return seen
}

// hasSome returns a condition: there are at least as many objects with such fields.
func hasSome[L runtime.Object](c lab.Lister[L], fields string, least int) func(context.Context) error {
	return lab.Are(c, metav1.ListOptions{FieldSelector: fields}, func(list L) bool { return meta.LenList(list) >= least })
}

// absent waits until a name is free in a namespace of a cluster.
func (w *world) absent(t *testing.T, s *site.Site, patience time.Duration, namespace, name string) {
	t.Helper()
	within(t, patience, fmt.Sprintf("%s/%s is gone", s.Name, name), lab.Are(s.Client().CoreV1().Pods(namespace), metav1.ListOptions{FieldSelector: "metadata.name=" + name}, func(list *corev1.PodList) bool {
		return len(list.Items) == 0
	}))
}

// hasEvent waits for an event on a pod of the consumer.
func (c *fixture) hasEvent(t *testing.T, pod *corev1.Pod, reason string) {
	t.Helper()
	within(t, 10*time.Second, fmt.Sprintf("event %s on %s", reason, pod.Name), hasSome(c.rome.Client().CoreV1().Events(pod.Namespace), fmt.Sprintf("reason=%s,involvedObject.uid=%s", reason, pod.UID), 1))
}

func podRunning(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning && podCondition(pod, corev1.PodReady).Status == corev1.ConditionTrue
}

func inPhase(want corev1.PodPhase) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool { return pod.Status.Phase == want }
}

// bare makes a pod with a restart policy and annotations for the simulator, in pairs.
func bare(name string, policy corev1.RestartPolicy, annotations ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}, Spec: podSpec("sim/web:1")}
	pod.Spec.RestartPolicy = policy
	for i := 0; i+1 < len(annotations); i += 2 {
		pod.Annotations[annotations[i]] = annotations[i+1]
	}
	return pod
}

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
