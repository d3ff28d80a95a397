package pod

import (
	"context"
	"fmt"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqod/liqod/kube/loop"
)

// giveBack releases the room reserved for a key whose ShadowPod needs no new pod now.
func (e *Enforcer) giveBack(ctx context.Context, key loop.Key, f facts) error {
	sent := e.quota.Idle(key)
	if sent.IsZero() || f.pod != nil {
		return nil
	}
	// A creation was sent for a pod that is no longer wanted. It counts until the pod is
	// seen, or until a live read shows that it does not exist.
	if left := e.cfg.Settle - e.cfg.Clock.Since(sent); left > 0 {
		return loop.After(left)
	}
	pod, err := e.pods.Live(ctx, key)
	if err != nil {
		return err
	}
	if pod != nil {
		e.quota.Seen(pod)
	}
	e.quota.Absent(key)
	return nil
}

// surprise handles a new pod that is larger than predicted and exceeds the consumer's
// Quotas. If the pod still has the resource version of the creation, no scheduler has bound
// it, so it has not run. It is deleted then, and waits for room for its real size.
// Otherwise it stays, and counts.
func (e *Enforcer) surprise(ctx context.Context, key loop.Key, pod *corev1.Pod) error {
	e.memory.undo(pod.UID)
	err := e.cfg.Kube.CoreV1().Pods(key.Namespace).Delete(ctx, key.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion},
	})
	if apierrors.IsConflict(err) {
		e.memory.arrived(pod.UID)
		e.cfg.Log.Warn("the created pod is larger than expected and exceeds the quota", zap.Stringer("key", key))
		return nil
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting pod %s, which exceeds the quota: %w", key, err)
	}
	e.quota.TakenBack(pod)
	e.cfg.Log.Info("pod deleted before it ran: it is larger than expected and exceeds the quota", zap.Stringer("key", key))
	if !hasFinalizer(pod) {
		return nil
	}
	live, err := e.pods.Live(ctx, key)
	if err != nil || live == nil || live.UID != pod.UID {
		return err
	}
	return e.release(ctx, live)
}
