package report

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/reasons"
)

// Drains reports whether a virtual node is being removed: disruption budgets may then matter.
func (s *Snapshot) Drains() bool {
	return first(s.VirtualNodes, func(vn *offloadingv1beta1.VirtualNode) bool { return vn.DeletionTimestamp != nil }) != nil
}

// removal adds the findings about a virtual node that is being removed.
func (c *checker) removal(vn *offloadingv1beta1.VirtualNode) {
	text := conditionMessage(vn.Status.Conditions, offloadingv1beta1.VirtualNodeReady)
	c.Add(idRemoval, Warning, "virtual node "+vn.Name, "it is being removed: "+text, "")
	blocked := map[string]bool{}
	for _, pod := range c.podsOn(vn) {
		if b := c.blocking(pod); b != nil && pod.DeletionTimestamp == nil && !blocked[b.Namespace+"/"+b.Name] {
			blocked[b.Namespace+"/"+b.Name] = true
			c.budget(vn, b)
		}
	}
}

// blocking returns a disruption budget that admits no eviction of a pod, or nil.
func (s *Snapshot) blocking(pod *corev1.Pod) *policyv1.PodDisruptionBudget {
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "DaemonSet" {
		return nil // it is deleted, not evicted
	}
	return first(s.Budgets, func(b *policyv1.PodDisruptionBudget) bool {
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		return err == nil && b.Namespace == pod.Namespace && selector.Matches(labels.Set(pod.Labels)) && b.Status.DisruptionsAllowed == 0 && !evictedUnready(pod, b)
	})
}

// evictedUnready reports whether a pod may be evicted because it is not ready.
func evictedUnready(pod *corev1.Pod, b *policyv1.PodDisruptionBudget) bool {
	if PodReady(pod) {
		return false
	}
	if p := b.Spec.UnhealthyPodEvictionPolicy; p != nil && *p == policyv1.AlwaysAllow {
		return true
	}
	return pod.Status.Phase == corev1.PodPending || b.Status.DesiredHealthy > 0 && b.Status.CurrentHealthy >= b.Status.DesiredHealthy
}

func (c *checker) budget(vn *offloadingv1beta1.VirtualNode, b *policyv1.PodDisruptionBudget) {
	patch := `{"spec":{"minAvailable":0}}`
	if b.Spec.MaxUnavailable != nil {
		patch = `{"spec":{"maxUnavailable":"100%"}}`
	}
	c.Report(Finding{ID: idBudget, Level: Warning, Subject: "virtual node " + vn.Name, Reason: reasons.DisruptionBudget,
		Message: fmt.Sprintf("PodDisruptionBudget %s/%s admits no eviction (%d of %d wanted pods are healthy): the drain waits until its deadline",
			b.Namespace, b.Name, b.Status.CurrentHealthy, b.Status.DesiredHealthy),
		Fix: fmt.Sprintf("kubectl -n %s patch pdb %s --type=merge -p '%s'\nallows the evictions; or start more replicas on other nodes.", b.Namespace, b.Name, patch)})
}
