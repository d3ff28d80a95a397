package scenarios

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

var policies = []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever}

// testEndings: pods of every restart policy whose containers end by themselves.
func testEndings(t *testing.T, w *world) {
	c := w.fixture(t, "endings")
	tests := map[string]struct {
		policy corev1.RestartPolicy
		codes  string
		is     func(*corev1.Pod) bool
		ends   bool
	}{
		"always-0":    {corev1.RestartPolicyAlways, "0", func(p *corev1.Pod) bool { return restarts(p) >= 2 && podRunning(p) }, false},
		"always-1":    {corev1.RestartPolicyAlways, "1", func(p *corev1.Pod) bool { return restarts(p) >= 2 && podRunning(p) }, false},
		"onfailure-0": {corev1.RestartPolicyOnFailure, "0", func(p *corev1.Pod) bool { return inPhase(corev1.PodSucceeded)(p) && exitCode(p) == 0 }, true},
		"onfailure-1": {corev1.RestartPolicyOnFailure, "1", func(p *corev1.Pod) bool { return restarts(p) >= 1 && podRunning(p) }, false},
		"onfailure-1-0": {corev1.RestartPolicyOnFailure, "1,0", func(p *corev1.Pod) bool {
			return inPhase(corev1.PodSucceeded)(p) && exitCode(p) == 0 && restarts(p) == 1
		}, true},
		"never-0": {corev1.RestartPolicyNever, "0", func(p *corev1.Pod) bool { return inPhase(corev1.PodSucceeded)(p) && exitCode(p) == 0 }, true},
		"never-1": {corev1.RestartPolicyNever, "1", func(p *corev1.Pod) bool { return inPhase(corev1.PodFailed)(p) && exitCode(p) == 1 }, true},
	}
	for name, test := range tests {
		c.create(t, bare(name, test.policy, lab.SimExitCode, test.codes, lab.SimRunFor, "200"))
	}
	for name, test := range tests {
		local := c.untilLocal(t, 30*time.Second, name, "is as its policy says", test.is)
		if test.ends {
			require.Equal(t, corev1.ConditionFalse, podCondition(local, corev1.PodReady).Status, name)
		}
	}
	// An ended pod stays ended, whatever becomes of its remains in the provider.
	for name, test := range tests {
		if !test.ends {
			continue
		}
		require.NoError(t, w.milan.Client().CoreV1().Pods(c.twin).Delete(t.Context(), name, metav1.DeleteOptions{}))
		w.absent(t, w.milan, 10*time.Second, c.twin, name)
	}
	c.deleteAll(t)
	w.requireOnce(t, c, "onfailure-0", "onfailure-1-0", "never-0", "never-1")
}

// deleteAll deletes all pods of the consumer and waits until nothing is left.
func (c *fixture) deleteAll(t *testing.T, forced ...string) {
	t.Helper()
	require.NoError(t, c.rome.Client().CoreV1().Pods(c.namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	c.isEmpty(t, forced...)
}

// isEmpty waits until nothing is left of the pods, and checks what must hold of all that there were.
func (c *fixture) isEmpty(t *testing.T, forced ...string) {
	t.Helper()
	within(t, time.Minute, "everything is gone", c.gone(c.namespace, c.twin))
	c.home.requireHome(t, forced...)
	c.provider.requireProvider(t)
}

// requireOnce checks that each of the pods was made in the provider exactly once.
func (w *world) requireOnce(t *testing.T, c *fixture, names ...string) {
	t.Helper()
	made := map[string]map[string]bool{}
	for _, m := range c.provider.all() {
		if made[m.pod.Name] == nil {
			made[m.pod.Name] = map[string]bool{}
		}
		made[m.pod.Name][string(m.pod.UID)] = true
	}
	for _, name := range names {
		require.Len(t, made[name], 1, "pod %s was made in the provider once", name)
	}
}

// testDeletion: running pods of every restart policy, deleted with grace and by force.
func testDeletion(t *testing.T, w *world) {
	c := w.fixture(t, "deletion")
	for _, policy := range policies {
		c.create(t, bare("soft-"+lower(policy), policy))
		c.create(t, bare("code-"+lower(policy), policy, lab.SimStopCode, "7"))
		c.create(t, bare("hard-"+lower(policy), policy))
	}
	var forced []string
	for _, policy := range policies {
		for _, kind := range []string{"soft-", "code-", "hard-"} {
			c.untilLocal(t, 30*time.Second, kind+lower(policy), "runs", podRunning)
		}
		forced = append(forced, "hard-"+lower(policy))
	}
	pods := w.rome.Client().CoreV1().Pods(c.namespace)
	for _, policy := range policies {
		soft, code := c.local(t, "soft-"+lower(policy)), c.local(t, "code-"+lower(policy))
		require.NoError(t, pods.Delete(t.Context(), soft.Name, metav1.DeleteOptions{}))
		require.NoError(t, pods.Delete(t.Context(), code.Name, metav1.DeleteOptions{}))
		last := c.home.last(t.Context(), t, soft.UID)
		require.Equal(t, corev1.PodSucceeded, last.Status.Phase)
		require.EqualValues(t, 0, exitCode(last))
		last = c.home.last(t.Context(), t, code.UID)
		require.Equal(t, corev1.PodFailed, last.Status.Phase, "the exit code of a container that was asked to stop counts")
		require.EqualValues(t, 7, exitCode(last))
	}
	for _, name := range forced {
		require.NoError(t, pods.Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
		w.absent(t, w.rome, 2*time.Second, c.namespace, name)
	}
	for _, name := range forced {
		w.absent(t, w.milan, 5*time.Second, c.twin, name)
	}
	c.isEmpty(t, forced...)
}

func lower(policy corev1.RestartPolicy) string {
	return map[corev1.RestartPolicy]string{
		corev1.RestartPolicyAlways: "always", corev1.RestartPolicyOnFailure: "onfailure", corev1.RestartPolicyNever: "never",
	}[policy]
}

// testGrace: the containers have in the provider the time that the user gave them.
func testGrace(t *testing.T, w *world) {
	c := w.fixture(t, "grace")
	patient := bare("patient", corev1.RestartPolicyAlways, lab.SimStopAfter, "3000")
	patient.Spec.TerminationGracePeriodSeconds = ptr.To[int64](30)
	stubborn := bare("stubborn", corev1.RestartPolicyAlways, lab.SimStopAfter, "60000")
	stubborn.Spec.TerminationGracePeriodSeconds = ptr.To[int64](30)
	impatient := bare("impatient", corev1.RestartPolicyAlways, lab.SimStopAfter, "60000")
	impatient.Spec.TerminationGracePeriodSeconds = ptr.To[int64](60)
	for _, pod := range []*corev1.Pod{patient, stubborn, impatient} {
		c.create(t, pod)
	}
	for _, name := range []string{"patient", "stubborn", "impatient"} {
		c.untilLocal(t, 30*time.Second, name, "runs", podRunning)
	}
	pods := w.rome.Client().CoreV1().Pods(c.namespace)
	begin := time.Now()
	require.NoError(t, pods.Delete(t.Context(), "patient", metav1.DeleteOptions{}))
	require.NoError(t, pods.Delete(t.Context(), "stubborn", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](4)}))
	require.NoError(t, pods.Delete(t.Context(), "impatient", metav1.DeleteOptions{}))
	remote := c.untilRemote(t, 5*time.Second, "patient", "is asked to stop", func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
	require.LessOrEqual(t, *remote.DeletionGracePeriodSeconds, int64(30))
	require.GreaterOrEqual(t, *remote.DeletionGracePeriodSeconds, 30-int64(math.Ceil(time.Since(begin).Seconds()))-1, "what is left of the grace travels")
	local := c.untilLocal(t, 2*time.Second, "patient", "is still there", func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
	require.Equal(t, corev1.PodRunning, local.Status.Phase)
	c.untilRemote(t, 5*time.Second, "impatient", "is asked to stop", func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
	// A second deletion with less grace shortens the first, here and there.
	require.NoError(t, pods.Delete(t.Context(), "impatient", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](2)}))

	w.absent(t, w.rome, 10*time.Second, c.namespace, "patient")
	took := time.Since(begin)
	require.Greater(t, took, 3*time.Second-50*time.Millisecond, "the containers have the time that they take")
	requireFaster(t, took, 8*time.Second, "the end of the patient pod")
	w.absent(t, w.rome, 10*time.Second, c.namespace, "stubborn")
	took = time.Since(begin)
	require.Greater(t, took, 3*time.Second, "the grace is not cut short")
	requireFaster(t, took, 9*time.Second, "the grace of the deletion bounds it")
	w.absent(t, w.rome, 10*time.Second, c.namespace, "impatient")
	requireFaster(t, time.Since(begin), 15*time.Second, "a shorter grace follows")
	c.deleteAll(t)
}

// testNeverRun: pods that the provider takes and cannot run show why at home.
func testNeverRun(t *testing.T, w *world) {
	c := w.fixture(t, "never-run")
	missing := bare("missing", corev1.RestartPolicyAlways)
	missing.Spec.Containers[0].Image = lab.SimMissingImage + ":1"
	c.create(t, missing)
	neverMissing := missing.DeepCopy()
	neverMissing.Name, neverMissing.Spec.RestartPolicy = "never-missing", corev1.RestartPolicyNever
	c.create(t, neverMissing)
	huge := bare("huge", corev1.RestartPolicyNever)
	huge.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500")}
	c.create(t, huge)

	pod := c.untilLocal(t, 10*time.Second, "missing", "shows that its image is missing", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses
		return len(s) == 1 && s[0].State.Waiting != nil && s[0].State.Waiting.Reason == "ImagePullBackOff"
	})
	require.Equal(t, corev1.PodPending, pod.Status.Phase)
	c.hasEvent(t, pod, "RemoteContainerWaiting")
	pod = c.untilLocal(t, 10*time.Second, "huge", "shows that no node has room", func(p *corev1.Pod) bool {
		return podCondition(p, corev1.PodReady).Reason == corev1.PodReasonUnschedulable
	})
	require.Equal(t, corev1.PodPending, pod.Status.Phase)
	require.Contains(t, podCondition(pod, corev1.PodReady).Message, "Insufficient cpu")
	require.Equal(t, corev1.ConditionTrue, podCondition(pod, corev1.PodScheduled).Status, "it is scheduled in this cluster")
	c.hasEvent(t, pod, corev1.PodReasonUnschedulable)

	// What never started may start, whatever its restart policy.
	for _, name := range []string{"huge", "never-missing"} {
		before := c.untilRemote(t, 10*time.Second, name, "is there", func(p *corev1.Pod) bool { return len(p.Status.Conditions) > 0 })
		require.NoError(t, w.milan.Client().CoreV1().Pods(c.twin).Delete(t.Context(), name, metav1.DeleteOptions{}))
		c.untilRemote(t, 10*time.Second, name, "is there again", func(p *corev1.Pod) bool { return p.UID != before.UID && p.DeletionTimestamp == nil })
		require.Equal(t, corev1.PodPending, c.local(t, name).Status.Phase)
	}
	for _, name := range []string{"missing", "never-missing"} {
		kubetest.Patch(t, w.rome.Client().CoreV1().Pods(c.namespace), name, types.StrategicMergePatchType, []byte(`{"spec":{"containers":[{"name":"c","image":"sim/web:1"}]}}`))
		c.untilLocal(t, 10*time.Second, name, "runs with an image that is there", podRunning)
	}
	c.deleteAll(t)
}

// testRefused: a pod that the provider's admission refuses shows why, and a better one
// of the same name runs.
func testRefused(t *testing.T, w *world) {
	c := w.fixture(t, "refused")
	bad := bare("tool", corev1.RestartPolicyAlways)
	bad.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
	c.create(t, bad)
	pod := c.untilLocal(t, 10*time.Second, "tool", "shows that it is refused", func(p *corev1.Pod) bool {
		return p.Status.Reason == offloadingv1beta1.ReasonPodRefused
	})
	require.Equal(t, corev1.PodPending, pod.Status.Phase)
	require.Contains(t, pod.Status.Message, "privileged")
	c.hasEvent(t, pod, offloadingv1beta1.ReasonPodRefused)
	require.NoError(t, w.rome.Client().CoreV1().Pods(c.namespace).Delete(t.Context(), "tool", metav1.DeleteOptions{}))
	w.absent(t, w.rome, 10*time.Second, c.namespace, "tool")
	c.create(t, bare("tool", corev1.RestartPolicyAlways))
	c.untilLocal(t, 10*time.Second, "tool", "runs, without the privilege", podRunning)

	// What a quota refuses runs when there is room.
	quotas := w.milan.Client().CoreV1().ResourceQuotas(c.twin)
	kubetest.Create(t, quotas, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "full"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}},
	})
	c.create(t, bare("second", corev1.RestartPolicyAlways))
	pod = c.untilLocal(t, 10*time.Second, "second", "shows that there is no room", func(p *corev1.Pod) bool {
		return p.Status.Reason == offloadingv1beta1.ReasonPodRefused
	})
	require.Contains(t, pod.Status.Message, "quota")
	require.NoError(t, quotas.Delete(t.Context(), "full", metav1.DeleteOptions{}))
	pod = c.untilLocal(t, 10*time.Second, "second", "runs", podRunning)
	require.Empty(t, pod.Status.Reason)
	require.Empty(t, pod.Status.Message)
	c.deleteAll(t)
}

// testSuccessor: a pod of the name of one that was deleted by force waits until nothing
// is left of its predecessor.
func testSuccessor(t *testing.T, w *world) {
	c := w.fixture(t, "successor")
	first := bare("web", corev1.RestartPolicyNever, lab.SimStopAfter, "3000")
	first.Spec.TerminationGracePeriodSeconds = ptr.To[int64](10)
	old := c.create(t, first.DeepCopy())
	c.untilLocal(t, 30*time.Second, "web", "runs", podRunning)
	oldRemote := c.remote(t, "web")
	require.NoError(t, w.rome.Client().CoreV1().Pods(c.namespace).Delete(t.Context(), "web", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
	next := c.create(t, first.DeepCopy())
	require.NotEqual(t, old.UID, next.UID)
	c.untilLocal(t, 20*time.Second, "web", "runs again", podRunning)
	require.Equal(t, string(next.UID), c.remote(t, "web").Labels[offloadingv1beta1.LocalPodUIDLabel])
	goneAt := c.provider.first(func(m moment) bool { return m.pod.UID == oldRemote.UID && m.kind == watch.Deleted })
	require.GreaterOrEqual(t, goneAt, 0)
	gone := c.provider.all()[goneAt].at
	for _, m := range c.home.of(next.UID) {
		require.True(t, m.pod.Status.Phase == corev1.PodPending || m.at.After(gone), "the successor has nothing of its predecessor's status")
		require.Zero(t, restarts(m.pod))
	}
	c.deleteAll(t, "web")
}

// testSidecar: init containers and native sidecars are offloaded as they are, and their
// states come home.
func testSidecar(t *testing.T, w *world) {
	c := w.fixture(t, "sidecar")
	pod := bare("task", corev1.RestartPolicyNever, lab.SimExitCode, "0", lab.SimRunFor, "15000")
	pod.Spec.InitContainers = []corev1.Container{
		{Name: "prepare", Image: "sim/init:1"},
		{Name: "proxy", Image: "sim/proxy:1", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)},
	}
	c.create(t, pod)
	local := c.untilLocal(t, 10*time.Second, "task", "runs", podRunning)
	require.Len(t, local.Status.InitContainerStatuses, 2)
	require.Equal(t, "Completed", local.Status.InitContainerStatuses[0].State.Terminated.Reason)
	require.NotNil(t, local.Status.InitContainerStatuses[1].State.Running)
	require.True(t, *local.Status.InitContainerStatuses[1].Started)
	remote := c.remote(t, "task")
	require.Equal(t, corev1.ContainerRestartPolicyAlways, *remote.Spec.InitContainers[1].RestartPolicy)
	local = c.untilLocal(t, 10*time.Second, "task", "ends", inPhase(corev1.PodSucceeded))
	require.NotNil(t, local.Status.InitContainerStatuses[1].State.Terminated)
	c.deleteAll(t)
}
