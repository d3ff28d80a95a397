package rules

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// maxTerms bounds the node selector terms of a pod: each of its own is combined with
// each of the namespace's, and the webhook serves everybody.
const maxTerms = 1000

// Offload returns the pod as it is to be created in a namespace with that strategy and
// cluster selector (as in NamespaceOffloadingSpec). When nothing changes it returns
// the pod itself; it never changes its argument.
//
//   - Local: unchanged.
//   - Remote: only on virtual nodes that the selector selects.
//   - LocalAndRemote: on those, or on this cluster's own nodes.
//
// Each is in addition to what the pod itself requires of nodes. The runtime class
// liqo asks for Remote, whatever the strategy. Pods that something else places are
// left alone: those that have a node already (see OnNode), mirror pods, those of DaemonSets,
// whose controller decides by the pod template alone, and those of other clusters, which
// go no further. Offload is idempotent. The error
// says what is wrong with the strategy, or that the selectors are too long together.
func Offload(pod *corev1.Pod, strategy offloadingv1beta1.PodOffloadingStrategy, selector corev1.NodeSelector) (*corev1.Pod, error) {
	if placed(pod) {
		return pod, nil
	}
	if class := pod.Spec.RuntimeClassName; class != nil && *class == offloadingv1beta1.RuntimeClassName {
		strategy = offloadingv1beta1.PodsRemote
	}
	var rule []corev1.NodeSelectorTerm
	switch strategy {
	case offloadingv1beta1.PodsLocal:
		return pod, nil
	case offloadingv1beta1.PodsRemote:
		rule = virtualNodes(selector)
	case offloadingv1beta1.PodsLocalAndRemote:
		if len(selector.NodeSelectorTerms) > 0 {
			rule = append(virtualNodes(selector), ownNodes())
		}
	default:
		return nil, fmt.Errorf("pod offloading strategy %q: accepted are %s, %s and %s", strategy,
			offloadingv1beta1.PodsLocal, offloadingv1beta1.PodsRemote, offloadingv1beta1.PodsLocalAndRemote)
	}
	out := pod.DeepCopy()
	tolerate(&out.Spec)
	if err := restrict(&out.Spec, rule); err != nil {
		return nil, err
	}
	if equality.Semantic.DeepEqual(pod.Spec, out.Spec) {
		return pod, nil
	}
	return out, nil
}

// OnNode returns a pod that names its node as it is to be created in a namespace: on a virtual node that
// the selector selects it has the toleration of Offload. The error says why it may not be on that node.
// A pod that tolerates the taint of virtual nodes itself is left alone, as one on another node is.
func OnNode(pod *corev1.Pod, node *corev1.Node, strategy offloadingv1beta1.PodOffloadingStrategy, selector *corev1.NodeSelector) (*corev1.Pod, error) {
	tolerates := slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return t.Key == "" || t.Key == offloadingv1beta1.VirtualNodeTaintKey })
	if node.Labels[offloadingv1beta1.TypeLabel] != offloadingv1beta1.TypeVirtualNode || tolerates {
		return pod, nil
	}
	refused := func(why string) error {
		return fmt.Errorf("spec.nodeName names virtual node %s, but %s: remove it, or change the NamespaceOffloading", node.Name, why)
	}
	if strategy == offloadingv1beta1.PodsLocal {
		return nil, refused("the pods of the namespace stay in this cluster (podOffloadingStrategy Local)")
	}
	if len(selector.NodeSelectorTerms) > 0 {
		if is, err := corev1helpers.MatchNodeSelectorTerms(node, selector); err != nil || !is {
			return nil, refused("the clusterSelector of the namespace does not select it")
		}
	}
	out := pod.DeepCopy()
	tolerate(&out.Spec)
	return out, nil
}

// placed tells whether something else than the scheduler's free choice places the pod.
func placed(pod *corev1.Pod) bool {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror || pod.Spec.NodeName != "" {
		return true
	}
	return pod.Labels[offloadingv1beta1.ManagedByLabel] == offloadingv1beta1.ManagedByShadowPod ||
		slices.ContainsFunc(pod.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "DaemonSet" })
}

// KeepToleration returns the pod as an update is to make it of old: with the toleration that
// Offload has given to old. Kubernetes accepts no update that takes a toleration away, and a
// client that writes its own list does not know this one. When nothing changes it returns the
// pod itself; it never changes its arguments.
func KeepToleration(old, pod *corev1.Pod) *corev1.Pod {
	if !tolerated(&old.Spec) || tolerated(&pod.Spec) {
		return pod
	}
	out := pod.DeepCopy()
	tolerate(&out.Spec)
	return out
}

// tolerate adds the toleration of the virtual nodes' taint.
func tolerate(spec *corev1.PodSpec) {
	if !tolerated(spec) {
		spec.Tolerations = append(spec.Tolerations, toleration())
	}
}

// tolerated tells whether a pod has the toleration that tolerate adds.
func tolerated(spec *corev1.PodSpec) bool { return slices.Contains(spec.Tolerations, toleration()) }

func toleration() corev1.Toleration {
	return corev1.Toleration{Key: offloadingv1beta1.VirtualNodeTaintKey, Operator: corev1.TolerationOpExists}
}

// restrict adds the rule (alternatives; none for no rule) to what the pod requires of
// its node.
func restrict(spec *corev1.PodSpec, rule []corev1.NodeSelectorTerm) error {
	if len(rule) == 0 {
		return nil
	}
	spec.Affinity = cmp.Or(spec.Affinity, &corev1.Affinity{})
	spec.Affinity.NodeAffinity = cmp.Or(spec.Affinity.NodeAffinity, &corev1.NodeAffinity{})
	node := spec.Affinity.NodeAffinity
	own := node.RequiredDuringSchedulingIgnoredDuringExecution
	if own == nil {
		node.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: rule}
		return nil
	}
	terms, err := both(own.NodeSelectorTerms, rule)
	if err != nil {
		return fmt.Errorf("requiring nodes of the namespace's strategy: %w", err)
	}
	own.NodeSelectorTerms = terms
	return nil
}
