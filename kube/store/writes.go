package store

import (
	"maps"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// ttl is how long a record takes precedence over a cache. A watch is rarely this late. An
// expired record costs an additional write and nothing else.
const ttl = 10 * time.Second

// Writes records the results of the process's own writes of one kind until the caches have
// them. Without it, a worker would repeat a write whose event has not arrived yet. It is
// safe for concurrent use.
type Writes[T Object] struct {
	clock   clock.PassiveClock
	mu      sync.Mutex
	written map[cache.ObjectName]memory[T]
	deleted map[types.UID]time.Time
	gone    map[types.UID]end
	// sweepDeleted and sweepGone are the sizes at which deleted and gone are swept.
	sweepDeleted, sweepGone int
}

// sweepFrom is the size of a map whose expired records are not removed yet.
const sweepFrom = 1000

// sweep removes the expired records of a map that has grown beyond limit. The next sweep
// follows when the map has twice the size of what is left, so that a record costs the same
// however many there are.
func sweep[V any](m map[types.UID]V, limit *int, old func(V) bool) {
	if len(m) <= *limit {
		return
	}
	maps.DeleteFunc(m, func(_ types.UID, v V) bool { return old(v) })
	*limit = max(sweepFrom, 2*len(m))
}

// end is the deletion of an object that the watch has reported.
type end struct {
	version string
	at      time.Time
}

type memory[T Object] struct {
	obj T
	at  time.Time
}

// NewWrites returns an empty Writes.
func NewWrites[T Object](c clock.PassiveClock) *Writes[T] {
	return &Writes[T]{
		clock: c, written: map[cache.ObjectName]memory[T]{}, deleted: map[types.UID]time.Time{}, gone: map[types.UID]end{},
		sweepDeleted: sweepFrom, sweepGone: sweepFrom,
	}
}

// Wrote records the API server's answer to a create, update or patch. It records nothing if
// the watch has already reported the deletion of the object, unless the answer is known to be
// newer: a watch with a selector also reports the deletion of objects that it no longer selects.
func (w *Writes[T]) Wrote(obj T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if last, ok := w.gone[obj.GetUID()]; ok && !w.old(last.at) && !OlderVersion(last.version, obj.GetResourceVersion()) {
		return
	}
	w.written[cache.MetaObjectToName(obj)] = memory[T]{obj, w.clock.Now()}
}

// Note is Wrote, unless err says that there was no write. It returns both.
func (w *Writes[T]) Note(written T, err error) (T, error) {
	if err == nil {
		w.Wrote(written)
	}
	return written, err
}

// Deleted records that the API server has accepted the deletion of an object.
func (w *Writes[T]) Deleted(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deleted[uid] = w.clock.Now()
	sweep(w.deleted, &w.sweepDeleted, w.old)
}

// WasDeleted reports whether Deleted was called for uid in the last 10 seconds.
func (w *Writes[T]) WasDeleted(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, ok := w.deleted[uid]
	return ok && !w.old(at)
}

// Gone drops the record of an object whose deletion the watch has reported. It keeps the
// record of the deletion, because a worker may still use an older copy of the object.
func (w *Writes[T]) Gone(obj T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone[obj.GetUID()] = end{obj.GetResourceVersion(), w.clock.Now()}
	sweep(w.gone, &w.sweepGone, func(e end) bool { return w.old(e.at) })
	if m, ok := w.written[cache.MetaObjectToName(obj)]; ok && m.obj.GetUID() == obj.GetUID() {
		delete(w.written, cache.MetaObjectToName(obj))
	}
}

// Latest returns the newer of the object that the cache has under key and the last one written. Each
// may be nil.
func (w *Writes[T]) Latest(key cache.ObjectName, cached T) T {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.latest(key, cached)
}

// newest replaces each cached object by the last one written, if that is newer.
func (w *Writes[T]) newest(cached []T) []T {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, obj := range cached {
		if len(w.written) > 0 {
			cached[i] = w.latest(cache.MetaObjectToName(obj), obj)
		}
	}
	return cached
}

func (w *Writes[T]) latest(key cache.ObjectName, cached T) T {
	var none T
	m, ok := w.written[key]
	if !ok {
		return cached
	}
	if w.old(m.at) || cached != none && caughtUp(cached, m.obj) {
		delete(w.written, key)
		return cached
	}
	return m.obj
}

func (w *Writes[T]) old(at time.Time) bool { return w.clock.Since(at) > ttl }

// caughtUp reports whether a cached object is at least as new as a written one. Resource
// versions grow within one resource of one cluster (Kubernetes 1.35, KEP-5504). If they
// cannot be compared, the cached object counts as the newer one.
func caughtUp(cached, written metav1.Object) bool {
	if cached.GetUID() != written.GetUID() {
		return true // another object has the name now
	}
	return !OlderVersion(cached.GetResourceVersion(), written.GetResourceVersion())
}

// OlderVersion reports whether resource version a is older than b. Both must be of the same
// API server. The result is false if one of them is not a number.
func OlderVersion(a, b string) bool {
	x, err1 := strconv.ParseUint(a, 10, 64)
	y, err2 := strconv.ParseUint(b, 10, 64)
	return err1 == nil && err2 == nil && x < y
}

// clockSkew is the tolerated difference by which the clock of another API server is ahead.
const clockSkew = 5 * time.Minute

// MadeBefore reports whether an object of another API server may have been made before the state of this one
// went back: this one may lack the object that it was made for. lost returns that time, zero for never.
func MadeBefore(obj metav1.Object, lost func() time.Time) bool {
	at := lost()
	return !at.IsZero() && obj.GetCreationTimestamp().Time.Before(at.Add(clockSkew))
}

// Head detects that the state of an API server went back, as after the restore of an etcd
// backup. It compares the resource versions of one object that is written regularly, such
// as a Lease: they grow with every write. A Head does not detect a restore that raises the
// resource versions. Its methods are safe for concurrent use.
type Head struct {
	clock clock.PassiveClock

	mu   sync.Mutex
	last string
	lost time.Time
}

// NewHead returns a Head without a resource version.
func NewHead(c clock.PassiveClock) *Head { return &Head{clock: c} }

// Saw records the resource version of the object. Callers pass the version of each answer,
// in the order of the answers.
func (h *Head) Saw(version string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if OlderVersion(version, h.last) {
		h.lost = h.clock.Now()
	}
	h.last = version
}

// WentBack records that something else has shown that the state went back.
func (h *Head) WentBack() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost = h.clock.Now()
}

// Lost returns the time of the last Saw with a lower version than before, or of the last
// WentBack. The zero time means that there was none.
func (h *Head) Lost() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lost
}
