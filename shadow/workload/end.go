package workload

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

const (
	// collectedReason is what the pod garbage collector writes into DisruptionTarget of a pod
	// that it marks Failed before it deletes it: its node is gone.
	collectedReason = "DeletionByPodGC"
	// nodeLostReason is what the node controller writes into a pod that is being deleted on a
	// node that does not answer.
	nodeLostReason = "NodeLost"
	// unknownReason and unknownExitCode are what kubelets write for a container of which
	// nothing is left.
	unknownReason         = "ContainerStatusUnknown"
	unknownExitCode int32 = 137
)

func terminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// collected reports whether pod was marked Failed only because its node is gone. That is
// no end of its own; its deletion follows.
func collected(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == collectedReason
	})
}

// settled reports whether a pod that is being deleted would be gone but for our finalizer,
// or has been given up by its kubelet: its status is the last.
func settled(pod *corev1.Pod) bool {
	grace := pod.DeletionGracePeriodSeconds
	return terminal(pod) || grace == nil || *grace == 0
}

// endedItself reports whether pod ended without, or before, its deletion. Kubelets give a
// terminal phase to pods that they stop, too: that alone says nothing once a deletion has
// been asked for.
func endedItself(pod *corev1.Pod) bool {
	switch {
	case !terminal(pod) || collected(pod):
		return false
	case pod.DeletionTimestamp == nil:
		return true
	case pod.Status.ObservedGeneration > 0 && pod.Status.ObservedGeneration < pod.Generation:
		return true // a deletion moves the generation: the kubelet wrote this before it saw one
	case !finishedBeforeDeletion(pod):
		return false
	case pod.Status.Reason != "" && pod.Status.Reason != nodeLostReason:
		return true // evicted, deadline exceeded, refused by the kubelet …
	}
	return finishedByPolicy(pod)
}

// finishedByPolicy reports whether the main containers ended such that their restart
// policies leave nothing to run.
func finishedByPolicy(pod *corev1.Pod) bool {
	return !slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		i := slices.IndexFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == c.Name })
		if i < 0 {
			return true
		}
		end := pod.Status.ContainerStatuses[i].State.Terminated
		return end == nil || end.FinishedAt.IsZero() || offloadingv1beta1.RestartsContainer(&pod.Spec, &c, end.ExitCode)
	})
}

// finishedBeforeDeletion reports whether no main container was ended by the deletion. The
// times are whole seconds; what falls into the same one counts as ended by the deletion:
// to take killed work for finished work is the worse mistake.
func finishedBeforeDeletion(pod *corev1.Pod) bool {
	grace := pod.DeletionGracePeriodSeconds
	if grace == nil || *grace == 0 {
		// The last step of a deletion overwrites when it was asked for. A kubelet that reports
		// generations has seen the deletion if endedItself comes here; of one that does not,
		// the word is taken.
		return pod.Status.ObservedGeneration == 0
	}
	asked := pod.DeletionTimestamp.Add(-time.Duration(*grace) * time.Second)
	return !slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.State.Terminated == nil || !c.State.Terminated.FinishedAt.Time.Before(asked)
	})
}

// mayRunAgain reports whether a lost pod may be created again under its restart policy.
func mayRunAgain(pod *corev1.Pod) bool {
	switch offloadingv1beta1.RestartPolicy(&pod.Spec) {
	case corev1.RestartPolicyNever:
		return neverStarted(pod)
	case corev1.RestartPolicyOnFailure:
		return !slices.ContainsFunc(pod.Status.ContainerStatuses, succeeded)
	default:
		return true
	}
}

func succeeded(c corev1.ContainerStatus) bool {
	now, last := c.State.Terminated, c.LastTerminationState.Terminated
	return now != nil && now.ExitCode == 0 || last != nil && last.ExitCode == 0
}

// neverStarted reports whether it is certain that no container of pod ever ran. Without
// the kubelet's last word only a pod that no kubelet had is certain.
func neverStarted(pod *corev1.Pod) bool {
	if pod.Spec.NodeName == "" {
		return true
	}
	if !terminal(pod) || collected(pod) {
		return false
	}
	return !slices.ContainsFunc(pod.Status.ContainerStatuses, ran) && !slices.ContainsFunc(pod.Status.InitContainerStatuses, ran)
}

func ran(c corev1.ContainerStatus) bool {
	end := c.State.Terminated
	return c.ContainerID != "" || c.RestartCount > 0 || c.State.Running != nil || c.LastTerminationState.Terminated != nil ||
		end != nil && (end.ContainerID != "" || !end.StartedAt.IsZero())
}

// lostStatus is the status at the end of a pod that was lost and may not run again.
func lostStatus(pod *corev1.Pod, now time.Time) *corev1.PodStatus {
	s := pod.Status.DeepCopy()
	s.Phase = corev1.PodFailed
	s.Reason = offloadingv1beta1.ReasonRemotePodLost
	s.Message = fmt.Sprintf("the remote pod was deleted while it ran, and restart policy %s does not let it run again", offloadingv1beta1.RestartPolicy(&pod.Spec))
	at := metav1.NewTime(now)
	setPodCondition(s, corev1.DisruptionTarget, corev1.ConditionTrue, at, s.Reason, s.Message)
	setPodCondition(s, corev1.PodReady, corev1.ConditionFalse, at, s.Reason, s.Message)
	setPodCondition(s, corev1.ContainersReady, corev1.ConditionFalse, at, s.Reason, s.Message)
	terminate(s.ContainerStatuses)
	terminate(s.InitContainerStatuses)
	return s
}

// terminate gives up the containers that nothing more will be heard of, as a kubelet does.
func terminate(statuses []corev1.ContainerStatus) {
	for i := range statuses {
		c := &statuses[i]
		c.Ready, c.Started = false, new(false)
		if c.State.Terminated != nil {
			continue
		}
		end := &corev1.ContainerStateTerminated{
			Reason: unknownReason, ExitCode: unknownExitCode, ContainerID: c.ContainerID,
			Message: "the container was not heard of again before its pod was lost",
		}
		if c.State.Running != nil {
			end.StartedAt = c.State.Running.StartedAt
		}
		c.State = corev1.ContainerState{Terminated: end}
	}
}

func setPodCondition(s *corev1.PodStatus, kind corev1.PodConditionType, status corev1.ConditionStatus, at metav1.Time, reason, message string) {
	c := corev1.PodCondition{Type: kind, Status: status, LastTransitionTime: at, Reason: reason, Message: message}
	i := slices.IndexFunc(s.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		s.Conditions = append(s.Conditions, c)
		return
	}
	if s.Conditions[i].Status == status {
		c.LastTransitionTime = s.Conditions[i].LastTransitionTime
	}
	s.Conditions[i] = c
}

// addRestarts returns what the pods of a ShadowPod up to pod, which was lost, add to the
// restart counts of the next: each container's count, and one for its loss.
func addRestarts(earlier []offloadingv1beta1.ContainerRestarts, pod *corev1.Pod) []offloadingv1beta1.ContainerRestarts {
	counts := map[string]int32{}
	for _, r := range earlier {
		counts[r.Name] = r.Count
	}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		counts[s.Name] += s.RestartCount
	}
	var total []offloadingv1beta1.ContainerRestarts
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		total = append(total, offloadingv1beta1.ContainerRestarts{Name: c.Name, Count: counts[c.Name] + 1})
	}
	return total
}
