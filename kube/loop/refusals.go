package loop

import (
	"errors"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

const (
	firstRefusal = time.Second
	lastRefusal  = time.Minute
)

// Refusals is the back-off for requests that an API server rejects. Each object has its
// own back-off: one second after the first rejection, doubled with each further one, at
// most one minute. A new generation of the object is due at once. The zero value is ready
// to use. All methods are safe for concurrent use. Nothing is persisted: after a restart
// every object is due at once.
type Refusals struct {
	mu    sync.Mutex
	tries map[types.UID]refusal
}

// refusal records the last rejected request of an object.
type refusal struct {
	generation int64
	delay      time.Duration
	next       time.Time
}

// Refused records that the API server rejected a request for this generation of the
// object. It returns the delay until the next request is due.
func (r *Refusals) Refused(object types.UID, generation int64, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tries[object]
	if t.generation != generation {
		t = refusal{generation: generation}
	}
	t.delay = Backoff{firstRefusal, lastRefusal}.Next(t.delay)
	t.next = now.Add(t.delay)
	if r.tries == nil {
		r.tries = map[types.UID]refusal{}
	}
	r.tries[object] = t
	return t.delay
}

// Forget drops the record of an object. Callers use it when a request was accepted and
// when the object is gone.
func (r *Refusals) Forget(object types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.tries, object)
}

// NotBefore returns when the next request for this generation of the object is due. The
// zero time means at once.
func (r *Refusals) NotBefore(object types.UID, generation int64) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.tries[object]; t.generation == generation {
		return t.next
	}
	return time.Time{}
}

// Len returns the number of objects that have a record.
func (r *Refusals) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.tries)
}

// IsRefusal reports whether the API server rejected the content of the request. Such a
// request may succeed later, under another quota or policy.
func IsRefusal(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusUnauthorized, http.StatusNotFound, http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return false
	case http.StatusInternalServerError:
		return failedInside(err)
	default:
		return code >= http.StatusBadRequest && code < http.StatusInternalServerError
	}
}
