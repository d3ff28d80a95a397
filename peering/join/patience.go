package join

import (
	"math/rand/v2"
	"time"
)

// Delays between failed attempts: the first and the longest. The slow ones apply to
// problems that only people can solve.
const (
	quickDelay, quickLongest = time.Second, 30 * time.Second
	slowDelay, slowLongest   = 10 * time.Second, 5 * time.Minute
)

// attempt identifies an exchange with a peer. of is a digest of its inputs: after a change
// of the inputs, the next attempt does not wait.
type attempt struct{ kind, of string }

func enrolling(id string) string { return "enrol " + id }

func renewing(id string) string { return "renew " + id }

// patience is the back-off state of a kind of attempt. Events that wake the loop do not
// shorten the back-off.
type patience struct {
	of       string
	failures int
	until    time.Time
	said     standing
	refused  bool // the peer does not accept the identity
}

// waits reports whether the back-off of an attempt has not ended yet.
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

// failed records a failed attempt, and returns its standing with the delay before the next
// sync.
func (j *Join) failed(a attempt, said standing, slow, refused bool) standing {
	delay, longest := quickDelay, quickLongest
	if slow {
		delay, longest = slowDelay, slowLongest
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
