package forge

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/reasons"
)

// unknownExitCode is the exit code that kubelets report for a container whose end they did not observe.
const unknownExitCode = 137

// PendingStatus returns the status of a local pod that cannot run in the provider:
// Pending, with the reason and message, which Ready and ContainersReady also show. The
// status of a pod that has ended is returned unchanged.
func PendingStatus(local *corev1.Pod, reason, message string, now metav1.Time) corev1.PodStatus {
	out := *local.Status.DeepCopy()
	if offloadingv1beta1.Ended(out.Phase) {
		return out
	}
	out.Phase, out.Reason, out.Message = corev1.PodPending, reason, message
	notReady(&out, reason, message, now.Rfc3339Copy())
	return out
}

// FinalStatus returns the last status of a local pod that is being deleted, once its
// ShadowPod and remote pod are gone. If Status returns an ended phase, that is the
// result. Otherwise the last known containers are reported as terminated: those whose end
// was not observed get exit code 137 and reason ContainerStatusUnknown.
func FinalStatus(in StatusInput) corev1.PodStatus {
	out := Status(in)
	if offloadingv1beta1.Ended(out.Phase) {
		return out
	}
	now := in.Now.Rfc3339Copy()
	out.ContainerStatuses = endAll(out.ContainerStatuses, in.Local.Spec.Containers, now)
	out.Phase = corev1.PodSucceeded
	for i := range out.ContainerStatuses {
		if out.ContainerStatuses[i].State.Terminated.ExitCode != 0 {
			out.Phase = corev1.PodFailed
		}
	}
	out.InitContainerStatuses = endAll(out.InitContainerStatuses, nil, now)
	out.EphemeralContainerStatuses = endAll(out.EphemeralContainerStatuses, nil, now)
	out.Reason, out.Message = "", ""
	reason := reasons.PodFailed
	if out.Phase == corev1.PodSucceeded {
		reason = reasons.PodCompleted
	}
	notReady(&out, reason, "", now)
	return out
}

// endAll returns the statuses as terminated, with one for each of the containers.
func endAll(have []corev1.ContainerStatus, containers []corev1.Container, now metav1.Time) []corev1.ContainerStatus {
	for i := range containers {
		named := func(s corev1.ContainerStatus) bool { return s.Name == containers[i].Name }
		if !slices.ContainsFunc(have, named) {
			have = append(have, corev1.ContainerStatus{Name: containers[i].Name, Image: containers[i].Image})
		}
	}
	for i := range have {
		end(&have[i], now)
	}
	return have
}

func end(s *corev1.ContainerStatus, now metav1.Time) {
	if s.State.Terminated != nil {
		return
	}
	s.Ready = false
	s.Started = new(bool)
	terminated := &corev1.ContainerStateTerminated{
		ExitCode:    unknownExitCode,
		Reason:      reasons.ContainerStatusUnknown,
		Message:     "the end of the container was not observed before its pod was gone",
		FinishedAt:  now,
		ContainerID: s.ContainerID,
	}
	if s.State.Running != nil {
		terminated.StartedAt = s.State.Running.StartedAt
	}
	s.State = corev1.ContainerState{Terminated: terminated}
}

// missing returns the status of a pod that has no remote pod and has not ended.
func (in *StatusInput) missing() corev1.PodStatus {
	if reason, message, refused := in.refused(); refused {
		out := PendingStatus(in.Local, reason, message, in.Now)
		in.gone(&out)
		return out
	}
	if !readyKnown(in.Local) {
		return *in.Local.Status.DeepCopy()
	}
	out := *in.Local.Status.DeepCopy()
	if out.Reason != "" && out.Reason == findCondition(out.Conditions, corev1.PodReady).Reason {
		// PendingStatus has set both, and its reason no longer applies.
		out.Reason, out.Message = "", ""
	}
	notReady(&out, reasons.RemotePodMissing, "the pod is not in the provider", in.Now)
	in.gone(&out)
	return out
}

// await reports the containers as Waiting that the provider is going to start, whatever their
// exit code: the others may not leave their terminated state. kubectl shows
// the state of a container as that of the pod, so the end of a container in an earlier remote
// pod would read Completed. The earlier state becomes the last one: it is the only trace that
// the pod has run. there are the containers that the remote pod has.
func (in *StatusInput) await(out *corev1.PodStatus, there []corev1.ContainerStatus) {
	ready := findCondition(out.Conditions, corev1.PodReady)
	if in.Local.DeletionTimestamp != nil || ready == nil {
		return
	}
	spec, reason := &in.Local.Spec, ready.Reason
	if in.losing() {
		reason = reasons.RemotePodTerminating // that of Ready may be the kubelet's, such as PodCompleted
	}
	for i := range spec.Containers {
		s := findStatus(out.ContainerStatuses, spec.Containers[i].Name)
		if s == nil || findStatus(there, s.Name) != nil && !(in.losing() && s.State.Terminated != nil) ||
			!offloadingv1beta1.RestartsContainer(spec, &spec.Containers[i], 0) {
			continue
		}
		if s.State.Waiting == nil {
			last := *s.DeepCopy()
			end(&last, in.Now)
			s.LastTerminationState = last.State
		}
		s.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
		s.Ready, s.Started = false, new(bool)
	}
}

// gone clears the fields that cannot be true without a remote pod. Another pod may use
// its address by now.
func (in *StatusInput) gone(out *corev1.PodStatus) {
	out.PodIP, out.PodIPs = "", nil
	for i := range out.ContainerStatuses {
		out.ContainerStatuses[i].Ready = false
	}
	in.await(out, nil)
}

// refused returns the reason why the provider's controller cannot create the pod, or that it
// does not run. ok is false if there is none.
func (in *StatusInput) refused() (reason, message string, ok bool) {
	if in.Shadow == nil {
		return "", "", false
	}
	if in.Silent != "" {
		return offloadingv1beta1.ReasonControllerSilent, in.Silent, true
	}
	if c := meta.FindStatusCondition(in.Shadow.Status.Conditions, offloadingv1beta1.ShadowPodEnforced); c != nil && c.Status == metav1.ConditionFalse {
		return shortened(c.Reason, longestEventField), shortened(c.Message, longestText/2), true
	}
	return "", "", false
}
