package pod

import (
	"context"
	"fmt"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
)

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
