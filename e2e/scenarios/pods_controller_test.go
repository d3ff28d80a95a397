package scenarios

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
)

// testControllerDown: what happens while the provider's controller is down is caught up
// with when it is back. No end is missed, and no restart count falls.
func testControllerDown(t *testing.T, w *world) {
	c := w.fixture(t, "headless")
	names := []string{"steady", "ended", "swept", "dropped", "deleted"}
	for _, name := range names {
		c.create(t, bare(name, corev1.RestartPolicyNever))
	}
	c.create(t, bare("always", corev1.RestartPolicyAlways))
	before := map[string]types.UID{}
	for _, name := range append(names, "always") {
		c.untilLocal(t, 30*time.Second, name, "runs", podRunning)
		before[name] = c.remote(t, name).UID
	}
	remote := w.milan.Client().CoreV1().Pods(c.twin)
	require.NoError(t, remote.Delete(t.Context(), "always", metav1.DeleteOptions{}))
	c.replaced(t, "always", before["always"], 1)

	within(t, 20*time.Second, "the provider's controller shows that it runs", lab.Exists(w.milan.Client().CoordinationV1().Leases(tenantOfRome), corev1beta1.ControllerLease))
	w.milan.Controller.Kill()
	c.end(t, "ended", "4")
	c.end(t, "swept", "0")
	local := c.untilLocal(t, 10*time.Second, "ended", "ends at home without the provider's controller", inPhase(corev1.PodFailed))
	require.EqualValues(t, 4, exitCode(local))
	c.untilLocal(t, 10*time.Second, "swept", "ends at home too", inPhase(corev1.PodSucceeded))
	for _, name := range []string{"swept", "dropped", "always"} {
		require.NoError(t, remote.Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	w.absent(t, w.milan, 10*time.Second, c.twin, "always")
	c.untilRemote(t, 10*time.Second, "dropped", "is kept until its end is known", func(p *corev1.Pod) bool {
		return p.DeletionTimestamp != nil && endedPod(p)
	})
	require.NoError(t, w.rome.Client().CoreV1().Pods(c.namespace).Delete(t.Context(), "deleted", metav1.DeleteOptions{}))
	fresh := c.create(t, bare("fresh", corev1.RestartPolicyNever))
	waiting := c.untilLocal(t, 90*time.Second, "fresh", "says what it waits for", func(p *corev1.Pod) bool {
		return p.Status.Reason == offloadingv1beta1.ReasonControllerSilent
	})
	require.Equal(t, corev1.PodPending, waiting.Status.Phase)
	require.NoError(t, w.node("milan", corev1.ConditionTrue)(t.Context()), "what runs goes on")
	require.NoError(t, w.sites.Restart(&w.milan.Controller))

	c.untilLocal(t, 20*time.Second, "fresh", "runs", podRunning)
	require.Equal(t, string(fresh.UID), c.remote(t, "fresh").Labels[offloadingv1beta1.LocalPodUIDLabel])
	local = c.untilLocal(t, 10*time.Second, "always", "runs again", podRunning)
	require.GreaterOrEqual(t, restarts(local), int32(1))
	c.requireLost(t, "dropped")
	w.absent(t, w.milan, 10*time.Second, c.twin, "swept")
	w.absent(t, w.rome, 10*time.Second, c.namespace, "deleted")
	w.absent(t, w.milan, 10*time.Second, c.twin, "deleted")
	require.Equal(t, before["steady"], c.remote(t, "steady").UID)
	c.deleteAll(t)
	w.requireOnce(t, c, append(names, "fresh")...)
	// Pods of other tests would have the event: the Lease is read every ten seconds.
	within(t, 30*time.Second, "the node says that the provider's controller runs", lab.Is(w.rome.Client().CoreV1().Nodes(), "milan", func(n *corev1.Node) bool {
		return slices.Contains([]corev1.ConditionStatus{"", corev1.ConditionFalse}, nodeCondition(n, offloadingv1beta1.ReasonControllerSilent).Status)
	}))
}
