package health

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// steps is the number of parts that a check's time limit has. A check without an answer after
// the first part is no reason to wait for the others: another check starts beside it.
const steps = 4

// Prober calls a check again and again. Its State may be read by anyone at any time.
type Prober struct {
	mu     sync.Mutex
	window Window
}

// NewProber returns a Prober that judges as window says. It starts nothing.
func NewProber(window Window) *Prober { return &Prober{window: window} }

// State returns the verdict so far.
func (p *Prober) State() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.window.State()
}

// Run calls check at once and then every interval, until ctx is done, and returns when the
// last check has returned. onChange is called from Run's own goroutine, only when the verdict
// changes; while it runs nothing is probed.
//
// A check that has not returned after timeout has failed, even if it ignores its context.
// While the verdict is not Down, Run does not wait for the interval to confirm a failure: the
// next check starts half a timeout after the start of one that failed, and each quarter of a
// timeout beside those without an answer, never more than a verdict takes. Checks that fail at
// the same moment, as those on one connection that ends, are one failure. With three
// failures for a verdict, it is Down one interval and one and a half timeouts after the last
// success at the latest. A success ends all checks under way, so that a server that answers
// within the timeout is Up, however many checks it was slow to answer.
//
// The time limit counts the time in which this process runs: each quarter ends by a timer
// that starts when the one before it was noticed. A process that stood still, or gets no
// processor, reads the answers that wait for it before their checks have failed.
func (p *Prober) Run(ctx context.Context, interval, timeout time.Duration, check func(context.Context) error, onChange func(State)) {
	r := &probing{
		prober: p, interval: interval, retry: min(interval, timeout/2), quarter: timeout / steps, timeout: timeout,
		check: check, onChange: onChange, answers: make(chan answer),
	}
	defer r.end()
	r.start(ctx)
	timer := time.NewTimer(r.wait(time.Now()))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case a := <-r.answers:
			r.take(ctx, a)
		case <-timer.C:
			r.tick(ctx)
		}
		timer.Reset(r.wait(time.Now()))
	}
}

// probing is one call of Run. Only its goroutine uses it.
type probing struct {
	prober   *Prober
	interval time.Duration // to the next check after a success, and while the verdict is Down
	retry    time.Duration // the same after a failure that is not confirmed yet
	quarter  time.Duration // of the timeout: the length of a step
	timeout  time.Duration
	check    func(context.Context) error
	onChange func(State)

	answers  chan answer
	running  int       // checks that have not returned
	awaited  []*flight // those among them that count; the newest comes last
	started  time.Time // start of the newest check
	stepped  time.Time // start of the present step of those that are awaited
	lastFail bool      // the last result was a failure
	failed   time.Time // when a check that returned was a failure last
}

// flight is a check under way.
type flight struct {
	cancel  context.CancelFunc
	started time.Time
	age     int // in steps
}

type answer struct {
	from *flight
	err  error
}

// wait returns the time until the next tick.
func (r *probing) wait(now time.Time) time.Duration {
	if len(r.awaited) > 0 {
		return r.stepped.Add(r.quarter).Sub(now)
	}
	next := r.interval
	if r.lastFail && r.prober.State().Verdict != Down {
		next = r.retry
	}
	return r.started.Add(next).Sub(now)
}

// tick ends a step if checks are awaited; otherwise it starts the next one.
func (r *probing) tick(ctx context.Context) {
	if len(r.awaited) == 0 {
		r.start(ctx)
		return
	}
	select {
	case a := <-r.answers: // at the same time as the end of the step
		r.take(ctx, a)
		return
	default:
	}
	r.step()
	verdict, needed := r.needed()
	if n := len(r.awaited); n > 0 && n < needed && verdict != Down && r.running < r.limit() {
		r.start(ctx)
	}
}

// step makes the checks under way one step older. Those that are too old have failed.
func (r *probing) step() {
	r.stepped = time.Now()
	var rest []*flight
	failed := 0
	for _, f := range r.awaited {
		if f.age++; f.age < steps {
			rest = append(rest, f)
			continue
		}
		f.cancel()
		failed++
	}
	r.awaited = rest
	for range failed {
		r.record(fmt.Errorf("no answer within %s", r.timeout))
	}
}

// start starts a check. If too many have ignored the end of their context, that is a failure.
func (r *probing) start(ctx context.Context) {
	r.started = time.Now()
	if r.running >= r.limit() {
		r.record(fmt.Errorf("no answer within %s, and %d checks are still running", r.timeout, r.running))
		return
	}
	if len(r.awaited) == 0 {
		r.stepped = r.started
	}
	ctx, cancel := context.WithCancel(ctx)
	f := &flight{cancel: cancel, started: r.started}
	r.awaited = append(r.awaited, f)
	r.running++
	go func() { r.answers <- answer{f, r.check(ctx)} }()
}

// take takes what a check has returned. It counts unless the check is no longer awaited.
func (r *probing) take(ctx context.Context, a answer) {
	r.running--
	a.from.cancel()
	if ctx.Err() != nil {
		return // the reason for the error
	}
	for i, f := range r.awaited {
		if f != a.from {
			continue
		}
		r.awaited = append(r.awaited[:i:i], r.awaited[i+1:]...)
		if a.err == nil {
			r.settle()
		} else if r.together(f, time.Now()) {
			return
		}
		r.record(a.err)
		return
	}
}

// together reports whether a check has failed together with another one that began earlier. If not,
// it is the one that others may have failed with.
func (r *probing) together(f *flight, now time.Time) bool {
	if f.started.Before(r.failed) && now.Sub(r.failed) < r.quarter/2 {
		return true
	}
	r.failed = now
	return false
}

// settle ends the checks under way. They count neither as successes nor as failures.
func (r *probing) settle() {
	for _, f := range r.awaited {
		f.cancel()
	}
	r.awaited = nil
}

// end waits until all checks have returned.
func (r *probing) end() {
	r.settle()
	for ; r.running > 0; r.running-- {
		<-r.answers
	}
}

// limit is the number of checks that may run at the same time.
func (r *probing) limit() int { return max(r.prober.window.Failures, 1) }

// needed returns the verdict, and how many more failures turn it Down.
func (r *probing) needed() (Verdict, int) {
	r.prober.mu.Lock()
	defer r.prober.mu.Unlock()
	return r.prober.window.State().Verdict, r.prober.window.Failures - r.prober.window.failures()
}

func (r *probing) record(err error) {
	r.lastFail = err != nil
	r.prober.mu.Lock()
	changed := r.prober.window.Add(err)
	state := r.prober.window.State()
	r.prober.mu.Unlock()
	if changed {
		r.onChange(state)
	}
}
