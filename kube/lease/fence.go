package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
)

// ErrFenced is returned for a write of a process that does not hold its lease, or has not
// renewed it within the renew deadline.
var ErrFenced = errors.New("fenced off")

// Fence decides whether this process may write. It uses the monotonic clock, which
// continues while a process is paused. A write that Allow permitted may still be in
// flight when the fence closes. The time between the renew deadline and the end of the
// lease is reserved for such writes, and the context of the work is cancelled. Its
// methods are safe for concurrent use.
type Fence struct {
	clock    clock.PassiveClock
	deadline time.Duration

	mu      sync.Mutex
	holding bool
	renewed time.Time
}

// Allow returns nil while this process holds the lease and has renewed it within the
// renew deadline. Otherwise it returns an ErrFenced with the reason.
func (f *Fence) Allow() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.holding {
		return fmt.Errorf("%w: the lease is not held", ErrFenced)
	}
	if age := f.clock.Since(f.renewed); age >= f.deadline {
		return fmt.Errorf("%w: the lease was last renewed %s ago", ErrFenced, age.Round(time.Millisecond))
	}
	return nil
}

func (f *Fence) open(at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.holding, f.renewed = true, at
}

func (f *Fence) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.holding = false
}

// timedLock opens the fence after each successful write of this process's identity into
// the lease. The renewal counts from before the request was sent. Other candidates count
// from a later moment, so the fence closes before they can take over.
type timedLock struct {
	resourcelock.Interface

	fence   *Fence
	timeout time.Duration
}

// Get implements resourcelock.Interface.
func (l *timedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	return l.Interface.Get(ctx)
}

// Create implements resourcelock.Interface.
func (l *timedLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	sent := l.fence.clock.Now()
	return l.wrote(sent, record, l.Interface.Create(ctx, record))
}

// Update implements resourcelock.Interface.
func (l *timedLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	sent := l.fence.clock.Now()
	return l.wrote(sent, record, l.Interface.Update(ctx, record))
}

func (l *timedLock) wrote(sent time.Time, record resourcelock.LeaderElectionRecord, err error) error {
	if err == nil && record.HolderIdentity == l.Identity() {
		l.fence.open(sent)
	}
	return err
}
