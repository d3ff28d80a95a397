package serve

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
)

const (
	// smallest is the number of bytes for which each review counts at least.
	smallest = 64 << 10
	// mostSources is the number of sources with limits of their own. Only an attack has more.
	mostSources = 1024
	// mostWaiting limits the reviews of one source that wait or are in work.
	mostWaiting = 1024
	// retryAfter is the time after which an API server sends a refused review again, as long
	// as the timeout of the webhook allows, in seconds.
	retryAfter = "1"
	// hurry is how long the body of a review may take while many bytes are in work. API servers
	// send it together with the headers.
	hurry = 500 * time.Millisecond
)

// GuardConfig is the input of Guard. All fields are required.
type GuardConfig struct {
	// PerSecond limits the reviews per second of one source, which is an address or an IPv6
	// /64. Four times as many may come at once.
	PerSecond int
	// Bytes limits the size of all reviews in work, SourceBytes those of one source. Both
	// are at least LargestReview. Half of Bytes is for reviews whose clients take their time: a
	// client that sends no body holds the other half for less than a second.
	Bytes, SourceBytes int64
	// Wait is how long a review waits for its turn.
	Wait time.Duration
	// Count is called for each review that is refused for a limit.
	Count func()
	Clock clock.PassiveClock
}

// Guard limits the reviews that next has in work. Reviews beyond the limits wait for their
// turn, and are then refused with a message that names the limit. An API server sends a
// refused review again, and applies the failure policy of the webhook when its time is over.
func Guard(cfg GuardConfig, next http.Handler) http.Handler {
	g := &guard{cfg: cfg, all: semaphore.NewWeighted(cfg.Bytes), calm: semaphore.NewWeighted(cfg.Bytes / 2), each: map[netip.Prefix]*source{}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		free, code, why := g.enter(w, r)
		if free == nil {
			cfg.Count()
			w.Header().Set("Retry-After", retryAfter)
			http.Error(w, "the webhook has too much to do: "+why, code)
			return
		}
		defer free()
		next.ServeHTTP(w, r)
	})
}

type guard struct {
	cfg       GuardConfig
	all, calm *semaphore.Weighted

	mu   sync.Mutex
	each map[netip.Prefix]*source
}

// source has the limits of one address.
type source struct {
	rate  *rate.Limiter
	bytes *semaphore.Weighted
	users int // requests that wait or are in work
}

// enter waits for the turn of a request, and returns the function that ends it. If the
// request has to be refused, free is nil, and enter returns an HTTP status and the limit.
func (g *guard) enter(w http.ResponseWriter, r *http.Request) (free func(), code int, why string) {
	one, leave := g.source(Neighbourhood(Address(r.RemoteAddr)))
	if one == nil {
		return nil, http.StatusTooManyRequests, fmt.Sprintf("more than %d clients or %d reviews of one client at a time", mostSources, mostWaiting)
	}
	if !one.rate.AllowN(g.cfg.Clock.Now(), 1) {
		leave()
		return nil, http.StatusTooManyRequests, fmt.Sprintf("more than %d reviews per second of one client", g.cfg.PerSecond)
	}
	size := r.ContentLength
	if size < 0 || size > LargestReview {
		size = LargestReview
	}
	size = max(size, smallest)
	ctx, cancel := context.WithTimeout(r.Context(), g.cfg.Wait)
	defer cancel()
	if one.bytes.Acquire(ctx, size) != nil {
		leave()
		return nil, http.StatusServiceUnavailable, fmt.Sprintf("reviews of one client with more than %d bytes in work for %s", g.cfg.SourceBytes, g.cfg.Wait)
	}
	if g.all.Acquire(ctx, size) != nil {
		one.bytes.Release(size)
		leave()
		return nil, http.StatusServiceUnavailable, fmt.Sprintf("reviews with more than %d bytes in work for %s", g.cfg.Bytes, g.cfg.Wait)
	}
	calm := g.calm.TryAcquire(size)
	if !calm {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(hurry)) // else the server's own limit holds
	}
	return func() {
		if calm {
			g.calm.Release(size)
		}
		g.all.Release(size)
		one.bytes.Release(size)
		leave()
	}, 0, ""
}

// source returns the limits of an address, and the function that ends their use. It returns
// nil if too many addresses have requests in work, or the address itself has too many.
func (g *guard) source(from netip.Prefix) (one *source, leave func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	one = g.each[from]
	if one == nil {
		if len(g.each) >= mostSources && !g.makeRoom() {
			return nil, func() {}
		}
		one = &source{rate: rate.NewLimiter(rate.Limit(g.cfg.PerSecond), 4*g.cfg.PerSecond), bytes: semaphore.NewWeighted(g.cfg.SourceBytes)}
		g.each[from] = one
	}
	if one.users >= mostWaiting {
		return nil, func() {}
	}
	one.users++
	return one, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		one.users--
	}
}

// makeRoom forgets sources without requests, and reports whether there were any.
func (g *guard) makeRoom() bool {
	before := len(g.each)
	for from, one := range g.each {
		if one.users == 0 {
			delete(g.each, from)
		}
	}
	return len(g.each) < before
}
