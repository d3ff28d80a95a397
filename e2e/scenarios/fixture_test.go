package scenarios

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

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
	c := &fixture{world: w, namespace: namespace, twin: namespace + "-rome"}
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
