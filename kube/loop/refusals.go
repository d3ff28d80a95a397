package loop

import (
	"errors"
	"maps"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
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

// Backoff is a delay that doubles from First to Longest. The caller keeps the last delay.
type Backoff struct{ First, Longest time.Duration }

// Next returns the delay that follows last; zero: none yet.
func (b Backoff) Next(last time.Duration) time.Duration {
	return min(max(2*last, b.First), b.Longest)
}

// mostPaced is the number of clients with a limit of their own. Only an attack uses more at a time.
const mostPaced = 4096

// Pace limits how often something happens that a client causes, such as a peer that changes an object
// without end. Each client has a limit of its own. The zero value is ready, and nothing is persisted.
// It is safe for concurrent use.
type Pace struct {
	mu      sync.Mutex
	clients map[string]*rate.Limiter
}

// Take returns how long a client has to wait, and counts the event if it need not. A client has burst
// events at once, and one more after each interval; both are those of its first event.
func (p *Pace) Take(client string, burst int, interval time.Duration, now time.Time) time.Duration {
	wait, _ := p.Reserve(client, burst, interval, now)
	return wait
}

// Reserve is Take. If wait is zero, back takes the count back.
func (p *Pace) Reserve(client string, burst int, interval time.Duration, now time.Time) (wait time.Duration, back func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.clients == nil {
		p.clients = map[string]*rate.Limiter{}
	}
	if p.clients[client] == nil {
		p.makeRoom(now)
		p.clients[client] = rate.NewLimiter(rate.Every(interval), burst)
	}
	r := p.clients[client].ReserveN(now, 1)
	back = func() { r.CancelAt(now) }
	if wait = r.DelayFrom(now); wait > 0 {
		back()
	}
	return wait, back
}

// makeRoom drops clients that have been idle long enough to have all their events again, and others
// if that is not enough.
func (p *Pace) makeRoom(now time.Time) {
	if len(p.clients) < mostPaced {
		return
	}
	maps.DeleteFunc(p.clients, func(_ string, r *rate.Limiter) bool { return r.TokensAt(now) >= float64(r.Burst()) })
	maps.DeleteFunc(p.clients, func(string, *rate.Limiter) bool { return len(p.clients) >= mostPaced })
}

const (
	// FirstRepair is the delay before the third identical write. The second one is not
	// delayed.
	FirstRepair = time.Second
	// LastRepair is the longest delay between two identical writes.
	LastRepair = time.Minute
)

// RepairDelay is the back-off for a write that another client keeps reverting. It returns
// how long the next identical write must wait after the one just sent. last is the delay
// that the write just sent had to wait, and ago is the time between it and the identical
// write before. The delay starts at FirstRepair, doubles with each write up to
// LastRepair, and is zero again if ago is longer than twice LastRepair. RepairDelay is a
// pure function.
func RepairDelay(last, ago time.Duration) time.Duration {
	if ago > 2*LastRepair {
		return 0
	}
	return Backoff{FirstRepair, LastRepair}.Next(last)
}
