package rules

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// QuotaReview is a ShadowPod that is about to be created.
type QuotaReview struct {
	New *offloadingv1beta1.ShadowPod
	// Quotas are those of its consumer, LimitRanges those of its namespace.
	Quotas      []*offloadingv1beta1.Quota
	LimitRanges []*corev1.LimitRange
}

// Judge returns the reason and the message of a refusal: the pod could not ever begin under the Quotas as
// they are, whichever other pods end. Both are empty if it could. A cordoned Quota is no reason: it may not be
// cordoned for long.
func (r QuotaReview) Judge() (reason, message string) {
	pod := Predict(&corev1.Pod{Spec: r.New.Spec.Pod}, r.LimitRanges, nil)
	open := make([]*offloadingv1beta1.Quota, 0, len(r.Quotas))
	for _, q := range r.Quotas {
		spec := q.Spec
		spec.Cordoned = nil
		open = append(open, &offloadingv1beta1.Quota{ObjectMeta: q.ObjectMeta, Spec: spec})
	}
	bound, consumer := SumQuotas(open), r.New.Labels[offloadingv1beta1.OriginLabel]
	if text := Undeclared(&pod.Spec, bound.Enforcement); text != "" {
		return offloadingv1beta1.ReasonQuotaUndeclared, fmt.Sprintf("the quota of cluster %s requires declared CPU and memory (%s): %s", consumer, bound.Enforcement, text)
	}
	delete(pod.Spec.NodeSelector, corev1.LabelHostname) // no peer's pod picks a single node: it is taken out
	if text := SumQuotas(r.Quotas).Misplaced(pod.Spec.NodeSelector); text != "" {
		return offloadingv1beta1.ReasonQuotaNodeSelector, fmt.Sprintf("the pod of cluster %s selects nodes that the cluster may not use: %s", consumer, text)
	}
	requests := Requests(pod)
	if short := bound.Short(nil, requests); len(short) > 0 {
		return offloadingv1beta1.ReasonQuotaTooSmall, fmt.Sprintf("the pod alone is larger than the quota of cluster %s (%s)", consumer, bound.Tell(short, requests))
	}
	return "", ""
}
