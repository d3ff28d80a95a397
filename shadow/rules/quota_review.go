package rules

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// Words of the messages about pods that wait for a change of the pod or of the Quotas. The controller
// and the webhook of a provider write them, and reports at home recognise them in the refusal of a webhook,
// which has no reason of its own.
const (
	WordsUndeclared = "requires declared CPU and memory"
	WordsTooSmall   = "the pod alone is larger than the quota"
)

// QuotaReview is a ShadowPod that is about to be created.
type QuotaReview struct {
	New *offloadingv1beta1.ShadowPod
	// Quotas are those of its consumer, LimitRanges those of its namespace.
	Quotas      []*offloadingv1beta1.Quota
	LimitRanges []*corev1.LimitRange
}

// Judge says why the pod could not ever begin under the Quotas as they are, whoever else
// ends; empty if it could. One that is cordoned may not be so for long: that is no reason.
func (r QuotaReview) Judge() string {
	pod := Predict(&corev1.Pod{Spec: r.New.Spec.Pod}, r.LimitRanges, nil)
	open := make([]*offloadingv1beta1.Quota, 0, len(r.Quotas))
	for _, q := range r.Quotas {
		spec := q.Spec
		spec.Cordoned = nil
		open = append(open, &offloadingv1beta1.Quota{ObjectMeta: q.ObjectMeta, Spec: spec})
	}
	bound, consumer := SumQuotas(open), r.New.Labels[offloadingv1beta1.OriginLabel]
	if text := Undeclared(&pod.Spec, bound.Enforcement); text != "" {
		return fmt.Sprintf("the quota of cluster %s %s (%s): %s", consumer, WordsUndeclared, bound.Enforcement, text)
	}
	delete(pod.Spec.NodeSelector, corev1.LabelHostname) // no peer's pod picks a single node: it is taken out
	if text := SumQuotas(r.Quotas).Misplaced(pod.Spec.NodeSelector); text != "" {
		return fmt.Sprintf("the pod of cluster %s selects nodes that the cluster may not use: %s", consumer, text)
	}
	requests := Requests(pod)
	if short := bound.Short(nil, requests); len(short) > 0 {
		return fmt.Sprintf("%s of cluster %s (%s)", WordsTooSmall, consumer, bound.Tell(short, requests))
	}
	return ""
}
