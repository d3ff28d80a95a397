package lease

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"github.com/liqod/liqod/kube/loop"
)

// jitter spreads the attempts of several candidates.
const jitter = 1.2

// candidacy is what a candidate knows of the lease.
type candidacy struct {
	clock clock.PassiveClock
	// have is the lease as it was last seen; nil: it was not seen yet.
	have *coordinationv1.Lease
	// silence is that of the holder in have.
	silence Silence
	// deleted is true if the lease does not exist. The holder in have may not have noticed:
	// its time goes on.
	deleted bool
}

// see records the lease. Only a renewal restarts the time until it expires.
func (c *candidacy) see(lease *coordinationv1.Lease) {
	c.silence.See(lease, c.clock.Now())
	c.have, c.deleted = lease, false
}

// left returns the time until the lease expires. It is the holder's own duration that counts.
func (c *candidacy) left(otherwise time.Duration) time.Duration {
	return c.silence.Left(c.clock.Now(), Duration(c.have, otherwise))
}

// acquire waits until this process has written itself into the lease, and returns the lease.
// It returns nil if ctx is done before.
func (r *Runner) acquire(ctx context.Context) *coordinationv1.Lease {
	c := &candidacy{clock: r.cfg.Clock}
	failed := false
	for ctx.Err() == nil {
		held, err := r.attempt(ctx, c)
		if held != nil {
			return held
		}
		if err != nil && !failed && ctx.Err() == nil {
			r.cfg.Log.Warn("standing for the lease failed; will retry", zap.String("lease", r.name()), zap.Error(err))
		}
		failed = err != nil
		r.pause(ctx, c)
	}
	return nil
}

// pause waits for the retry period with jitter, and not beyond the end of the lease.
func (r *Runner) pause(ctx context.Context, c *candidacy) {
	period := wait.Jitter(r.cfg.RetryPeriod, jitter-1)
	if c.have != nil && !r.free(c) {
		period = min(period, c.left(r.cfg.Duration))
	}
	_ = loop.Pause(ctx, period)
}

// attempt follows the lease while another candidate holds it, and writes it once it is free.
// It returns nil if it did not get it.
func (r *Runner) attempt(ctx context.Context, c *candidacy) (*coordinationv1.Lease, error) {
	have, err := r.get(ctx)
	switch {
	case apierrors.IsNotFound(err):
		c.deleted = true
	case err != nil:
		return nil, fmt.Errorf("reading the lease: %w", err)
	default:
		c.silence.Recall(ctx, r.leases(), have, c.clock.Now())
		c.see(have)
	}
	if !r.free(c) && !c.deleted {
		if err := r.follow(ctx, c); err != nil && ctx.Err() == nil && !r.free(c) {
			return nil, err
		}
	}
	if ctx.Err() != nil || !r.free(c) {
		return nil, nil
	}
	// The write fails if the lease has changed since: another candidate was faster, or the
	// holder lives and its renewals have not arrived here.
	have = c.have
	if c.deleted {
		have = nil
	}
	held, err := r.write(ctx, have)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err == nil && c.have != nil && Holder(c.have) != r.cfg.Identity {
		r.before.Swap(Holder(c.have))
	}
	return held, err
}

// free reports whether this process may write the lease: it was never seen, nobody or this
// process holds it, this process inherits it, or it has expired.
func (r *Runner) free(c *candidacy) bool {
	if c.have == nil {
		return true
	}
	by := Holder(c.have)
	return by == "" || by == r.cfg.Identity || r.cfg.Inherits != nil && r.cfg.Inherits(by) || c.left(r.cfg.Duration) <= 0
}

// follow watches the lease until it is free, which an expired one is, too, or until it is
// deleted or the watch ends.
func (r *Runner) follow(ctx context.Context, c *candidacy) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	expired := time.AfterFunc(c.left(r.cfg.Duration), cancel)
	defer expired.Stop()
	w, err := r.leases().Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, r.cfg.Name).String(), ResourceVersion: c.have.ResourceVersion,
	})
	if err != nil {
		return fmt.Errorf("watching the lease: %w", err)
	}
	defer w.Stop()
	for {
		var event watch.Event
		var open bool
		select {
		case <-ctx.Done():
			return nil
		case event, open = <-w.ResultChan():
		}
		if !open {
			return nil
		}
		lease, ok := event.Object.(*coordinationv1.Lease)
		if !ok {
			return fmt.Errorf("watching the lease: %w", apierrors.FromObject(event.Object))
		}
		r.cfg.Saw(lease.ResourceVersion)
		switch {
		case lease.Name != r.cfg.Name:
			continue
		case event.Type == watch.Deleted:
			c.deleted = true
			return nil
		}
		c.see(lease)
		if r.free(c) {
			return nil
		}
		expired.Reset(c.left(r.cfg.Duration))
	}
}
