package pod

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reasons"
)

// unknownExitCode is the exit code that a kubelet reports for a container that it can no longer find.
const unknownExitCode int32 = 137

// settled reports whether the status of a terminating pod is final. The kubelet has stopped
// the pod or given it up, and only finalizers keep the object.
func settled(pod *corev1.Pod) bool {
	grace := pod.DeletionGracePeriodSeconds
	return offloadingv1beta1.Ended(pod.Status.Phase) || grace == nil || *grace == 0
}

// endedItself reports whether pod ended by itself, and not by its deletion. A kubelet also
// gives a terminal phase to a pod that it stops, so the phase alone decides nothing once
// the pod is being deleted.
func endedItself(pod *corev1.Pod) bool {
	switch {
	case !offloadingv1beta1.Ended(pod.Status.Phase) || offloadingv1beta1.Collected(pod):
		return false
	case pod.DeletionTimestamp == nil:
		return true
	case pod.Status.ObservedGeneration > 0 && pod.Status.ObservedGeneration < pod.Generation:
		return true // a deletion raises the generation: the kubelet wrote this status before it saw the deletion
	case !finishedBeforeDeletion(pod):
		return false
	case pod.Status.Reason != "" && pod.Status.Reason != reasons.NodeLost:
		return true // evicted, deadline exceeded, rejected by the kubelet …
	}
	return finishedByPolicy(pod)
}

// finishedByPolicy reports whether all main containers have terminated in a way that their
// restart policies do not restart.
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

// finishedBeforeDeletion reports whether every main container terminated before the
// deletion was requested. Times are whole seconds; a container that terminated in the same
// second counts as stopped by the deletion. The opposite mistake is worse: stopped work
// would count as finished.
func finishedBeforeDeletion(pod *corev1.Pod) bool {
	grace := pod.DeletionGracePeriodSeconds
	if grace == nil || *grace == 0 {
		// The last step of a deletion (grace period 0) overwrites the deletion timestamp,
		// so the time of the request is lost. A kubelet that reports observedGeneration has
		// seen the deletion if this line is reached. The phase of an older kubelet is
		// trusted.
		return pod.Status.ObservedGeneration == 0
	}
	asked := pod.DeletionTimestamp.Add(-time.Duration(*grace) * time.Second)
	return !slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.State.Terminated == nil || !c.State.Terminated.FinishedAt.Time.Before(asked)
	})
}

// lostStatus returns the final status of a lost pod that may not run again.
func lostStatus(pod *corev1.Pod, now time.Time) *corev1.PodStatus {
	s := pod.Status.DeepCopy()
	s.Phase = corev1.PodFailed
	s.Reason = offloadingv1beta1.ReasonRemotePodLost
	s.Message = fmt.Sprintf("the remote pod was deleted while it ran, and restart policy %s does not let it run again", offloadingv1beta1.RestartPolicy(&pod.Spec))
	for _, c := range []corev1.PodCondition{
		{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionFalse}, {Type: corev1.ContainersReady, Status: corev1.ConditionFalse},
	} {
		c.LastTransitionTime, c.Reason, c.Message = metav1.NewTime(now), s.Reason, s.Message
		store.SetPodCondition(s, c)
	}
	terminate(s.ContainerStatuses)
	terminate(s.InitContainerStatuses)
	return s
}

// terminate marks the containers without a final state as terminated, as a kubelet does for
// containers that it can no longer find.
func terminate(statuses []corev1.ContainerStatus) {
	for i := range statuses {
		c := &statuses[i]
		c.Ready, c.Started = false, new(false)
		if c.State.Terminated != nil {
			continue
		}
		end := &corev1.ContainerStateTerminated{
			Reason: reasons.ContainerStatusUnknown, ExitCode: unknownExitCode, ContainerID: c.ContainerID,
			Message: "the state of the container was unknown when its pod was lost",
		}
		if c.State.Running != nil {
			end.StartedAt = c.State.Running.StartedAt
		}
		c.State = corev1.ContainerState{Terminated: end}
	}
}

// addRestarts returns the restart counts that the next pod of a ShadowPod starts from:
// earlier, plus those of the lost pod, plus one per container for the loss.
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

// uncounted reports whether the pod replaces one whose loss is not recorded: the cache had
// dropped the lost pod before the event of its deletion was handled.
func uncounted(f facts) bool {
	return f.lost != nil && owns(f.shadow, f.lost) && f.lost.UID != f.pod.UID && f.lost.UID != f.shadow.Status.Replaced && offloadingv1beta1.MayRunAgain(f.lost)
}

// decideLost handles a pod that was deleted while it ran. pod is its last state; liqod's
// finalizer may still keep it.
func decideLost(f facts, pod *corev1.Pod) action {
	switch {
	case !offloadingv1beta1.MayRunAgain(pod):
		return action{verb: recordEnd, end: lostStatus(pod, f.now), lost: pod}
	case f.shadow.Status.Replaced != pod.UID:
		return action{verb: recordLoss, lost: pod}
	case f.pod != nil && hasFinalizer(f.pod):
		return action{verb: releasePod}
	default:
		return action{verb: nothing}
	}
}

// decideLeaving handles a pod without a ShadowPod. The pod keeps its finalizer until the
// kubelet has reported its final status, because clients that wait for the pod read the
// exit codes from it.
func decideLeaving(f facts) action {
	switch {
	case f.pod == nil || !ofAnyShadow(f.pod):
		return action{verb: nothing}
	case f.pod.DeletionTimestamp != nil && hasFinalizer(f.pod) && settled(f.pod):
		return action{verb: releasePod, confirm: !f.live}
	case f.pod.DeletionTimestamp != nil:
		return action{verb: nothing}
	case f.leavingSince.IsZero():
		return action{verb: startLeaving, after: leaveDelay}
	case f.now.Before(f.leavingSince.Add(leaveDelay)):
		return action{verb: wait, after: f.leavingSince.Add(leaveDelay).Sub(f.now)}
	default:
		return action{verb: deletePod, confirm: !f.live}
	}
}

// decideOccupied handles a ShadowPod whose name another pod has. A pod of an earlier
// ShadowPod of that name is deleted. Any other pod is not touched.
func decideOccupied(f facts) action {
	if ofAnyShadow(f.pod) {
		return decideLeaving(f)
	}
	if f.shadow.Status.Phase != "" {
		return action{verb: nothing}
	}
	if f.now.Before(f.notBefore) {
		return action{verb: wait, after: f.notBefore.Sub(f.now)}
	}
	return denyForNow(f, offloadingv1beta1.ReasonPodCollision, fmt.Sprintf(
		"a pod %s/%s exists that was not made for this ShadowPod; it is not changed, and the pod is created when it is gone",
		f.pod.Namespace, f.pod.Name))
}

// decideEnded handles a ShadowPod whose end is recorded. The pod is only released.
func decideEnded(f facts) action {
	if f.pod != nil && hasFinalizer(f.pod) {
		return action{verb: releasePod}
	}
	return action{verb: nothing}
}

// afterCollision handles a creation that failed because the name is taken. The pod may
// belong to this ShadowPod (its answer or its event was lost), to an earlier ShadowPod, or
// to another author.
func (e *Enforcer) afterCollision(ctx context.Context, key loop.Key) error {
	f, err := e.live(ctx, key)
	if err != nil {
		return err
	}
	switch {
	case f.pod == nil:
	case f.shadow != nil && owns(f.shadow, f.pod):
		e.quota.Seen(f.pod)
	default:
		e.quota.Absent(key)
	}
	a := decide(f)
	if a.verb == createPod {
		return loop.After(takenRetry) // the other pod was deleted in between
	}
	return e.do(ctx, key, f, a)
}

func (e *Enforcer) deletePod(ctx context.Context, pod *corev1.Pod) error {
	if err := e.pods.Delete(ctx, pod); err != nil {
		return err
	}
	e.cfg.Log.Info("remote pod without ShadowPod deleted", zap.String("key", pod.Namespace+"/"+pod.Name))
	return nil
}

// release removes liqod's finalizer. The patch fails with a conflict if the pod has changed
// since it was read.
func (e *Enforcer) release(ctx context.Context, pod *corev1.Pod) error {
	_, err := store.SetFinalizer(ctx, e.cfg.Kube.CoreV1().Pods(pod.Namespace), pod, offloadingv1beta1.RemotePodFinalizer, false, FieldManager)
	return store.IgnoreNotFound(err)
}
