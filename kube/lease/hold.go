package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/liqod/liqod/kube/loop"
)

// errTaken means that another candidate holds the lease.
var errTaken = errors.New("another candidate holds the lease")

// sooner divides the retry period after a renewal that has failed: the longer an outage, the
// fewer attempts are left.
const sooner = 3

// write creates the lease, or replaces have, with this process as its holder. The fence is
// open if it succeeds. have is nil if the lease does not exist.
func (r *Runner) write(ctx context.Context, have *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, r.requestTimeout())
	defer cancel()
	var got *coordinationv1.Lease
	var err error
	sent, booted, duration := r.cfg.Clock.Now(), r.fence.boot(), r.duration()
	deadline := duration - (r.cfg.Duration - r.cfg.RenewDeadline)
	r.fence.narrow(sent, booted, deadline)
	if next := r.next(have, sent, duration); have == nil {
		got, err = r.leases().Create(ctx, next, metav1.CreateOptions{})
	} else {
		got, err = r.leases().Update(ctx, next, metav1.UpdateOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("writing the lease: %w", err)
	}
	r.cfg.Saw(got.ResourceVersion)
	r.fence.open(sent, booted, deadline)
	return got, nil
}

// longer is the factor of the duration while Config.Alone reports true.
const longer = 5

func (r *Runner) duration() time.Duration {
	if r.cfg.Alone != nil && r.cfg.Alone() {
		return longer * r.cfg.Duration
	}
	return r.cfg.Duration
}

// next returns the lease with this process as its holder.
func (r *Runner) next(have *coordinationv1.Lease, at time.Time, duration time.Duration) *coordinationv1.Lease {
	next := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: r.cfg.Namespace, Name: r.cfg.Name}}
	if have != nil {
		next = have.DeepCopy()
	}
	Hold(next, r.cfg.Identity, at, duration)
	return next
}

// keep renews the lease until ctx is done, another candidate holds the lease, or the fence
// has closed without a renewal.
func (r *Runner) keep(ctx context.Context, held *coordinationv1.Lease) {
	began, period := r.cfg.Clock.Now(), r.cfg.RetryPeriod
	for {
		// The period counts from the beginning of the last request, however long that took.
		if loop.Pause(ctx, min(period-r.cfg.Clock.Since(began), r.fence.left())) != nil || r.fence.left() <= 0 {
			return
		}
		began, period = r.cfg.Clock.Now(), r.cfg.RetryPeriod
		if long := r.duration(); long > r.cfg.Duration && r.fence.left() > long/2 {
			continue // the other half is for renewals that fail
		}
		renewed, err := r.renew(ctx, held)
		switch {
		case errors.Is(err, errTaken):
			return
		case err != nil:
			period /= sooner
			r.cfg.Log.Debug("lease not renewed; will retry", zap.String("lease", r.name()), zap.Error(err))
		default:
			held = renewed
		}
	}
}

// renew writes the lease as this process knows it. If the lease has changed, it is read and,
// if this process still holds it, written again.
func (r *Runner) renew(ctx context.Context, held *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, r.fence.left())
	defer cancel()
	renewed, err := r.write(ctx, held)
	if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		return renewed, err
	}
	have, err := r.get(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return r.write(ctx, nil)
	case err != nil:
		return nil, fmt.Errorf("reading the lease: %w", err)
	case Holder(have) != r.cfg.Identity:
		return nil, errTaken
	}
	return r.write(ctx, have)
}

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
	clock clock.PassiveClock
	boot  func() time.Duration // time since the boot

	mu       sync.Mutex
	holding  bool
	renewed  time.Time
	booted   time.Duration // boot at the time of renewed
	deadline time.Duration // the renew deadline, from the time of renewed
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
func (f *Fence) open(at time.Time, booted, deadline time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.holding, f.renewed, f.booted, f.deadline = true, at, booted, deadline
}

// narrow comes before a write with an earlier deadline. The API server may store the write, and its
// response may not arrive.
func (f *Fence) narrow(at time.Time, booted, deadline time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.deadline-f.age() > deadline {
		f.renewed, f.booted, f.deadline = at, booted, deadline
	}
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
