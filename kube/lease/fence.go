package lease

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// ErrFenced is returned for a write of a process that does not hold its lease, or has not
// renewed it within the renew deadline.
var ErrFenced = errors.New("fenced off")

// Fence decides whether this process may write. It uses the monotonic clock, which
// continues while a process is paused, and the time since the boot, which continues while the
// whole machine is suspended. A write that Allow permitted may still be in
// flight when the fence closes. The time between the renew deadline and the end of the
// lease is reserved for such writes, and the context of the work is cancelled. Its
// methods are safe for concurrent use.
type Fence struct {
	clock    clock.PassiveClock
	boot     func() time.Duration // time since the boot
	deadline time.Duration

	mu      sync.Mutex
	holding bool
	renewed time.Time
	booted  time.Duration // boot at the time of renewed
}

// Allow returns nil while this process holds the lease and has renewed it within the
// renew deadline. Otherwise it returns an ErrFenced with the reason.
func (f *Fence) Allow() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.holding {
		return fmt.Errorf("%w: the lease is not held", ErrFenced)
	}
	if age := f.age(); age >= f.deadline {
		return fmt.Errorf("%w: the lease was last renewed %s ago", ErrFenced, age.Round(time.Millisecond))
	}
	return nil
}

// age needs mu.
func (f *Fence) age() time.Duration { return max(f.clock.Since(f.renewed), f.boot()-f.booted) }

// open opens the fence after a successful write of this process's identity into the lease.
// at and booted are the times before the request was sent. Other candidates count from a later
// moment, so the fence closes before they can take over.
func (f *Fence) open(at time.Time, booted time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.holding, f.renewed, f.booted = true, at, booted
}

// left returns the time until the fence closes without a further renewal.
func (f *Fence) left() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.deadline - f.age()
}

func (f *Fence) shut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.holding = false
}
