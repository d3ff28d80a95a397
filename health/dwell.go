package health

import "time"

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
func (v Verdict) rank() int {
	switch v {
	case Down:
		return 0
	case Unknown:
		return 1
	default:
		return 2
	}
}
