package offer

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/store"
)

// pressures returns the conditions with which kubelets report that a node runs out of a resource, and the
// taints that Kubernetes sets for them.
func pressures() (conditions []corev1.NodeConditionType, taints []string) {
	return []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure},
		[]string{corev1.TaintNodeMemoryPressure, corev1.TaintNodeDiskPressure, corev1.TaintNodePIDPressure}
}

// pressuresOf returns the pressures that each node has that a selector matches and that would run pods
// of peers without them; none if there is no such node.
func pressuresOf(nodes []*corev1.Node, selector map[string]string) (out []corev1.NodeConditionType) {
	conditions, taints := pressures()
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(n *corev1.Node) bool { return !matches(selector, n.Labels) || !takesPods(n, taints...) })
	for _, pressure := range conditions {
		without := func(n *corev1.Node) bool { return !nodeIs(n, pressure) }
		if len(nodes) > 0 && !slices.ContainsFunc(nodes, without) {
			out = append(out, pressure)
		}
	}
	return out
}

// nodeIs reports whether a condition of a node is true.
func nodeIs(node *corev1.Node, kind corev1.NodeConditionType) bool {
	return store.NodeCondition(&node.Status, kind).Status == corev1.ConditionTrue
}

// takesPods reports whether a node may run pods of peers: it is not a virtual node, it is
// Ready, and it has no cordon, no deletion timestamp and no taint that keeps ordinary pods
// away, but those that are given.
func takesPods(node *corev1.Node, but ...string) bool {
	if offloadingv1beta1.IsVirtual(node) || node.Spec.Unschedulable || node.DeletionTimestamp != nil {
		return false
	}
	for _, taint := range node.Spec.Taints {
		if taint.Effect != corev1.TaintEffectPreferNoSchedule && !slices.Contains(but, taint.Key) {
			return false
		}
	}
	return nodeIs(node, corev1.NodeReady)
}
