package health

import (
	"context"
	"fmt"
	"sync"
	"time"
)

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

// Run calls check at once and then every interval, until ctx is done, and returns when
// the last check has returned. A check that has not returned after timeout has failed,
// even if it ignores its context; the next one starts only when it has returned, and
// each further timeout until then is one more failure. onChange is called from Run's own
// goroutine, only when the verdict changes; while it runs nothing is probed.
func (p *Prober) Run(ctx context.Context, interval, timeout time.Duration, check func(context.Context) error, onChange func(State)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var pending chan error
	for {
		var err error
		pending, err = p.try(ctx, timeout, check, pending)
		if ctx.Err() != nil {
			if pending != nil {
				<-pending
			}
			return
		}
		p.record(err, onChange)
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// try starts a check, or goes on waiting for the one that is late. It returns the
// channel of a check that is still under way.
func (p *Prober) try(ctx context.Context, timeout time.Duration, check func(context.Context) error, pending chan error) (chan error, error) {
	if pending != nil {
		select {
		case <-pending: // late: its answer no longer counts
		case <-ctx.Done():
			return pending, nil
		case <-time.After(timeout):
			return pending, fmt.Errorf("no answer within %s, and the check is still running", timeout)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	// Not when the check ends: its answer and the end of ctx would be there at once.
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- check(ctx) }()
	select {
	case err := <-done:
		if ctx.Err() == context.DeadlineExceeded {
			err = fmt.Errorf("no answer within %s", timeout)
		}
		return nil, err
	case <-ctx.Done():
		return done, fmt.Errorf("no answer within %s", timeout)
	}
}

func (p *Prober) record(err error, onChange func(State)) {
	p.mu.Lock()
	changed := p.window.Add(err)
	state := p.window.State()
	p.mu.Unlock()
	if changed {
		onChange(state)
	}
}
