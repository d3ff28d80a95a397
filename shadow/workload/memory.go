package workload

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/liqod/liqod/kube/loop"
)

// takenRetry is when a name that was taken, and then was not, is tried again.
const takenRetry = time.Second

// memory holds what no cache has. All of it may be forgotten: a restart costs a restart
// count that is not added, a delay that begins anew, and nothing else.
type memory struct {
	refusals loop.Refusals // by shadow

	mu      sync.Mutex
	lost    map[loop.Key]*corev1.Pod
	made    map[loop.Key]types.UID // ShadowPods for which a pod was asked for
	leaving map[types.UID]time.Time
	undone  map[types.UID]bool // pods that were taken back before they ran
}

func newMemory() *memory {
	return &memory{lost: map[loop.Key]*corev1.Pod{}, made: map[loop.Key]types.UID{}, leaving: map[types.UID]time.Time{}, undone: map[types.UID]bool{}}
}

// lose keeps the last state of a pod that went away.
func (m *memory) lose(key loop.Key, pod *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lost[key] = pod
}

// remembered is what memory has under one key.
type remembered struct {
	lost *corev1.Pod // last state of the pod that went away; nil: none
	made types.UID   // the ShadowPod for which a pod was asked for
}

// of returns what is remembered under key. It is read before the cache of ShadowPods: what
// is forgotten already belongs to one that is not in there any more.
func (m *memory) of(key loop.Key) remembered {
	m.mu.Lock()
	defer m.mu.Unlock()
	return remembered{lost: m.lost[key], made: m.made[key]}
}

// asking notes that a pod is about to be asked for.
func (m *memory) asking(key loop.Key, shadow types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.made[key] = shadow
}

// forget forgets the pod that was lost under key, if it is still that one.
func (m *memory) forget(key loop.Key, pod *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if have := m.lost[key]; have != nil && pod != nil && have.UID == pod.UID {
		delete(m.lost, key)
	}
}

// forgetAll forgets all about a ShadowPod that is gone.
func (m *memory) forgetAll(key loop.Key, shadow types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.lost, key)
	if m.made[key] == shadow {
		delete(m.made, key)
	}
	m.refusals.Forget(shadow)
}

// leave notes since when a pod is seen without a ShadowPod; the first call counts.
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

// undo notes that a pod is about to be taken back: its end is no loss.
func (m *memory) undo(pod types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.undone[pod] = true
}

// arrived forgets a pod that is gone, or wanted after all. It reports whether it was taken
// back.
func (m *memory) arrived(pod types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	undone := m.undone[pod]
	delete(m.leaving, pod)
	delete(m.undone, pod)
	return undone
}
