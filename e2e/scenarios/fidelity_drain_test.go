package scenarios

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

func cordon(t *testing.T, s *site.Site, unschedulable bool, nodes ...string) {
	t.Helper()
	for _, node := range nodes {
		kubetest.Patch(t, s.Client().CoreV1().Nodes(), node, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, unschedulable))
	}
}

func evict(ctx context.Context, s *site.Site, namespace, name string) error {
	return s.Client().PolicyV1().Evictions(namespace).Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
}

// budget creates a PodDisruptionBudget for the pods labelled app=web and waits until it
// allows a number of disruptions.
func budget(t *testing.T, s *site.Site, namespace string, minAvailable int32, allowed int32) {
	t.Helper()
	kubetest.Create(t, s.Client().PolicyV1().PodDisruptionBudgets(namespace), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(minAvailable)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		},
	})
	allows(t, s, namespace, allowed)
}

// allows waits until the budget of a namespace allows a number of disruptions.
func allows(t *testing.T, s *site.Site, namespace string, want int32) {
	t.Helper()
	within(t, 20*time.Second, fmt.Sprintf("the budget of %s allows %d", s.Name, want), lab.Is(s.Client().PolicyV1().PodDisruptionBudgets(namespace), "web", func(b *policyv1.PodDisruptionBudget) bool {
		return b.Status.ObservedGeneration == b.Generation && b.Status.DisruptionsAllowed == want
	}))
}

// testHomeDrain: the drain of a virtual node asks the budgets of this cluster, and never
// takes more pods at once than they allow.
func testHomeDrain(t *testing.T, w *world) {
	const namespace = "drained"
	own := []string{"rome-sim-1", "rome-sim-2"}
	w.offload(t, namespace, offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsLocalAndRemote})
	home := watchPods(t, w.rome, namespace)
	cordon(t, w.rome, true, own...)
	d := deployment("web", 3)
	d.Spec.Template.Spec.Containers[0].ReadinessProbe = probe()
	d.Spec.Template.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}
	kubetest.Create(t, w.rome.Client().AppsV1().Deployments(namespace), d)
	within(t, 30*time.Second, "3 pods run in the provider", w.available("web", namespace, 3))
	budget(t, w.rome, namespace, 2, 1)
	pods := kubetest.List(t, w.rome.Client().CoreV1().Pods(namespace), metav1.ListOptions{FieldSelector: "spec.nodeName=milan"})
	require.Len(t, pods.Items, 3)

	cordon(t, w.rome, true, "milan")
	cordon(t, w.rome, false, own...)
	refused := 0
	for _, pod := range pods.Items {
		within(t, 30*time.Second, "evicting "+pod.Name, func(ctx context.Context) error {
			err := evict(ctx, w.rome, namespace, pod.Name)
			if apierrors.IsTooManyRequests(err) {
				refused++
			}
			return err
		})
	}
	require.Positive(t, refused, "the budget held the drain up")
	within(t, 30*time.Second, "3 pods run on other nodes", w.available("web", namespace, 3))
	within(t, 20*time.Second, "nothing is left in the provider", lab.Number(w.milan.Client().CoreV1().Pods(namespace+"-rome"), metav1.ListOptions{}, 0))
	requireReady(t, home, 2)
	cordon(t, w.rome, false, "milan")
	w.removeDeployment(t, namespace, "web")
}

// testHomeTaint: when the virtual node is not Ready for longer than a pod tolerates, home
// gives the pod up and its owner makes another elsewhere. The one in the provider runs
// until it can be reached again. In a namespace that keeps its pods, it gives up none.
func testHomeTaint(t *testing.T, w *world) {
	const namespace, twin = "tolerant", "tolerant-rome"
	kept := keepOne(t, w)
	w.offload(t, namespace, offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsLocalAndRemote})
	cordon(t, w.rome, true, "rome-sim-1", "rome-sim-2")
	kubetest.Create(t, w.rome.Client().AppsV1().Deployments(namespace), impatient(deployment("web", 1)))
	within(t, 30*time.Second, "the pod runs in the provider", w.available("web", namespace, 1))
	cordon(t, w.rome, false, "rome-sim-1", "rome-sim-2")
	remote := kubetest.List(t, w.milan.Client().CoreV1().Pods(twin))
	require.Len(t, remote.Items, 1)
	name := remote.Items[0].Name

	vk := w.rome.VKubelet("milan")
	(*vk).Kill()
	within(t, 40*time.Second, "another pod runs on a node of home", func(ctx context.Context) error {
		on, err := w.nodesOf(ctx, namespace)
		return lab.Wrong(err, on["rome-sim-1"]+on["rome-sim-2"] != 1, "pods are on %v", on)
	})
	there := kubetest.Get(t, w.milan.Client().CoreV1().Pods(twin), name)
	require.True(t, podRunning(there) && there.DeletionTimestamp == nil, "the provider's pod runs on")
	require.NoError(t, w.sites.Restart(vk))
	w.absent(t, w.milan, 20*time.Second, twin, name)
	w.absent(t, w.rome, 20*time.Second, namespace, name)
	require.NoError(t, w.rome.WaitVirtualNode(t.Context(), "milan", corev1.ConditionTrue))
	w.removeDeployment(t, namespace, "web")
	kept()
}

// impatient has the pods of a Deployment evicted after a second on a lost node.
func impatient(d *appsv1.Deployment) *appsv1.Deployment {
	for _, key := range []string{corev1.TaintNodeUnreachable, corev1.TaintNodeNotReady} {
		d.Spec.Template.Spec.Tolerations = append(d.Spec.Template.Spec.Tolerations, corev1.Toleration{
			Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(1)),
		})
	}
	return d
}

// keepOne has an impatient pod run in the provider, in a namespace that is told afterwards to
// keep its pods. The function that it returns shows that it is the same pod still, here and
// there.
func keepOne(t *testing.T, w *world) (still func()) {
	const namespace, twin = "keeping", "keeping-rome"
	w.offload(t, namespace, offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsRemote})
	annotate := func(value string) {
		kubetest.Patch(t, w.rome.Client().CoreV1().Namespaces(), namespace, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, offloadingv1beta1.OnProviderLossAnnotation, value))
	}
	pod := impatient(deployment("web", 1)).Spec.Template
	try := lab.Creates(w.rome.Client().CoreV1().Pods(namespace), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "try"}, Spec: pod.Spec},
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	kubetest.Create(t, w.rome.Client().AppsV1().Deployments(namespace), impatient(deployment("web", 1)))
	within(t, 30*time.Second, "the kept pod runs in the provider", w.available("web", namespace, 1))
	annotate("Hold")
	within(t, soon, "an unknown value is refused", func(ctx context.Context) error {
		if err := try(ctx); err == nil || !strings.Contains(err.Error(), `"Hold": Keep and Evict are accepted`) {
			return fmt.Errorf("not refused: %w", err)
		}
		return nil
	})
	annotate("Keep")
	within(t, soon, "Keep is accepted", try)
	only := func(s *site.Site, namespace string) corev1.Pod {
		list := kubetest.List(t, s.Client().CoreV1().Pods(namespace))
		require.Len(t, list.Items, 1)
		return list.Items[0]
	}
	marked := func(want string) {
		t.Helper()
		within(t, soon, "the pod follows "+want, func(context.Context) error {
			got := only(w.rome, namespace).Annotations[offloadingv1beta1.OnProviderLossAnnotation]
			return lab.Wrong(nil, got != want, "the pod says %q", got)
		})
	}
	marked("Keep")
	annotate("Evict")
	marked("Evict")
	require.Equal(t, new(int64(1)), only(w.rome, namespace).Spec.Tolerations[0].TolerationSeconds, "as long as the pod's own")
	annotate("Keep")
	marked("Keep")
	here, there := only(w.rome, namespace), only(w.milan, twin)
	require.Equal(t, offloadingv1beta1.LossTolerations(), here.Spec.Tolerations[:2])
	for _, toleration := range there.Spec.Tolerations {
		require.NotContains(t, offloadingv1beta1.LossTolerations(), toleration, "nodes of the provider are no virtual nodes")
	}
	return func() {
		require.Equal(t, here.UID, only(w.rome, namespace).UID)
		require.Equal(t, there.UID, only(w.milan, twin).UID)
		within(t, 30*time.Second, "the kept pod is ready again", w.available("web", namespace, 1))
		require.Zero(t, only(w.rome, namespace).Status.ContainerStatuses[0].RestartCount)
		w.removeDeployment(t, namespace, "web")
	}
}

// testNodePressure: a pod that a node of the provider evicts has ended, here too, with
// the reason; its owner makes another.
func testNodePressure(t *testing.T, w *world) {
	c := w.fixture(t, "pressure")
	kubetest.Create(t, w.rome.Client().AppsV1().Deployments(c.namespace), deployment("web", 1))
	first := c.onlyPod(t, "")
	// The node speaks as a kubelet that evicts.
	w.patchPod(t, w.milan, c.twin, first.Name, `{"status":{"phase":"Failed","reason":"Evicted","message":"The node was low on resource: memory.",
		"conditions":[{"type":"DisruptionTarget","status":"True","reason":"TerminationByKubelet"}],
		"containerStatuses":[{"name":"c","state":{"running":null,"terminated":{"exitCode":137,"reason":"Error"}}}]}}`, "status")
	local := c.untilLocal(t, 10*time.Second, first.Name, "has ended", inPhase(corev1.PodFailed))
	require.Equal(t, "Evicted", local.Status.Reason)
	require.Equal(t, corev1.PodReasonTerminationByKubelet, podCondition(local, corev1.DisruptionTarget).Reason)
	require.EqualValues(t, 137, exitCode(local))
	second := c.onlyPod(t, first.Name)
	require.NotEqual(t, first.UID, second.UID)
	w.removeDeployment(t, c.namespace, "web")
	w.requireOnce(t, c, first.Name, second.Name)
}

// testNoGrace: a pod without grace is gone at home at once, and then in the provider.
func testNoGrace(t *testing.T, w *world) {
	c := w.fixture(t, "no-grace")
	pod := bare("web", corev1.RestartPolicyAlways)
	pod.Spec.TerminationGracePeriodSeconds = new(int64(0))
	c.create(t, pod)
	c.untilLocal(t, 20*time.Second, "web", "runs", podRunning)
	require.Zero(t, *c.remote(t, "web").Spec.TerminationGracePeriodSeconds)
	require.NoError(t, w.rome.Client().CoreV1().Pods(c.namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}))
	w.absent(t, w.rome, 2*time.Second, c.namespace, "web")
	w.absent(t, w.milan, 10*time.Second, c.twin, "web")
	c.deleteAll(t, "web")
}

// requireReady checks that, once there were more, at least n pods were Ready and not
// being deleted at every moment of a history.
func requireReady(t *testing.T, h *history, n int) {
	t.Helper()
	require.NoError(t, h.watch.Err())
	ready, begun := map[types.UID]bool{}, false
	for _, m := range h.all() {
		delete(ready, m.pod.UID)
		if m.kind != watch.Deleted && m.pod.DeletionTimestamp == nil && podRunning(m.pod) {
			ready[m.pod.UID] = true
		}
		begun = begun || len(ready) > n
		require.True(t, !begun || len(ready) >= n, "only %d pods are Ready", len(ready))
	}
}

// testProviderDrain: the drain of a provider's node does not ask this cluster's budgets,
// but counts in them; budgets of the provider hold it up.
func testProviderDrain(t *testing.T, w *world) {
	c := w.fixture(t, "draining")
	d := deployment("web", 3)
	kubetest.Create(t, w.rome.Client().AppsV1().Deployments(c.namespace), d)
	within(t, 30*time.Second, "3 pods run in the provider", w.available("web", c.namespace, 3))
	budget(t, w.rome, c.namespace, 3, 0)
	pods := kubetest.List(t, w.milan.Client().CoreV1().Pods(c.twin))
	require.Len(t, pods.Items, 3)

	require.True(t, apierrors.IsTooManyRequests(evict(t.Context(), w.rome, c.namespace, pods.Items[0].Name)), "at home the budget holds")
	require.NoError(t, evict(t.Context(), w.milan, c.twin, pods.Items[0].Name), "the provider's drain knows nothing of it")
	c.replaced(t, pods.Items[0].Name, pods.Items[0].UID, 1)
	unready := c.home.first(func(m moment) bool {
		return m.pod.Name == pods.Items[0].Name && podCondition(m.pod, corev1.PodReady).Reason == "RemotePodTerminating"
	})
	if unready < 0 {
		t.Log("the provider's pod was replaced before its end was written here: of a busy machine only the last state is written")
	}
	within(t, 20*time.Second, "all are well again", w.available("web", c.namespace, 3))

	budget(t, w.milan, c.twin, 3, 0)
	require.True(t, apierrors.IsTooManyRequests(evict(t.Context(), w.milan, c.twin, pods.Items[1].Name)), "a budget of the provider holds its drain up")
	requireNoShare(t, w.milan, c.twin)
	require.NoError(t, w.rome.Client().PolicyV1().PodDisruptionBudgets(c.namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}))
	w.removeDeployment(t, c.namespace, "web")
}

// requireNoShare: a budget of the provider that asks for a share of the pods is not
// counted, as for all pods whose owner cannot be scaled; it allows nothing.
func requireNoShare(t *testing.T, s *site.Site, namespace string) {
	t.Helper()
	budgets := s.Client().PolicyV1().PodDisruptionBudgets(namespace)
	kubetest.Create(t, budgets, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "share"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	})
	within(t, 20*time.Second, "the budget is not counted", lab.That(budgets, "share", func(b *policyv1.PodDisruptionBudget) error {
		for _, c := range b.Status.Conditions {
			if c.Type == policyv1.DisruptionAllowedCondition && c.Reason == policyv1.SyncFailedReason && b.Status.DisruptionsAllowed == 0 {
				return nil
			}
		}
		return fmt.Errorf("status %+v", b.Status)
	}))
}
