package pod

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
)

// CountPods is the name of the number of all pods in Config.Limits.
const CountPods corev1.ResourceName = "count/pods"

// full returns the reason for which a twin has no room for a further pod, or "". No ResourceQuota
// counts the pods: the Enforcer alone creates them, and the API server would write the usage of a
// ResourceQuota again for each pod. full does not count a pod that another worker is creating.
func (e *Enforcer) full(namespace string) string {
	keys, _ := e.cfg.Pods.GetIndexer().IndexKeys(cache.NamespaceIndex, namespace) // it fails only for an index that does not exist
	for _, name := range []corev1.ResourceName{corev1.ResourcePods, CountPods} {
		most, bound := e.cfg.Limits[name]
		if !bound || int64(len(keys)) < most.Value() {
			continue // there is room for further pods even if none of these has ended
		}
		counted := e.pods.ByIndex(cache.NamespaceIndex, namespace)
		if name == corev1.ResourcePods {
			counted = slices.DeleteFunc(counted, func(p *corev1.Pod) bool { return offloadingv1beta1.Ended(p.Status.Phase) })
		}
		if int64(len(counted)) >= most.Value() {
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
	e.memory.undone.Begin(pod.UID, e.cfg.Clock.Now())
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

// takenRetry is the delay before a creation is tried again after a collision with a pod
// that was deleted in between.
const takenRetry = time.Second

// memory holds state that no cache has. All of it may be lost: after a restart, the restart
// counts of a lost pod may be missing from those of its replacement, and delays start anew.
type memory struct {
	refusals loop.Refusals         // by UID of the pod, or of the ShadowPod that has none
	leaving  loop.Since[types.UID] // pods without a ShadowPod
	undone   loop.Since[types.UID] // pods that surprise deletes before they run: their deletion is no loss

	mu   sync.Mutex
	lost map[loop.Key]*corev1.Pod
	made map[loop.Key]types.UID // ShadowPods for which a creation was sent
}

func newMemory() *memory {
	return &memory{lost: map[loop.Key]*corev1.Pod{}, made: map[loop.Key]types.UID{}}
}

// lose keeps the last state of a deleted pod.
func (m *memory) lose(key loop.Key, pod *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lost[key] = pod
}

// remembered is the state in memory of one key.
type remembered struct {
	lost *corev1.Pod // last state of the deleted pod; nil: none
	made types.UID   // UID of the ShadowPod for which a creation was sent
}

// of returns the state of key. Callers read it before the cache of ShadowPods. In this
// order, state that close has already dropped belongs to a ShadowPod that the cache no
// longer has.
func (m *memory) of(key loop.Key) remembered {
	m.mu.Lock()
	defer m.mu.Unlock()
	return remembered{lost: m.lost[key], made: m.made[key]}
}

// asking records that a creation is about to be sent.
func (m *memory) asking(key loop.Key, shadow types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.made[key] = shadow
}

// forget drops the last state of pod under key, if it is the one remembered.
func (m *memory) forget(key loop.Key, pod *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if have := m.lost[key]; have != nil && pod != nil && have.UID == pod.UID {
		delete(m.lost, key)
	}
}

// forgetAll drops all state of a deleted ShadowPod.
func (m *memory) forgetAll(key loop.Key, shadow types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.lost, key)
	if m.made[key] == shadow {
		delete(m.made, key)
	}
	m.refusals.Forget(shadow)
}

// arrived drops the state of a pod that is gone, or wanted again. It reports whether surprise has
// deleted the pod.
func (m *memory) arrived(pod types.UID) (undone bool) {
	m.leaving.End(pod)
	return m.undone.End(pod)
}
