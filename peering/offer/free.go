package offer

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// Free returns a percentage of the CPU, memory and pods that the nodes of a cluster have
// left. It counts only nodes for which TakesPods is true.
func Free(nodes []corev1.Node, pods []corev1.Pod, percent int64) corev1.ResourceList {
	out := corev1.ResourceList{corev1.ResourceCPU: {}, corev1.ResourceMemory: {}, corev1.ResourcePods: {}}
	counted := map[string]bool{}
	for i := range nodes {
		if !TakesPods(&nodes[i]) {
			continue
		}
		counted[nodes[i].Name] = true
		for name, sum := range out {
			sum.Add(nodes[i].Status.Allocatable[name])
			out[name] = sum
		}
	}
	for i := range pods {
		pod := &pods[i]
		if !counted[pod.Spec.NodeName] || offloadingv1beta1.Ended(pod.Status.Phase) {
			continue
		}
		used := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
		used[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
		for name, sum := range out {
			sum.Sub(used[name])
			out[name] = sum
		}
	}
	for name, sum := range out {
		out[name] = shareOf(name, sum, percent)
	}
	return out
}

// shareOf returns a percentage of an amount, rounded down to a thousandth of a CPU, a
// mebibyte or a pod. It is never negative.
func shareOf(name corev1.ResourceName, sum resource.Quantity, percent int64) resource.Quantity {
	const mebibyte = 1 << 20
	switch name {
	case corev1.ResourceCPU:
		return *resource.NewMilliQuantity(max(0, sum.MilliValue()*percent/100), resource.DecimalSI)
	case corev1.ResourceMemory:
		return *resource.NewQuantity(max(0, sum.Value()/mebibyte*percent/100*mebibyte), resource.BinarySI)
	}
	return *resource.NewQuantity(max(0, sum.Value()*percent/100), resource.DecimalSI)
}

// TakesPods reports whether a node may run pods of peers: it is not a virtual node, it is
// Ready, and it has no cordon, no deletion timestamp and no taint that keeps ordinary pods
// away.
func TakesPods(node *corev1.Node) bool {
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
