package scenarios

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

// soon is for what should take a second or two, on a machine that is busy.
const soon = 20 * time.Second

// TestNamespaces has two simulated clusters, in which nothing breaks for long: what becomes of
// offloaded namespaces, and of the volumes in them.
func TestNamespaces(t *testing.T) {
	w := newWorld(t, map[string]any{
		"controller": map[string]any{"twinNames": []string{"mapped-same", "elsewhere", "messages-*", "one-for-two", "secret"}},
		"sharing":    map[string]any{"twinLimits": []string{"pods=5000", fmt.Sprintf("count/ingresses.networking.k8s.io=%d", ingressesPerTwin)}},
	})
	inTurn(t, w, []part[*world]{
		{"Commands", testCommands}, {"Strategies", testStrategies}, {"Mapping", testMapping}, {"Messages", testMessages}, {"Reserved", testReserved},
		{"Bounds", testBounds},
	})
	t.Run("AtOnce", func(t *testing.T) {
		// These wait for Kubernetes to delete namespaces, most of the time.
		for name, run := range map[string]func(*testing.T, *world){
			"Selectors": testSelectors, "Conflict": testConflict, "TwinDeleted": testTwinDeleted, "Unoffload": testUnoffload,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				run(t, w)
			})
		}
	})
	inTurn(t, w, []part[*world]{
		{"Hostile", testHostileMap}, {"ProviderAway", testDeletedWhileAway}, {"RecreatedWhileAway", testRecreatedWhileAway}, {"Storage", testStorage},
	})
}

// region selects virtual nodes by the label that the world gives to milan.
func region(value string) corev1.NodeSelector {
	return corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "region", Operator: corev1.NodeSelectorOpIn, Values: []string{value}}}}}}
}

// onNode selects one node as DaemonSets do.
func onNode(name string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{name}}}}}}}}
}

// ask creates a namespace with an offloading and does not wait.
func (w *world) ask(t *testing.T, namespace string, spec offloadingv1beta1.NamespaceOffloadingSpec) {
	t.Helper()
	_, err := w.rome.Client().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
	}
	kubetest.Create(t, w.rome.Liqod().OffloadingV1beta1().NamespaceOffloadings(namespace), offloading("offloading", spec))
}

func offloading(name string, spec offloadingv1beta1.NamespaceOffloadingSpec) *offloadingv1beta1.NamespaceOffloading {
	return &offloadingv1beta1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
}

// offloadingIs returns a condition: the offloading of a namespace is in a phase, and its Ready
// condition says all of the texts.
func (w *world) offloadingIs(namespace string, phase offloadingv1beta1.OffloadingPhase, says ...string) func(context.Context) error {
	return lab.That(w.rome.Liqod().OffloadingV1beta1().NamespaceOffloadings(namespace), "offloading", func(o *offloadingv1beta1.NamespaceOffloading) error {
		ready := meta.FindStatusCondition(o.Status.Conditions, "Ready")
		if o.Status.OffloadingPhase != phase || o.Status.ObservedGeneration != o.Generation || ready == nil {
			return fmt.Errorf("namespace %s is %q: %+v", namespace, o.Status.OffloadingPhase, o.Status)
		}
		for _, text := range says {
			if !strings.Contains(ready.Message, text) {
				return fmt.Errorf("namespace %s says %q, not %q", namespace, ready.Message, text)
			}
		}
		return nil
	})
}

func (w *world) noTwin(name string) func(context.Context) error {
	return isGone(w.milan.Client().CoreV1().Namespaces(), name)
}

func (w *world) homeGone(name string) func(context.Context) error {
	return isGone(w.rome.Client().CoreV1().Namespaces(), name)
}

func absent[T metav1.Object](obj T, err error) error { return lab.Absent(obj, err) }

func isGone[T metav1.Object](c lab.Getter[T], name string) func(context.Context) error {
	return lab.Gone(c, name)
}

// Where a pod is to end up.
const (
	atHome   = "a node of rome"
	noNode   = "no node"
	anywhere = "any node"
)

type placement struct {
	spec offloadingv1beta1.NamespaceOffloadingSpec
	// phase of the namespace; empty is Ready.
	phase offloadingv1beta1.OffloadingPhase
	// pods by where each is to be; the name of a node is accepted too.
	pods map[string]pinned
}

// pinned is a pod with its own wish for a node.
type pinned struct {
	want     string
	class    string
	affinity *corev1.Affinity
}

func placements() map[string]placement {
	home := "rome-sim-1"
	local, remote, both := offloadingv1beta1.PodsLocal, offloadingv1beta1.PodsRemote, offloadingv1beta1.PodsLocalAndRemote
	type pods = map[string]pinned
	return map[string]placement{
		"st-local": {spec: offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: local},
			pods: pods{"plain": {want: atHome}, "class": {want: "milan", class: "liqo"}, "pinned": {want: noNode, affinity: onNode("milan")}}},
		"st-local-south": {spec: offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: local, ClusterSelector: region("south")},
			phase: offloadingv1beta1.PhaseNoClusterSelected,
			pods:  pods{"plain": {want: atHome}, "class": {want: noNode, class: "liqo"}}},
		"st-remote": {spec: offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: remote},
			pods: pods{"plain": {want: "milan"}, "home": {want: noNode, affinity: onNode(home)}, "pinned": {want: "milan", affinity: onNode("milan")}}},
		"st-remote-north": {spec: offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: remote, ClusterSelector: region("north")},
			pods: pods{"plain": {want: "milan"}, "class": {want: "milan", class: "liqo"}}},
		"st-remote-south": {spec: offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: remote, ClusterSelector: region("south")},
			phase: offloadingv1beta1.PhaseNoClusterSelected,
			pods:  pods{"plain": {want: noNode}, "pinned": {want: noNode, affinity: onNode("milan")}}},
		"st-both": {spec: offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: both},
			pods: pods{"plain": {want: anywhere}, "home": {want: home, affinity: onNode(home)}, "pinned": {want: "milan", affinity: onNode("milan")}}},
		"st-both-north": {spec: offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: both, ClusterSelector: region("north")},
			pods: pods{"home": {want: home, affinity: onNode(home)}, "pinned": {want: "milan", affinity: onNode("milan")}}},
		"st-both-south": {spec: offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: both, ClusterSelector: region("south")},
			phase: offloadingv1beta1.PhaseNoClusterSelected,
			pods:  pods{"plain": {want: atHome}, "pinned": {want: noNode, affinity: onNode("milan")}, "class": {want: noNode, class: "liqo"}}},
	}
}

func testStrategies(t *testing.T, w *world) {
	table := placements()
	for namespace, p := range table {
		w.ask(t, namespace, p.spec)
	}
	for namespace, p := range table {
		phase := p.phase
		if phase == "" {
			phase = offloadingv1beta1.PhaseReady
		}
		within(t, soon, namespace+" is "+string(phase), w.offloadingIs(namespace, phase))
		for name, pod := range p.pods {
			w.bare(t, namespace, name, func(s *corev1.PodSpec) {
				s.Affinity = pod.affinity
				if pod.class != "" {
					s.RuntimeClassName = ptr.To(pod.class)
				}
			})
		}
	}
	for namespace, p := range table {
		for name, pod := range p.pods {
			within(t, soon, fmt.Sprintf("%s/%s is on %s", namespace, name, pod.want), w.placed(namespace, name, pod.want))
		}
	}
	for namespace := range table {
		require.NoError(t, w.rome.Client().CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}))
	}
}

// bare creates a pod that nobody owns.
func (w *world) bare(t *testing.T, namespace, name string, change func(*corev1.PodSpec)) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: podSpec("sim/web:1")}
	if change != nil {
		change(&pod.Spec)
	}
	return kubetest.Create(t, w.rome.Client().CoreV1().Pods(namespace), pod)
}

// placed returns a condition: the pod runs where it is wanted, or cannot be scheduled
// if that is noNode.
func (w *world) placed(namespace, name, want string) func(context.Context) error {
	return lab.That(w.rome.Client().CoreV1().Pods(namespace), name, func(pod *corev1.Pod) error {
		node, ok := pod.Spec.NodeName, pod.Status.Phase == corev1.PodRunning
		switch want {
		case noNode:
			ok = false
			for _, c := range pod.Status.Conditions {
				ok = ok || c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable
			}
			ok = ok && node == ""
		case atHome:
			ok = ok && strings.HasPrefix(node, "rome-sim-")
		case anywhere:
		default:
			ok = ok && node == want
		}
		return lab.Wrong(nil, !ok, "pod %s/%s is on %q, %s: %+v", namespace, name, node, pod.Status.Phase, pod.Status.Conditions)
	})
}

// testSelectors changes the selector under a namespace, and the labels under a selector.
func testSelectors(t *testing.T, w *world) {
	ctx := t.Context()
	w.ask(t, "selected", offloadingv1beta1.NamespaceOffloadingSpec{ClusterSelector: region("east")})
	within(t, soon, "nothing is selected", w.offloadingIs("selected", offloadingv1beta1.PhaseNoClusterSelected, "spec.clusterSelector"))
	o := kubetest.Get(t, w.rome.Liqod().OffloadingV1beta1().NamespaceOffloadings("selected"), "offloading")
	required := meta.FindStatusCondition(o.Status.RemoteNamespacesConditions["milan"], offloadingv1beta1.RemoteNamespaceOffloadingRequired)
	require.NotNil(t, required)
	require.Equal(t, offloadingv1beta1.ReasonClusterNotSelected, required.Reason)
	require.NoError(t, w.noTwin("selected-rome")(ctx))

	choose := func(selector corev1.NodeSelector, confirmed string) {
		require.NoError(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error { // the controller adds to its metadata
			return lab.Changes(w.rome.Liqod().OffloadingV1beta1().NamespaceOffloadings("selected"), "offloading", func(o *offloadingv1beta1.NamespaceOffloading) {
				o.Spec.ClusterSelector = selector
				o.Annotations = map[string]string{offloadingv1beta1.EndPodsInAnnotation: confirmed}
			})(ctx)
		}))
	}
	label := func(value string) {
		patch := fmt.Appendf(nil, `{"spec":{"labels":{"region":%q}}}`, value)
		kubetest.Patch(t, w.rome.Liqod().OffloadingV1beta1().VirtualNodes("liqo-tenant-milan"), "milan", types.MergePatchType, patch)
	}
	choose(region("north"), "")
	within(t, soon, "the new selector selects milan", w.offloadingIs("selected", offloadingv1beta1.PhaseReady, "milan"))
	o = kubetest.Get(t, w.rome.Liqod().OffloadingV1beta1().NamespaceOffloadings("selected"), "offloading")
	require.True(t, meta.IsStatusConditionTrue(o.Status.RemoteNamespacesConditions["milan"], offloadingv1beta1.RemoteNamespaceOffloadingRequired))
	require.True(t, meta.IsStatusConditionTrue(o.Status.RemoteNamespacesConditions["milan"], offloadingv1beta1.RemoteNamespaceReady))

	choose(region("south"), "milan")
	within(t, soon, "and no longer", w.offloadingIs("selected", offloadingv1beta1.PhaseNoClusterSelected))
	within(t, soon, "the twin went", w.noTwin("selected-rome"))
	label("south")
	within(t, soon, "a new label of the virtual node is seen", w.offloadingIs("selected", offloadingv1beta1.PhaseReady))
	label("north")
	within(t, soon, "and its end", w.offloadingIs("selected", offloadingv1beta1.PhaseNoClusterSelected))
	within(t, soon, "the twin went", w.noTwin("selected-rome"))
	_, err := w.rome.Liqod().OffloadingV1beta1().NamespaceOffloadings("selected").Patch(ctx, "offloading", types.MergePatchType,
		[]byte(`{"spec":{"clusterSelector":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"region","operator":"Near"}]}]}}}`), metav1.PatchOptions{})
	require.ErrorContains(t, err, `spec.clusterSelector: nodeSelectorTerms[0].matchExpressions[0].operator: Unsupported value: "Near"`, "a selector that is none is refused")
}

func testMapping(t *testing.T, w *world) {
	for namespace, c := range map[string]struct {
		spec offloadingv1beta1.NamespaceOffloadingSpec
		want string
	}{
		"mapped-default":  {want: "mapped-default-rome"},
		"mapped-same":     {offloadingv1beta1.NamespaceOffloadingSpec{NamespaceMappingStrategy: offloadingv1beta1.EnforceSameName}, "mapped-same"},
		"mapped-selected": {offloadingv1beta1.NamespaceOffloadingSpec{NamespaceMappingStrategy: offloadingv1beta1.SelectedName, RemoteNamespaceName: "elsewhere"}, "elsewhere"},
	} {
		w.offload(t, namespace, c.spec)
		o := kubetest.Get(t, w.rome.Liqod().OffloadingV1beta1().NamespaceOffloadings(namespace), "offloading")
		require.Equal(t, c.want, o.Status.RemoteNamespaceName)
		home := kubetest.Get(t, w.rome.Client().CoreV1().Namespaces(), namespace)
		require.Equal(t, "true", home.Labels[offloadingv1beta1.SchedulingEnabledLabel])
		twin := kubetest.Get(t, w.milan.Client().CoreV1().Namespaces(), c.want)
		require.Equal(t, "rome", twin.Labels["liqo.io/remote-cluster-id"])
		require.Equal(t, "baseline", twin.Labels["pod-security.kubernetes.io/enforce"])
		require.Equal(t, "liqo-tenant-rome/milan", twin.Annotations[offloadingv1beta1.ManagedByNamespaceMapAnnotation])
		require.Equal(t, namespace, twin.Annotations[offloadingv1beta1.OriginalNameAnnotation])
		w.bare(t, namespace, "pod", nil)
		within(t, soon, namespace+"/pod runs in "+c.want, w.placed(namespace, "pod", "milan"))
		kubetest.Get(t, w.milan.Client().CoreV1().Pods(c.want), "pod")
	}
}
