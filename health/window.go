package health

import (
	"cmp"
	"fmt"
	"time"
)

// Verdict is what the probes say together.
type Verdict int

const (
	// Unknown: too few probes yet.
	Unknown Verdict = iota
	// Up: it answers.
	Up
	// Down: it does not answer.
	Down
)

// String returns the verdict's name.
func (v Verdict) String() string {
	return cmp.Or(map[Verdict]string{Up: "Up", Down: "Down"}[v], "Unknown")
}

// State is a verdict and why: Reason is a sentence for people; it ends with the last
// failure when the verdict is Down.
type State struct {
	Verdict Verdict
	Reason  string
}

// Window is the memory of the last probes: k failures of the last n turn the verdict
// Down, some successes in a row turn it Up. Its zero State is Unknown; there the first
// success is enough for Up. After each change it begins anew, so that old failures do
// not count twice. It is not safe for concurrent use.
type Window struct {
	// Size is how many probes are remembered (n), at least 1.
	Size int
	// Failures among the remembered ones that turn the verdict Down (k), at most Size.
	Failures int
	// Successes in a row that turn the verdict from Down to Up, at most Size.
	Successes int

	state State
	last  []bool // true: a success; the newest comes last
}

// State returns the verdict so far.
func (w *Window) State() State {
	if w.state.Verdict == Unknown && w.state.Reason == "" {
		return State{Reason: "no probe has finished yet"}
	}
	return w.state
}

// Add records the result of one probe (nil: it succeeded) and reports whether the
// verdict changed.
func (w *Window) Add(err error) (changed bool) {
	w.last = append(w.last, err == nil)
	if extra := len(w.last) - max(w.Size, 1); extra > 0 {
		w.last = w.last[extra:]
	}
	failures := w.failures()
	switch {
	case w.state.Verdict == Unknown && err == nil:
		return w.turn(Up, "the first probe that answered succeeded")
	case w.state.Verdict == Down && w.successes() >= w.Successes:
		return w.turn(Up, fmt.Sprintf("the last %d probes succeeded", w.Successes))
	case w.state.Verdict != Down && failures >= w.Failures:
		return w.turn(Down, fmt.Sprintf("%d of the last %d probes failed: %v", failures, len(w.last), err))
	case w.state.Verdict == Unknown:
		w.state.Reason = fmt.Sprintf("no probe succeeded yet: %v", err)
	}
	return false
}

func (w *Window) turn(v Verdict, reason string) bool {
	w.state = State{Verdict: v, Reason: reason}
	w.last = nil
	return true
}

func (w *Window) failures() (n int) {
	for _, ok := range w.last {
		if !ok {
			n++
		}
	}
	return n
}

func (w *Window) successes() (n int) {
	for i := len(w.last) - 1; i >= 0 && w.last[i]; i-- {
		n++
	}
	return n
}

// Times of a Dwell.
const (
	// firstDwell is how long the first return waits: less than between two probes of a tunnel.
	firstDwell = 150 * time.Millisecond
	// nextDwell is added with each further turn for the worse, up to lastDwell.
	nextDwell = 10 * time.Second
	lastDwell = 30 * time.Second
	// calm is how long after a turn for the worse the next one counts as the first.
	calm = 2 * time.Minute
)

// Dwell bounds how often a verdict changes that another cluster can turn as it likes. A turn for
// the worse passes at once, and one for the better when the last turn for the worse was long
// enough ago: 150 ms at first, and up to 30 s for a verdict that turns again and again. So a single outage
// begins and ends at once, and one that flaps counts as Down while it does. The zero Dwell has
// passed nothing. It is plain data, and not safe for concurrent use.
type Dwell struct {
	begun       bool
	raw, passed Verdict
	worse       time.Time // when raw last became worse
	wait        time.Duration
}

// Pass returns the verdict that counts at the time now if the present one is v. The first one
// counts at once. Where another one than v is returned, again is the time until v may count.
func (d *Dwell) Pass(v Verdict, now time.Time) (passed Verdict, again time.Duration) {
	if !d.begun {
		d.begun, d.raw, d.passed = true, v, v
		return v, 0
	}
	if v.rank() < d.raw.rank() {
		d.Worse(now)
	}
	d.raw = v
	if again = d.Wait(now); v.rank() <= d.passed.rank() || again == 0 {
		d.passed, again = v, 0
	}
	return d.passed, again
}

// Worse records a turn for the worse.
func (d *Dwell) Worse(now time.Time) {
	switch {
	case d.worse.IsZero() || now.Sub(d.worse) > calm:
		d.wait = firstDwell
	case d.wait == firstDwell:
		d.wait = nextDwell
	default:
		d.wait = min(d.wait+nextDwell, lastDwell)
	}
	d.worse = now
}

// Wait returns how long a turn for the better still has to wait.
func (d *Dwell) Wait(now time.Time) time.Duration { return max(0, d.worse.Add(d.wait).Sub(now)) }

// rank orders verdicts, the worst one first.
func (v Verdict) rank() int { return map[Verdict]int{Down: -2, Unknown: -1, Up: 0}[v] }
