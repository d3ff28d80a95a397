package pod

import (
	"context"
	"fmt"
	"slices"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
)

// CountPods is the name of the number of all pods in Config.Limits.
const CountPods corev1.ResourceName = "count/pods"

// full returns why a twin has no room for a further pod; "": it has. No ResourceQuota counts the
// pods: the Enforcer alone creates them, and the API server writes the usage of a ResourceQuota anew
// for each pod. What a worker creates at the same time is not counted yet.
func (e *Enforcer) full(namespace string) string {
	pods := e.pods.ByIndex(cache.NamespaceIndex, namespace)
	running := slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return offloadingv1beta1.Ended(p.Status.Phase) })
	for i, have := range []int{len(running), len(pods)} {
		name := []corev1.ResourceName{corev1.ResourcePods, CountPods}[i]
		if most, bound := e.cfg.Limits[name]; bound && int64(have) >= most.Value() {
			return fmt.Sprintf("namespace %s is full: this provider accepts %s=%s there (sharing.twinLimits)", namespace, name, most.String())
		}
	}
	return ""
}

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
