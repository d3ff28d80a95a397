package offer

import (
	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// takesPods reports whether a node may run pods of peers: it is not a virtual node, it is
// Ready, and it has no cordon, no deletion timestamp and no taint that keeps ordinary pods
// away.
func takesPods(node *corev1.Node) bool {
	if offloadingv1beta1.IsVirtual(node) || node.Spec.Unschedulable || node.DeletionTimestamp != nil {
		return false
	}
	for _, taint := range node.Spec.Taints {
		if taint.Effect != corev1.TaintEffectPreferNoSchedule {
			return false
		}
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
