package scenarios

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

// replaced waits for another pod in the provider than before, and until it runs at home.
func (c *fixture) replaced(t *testing.T, name string, before types.UID, restartsAtLeast int32) {
	t.Helper()
	home := c.local(t, name).UID
	c.untilRemote(t, 10*time.Second, name, "is there again", func(p *corev1.Pod) bool { return p.UID != before && podRunning(p) })
	local := c.untilLocal(t, 10*time.Second, name, "runs again", func(p *corev1.Pod) bool {
		return podRunning(p) && restarts(p) >= restartsAtLeast
	})
	require.Equal(t, home, local.UID, "the pod of the consumer stays")
	require.Equal(t, restartsAtLeast, restarts(local))
}

// requireLost waits until a pod is Failed at home because it was lost.
func (c *fixture) requireLost(t *testing.T, name string) {
	t.Helper()
	local := c.untilLocal(t, 10*time.Second, name, "is Failed", inPhase(corev1.PodFailed))
	require.Equal(t, offloadingv1beta1.ReasonRemotePodLost, local.Status.Reason)
	target := podCondition(local, corev1.DisruptionTarget)
	require.Equal(t, corev1.ConditionTrue, target.Status)
	require.Equal(t, offloadingv1beta1.ReasonRemotePodLost, target.Reason)
	require.Equal(t, corev1.ConditionFalse, podCondition(local, corev1.PodReady).Status)
}

// testRemoteDeleted: somebody deletes running pods in the provider.
func testRemoteDeleted(t *testing.T, w *world) {
	c := w.fixture(t, "lost")
	for _, pod := range []*corev1.Pod{
		bare("always", corev1.RestartPolicyAlways, lab.SimStopAfter, "600000"),
		bare("never", corev1.RestartPolicyNever),
		bare("onfailure-killed", corev1.RestartPolicyOnFailure, lab.SimStopCode, "143"),
		bare("onfailure-done", corev1.RestartPolicyOnFailure, lab.SimStopCode, "0"),
	} {
		c.create(t, pod)
	}
	remote := c.milan.Client().CoreV1().Pods(c.twin)
	before := map[string]types.UID{}
	for _, name := range []string{"always", "never", "onfailure-killed", "onfailure-done"} {
		c.untilLocal(t, 30*time.Second, name, "runs", podRunning)
		before[name] = c.remote(t, name).UID
		require.NoError(t, remote.Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](600)}))
	}
	// The pod of this one takes all of its grace, and the second deletion ends that.
	c.untilLocal(t, 10*time.Second, "always", "is not Ready while its pod ends", func(p *corev1.Pod) bool {
		return podCondition(p, corev1.PodReady).Status == corev1.ConditionFalse && p.Status.Phase == corev1.PodRunning && restarts(p) == 0
	})
	require.NoError(t, remote.Delete(t.Context(), "always", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](1)}))
	c.replaced(t, "always", before["always"], 1)
	c.requireLost(t, "never")
	c.replaced(t, "onfailure-killed", before["onfailure-killed"], 1)
	c.requireLost(t, "onfailure-done")

	// Once more, by force: the count goes on.
	again := c.remote(t, "always").UID
	require.NoError(t, remote.Delete(t.Context(), "always", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
	c.replaced(t, "always", again, 2)
	again = c.remote(t, "onfailure-killed").UID
	require.NoError(t, remote.Delete(t.Context(), "onfailure-killed", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
	c.replaced(t, "onfailure-killed", again, 2)

	// The ShadowPod itself is deleted in the provider: the consumer asks again.
	again = c.remote(t, "always").UID
	require.NoError(t, c.milan.Liqod().OffloadingV1beta1().ShadowPods(c.twin).Delete(t.Context(), "always", metav1.DeleteOptions{}))
	c.untilRemote(t, 20*time.Second, "always", "is there again", func(p *corev1.Pod) bool { return p.UID != again && podRunning(p) })
	c.untilLocal(t, 10*time.Second, "always", "runs again", podRunning)
	c.deleteAll(t)
	w.requireOnce(t, c, "never", "onfailure-done")
}

// testEvicted: pods are evicted in the provider through the Eviction API.
func testEvicted(t *testing.T, w *world) {
	c := w.fixture(t, "evicted")
	kubetest.Create(t, w.rome.Client().AppsV1().Deployments(c.namespace), deployment("web", 2))
	c.create(t, bare("never", corev1.RestartPolicyNever))
	within(t, 30*time.Second, "2 pods run in the provider", w.available("web", c.namespace, 2))
	c.untilLocal(t, 30*time.Second, "never", "runs", podRunning)
	pods := kubetest.List(t, w.milan.Client().CoreV1().Pods(c.twin))
	require.Len(t, pods.Items, 3)
	for _, pod := range pods.Items {
		require.NoError(t, w.milan.Client().PolicyV1().Evictions(c.twin).Evict(t.Context(),
			&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: c.twin, Name: pod.Name}}))
	}
	for _, pod := range pods.Items {
		if pod.Name != "never" {
			c.replaced(t, pod.Name, pod.UID, 1)
		}
	}
	c.requireLost(t, "never")
	require.NoError(t, w.rome.Client().AppsV1().Deployments(c.namespace).Delete(t.Context(), "web", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}))
	c.deleteAll(t)
}

// end lets the simulated containers of a pod in the provider end.
func (c *fixture) end(t *testing.T, name, code string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, lab.SimExitCode, code)
	kubetest.Patch(t, c.milan.Client().CoreV1().Pods(c.twin), name, types.MergePatchType, patch)
}

// testVKubeletDown: what happens on both sides while the vkubelet is down is caught up
// with when it is back, and what did not change is not written.
func testVKubeletDown(t *testing.T, w *world) {
	c := w.fixture(t, "down")
	names := []string{"steady", "ended", "swept", "dropped", "deleted", "forced", "relabelled"}
	for _, name := range names {
		c.create(t, bare(name, corev1.RestartPolicyNever))
	}
	for _, name := range names {
		c.untilLocal(t, 30*time.Second, name, "runs", podRunning)
	}
	vk := w.rome.VKubelet("milan")
	(*vk).Kill()
	killed := time.Now()

	c.end(t, "ended", "5")
	c.end(t, "swept", "0")
	c.untilRemote(t, 10*time.Second, "ended", "ends", inPhase(corev1.PodFailed))
	c.untilRemote(t, 10*time.Second, "swept", "ends", inPhase(corev1.PodSucceeded))
	remote, home := w.milan.Client().CoreV1().Pods(c.twin), w.rome.Client().CoreV1().Pods(c.namespace)
	for _, name := range []string{"swept", "dropped"} {
		require.NoError(t, remote.Delete(t.Context(), name, metav1.DeleteOptions{}))
		w.absent(t, w.milan, 10*time.Second, c.twin, name)
	}
	require.NoError(t, home.Delete(t.Context(), "deleted", metav1.DeleteOptions{}))
	require.NoError(t, home.Delete(t.Context(), "forced", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
	kubetest.Patch(t, home, "relabelled", types.MergePatchType, []byte(`{"metadata":{"labels":{"tier":"gold"}}}`))
	require.NoError(t, w.sites.Restart(vk))

	local := c.untilLocal(t, 20*time.Second, "ended", "has its end recorded", inPhase(corev1.PodFailed))
	require.EqualValues(t, 5, exitCode(local))
	local = c.untilLocal(t, 5*time.Second, "swept", "has its end recorded, though its pod is gone", endedPod)
	require.Equal(t, corev1.PodSucceeded, local.Status.Phase)
	require.EqualValues(t, 0, exitCode(local))
	c.requireLost(t, "dropped")
	w.absent(t, w.rome, 10*time.Second, c.namespace, "deleted")
	w.absent(t, w.milan, 10*time.Second, c.twin, "deleted")
	w.absent(t, w.milan, 10*time.Second, c.twin, "forced")
	c.untilRemote(t, 10*time.Second, "relabelled", "has the new label", func(p *corev1.Pod) bool { return p.Labels["tier"] == "gold" })
	c.untilLocal(t, 10*time.Second, "steady", "is Ready", podRunning)
	records := must(w.milan.Audited(func(r lab.AuditRecord) bool {
		return r.Write() && liqods(r) && r.ObjectRef.Namespace == c.twin && r.ObjectRef.Name == "steady" && r.RequestReceivedTimestamp.After(killed)
	}))(t)
	require.Empty(t, records, "nothing changed: nothing is written in the provider")
	c.deleteAll(t, "forced")
	w.requireOnce(t, c, names...)
	require.NoError(t, w.rome.WaitVirtualNode(t.Context(), "milan", corev1.ConditionTrue))
}

// testMany: many pods at once, and what they cost.
func testMany(t *testing.T, w *world) {
	const n = 300
	c := w.fixture(t, "many")
	begin := time.Now()
	deployments := w.rome.Client().AppsV1().Deployments(c.namespace)
	kubetest.Create(t, deployments, deployment("web", n))
	within(t, 2*time.Minute, fmt.Sprintf("%d pods run", n), w.available("web", c.namespace, n))
	requireWrites(t, map[string]int{"create shadowpods": n, "create pods": n}, w.writes(t, w.milan.Audited, c.twin, begin), "one ShadowPod and one Pod each")
	w.requireStatusWrites(t, c, begin, n, map[string]int{})
	bound := func(m moment) bool { return m.pod.Spec.NodeName != "" }
	requireNoEventsOfLiqod(t, w.rome, c.namespace)
	c.home.latency(t, "bound to Ready", bound, func(m moment) bool { return podRunning(m.pod) })
	c.provider.latency(t, "of it, from bound to Ready in the provider", bound, func(m moment) bool { return podRunning(m.pod) })

	begin = time.Now()
	require.NoError(t, deployments.Delete(t.Context(), "web", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}))
	within(t, 2*time.Minute, fmt.Sprintf("%d pods are gone", n), w.gone(c.namespace, c.twin))
	requireWrites(t, map[string]int{"delete shadowpods": n, "delete pods": n}, w.writes(t, w.milan.Audited, c.twin, begin), "one delete of each")
	deleted := func(m moment) bool { return m.pod.DeletionTimestamp != nil }
	c.home.latency(t, "deleted to gone", deleted, func(m moment) bool { return m.kind == watch.Deleted })
	c.provider.latency(t, "of it, in the provider", deleted, func(m moment) bool { return m.kind == watch.Deleted })
	w.requireStatusWrites(t, c, begin, n, map[string]int{"delete pods": n})
	c.home.requireHome(t)
	c.provider.requireProvider(t)
}

// requireStatusWrites requires that liqod has written the status of n pods at home since
// begin, each time with a change, and beside that what other says. On a busy machine the
// states of a remote pod come home one by one, on an idle one together.
func (w *world) requireStatusWrites(t *testing.T, c *fixture, begin time.Time, n int, other map[string]int) {
	t.Helper()
	got := w.writes(t, w.rome.Audited, c.namespace, begin)
	const what = "patch pods/status"
	within(t, soon, "each write of a status changes it", func(context.Context) error {
		changes := c.home.statusChanges(begin)
		return lab.Wrong(nil, changes < max(n, got[what]), "%d changes of %d pods were seen, and there are %d writes", changes, n, got[what])
	})
	for write := range got {
		if strings.HasPrefix(write, what) {
			delete(got, write)
		}
	}
	requireWrites(t, other, got, "of pods at home")
}

// requireWrites requires as many writes of each kind. One that the API server of a busy
// machine answered with 5xx may have been done or not, and was sent again: it may count
// for one that is missing. So may a deletion that it answered with 404: the garbage collector
// was first. One that it answered with 401, because it could not look up the token in time, was
// not done. A deletion that it answered late was sent again while the object was still there:
// one in a hundred may be. The quota of a twin changes with the number of the peer's twins, each time
// by a half: a few times, however many pods there are.
func requireWrites(t *testing.T, want, got map[string]int, why string) {
	t.Helper()
	unsure := map[string]int{}
	const quotas = "update resourcequotas"
	require.LessOrEqual(t, got[quotas], 3, why)
	delete(got, quotas)
	for what, n := range got {
		if strings.HasSuffix(what, " answered 401") {
			delete(got, what)
		}
		if write, again := strings.CutSuffix(what, " again"); again {
			require.LessOrEqual(t, n, want[write]/100, "%s: %s", why, what)
			delete(got, what)
		}
		write, _, found := strings.Cut(what, " answered 5")
		if !found && strings.HasPrefix(what, "delete ") {
			write, _, found = strings.Cut(what, " answered 404")
		}
		if found {
			unsure[write] += n
			delete(got, what)
		}
	}
	for what := range got {
		require.LessOrEqual(t, got[what], want[what], "%s: %s", why, what)
	}
	for what, n := range want {
		require.GreaterOrEqual(t, got[what]+unsure[what], n, "%s: %s", why, what)
	}
}

// liqods says whether a request is one of a role of liqod, here or at the peer.
func liqods(r lab.AuditRecord) bool {
	return len(r.UserAgent) > 5 && r.UserAgent[:5] == "liqod"
}

// writes counts what liqod wrote in a namespace, by verb and resource, and logs it. Further
// deletions of an object are counted as "again". What
// pods share is not among it, and has tests of its own: the provider's events, which come
// home a little later, tokens of service accounts, and the certificate of the API server.
// Nor is what was refused for another's write at the same time: nobody chooses that.
func (w *world) writes(t *testing.T, audited func(func(lab.AuditRecord) bool) ([]lab.AuditRecord, error), namespace string, since time.Time) map[string]int {
	t.Helper()
	records := must(audited(func(r lab.AuditRecord) bool {
		return r.Write() && liqods(r) && r.ObjectRef.Namespace == namespace && r.RequestReceivedTimestamp.After(since)
	}))(t)
	shared := []string{"events", "secrets", "serviceaccounts", "configmaps"}
	counts, deleted := map[string]int{}, map[string]bool{}
	for _, r := range records {
		if slices.Contains(shared, r.ObjectRef.Resource) || r.ResponseStatus.Code == http.StatusConflict {
			continue
		}
		what := r.Verb + " " + r.Resource()
		if r.ResponseStatus.Code >= http.StatusBadRequest {
			what += fmt.Sprintf(" answered %d", r.ResponseStatus.Code)
		} else if object := what + " " + r.ObjectRef.Name; r.Verb == "delete" {
			if deleted[object] {
				what += " again"
			}
			deleted[object] = true
		}
		counts[what]++
	}
	t.Logf("liqod's writes in %s: %v", namespace, counts)
	return counts
}
