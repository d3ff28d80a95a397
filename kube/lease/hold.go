package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
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
	sent, booted := r.cfg.Clock.Now(), r.fence.boot()
	if next := r.next(have, sent); have == nil {
		got, err = r.leases().Create(ctx, next, metav1.CreateOptions{})
	} else {
		got, err = r.leases().Update(ctx, next, metav1.UpdateOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("writing the lease: %w", err)
	}
	r.fence.open(sent, booted)
	return got, nil
}

// next returns the lease with this process as its holder.
func (r *Runner) next(have *coordinationv1.Lease, at time.Time) *coordinationv1.Lease {
	next, now := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: r.cfg.Namespace, Name: r.cfg.Name}}, metav1.NewMicroTime(at)
	transitions := int32(0)
	if have != nil {
		next = have.DeepCopy()
		transitions = ptr.Deref(have.Spec.LeaseTransitions, 0) + 1
	}
	if Holder(next) != r.cfg.Identity {
		next.Spec.AcquireTime, next.Spec.LeaseTransitions = &now, &transitions
	}
	next.Spec.HolderIdentity, next.Spec.RenewTime = &r.cfg.Identity, &now
	next.Spec.LeaseDurationSeconds = ptr.To(wholeSeconds(r.cfg.Duration))
	return next
}

// wholeSeconds rounds up: a candidate must not wait for less than d.
func wholeSeconds(d time.Duration) int32 { return int32((d + time.Second - 1) / time.Second) }

// keep renews the lease until ctx is done, another candidate holds the lease, or the fence
// has closed without a renewal.
func (r *Runner) keep(ctx context.Context, held *coordinationv1.Lease) {
	began, period := r.cfg.Clock.Now(), r.cfg.RetryPeriod
	for {
		// The period counts from the beginning of the last request, however long that took.
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(period-r.cfg.Clock.Since(began), r.fence.left())):
		}
		if r.fence.left() <= 0 {
			return
		}
		began, period = r.cfg.Clock.Now(), r.cfg.RetryPeriod
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
