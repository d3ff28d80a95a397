package scenarios

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

// testReadinessGates: a gate is judged here: its condition is written here, and the
// provider never waits for it.
func testReadinessGates(t *testing.T, w *world) {
	c := w.fixture(t, "gates")
	pod := bare("web", corev1.RestartPolicyAlways)
	pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.org/registered"}}
	c.create(t, pod)
	ready := func(status corev1.ConditionStatus, reason string) func(*corev1.Pod) bool {
		return func(p *corev1.Pod) bool {
			have := podCondition(p, corev1.PodReady)
			return have.Status == status && have.Reason == reason && podCondition(p, corev1.ContainersReady).Status == corev1.ConditionTrue
		}
	}
	gate := func(status string) {
		w.patchPod(t, w.rome, c.namespace, "web", `{"status":{"conditions":[{"type":"example.org/registered","status":"`+status+`"}]}}`, "status")
	}
	local := c.untilLocal(t, 20*time.Second, "web", "waits for its gate", ready(corev1.ConditionFalse, "ReadinessGatesNotReady"))
	require.Contains(t, podCondition(local, corev1.PodReady).Message, "example.org/registered")
	remote := c.remote(t, "web")
	require.Empty(t, remote.Spec.ReadinessGates)
	require.True(t, podRunning(remote), "Ready in the provider")
	gate("True")
	c.untilLocal(t, 10*time.Second, "web", "is Ready", ready(corev1.ConditionTrue, ""))
	gate("False")
	c.untilLocal(t, 10*time.Second, "web", "is not Ready again", ready(corev1.ConditionFalse, "ReadinessGatesNotReady"))
	gate("True")
	c.untilLocal(t, 10*time.Second, "web", "is Ready again", ready(corev1.ConditionTrue, ""))
	require.Equal(t, remote.ResourceVersion, c.remote(t, "web").ResourceVersion, "nothing of it is written in the provider")
	c.deleteAll(t)
}

// testSchedulingGates: a gated pod is nowhere; without its gates it is offloaded.
func testSchedulingGates(t *testing.T, w *world) {
	c := w.fixture(t, "gated")
	pod := bare("web", corev1.RestartPolicyAlways)
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.org/budget"}}
	c.create(t, pod)
	c.untilLocal(t, 10*time.Second, "web", "is gated", func(p *corev1.Pod) bool {
		return podCondition(p, corev1.PodScheduled).Reason == corev1.PodReasonSchedulingGated
	})
	shadows := kubetest.List(t, w.milan.Liqod().OffloadingV1beta1().ShadowPods(c.twin))
	require.Empty(t, shadows.Items)
	w.patchPod(t, w.rome, c.namespace, "web", `{"spec":{"schedulingGates":null}}`)
	c.untilLocal(t, 20*time.Second, "web", "runs", podRunning)
	require.Empty(t, c.remote(t, "web").Spec.SchedulingGates)
	c.deleteAll(t)
}

// testTopologySpread: the virtual node is one host among this cluster's; the provider
// spreads as it likes.
func testTopologySpread(t *testing.T, w *world) {
	w.offload(t, "spread", offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsLocalAndRemote})
	d := deployment("web", 6)
	d.Spec.Template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: d.Spec.Selector,
	}}
	kubetest.Create(t, w.rome.Client().AppsV1().Deployments("spread"), d)
	within(t, 30*time.Second, "6 pods run", w.available("web", "spread", 6))
	on := must(w.nodesOf(t.Context(), "spread"))(t)
	require.Equal(t, map[string]int{"rome-sim-1": 2, "rome-sim-2": 2, "milan": 2}, on)
	remote := kubetest.List(t, w.milan.Client().CoreV1().Pods("spread-rome"))
	require.Len(t, remote.Items, 2)
	require.Empty(t, remote.Items[0].Spec.TopologySpreadConstraints)
	w.removeDeployment(t, "spread", "web")
}

// nodesOf counts the pods of a namespace of rome by node.
func (w *world) nodesOf(ctx context.Context, namespace string) (map[string]int, error) {
	list, err := w.rome.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	on := map[string]int{}
	for _, pod := range list.Items {
		on[pod.Spec.NodeName]++
	}
	return on, nil
}

func (w *world) removeDeployment(t *testing.T, namespace, name string) {
	t.Helper()
	require.NoError(t, w.rome.Client().AppsV1().Deployments(namespace).Delete(t.Context(), name, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}))
	within(t, 30*time.Second, "everything is gone", w.gone(namespace, namespace+"-rome"))
}

// testTopologySpreadPlain: where a namespace is not offloaded, a strict constraint by host
// counts the virtual node, which its pods cannot use, unless it honours taints. That is
// the scheduler's rule for every tainted node.
func testTopologySpreadPlain(t *testing.T, w *world) {
	w.plainNamespace(t, "plain")
	for _, policy := range []corev1.NodeInclusionPolicy{corev1.NodeInclusionPolicyIgnore, corev1.NodeInclusionPolicyHonor} {
		d := deployment(strings.ToLower(string(policy)), 4)
		d.Spec.Template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: d.Spec.Selector, NodeTaintsPolicy: &policy,
		}}
		kubetest.Create(t, w.rome.Client().AppsV1().Deployments("plain"), d)
	}
	within(t, 30*time.Second, "all pods of the one that honours taints run", w.available("honor", "plain", 4))
	within(t, 30*time.Second, "half the pods of the other wait", func(ctx context.Context) error {
		on, err := w.nodesOf(ctx, "plain")
		return lab.Wrong(err, on[""] != 2 || on["rome-sim-1"] != 3 || on["rome-sim-2"] != 3, "pods are on %v", on)
	})
	for _, name := range []string{"ignore", "honor"} {
		require.NoError(t, w.rome.Client().AppsV1().Deployments("plain").Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
}

// testPreemption: where the virtual node has no room left, a pod of a higher class takes
// that of a lower one: its turn comes when that one has ended in the provider.
func testPreemption(t *testing.T, w *world) {
	const slot = corev1.ResourceName("example.org/slot")
	c := w.fixture(t, "preempt")
	kubetest.Patch(t, w.rome.Liqod().OffloadingV1beta1().VirtualNodes("liqo-tenant-milan"), "milan", types.MergePatchType, []byte(`{"spec":{"resourceQuota":{"hard":{"example.org/slot":"1"}}}}`))
	for _, node := range []string{"milan-sim-1", "milan-sim-2"} {
		kubetest.Patch(t, w.milan.Client().CoreV1().Nodes(), node, types.StrategicMergePatchType, []byte(`{"status":{"capacity":{"example.org/slot":"4"},"allocatable":{"example.org/slot":"4"}}}`), "status")
	}
	for name, value := range map[string]int32{"low": 10, "high": 1000} {
		kubetest.Create(t, w.rome.Client().SchedulingV1().PriorityClasses(), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value})
	}
	create := func(name string) *corev1.Pod {
		pod := bare(name, corev1.RestartPolicyAlways)
		pod.Spec.PriorityClassName = name
		pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{slot: resource.MustParse("1")}
		return c.create(t, pod)
	}
	low := create("low")
	c.untilLocal(t, 20*time.Second, "low", "runs", podRunning)
	require.Contains(t, c.remote(t, "low").Spec.Containers[0].Resources.Limits, slot)
	high := create("high")
	c.untilLocal(t, 30*time.Second, "high", "runs in its place", podRunning)
	last := c.home.last(t.Context(), t, low.UID)
	require.Equal(t, corev1.PodReasonPreemptionByScheduler, podCondition(last, corev1.DisruptionTarget).Reason, "its owner is told")
	require.True(t, endedPod(last))
	gone := c.provider.first(func(m moment) bool { return m.pod.Name == "low" && (m.kind == watch.Deleted || endedPod(m.pod)) })
	require.GreaterOrEqual(t, gone, 0)
	require.Greater(t, c.provider.first(func(m moment) bool { return m.pod.Labels[offloadingv1beta1.LocalPodUIDLabel] == string(high.UID) }), gone,
		"one has ended in the provider before the other comes")
	preemptedThere(t, c, slot)
	c.deleteAll(t)
}

// preemptedThere: the provider's own pods of a higher class take the place of a peer's,
// which waits for room and says so at home.
func preemptedThere(t *testing.T, c *fixture, slot corev1.ResourceName) {
	t.Helper()
	before := c.remote(t, "high")
	kubetest.Create(t, c.milan.Client().SchedulingV1().PriorityClasses(), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "own"}, Value: 1})
	own := c.milan.Client().CoreV1().Pods("default")
	names := []string{"own-1", "own-2"}
	for _, name := range names {
		pod := bare(name, corev1.RestartPolicyAlways)
		pod.Spec.PriorityClassName = "own"
		pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{slot: resource.MustParse("4")}
		kubetest.Create(t, own, pod)
	}
	c.untilLocal(t, 20*time.Second, "high", "waits for room in the provider", func(p *corev1.Pod) bool {
		return podCondition(p, corev1.PodReady).Reason == corev1.PodReasonUnschedulable
	})
	for _, name := range names {
		require.NoError(t, own.Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	c.replaced(t, "high", before.UID, 1)
}
