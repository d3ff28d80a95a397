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

// ErrFenced says that this process may not write: it does not hold its lease, or has
// not renewed it in time.
var ErrFenced = errors.New("fenced off")

// Fence tells whether this process may write. It goes by the monotonic clock, which runs
// on while a process is paused. A write that it has let through may still be on its way
// when it closes: what is left of the lease then, and the end of the context of work, are
// there for that. Its methods are safe for concurrent use.
type Fence struct {
	clock    clock.PassiveClock
	deadline time.Duration

	mu      sync.Mutex
	holding bool
	renewed time.Time
}

// Allow returns nil while the lease is held and was renewed within the renew deadline,
// and else an ErrFenced that says which of both failed.
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

func (f *Fence) shut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.holding = false
}

// timedLock opens the fence with each successful write of our name into the lease,
// from the moment before that write was sent: others count from a later one.
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
