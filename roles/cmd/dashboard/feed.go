package dashboard

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// feed reads the cluster while somebody watches, and passes the state to all watchers.
type feed struct {
	source  Source
	every   time.Duration
	timeout time.Duration
	counted *reading // of the last state; only run uses it

	watchers atomic.Int32
	mu       sync.Mutex
	latest   []byte
	taken    time.Time     // when latest was read, by the clock of this machine
	next     chan struct{} // is closed when latest changes
	wanted   chan struct{} // has a value when the first watcher has come
}

// slack is how much later than expected a state may arrive before the page calls its state old.
const slack = 5 * time.Second

func newFeed(cfg Config) *feed {
	return &feed{source: cfg.Source, every: cfg.Every, timeout: cfg.Timeout, next: make(chan struct{}), wanted: make(chan struct{}, 1)}
}

// run reads until ctx is done. It sends no request while nobody watches.
func (f *feed) run(ctx context.Context) {
	var last *View
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wanted:
			f.counted = nil // of before the pause
		}
		for f.watchers.Load() > 0 && ctx.Err() == nil {
			shown := f.read(ctx, last)
			if shown.Trouble == "" {
				last = shown
			}
			f.publish(shown)
			select {
			case <-ctx.Done():
			case <-time.After(f.every):
			}
		}
	}
}

// read returns the state of now, or the last one with the reason for which there is no newer.
func (f *feed) read(ctx context.Context, last *View) *View {
	ctx, cancel := context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("no answer within %s", f.timeout))
	defer cancel()
	p, err := take(ctx, f.source)
	switch {
	case err == nil:
		p.before, f.counted = f.counted, p.counted
		return view(p)
	case last == nil:
		return nothing(err)
	}
	return last.outdated(err)
}

func (f *feed) publish(v *View) {
	v.Patience = (f.every + f.timeout + slack).Seconds()
	data, err := printable(v)
	if err != nil {
		data, _ = printable(nothing(fmt.Errorf("encoding the state: %w", err))) // of texts only
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.latest, f.taken = data, time.Now()
	close(f.next)
	f.next = make(chan struct{})
}

// watch calls send with each state until ctx is done or send fails. A slow watcher misses
// states, and gets the newest.
func (f *feed) watch(ctx context.Context, send func([]byte) error) error {
	if f.watchers.Add(1) == 1 {
		select {
		case f.wanted <- struct{}{}:
		default: // the loop will see it
		}
	}
	defer f.watchers.Add(-1)
	for {
		data, next := f.current()
		if data != nil {
			if err := send(data); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-next:
		}
	}
}

// current returns the newest state, or nil if it is of before a pause, and a channel that is
// closed when there is a newer one.
func (f *feed) current() ([]byte, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.taken) > 2*f.every {
		return nil, f.next
	}
	return f.latest, f.next
}
