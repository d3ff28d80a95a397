package pod

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/liqod/liqod/kube/loop"
)

// takenRetry is the delay before a creation is tried again after a collision with a pod
// that was deleted in between.
const takenRetry = time.Second

// memory holds state that no cache has. All of it may be lost: after a restart, the restart
// counts of a lost pod may be missing from those of its replacement, and delays start anew.
type memory struct {
	refusals loop.Refusals // by UID of the pod, or of the ShadowPod that has none

	mu      sync.Mutex
	lost    map[loop.Key]*corev1.Pod
	made    map[loop.Key]types.UID // ShadowPods for which a creation was sent
	leaving map[types.UID]time.Time
	undone  map[types.UID]bool // pods that surprise deleted before they ran
}

func newMemory() *memory {
	return &memory{lost: map[loop.Key]*corev1.Pod{}, made: map[loop.Key]types.UID{}, leaving: map[types.UID]time.Time{}, undone: map[types.UID]bool{}}
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

// leave records when a pod was first seen without a ShadowPod. Only the first call counts.
func (m *memory) leave(pod types.UID, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.leaving[pod]; !known {
		m.leaving[pod] = now
	}
}

func (m *memory) leavingSince(pod types.UID) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.leaving[pod]
}

// undo records that a pod is about to be deleted before it ran. Its deletion is not a loss.
func (m *memory) undo(pod types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.undone[pod] = true
}

// arrived drops the state of a pod that is gone, or wanted again. It reports whether undo
// was called for the pod.
func (m *memory) arrived(pod types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	undone := m.undone[pod]
	delete(m.leaving, pod)
	delete(m.undone, pod)
	return undone
}
