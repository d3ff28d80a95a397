package scenarios

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

// testChanges: what may change in a pod changes in the provider's pod too, in place.
func testChanges(t *testing.T, w *world) {
	c := w.fixture(t, "changes")
	pod := bare("web", corev1.RestartPolicyAlways, "note", "first")
	pod.Labels = map[string]string{"tier": "silver", "old": "yes"}
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi")}
	c.create(t, pod)
	c.untilLocal(t, 30*time.Second, "web", "runs", podRunning)
	remote := c.remote(t, "web")
	patch := func(data string, subresource ...string) {
		t.Helper()
		kubetest.Patch(t, w.rome.Client().CoreV1().Pods(c.namespace), "web", types.StrategicMergePatchType, []byte(data), subresource...)
	}

	patch(`{"metadata":{"labels":{"tier":"gold","old":null},"annotations":{"note":"second","more":"yes"}}}`)
	c.untilRemote(t, 5*time.Second, "web", "has the labels and annotations", func(p *corev1.Pod) bool {
		_, old := p.Labels["old"]
		return p.Labels["tier"] == "gold" && !old && p.Annotations["note"] == "second" && p.Annotations["more"] == "yes"
	})
	patch(`{"spec":{"containers":[{"name":"c","image":"sim/web:2"}]}}`)
	c.untilRemote(t, 5*time.Second, "web", "has the image", func(p *corev1.Pod) bool { return p.Spec.Containers[0].Image == "sim/web:2" })
	local := c.untilLocal(t, 10*time.Second, "web", "runs the image", func(p *corev1.Pod) bool {
		return podRunning(p) && p.Status.ContainerStatuses[0].Image == "sim/web:2"
	})
	require.EqualValues(t, 1, restarts(local))
	patch(`{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"250m","memory":"96Mi"}}}]}}`, "resize")
	c.untilRemote(t, 5*time.Second, "web", "has the resources", func(p *corev1.Pod) bool {
		have := p.Spec.Containers[0].Resources.Requests
		return have.Cpu().String() == "250m" && have.Memory().String() == "96Mi"
	})
	c.untilLocal(t, 5*time.Second, "web", "shows the resources that it has", func(p *corev1.Pod) bool {
		have := p.Status.ContainerStatuses[0].Resources
		return have != nil && have.Requests.Cpu().String() == "250m" && p.Status.ObservedGeneration == p.Generation
	})
	kubetest.Patch(t, w.rome.Client().CoreV1().Pods(c.namespace), "web", types.JSONPatchType, []byte(`[
		{"op":"add","path":"/spec/activeDeadlineSeconds","value":3000},
		{"op":"add","path":"/spec/tolerations/-","value":{"key":"example.com/slow","operator":"Exists"}}]`))
	c.untilRemote(t, 5*time.Second, "web", "has deadline and toleration", func(p *corev1.Pod) bool {
		for _, have := range p.Spec.Tolerations {
			if have.Key == "example.com/slow" {
				return p.Spec.ActiveDeadlineSeconds != nil && *p.Spec.ActiveDeadlineSeconds == 3000
			}
		}
		return false
	})
	c.refusedChange(t)
	require.Equal(t, remote.UID, c.remote(t, "web").UID, "the same pod")
	c.deleteAll(t)
}

// refusedChange: a change that the provider refuses shows at home, and is made when it
// may be.
func (c *fixture) refusedChange(t *testing.T) {
	t.Helper()
	quotas := c.milan.Client().CoreV1().ResourceQuotas(c.twin)
	kubetest.Create(t, quotas, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "tight"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourceRequestsCPU: resource.MustParse("500m")}},
	})
	within(t, 10*time.Second, "the quota counts", lab.Is(quotas, "tight", func(q *corev1.ResourceQuota) bool { return len(q.Status.Used) > 0 }))
	kubetest.Patch(t, c.rome.Client().CoreV1().Pods(c.namespace), "web", types.StrategicMergePatchType, []byte(`{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"700m"}}}]}}`), "resize")
	c.hasEvent(t, c.local(t, "web"), "UpdateRefused")
	require.True(t, podRunning(c.local(t, "web")), "it runs as it is")
	require.NoError(t, quotas.Delete(t.Context(), "tight", metav1.DeleteOptions{}))
	c.untilRemote(t, 10*time.Second, "web", "has the resources", func(p *corev1.Pod) bool {
		return p.Spec.Containers[0].Resources.Requests.Cpu().String() == "700m"
	})
}

// testNotOffloaded: a pod on a virtual node in a namespace that is not offloaded waits,
// says so, and starts when the namespace becomes offloaded.
func testNotOffloaded(t *testing.T, w *world) {
	c := &fixture{world: w, namespace: "later", twin: "later-rome"}
	w.plainNamespace(t, c.namespace)
	pod := bare("early", corev1.RestartPolicyAlways)
	pod.Spec.NodeName, pod.Spec.Tolerations = "milan", anyTaint()
	created := c.create(t, pod)
	local := c.untilLocal(t, 10*time.Second, "early", "waits", func(p *corev1.Pod) bool {
		return p.Status.Reason == offloadingv1beta1.ReasonOffloadingBackOff
	})
	require.Equal(t, corev1.PodPending, local.Status.Phase)
	require.Contains(t, local.Status.Message, "later")
	c.hasEvent(t, created, offloadingv1beta1.ReasonOffloadingBackOff)
	w.offload(t, c.namespace, offloadingv1beta1.NamespaceOffloadingSpec{})
	local = c.untilLocal(t, 10*time.Second, "early", "runs", podRunning)
	require.Empty(t, local.Status.Reason)
	require.Empty(t, local.Status.Message)
	c.home, c.provider = watchPods(t, w.rome, c.namespace), watchPods(t, w.milan, c.twin)
	c.deleteAll(t)
}

func (w *world) plainNamespace(t *testing.T, name string) {
	t.Helper()
	kubetest.Create(t, w.rome.Client().CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	within(t, 10*time.Second, "the namespace has its service account", lab.Exists(w.rome.Client().CoreV1().ServiceAccounts(name), "default"))
}

func anyTaint() []corev1.Toleration {
	return []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
}

// testDaemonSet: the pods of a DaemonSet that tolerates everything wait on virtual nodes
// in silence.
func testDaemonSet(t *testing.T, w *world) {
	c := &fixture{world: w, namespace: "agents", twin: "agents-rome"}
	w.plainNamespace(t, c.namespace)
	template := deployment("agent", 1).Spec
	template.Template.Spec.Tolerations = anyTaint()
	kubetest.Create(t, w.rome.Client().AppsV1().DaemonSets(c.namespace), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "agent"},
		Spec:       appsv1.DaemonSetSpec{Selector: template.Selector, Template: template.Template},
	})
	var waiting corev1.Pod
	within(t, 30*time.Second, "the pod on the virtual node waits", lab.Those(w.rome.Client().CoreV1().Pods(c.namespace), metav1.ListOptions{FieldSelector: "spec.nodeName=milan"}, func(pods *corev1.PodList) error {
		if len(pods.Items) != 1 || pods.Items[0].Status.Reason != offloadingv1beta1.ReasonOffloadingBackOff {
			return fmt.Errorf("%d pods on the virtual node", len(pods.Items))
		}
		waiting = pods.Items[0]
		return nil
	}))
	w.offload(t, c.namespace, offloadingv1beta1.NamespaceOffloadingSpec{})
	within(t, 30*time.Second, "the DaemonSet runs on every node", lab.Is(w.rome.Client().AppsV1().DaemonSets(c.namespace), "agent", func(d *appsv1.DaemonSet) bool {
		return d.Status.NumberReady == 3
	}))
	require.Equal(t, waiting.UID, c.local(t, waiting.Name).UID, "the pod that waited is the one that runs")
	events := kubetest.List(t, w.rome.Client().CoreV1().Events(c.namespace), metav1.ListOptions{FieldSelector: "reason=" + offloadingv1beta1.ReasonOffloadingBackOff})
	require.Empty(t, events.Items, "every node gets such a pod: no event")
	require.NoError(t, w.rome.Client().AppsV1().DaemonSets(c.namespace).Delete(t.Context(), "agent", metav1.DeleteOptions{}))
	within(t, 30*time.Second, "everything is gone", w.gone(c.namespace, c.twin))
}

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
