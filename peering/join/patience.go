package join

import (
	"math/rand/v2"
	"time"
)

// Between attempts that fail. What only people can mend is tried seldom.
const (
	quickDelay, quickest = time.Second, 30 * time.Second
	slowDelay, slowest   = 10 * time.Second, 5 * time.Minute
)

// attempt is one exchange with a peer. It is another one when something has changed that
// could make a difference.
type attempt struct{ kind, of string }

func enrolling(id string) string { return "enrol " + id }

func renewing(id string) string { return "renew " + id }

// patience is kept between attempts that fail: what wakes the loop does not matter to it.
type patience struct {
	of       string
	failures int
	until    time.Time
	said     standing
	refused  bool // the peer does not take the identity
}

// waits reports whether an attempt is too early.
func (j *Join) waits(a attempt) (patience, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	p := j.patient[a.kind]
	left := p.until.Sub(j.cfg.Clock.Now())
	if p.of != a.of || left <= 0 {
		return p, false
	}
	p.said = p.said.after(min(left, lookAgain))
	return p, true
}

// failed notes an attempt that has failed, and returns what is said of it.
func (j *Join) failed(a attempt, said standing, slow, refused bool) standing {
	delay, longest := quickDelay, quickest
	if slow {
		delay, longest = slowDelay, slowest
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	p := j.patient[a.kind]
	if p.of != a.of {
		p = patience{of: a.of}
	}
	delay = min(delay<<min(p.failures, 10), longest)
	delay = delay*3/4 + rand.N(delay/2)
	p.failures++
	p.until, p.said, p.refused = j.cfg.Clock.Now().Add(delay), said, refused
	j.patient[a.kind] = p
	return said.after(min(delay, lookAgain))
}
