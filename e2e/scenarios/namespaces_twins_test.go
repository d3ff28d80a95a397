package scenarios

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

// testConflict asks for a twin whose name a namespace of milan's own has.
func testConflict(t *testing.T, w *world) {
	namespaces := w.milan.Client().CoreV1().Namespaces()
	kubetest.Create(t, namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "taken-rome", Labels: map[string]string{"mine": "yes"}}})
	before := kept(t, w, "taken-rome")
	w.ask(t, "taken", offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsRemote})
	within(t, soon, "the conflict shows", w.offloadingIs("taken", offloadingv1beta1.PhaseAllFailed, "milan", "taken-rome exists already"))
	within(t, soon, "the conflict is an event in milan", lab.Some(w.milan.Client().CoreV1().Events("liqo-tenant-rome"), metav1.ListOptions{}, func(e *corev1.Event) bool {
		return e.Reason == "CreationLoopBackOff" && e.InvolvedObject.Kind == "NamespaceMap" && strings.Contains(e.Message, "taken-rome")
	}))
	w.bare(t, "taken", "pod", nil)
	within(t, soon, "a pod waits", lab.Is(w.rome.Client().CoreV1().Pods("taken"), "pod", func(pod *corev1.Pod) bool {
		return pod.Status.Reason == offloadingv1beta1.ReasonOffloadingBackOff
	}))
	require.Equal(t, before, kept(t, w, "taken-rome"), "the namespace is untouched")

	require.NoError(t, namespaces.Delete(t.Context(), "taken-rome", metav1.DeleteOptions{}))
	within(t, soon, "it recovers when the namespace goes", w.offloadingIs("taken", offloadingv1beta1.PhaseReady))
	within(t, soon, "the pod runs", w.placed("taken", "pod", "milan"))
}

// testTwinDeleted has somebody in milan delete a twin.
func testTwinDeleted(t *testing.T, w *world) {
	w.offload(t, "lost", offloadingv1beta1.NamespaceOffloadingSpec{})
	policies := map[string]corev1.RestartPolicy{"always": corev1.RestartPolicyAlways, "onfailure": corev1.RestartPolicyOnFailure, "never": corev1.RestartPolicyNever}
	uids := map[string]string{}
	for name, policy := range policies {
		uids[name] = string(w.bare(t, "lost", name, func(s *corev1.PodSpec) { s.RestartPolicy = policy }).UID)
	}
	kubetest.Create(t, w.rome.Client().AppsV1().Deployments("lost"), deployment("web", 3))
	within(t, soon, "the Deployment runs", w.available("web", "lost", 3))
	for name := range policies {
		within(t, soon, name+" runs", w.placed("lost", name, "milan"))
	}
	twin := kubetest.Get(t, w.milan.Client().CoreV1().Namespaces(), "lost-rome")
	require.NoError(t, w.milan.Client().CoreV1().Namespaces().Delete(t.Context(), "lost-rome", metav1.DeleteOptions{}))
	within(t, soon, "what was lost is not Ready", func(ctx context.Context) error {
		return w.unready(ctx, "lost")
	})
	within(t, time.Minute, "the twin is made again", lab.Is(w.milan.Client().CoreV1().Namespaces(), "lost-rome", func(again *corev1.Namespace) bool {
		return again.UID != twin.UID
	}))
	within(t, soon, "the namespace is Ready", w.offloadingIs("lost", offloadingv1beta1.PhaseReady))
	within(t, soon, "the Deployment is back", w.available("web", "lost", 3))
	for _, name := range []string{"always", "onfailure"} {
		within(t, soon, name+" runs again", w.runsThere("lost", name, "lost-rome", uids[name]))
	}
	within(t, soon, "the pod that may not run again has failed", lab.Is(w.rome.Client().CoreV1().Pods("lost"), "never", func(pod *corev1.Pod) bool {
		return pod.Status.Phase == corev1.PodFailed && pod.Status.Reason == offloadingv1beta1.ReasonRemotePodLost
	}))
	never := kubetest.List(t, w.milan.Client().CoreV1().Pods("lost-rome"), metav1.ListOptions{LabelSelector: "offloading.liqo.io/local-pod-uid=" + uids["never"]})
	require.Empty(t, never.Items, "it did not run again")
}

// unready wants no Ready pod in a namespace of rome.
func (w *world) unready(ctx context.Context, namespace string) error {
	pods, err := w.rome.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, p := range pods.Items {
		if podReady(&p) == corev1.ConditionTrue {
			return fmt.Errorf("pod %s is Ready", p.Name)
		}
	}
	return nil
}

// runsThere returns a condition: the local pod, still of that UID, and its remote one run.
func (w *world) runsThere(namespace, name, twin, uid string) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := w.placed(namespace, name, "milan")(ctx); err != nil {
			return err
		}
		local, err := w.rome.Client().CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if string(local.UID) != uid {
			return fmt.Errorf("the local pod was replaced")
		}
		remote, err := w.milan.Client().CoreV1().Pods(twin).Get(ctx, name, metav1.GetOptions{})
		return lab.Wrong(err, remote.Status.Phase != corev1.PodRunning || remote.Labels[offloadingv1beta1.LocalPodUIDLabel] != uid,
			"the remote pod is %s: %v", remote.Status.Phase, remote.Labels)
	}
}

// testUnoffload takes a namespace back while pods run.
func testUnoffload(t *testing.T, w *world) {
	kubetest.Create(t, w.rome.Client().CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "back", Labels: map[string]string{offloadingv1beta1.SchedulingEnabledLabel: "false", "mine": "yes"}}})
	w.offload(t, "back", offloadingv1beta1.NamespaceOffloadingSpec{})
	kubetest.Create(t, w.rome.Client().AppsV1().Deployments("back"), deployment("web", 2))
	w.bare(t, "back", "alone", nil)
	within(t, soon, "the Deployment runs in milan", w.available("web", "back", 2))
	within(t, soon, "the pod runs in milan", w.placed("back", "alone", "milan"))
	require.NotEmpty(t, w.vkubeletBindings(t, "back"))

	require.NoError(t, w.rome.Liqod().OffloadingV1beta1().NamespaceOffloadings("back").Delete(t.Context(), "offloading", metav1.DeleteOptions{}))
	within(t, soon, "the offloading is gone", isGone(w.rome.Liqod().OffloadingV1beta1().NamespaceOffloadings("back"), "offloading"))
	ns := kubetest.Get(t, w.rome.Client().CoreV1().Namespaces(), "back")
	require.Equal(t, "false", ns.Labels[offloadingv1beta1.SchedulingEnabledLabel], "the user's label is back")
	within(t, soon, "the twin is gone", w.noTwin("back-rome"))
	within(t, soon, "the vkubelet's binding is gone", func(context.Context) error {
		left := w.vkubeletBindings(t, "back")
		return lab.Wrong(nil, len(left) > 0, "bindings %v are left", left)
	})
	within(t, soon, "the Deployment runs at home", podsAre(w.rome.Cluster, "back", "app=web", 2, func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodRunning && strings.HasPrefix(p.Spec.NodeName, "rome-sim-")
	}))
	alone := kubetest.Get(t, w.rome.Client().CoreV1().Pods("back"), "alone")
	require.Equal(t, corev1.PodFailed, alone.Status.Phase)
	require.Equal(t, "OffloadingAborted", alone.Status.Reason)
}

func (w *world) vkubeletBindings(t *testing.T, namespace string) []string {
	t.Helper()
	var out []string
	for _, b := range kubetest.List(t, w.rome.Client().RbacV1().RoleBindings(namespace), metav1.ListOptions{LabelSelector: offloadingv1beta1.VirtualNodeLabel}).Items {
		out = append(out, b.Name)
	}
	return out
}

// bounded is how long the deletion of a namespace may take while the provider is away.
const bounded = 30 * time.Second

// testDeletedWhileAway deletes namespaces while milan does not answer.
func testDeletedWhileAway(t *testing.T, w *world) {
	for name, fault := range map[string]struct{ away, back func(context.Context) error }{
		"dropped": {func(context.Context) error { w.milan.Proxied().Drop(); return nil },
			func(context.Context) error { w.milan.Proxied().Pass(); return nil }},
		"killed": {func(context.Context) error { w.milan.KillAPIServer(); return nil }, w.milan.StartControlPlane},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			namespace, twin := "away-"+name, "away-"+name+"-rome"
			w.offload(t, namespace, offloadingv1beta1.NamespaceOffloadingSpec{})
			kubetest.Create(t, w.rome.Client().AppsV1().Deployments(namespace), deployment("web", 3))
			within(t, soon, "the Deployment runs", w.available("web", namespace, 3))
			require.NoError(t, fault.away(ctx))
			t.Cleanup(func() {
				if t.Failed() {
					_ = fault.back(context.WithoutCancel(ctx))
				}
			})
			within(t, soon, "milan is NotReady", func(ctx context.Context) error { return w.rome.WaitVirtualNode(ctx, "milan", corev1.ConditionFalse) })
			require.NoError(t, w.rome.Client().CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{}))
			within(t, bounded, "the namespace is gone with milan "+name, w.homeGone(namespace))
			require.NoError(t, fault.back(ctx))
			within(t, soon, "milan is Ready", func(ctx context.Context) error { return w.rome.WaitVirtualNode(ctx, "milan", corev1.ConditionTrue) })
			within(t, soon, "the twin is being removed", func(ctx context.Context) error {
				ns, err := w.milan.Client().CoreV1().Namespaces().Get(ctx, twin, metav1.GetOptions{})
				if err != nil || ns.DeletionTimestamp != nil {
					return absentOrGoing(err)
				}
				return fmt.Errorf("namespace %s stands", twin)
			})
			within(t, time.Minute, "the twin is gone", w.noTwin(twin))
		})
	}
}

// testRecreatedWhileAway deletes a namespace while milan does not answer, and makes it
// again under its name: milan never sees it gone, and the first one's pods go nevertheless.
func testRecreatedWhileAway(t *testing.T, w *world) {
	w.offload(t, "again", offloadingv1beta1.NamespaceOffloadingSpec{})
	deployments := w.rome.Client().AppsV1().Deployments("again")
	kubetest.Create(t, deployments, deployment("web", 3))
	w.bare(t, "again", "same", nil)
	within(t, soon, "the first runs", w.available("web", "again", 3))
	within(t, soon, "its pod runs", w.placed("again", "same", "milan"))
	before := w.remotes(t, "again-rome")
	w.milan.Proxied().Drop()
	defer w.milan.Proxied().Pass()
	within(t, soon, "milan is NotReady", func(ctx context.Context) error { return w.rome.WaitVirtualNode(ctx, "milan", corev1.ConditionFalse) })
	require.NoError(t, w.rome.Client().CoreV1().Namespaces().Delete(t.Context(), "again", metav1.DeleteOptions{}))
	within(t, bounded, "the namespace is gone", w.homeGone("again"))
	w.ask(t, "again", offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsRemote})
	within(t, soon, "the second is asked for", lab.Is(w.rome.Liqod().OffloadingV1beta1().NamespaceMaps(tenant), "milan", func(m *offloadingv1beta1.NamespaceMap) bool {
		return m.Spec.DesiredMapping["again"] == "again-rome"
	}))
	require.Len(t, w.remotes(t, "again-rome"), len(before), "milan knows nothing of it")
	w.milan.Proxied().Pass()
	within(t, soon, "milan is Ready", func(ctx context.Context) error { return w.rome.WaitVirtualNode(ctx, "milan", corev1.ConditionTrue) })
	kubetest.Create(t, deployments, deployment("web", 2))
	uid := string(w.bare(t, "again", "same", nil).UID)
	within(t, soon, "the second runs", w.available("web", "again", 2))
	within(t, soon, "its pod runs", w.runsThere("again", "same", "again-rome", uid))
	within(t, soon, "nothing of the first is left", func(context.Context) error {
		now := w.remotes(t, "again-rome")
		for name, was := range before {
			if strings.Split(now[name], "@")[0] == strings.Split(was, "@")[0] {
				return fmt.Errorf("pod %s is left", name)
			}
		}
		return lab.Wrong(nil, len(now) != 3, "%d pods", len(now))
	})
}

func absentOrGoing(err error) error {
	if err == nil {
		return nil
	}
	return absent(&corev1.Namespace{}, err)
}
