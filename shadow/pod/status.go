package pod

import (
	"context"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
)

// deny returns the action that sets the condition Enforced to false.
func deny(f facts, reason, message string) action {
	return action{verb: setCondition, condition: metav1.Condition{
		Type:               offloadingv1beta1.ShadowPodEnforced,
		Status:             metav1.ConditionFalse,
		Reason:             reason,
		Message:            message,
		ObservedGeneration: f.shadow.Generation,
		LastTransitionTime: metav1.NewTime(f.now),
	}}
}

// denyForNow is deny for a key that is tried again.
func denyForNow(f facts, reason, message string) action {
	a := deny(f, reason, message)
	a.retry = true
	return a
}

// recordEnd writes the final status of the pod to the ShadowPod. After that, no pod is
// created for it.
func (e *Enforcer) recordEnd(ctx context.Context, f facts, a action) error {
	shadow := f.shadow
	next := shadow.DeepCopy()
	next.Status.Phase = a.end.Phase
	next.Status.PodStatus = a.end
	meta.RemoveStatusCondition(&next.Status.Conditions, offloadingv1beta1.ShadowPodEnforced)
	written, err := e.writeStatus(ctx, next)
	if err != nil {
		return err
	}
	e.memory.forget(loop.Key{Namespace: shadow.Namespace, Name: shadow.Name}, f.lost)
	if written && a.lost != nil {
		e.cfg.Recorder.Event(shadow, corev1.EventTypeWarning, offloadingv1beta1.ReasonRemotePodLost, a.end.Message)
		e.cfg.Log.Info("remote pod lost for good", zap.String("key", shadow.Namespace+"/"+shadow.Name), zap.String("uid", string(a.lost.UID)))
	}
	return nil
}

// recordLoss writes the restart counts that the lost pod passes on to its replacement. It
// does so once per lost pod, before the pod is released or replaced.
func (e *Enforcer) recordLoss(ctx context.Context, shadow *offloadingv1beta1.ShadowPod, lost *corev1.Pod) error {
	next := shadow.DeepCopy()
	next.Status.Replaced = lost.UID
	next.Status.Restarts = addRestarts(shadow.Status.Restarts, lost)
	meta.RemoveStatusCondition(&next.Status.Conditions, offloadingv1beta1.ShadowPodEnforced)
	if written, err := e.writeStatus(ctx, next); err != nil || !written {
		return err
	}
	e.cfg.Recorder.Eventf(shadow, corev1.EventTypeWarning, offloadingv1beta1.ReasonPodReplaced,
		"the pod (UID %s) was deleted in this cluster; it is created again", lost.UID)
	e.cfg.Log.Info("remote pod lost; it will be replaced",
		zap.String("key", shadow.Namespace+"/"+shadow.Name), zap.String("uid", string(lost.UID)))
	return nil
}

// deny sets the condition Enforced to false, if that changes it. The vkubelet of the consumer
// records the event about it at the local pod. With a.retry, the key is requeued with back-off.
func (e *Enforcer) deny(ctx context.Context, f facts, a action) error {
	var again error
	if a.retry {
		again = loop.After(e.memory.refusals.Refused(f.written(), f.shadow.Generation, f.now))
	}
	next := f.shadow.DeepCopy()
	if !store.SetCondition(&next.Status.Conditions, a.condition) {
		return again
	}
	if written, err := e.writeStatus(ctx, next); err != nil || !written {
		return err
	}
	e.cfg.Log.Warn("ShadowPod not enforced", zap.String("key", f.shadow.Namespace+"/"+f.shadow.Name),
		zap.String("reason", a.condition.Reason), zap.String("message", a.condition.Message))
	return again
}

func (e *Enforcer) removeCondition(ctx context.Context, shadow *offloadingv1beta1.ShadowPod) error {
	next := shadow.DeepCopy()
	meta.RemoveStatusCondition(&next.Status.Conditions, offloadingv1beta1.ShadowPodEnforced)
	_, err := e.writeStatus(ctx, next)
	return err
}

// writeStatus fails with a conflict if the ShadowPod has changed since next was read. The
// next sync then decides anew. written is false if the ShadowPod is gone: then nothing that
// was decided for it happens, and no event may say that it does.
func (e *Enforcer) writeStatus(ctx context.Context, next *offloadingv1beta1.ShadowPod) (written bool, err error) {
	err = store.WriteStatus(ctx, "ShadowPod", e.cfg.Liqo.OffloadingV1beta1().ShadowPods(next.Namespace), FieldManager, nil, next)
	return err == nil, store.IgnoreNotFound(err)
}
