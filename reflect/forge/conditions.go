package forge

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/reasons"
)

// conditions returns the pod's conditions. Those that a kubelet sets come from the
// provider, all others from the local pod.
func (in *StatusInput) conditions(source *corev1.PodStatus, final bool, generation int64) []corev1.PodCondition {
	var out []corev1.PodCondition
	for _, c := range source.Conditions {
		// DisruptionTarget is only taken together with the end of the pod: before, the provider
		// may create another remote pod, and no controller here would reset the condition.
		if (kubelets(c.Type) || final && c.Type == corev1.DisruptionTarget) && c.Type != corev1.PodReady && c.Type != corev1.ContainersReady {
			out = append(out, in.settled(c, generation))
		}
	}
	if c := in.refusedResize(); c != nil && findCondition(out, c.Type) == nil {
		out = append(out, in.settled(*c, generation))
	}
	containersReady := remoteReady(source, corev1.ContainersReady)
	out = append(out, in.settled(in.ready(source), generation), in.settled(containersReady, generation))
	for _, c := range in.Local.Status.Conditions {
		if !kubelets(c.Type) && findCondition(out, c.Type) == nil {
			out = append(out, *c.DeepCopy())
		}
	}
	slices.SortStableFunc(out, func(a, b corev1.PodCondition) int { return strings.Compare(string(a.Type), string(b.Type)) })
	return out
}

// kubelets reports whether a kubelet sets the condition. PodScheduled is not included,
// because it belongs to the scheduler of this cluster.
func kubelets(t corev1.PodConditionType) bool {
	return slices.Contains([]corev1.PodConditionType{
		corev1.PodReady, corev1.ContainersReady, corev1.PodInitialized, corev1.PodReadyToStartContainers,
		corev1.PodResizePending, corev1.PodResizeInProgress, corev1.AllContainersRestarting,
	}, t)
}

// refusedResize returns the condition of a running pod whose resize the provider's API
// server rejects, or nil for none. The provider retries the resize, so the reason is
// Deferred, as a kubelet sets it, and not Infeasible.
func (in *StatusInput) refusedResize() *corev1.PodCondition {
	if in.Shadow == nil || in.Remote == nil || sameResources(&in.Shadow.Spec.Pod, &in.Remote.Spec) {
		return nil
	}
	if c := meta.FindStatusCondition(in.Shadow.Status.Conditions, offloadingv1beta1.ShadowPodEnforced); c != nil && c.Status == metav1.ConditionFalse {
		return &corev1.PodCondition{
			Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred,
			Message: "the provider refuses it: " + shortened(c.Message, longestText/2),
		}
	}
	return nil
}

const nodeNotReady = "the virtual node is not ready"

// ready returns the Ready condition of the remote pod, or False if something in this
// cluster forbids True.
func (in *StatusInput) ready(source *corev1.PodStatus) corev1.PodCondition {
	c := remoteReady(source, corev1.PodReady)
	if c.Status != corev1.ConditionTrue {
		return c
	}
	reason, message := "", ""
	switch gates := in.closedGates(); {
	case in.losing():
		reason, message = reasons.RemotePodTerminating, "the provider is removing the pod"
	case !in.NodeReady:
		reason, message = reasons.NodeNotReady, nodeNotReady
	case in.NetworkUnavailable:
		reason, message = reasons.NetworkUnavailable, "the network to the provider does not work"
	case len(gates) > 0:
		reason, message = reasons.ReadinessGatesNotReady, "not true: "+strings.Join(gates, ", ")
	default:
		return c
	}
	return corev1.PodCondition{Type: c.Type, Status: corev1.ConditionFalse, Reason: reason, Message: message}
}

// UnreadyStatus returns the local pod's status with Ready set to False, for a pod whose
// virtual node is not ready.
func UnreadyStatus(local *corev1.Pod, now metav1.Time) corev1.PodStatus {
	status := *local.Status.DeepCopy()
	if c := findCondition(status.Conditions, corev1.PodReady); c != nil && c.Status == corev1.ConditionTrue {
		c.Status, c.LastTransitionTime = corev1.ConditionFalse, now.Rfc3339Copy()
		c.Reason, c.Message = reasons.NodeNotReady, nodeNotReady
	}
	return status
}

// closedGates returns the readiness gates whose condition is not True on the local pod.
func (in *StatusInput) closedGates() []string {
	var out []string
	for _, gate := range in.Local.Spec.ReadinessGates {
		if c := findCondition(in.Local.Status.Conditions, gate.ConditionType); c == nil || c.Status != corev1.ConditionTrue {
			out = append(out, string(gate.ConditionType))
		}
	}
	return out
}

// remoteReady returns the condition of the remote pod. If it has none, the result is
// False, with the reason why the provider's scheduler cannot place the pod.
func remoteReady(source *corev1.PodStatus, t corev1.PodConditionType) corev1.PodCondition {
	if c := findCondition(source.Conditions, t); c != nil {
		return *c.DeepCopy()
	}
	out := corev1.PodCondition{Type: t, Status: corev1.ConditionFalse}
	if c := unplaced(source); c != nil {
		out.Reason = c.Reason
		out.Message = fmt.Sprintf("in the provider: %s", c.Message)
	}
	return out
}

// unplaced returns the PodScheduled condition if it has the reason why the pod has no
// node (Unschedulable, SchedulingGated), or nil.
func unplaced(status *corev1.PodStatus) *corev1.PodCondition {
	c := findCondition(status.Conditions, corev1.PodScheduled)
	if c == nil || c.Status != corev1.ConditionFalse || c.Reason == "" {
		return nil
	}
	return c
}

// settled adapts a condition of the remote pod to the local pod: it sets the local
// generation, and the time of the transition in this cluster, which never goes back.
func (in *StatusInput) settled(c corev1.PodCondition, generation int64) corev1.PodCondition {
	c.ObservedGeneration = generation
	if in.Now.Before(&c.LastTransitionTime) {
		// The provider's clock is ahead. Controllers of this cluster measure the time since
		// the transition, for example for minReadySeconds.
		c.LastTransitionTime = in.Now
	}
	have := findCondition(in.Local.Status.Conditions, c.Type)
	switch {
	case have == nil:
		if c.LastTransitionTime.IsZero() {
			c.LastTransitionTime = in.Now
		}
		return c
	case have.Status == c.Status:
		c.LastTransitionTime = have.LastTransitionTime
	case !have.LastTransitionTime.Before(&c.LastTransitionTime):
		c.LastTransitionTime = in.Now
	}
	c.ObservedGeneration = max(c.ObservedGeneration, have.ObservedGeneration)
	return c
}

// notReady sets Ready and ContainersReady to False.
func notReady(status *corev1.PodStatus, reason, message string, now metav1.Time) {
	for _, t := range []corev1.PodConditionType{corev1.ContainersReady, corev1.PodReady} {
		c := findCondition(status.Conditions, t)
		if c == nil {
			status.Conditions = append(status.Conditions, corev1.PodCondition{Type: t})
			c = &status.Conditions[len(status.Conditions)-1]
		}
		if c.Status != corev1.ConditionFalse {
			c.Status, c.LastTransitionTime = corev1.ConditionFalse, now
		}
		c.Reason, c.Message = reason, message
	}
}

// findCondition returns a pointer to the element of conditions that has this type, or
// nil.
func findCondition(conditions []corev1.PodCondition, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range conditions {
		if conditions[i].Type == t {
			return &conditions[i]
		}
	}
	return nil
}
