package informer

import (
	"maps"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// ttl bounds how long a memory outweighs a cache: a watch is rarely this late, and
// nothing depends on the memory but the number of writes.
const ttl = 10 * time.Second

// Writes remembers the results of a process's own writes of one kind until its caches show
// them, so that nothing is written twice because a watch is a moment behind. It is safe for
// concurrent use.
type Writes[T metav1.Object] struct {
	clock   clock.PassiveClock
	mu      sync.Mutex
	written map[cache.ObjectName]memory[T]
	deleted map[types.UID]time.Time
	gone    map[types.UID]end
}

// end is that of an object, as the watch has shown it.
type end struct {
	version string
	at      time.Time
}

type memory[T metav1.Object] struct {
	obj T
	at  time.Time
}

// NewWrites returns an empty Writes.
func NewWrites[T metav1.Object](c clock.PassiveClock) *Writes[T] {
	return &Writes[T]{clock: c, written: map[cache.ObjectName]memory[T]{}, deleted: map[types.UID]time.Time{}, gone: map[types.UID]end{}}
}

// Wrote remembers what the API server answered to a create, update or patch, unless the
// watch is ahead of the answer and has shown that the object is no more.
func (w *Writes[T]) Wrote(obj T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if last, ok := w.gone[obj.GetUID()]; ok && !w.old(last.at) && OlderVersion(obj.GetResourceVersion(), last.version) {
		return
	}
	w.written[cache.MetaObjectToName(obj)] = memory[T]{obj, w.clock.Now()}
}

// Deleted remembers that the deletion of an object was asked for.
func (w *Writes[T]) Deleted(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deleted[uid] = w.clock.Now()
	if len(w.deleted) > 1000 {
		for u, at := range w.deleted {
			if w.old(at) {
				delete(w.deleted, u)
			}
		}
	}
}

// WasDeleted reports whether Deleted was called for uid a moment ago.
func (w *Writes[T]) WasDeleted(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, ok := w.deleted[uid]
	return ok && !w.old(at)
}

// Gone forgets what was written of an object: the watch has shown that it is no more. Its
// deletion stays known: a worker may still hold an older copy of it.
func (w *Writes[T]) Gone(obj T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone[obj.GetUID()] = end{obj.GetResourceVersion(), w.clock.Now()}
	if len(w.gone) > 1000 {
		maps.DeleteFunc(w.gone, func(_ types.UID, e end) bool { return w.old(e.at) })
	}
	if m, ok := w.written[cache.MetaObjectToName(obj)]; ok && m.obj.GetUID() == obj.GetUID() {
		delete(w.written, cache.MetaObjectToName(obj))
	}
}

// ForgetNamespace forgets what was written in a namespace that is no longer watched.
func (w *Writes[T]) ForgetNamespace(namespace string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key := range w.written {
		if key.Namespace == namespace {
			delete(w.written, key)
		}
	}
}

// Latest returns the newer of what a cache has under key (found tells whether it has
// anything) and what was written last.
func (w *Writes[T]) Latest(key cache.ObjectName, cached T, found bool) (T, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m, ok := w.written[key]
	if !ok {
		return cached, found
	}
	if w.old(m.at) || (found && caughtUp(cached, m.obj)) {
		delete(w.written, key)
		return cached, found
	}
	return m.obj, true
}

func (w *Writes[T]) old(at time.Time) bool { return w.clock.Since(at) > ttl }

// caughtUp compares resource versions, which grow within one resource of one cluster
// (Kubernetes 1.35, KEP-5504). Where they cannot be compared the cache is right.
func caughtUp(cached, written metav1.Object) bool {
	if cached.GetUID() != written.GetUID() {
		return true // another object has taken the name
	}
	return !OlderVersion(cached.GetResourceVersion(), written.GetResourceVersion())
}
