package rules

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// NeverFits returns the reason and the message of a refusal of a ShadowPod: its pod could not ever begin under the
// Quotas of its consumer as they are, whichever other pods end. Both are empty if it could. A cordoned Quota is no
// reason: it may not be cordoned for long. ranges are those of the namespace.
func NeverFits(shadow *offloadingv1beta1.ShadowPod, quotas []*offloadingv1beta1.Quota, ranges []*corev1.LimitRange) (reason, message string) {
	pod := Predict(&corev1.Pod{Spec: shadow.Spec.Pod}, ranges, nil)
	bound := SumQuotas(quotas)
	bound.Resources, bound.Cordoned = bound.Whole, false
	delete(pod.Spec.NodeSelector, corev1.LabelHostname) // no peer's pod picks a single node: it is taken out
	requests := Requests(pod)
	return bound.Alone(shadow.Labels[offloadingv1beta1.OriginLabel], &pod.Spec, requests, requests)
}

// Alone judges what no other pod can change, for a pod that requests total and lacks need of that: the
// declarations, the nodes, cordoned Quotas, and the size of the pod against the whole bound. A resource that the
// pod lacks nothing of is no reason for a refusal. reason and message are empty if nothing speaks against the pod.
func (b Bound) Alone(consumer string, spec *corev1.PodSpec, total, need corev1.ResourceList) (reason, message string) {
	undeclared, misplaced := Undeclared(spec, b.Enforcement), b.Misplaced(spec.NodeSelector)
	large := slices.DeleteFunc(b.Short(nil, total), func(name corev1.ResourceName) bool { _, needed := need[name]; return !needed })
	switch {
	case undeclared != "":
		return offloadingv1beta1.ReasonQuotaUndeclared, fmt.Sprintf("the quota of cluster %s requires declared CPU and memory (%s): %s", consumer, b.Enforcement, undeclared)
	case misplaced != "":
		return offloadingv1beta1.ReasonQuotaNodeSelector, fmt.Sprintf("the pod of cluster %s selects nodes that the cluster may not use: %s", consumer, misplaced)
	case len(need) > 0 && b.Cordoned:
		return offloadingv1beta1.ReasonQuotaCordoned, fmt.Sprintf("the quota of cluster %s is cordoned: no new pod starts", consumer)
	case len(large) > 0:
		return offloadingv1beta1.ReasonQuotaTooSmall, fmt.Sprintf("the pod alone is larger than the quota of cluster %s (%s)", consumer, b.Tell(large, total))
	}
	return "", ""
}
