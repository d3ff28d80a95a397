package loop

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

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
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.clients == nil {
		p.clients = map[string]*rate.Limiter{}
	}
	if p.clients[client] == nil {
		p.clients[client] = rate.NewLimiter(rate.Every(interval), burst)
	}
	r := p.clients[client].ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if wait > 0 {
		r.CancelAt(now)
	}
	return wait
}
