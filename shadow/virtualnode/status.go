package virtualnode

import (
	"cmp"
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reasons"
)

// notReady returns the conditions of a VirtualNode that gets no vkubelet, or that is being deleted. The
// conditions of an earlier vkubelet or Node stay as they are.
func notReady(reason, message string) []metav1.Condition {
	return []metav1.Condition{{
		Type: offloadingv1beta1.VirtualNodeReady, Status: metav1.ConditionFalse, Reason: reason, Message: message,
	}}
}

// liveConditions returns the conditions that show the vkubelet and the Node. Either may be
// nil.
func liveConditions(deployment *appsv1.Deployment, node *corev1.Node) []metav1.Condition {
	kubelet, nodeCondition := kubeletCondition(deployment), nodeCondition(node)
	ready := nodeCondition
	if node == nil && kubelet.Status != metav1.ConditionTrue {
		ready = kubelet // it explains why there is no Node
	}
	ready.Type = offloadingv1beta1.VirtualNodeReady
	return []metav1.Condition{ready, kubelet, nodeCondition}
}

func kubeletCondition(d *appsv1.Deployment) metav1.Condition {
	c := metav1.Condition{Type: offloadingv1beta1.VirtualNodeVirtualKubelet, Status: metav1.ConditionFalse}
	if d == nil {
		c.Reason, c.Message = offloadingv1beta1.ReasonCreating, "the vkubelet's Deployment is being created"
		return c
	}
	want := ptr.Deref(d.Spec.Replicas, 1)
	switch {
	case d.Status.AvailableReplicas > 0:
		c.Status, c.Reason = metav1.ConditionTrue, offloadingv1beta1.ReasonAvailable
		c.Message = fmt.Sprintf("%d of %d vkubelet replicas are available", d.Status.AvailableReplicas, want)
	case want == 0:
		c.Reason, c.Message = reasons.ScaledToZero, "no vkubelet is wanted: replicas is 0"
	default:
		c.Reason = reasons.NotAvailable
		c.Message = fmt.Sprintf("none of %d vkubelet replicas is available%s", want, trouble(d))
	}
	return c
}

// trouble returns the failure that the Deployment's own conditions report, or "".
func trouble(d *appsv1.Deployment) string {
	for _, c := range d.Status.Conditions {
		failing := c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue ||
			c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse
		if failing {
			return ": " + c.Message
		}
	}
	return ""
}

func nodeCondition(node *corev1.Node) metav1.Condition {
	c := metav1.Condition{Type: offloadingv1beta1.VirtualNodeNode, Status: metav1.ConditionFalse}
	if node == nil {
		c.Reason, c.Message = offloadingv1beta1.ReasonCreating, "the vkubelet has not made the Node yet"
		return c
	}
	ready := store.NodeCondition(&node.Status, corev1.NodeReady)
	if ready.Type == "" {
		c.Reason, c.Message = offloadingv1beta1.ReasonCreating, "the Node does not say whether it is ready"
		return c
	}
	c.Status, c.Message = metav1.ConditionStatus(ready.Status), ready.Message
	c.Reason = cmp.Or(ready.Reason, reasons.NodeGivesNoReason) // the API requires one
	return c
}

// writeStatus writes vn's conditions and the keys that are not reflected, if anything
// changes.
func (l *Lifecycle) writeStatus(ctx context.Context, vn *offloadingv1beta1.VirtualNode, conditions []metav1.Condition) error {
	want := vn.DeepCopy()
	want.Status.ObservedGeneration = vn.Generation
	want.Status.NotReflected = l.cfg.NotReflected.DeepCopy()
	for _, c := range conditions {
		c.ObservedGeneration = vn.Generation
		c.LastTransitionTime = metav1.NewTime(l.cfg.Clock.Now())
		store.SetCondition(&want.Status.Conditions, c)
	}
	err := store.WriteStatus(ctx, "VirtualNode", l.cfg.Liqo.OffloadingV1beta1().VirtualNodes(vn.Namespace), fieldManager, vn, want)
	return store.IgnoreNotFound(err) // it was deleted meanwhile
}
