package loop

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	firstRefusal = time.Second
	lastRefusal  = time.Minute
)

// Refusals spaces the requests that an API server refuses, for each object apart: a
// second after the first refusal, twice as long after each that follows, a minute at most.
// A new generation of the object is due at once. The zero value is ready to use; it is
// safe for concurrent use, and all of it may be forgotten.
type Refusals struct {
	mu    sync.Mutex
	tries map[types.UID]refusal
}

// refusal is the last one of an object.
type refusal struct {
	generation int64
	delay      time.Duration
	next       time.Time
}

// Refused notes that a request for a generation of an object was refused, and returns how
// long to wait before the next.
func (r *Refusals) Refused(object types.UID, generation int64, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tries[object]
	if t.generation != generation || t.delay == 0 {
		t = refusal{generation: generation, delay: firstRefusal}
	} else {
		t.delay = min(2*t.delay, lastRefusal)
	}
	t.next = now.Add(t.delay)
	if r.tries == nil {
		r.tries = map[types.UID]refusal{}
	}
	r.tries[object] = t
	return t.delay
}

// Forget forgets an object: a request was accepted, or it is gone.
func (r *Refusals) Forget(object types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.tries, object)
}

// NotBefore returns when the next request for a generation of an object is due; the zero
// time means at once.
func (r *Refusals) NotBefore(object types.UID, generation int64) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.tries[object]; t.generation == generation {
		return t.next
	}
	return time.Time{}
}

// Len is the number of objects that are remembered.
func (r *Refusals) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.tries)
}
