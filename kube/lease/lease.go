// Package lease runs a function while this process holds a Lease. When the process loses
// the lease, it cancels the function, waits until it has returned, and becomes a
// candidate again. It does not exit when the API server is unreachable. client-go's
// leader election does not prevent writes after a lost lease (no fencing). The Fence
// does: it rejects writes in the transport of the clients that the function uses.
package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
)

var errLost = errors.New("lease lost")

// releaseTimeout bounds the attempts of a terminating process to release its lease.
const releaseTimeout = 5 * time.Second

// Config is the configuration of a Runner.
type Config struct {
	// Client reads and writes the Lease. Its requests must not pass the Fence. It should
	// have a connection of its own.
	Client coordinationv1client.LeasesGetter
	// Namespace and Name identify the Lease. It is created if it is missing.
	Namespace, Name string
	// Identity of this process. It must be unique among live processes. A restarted
	// process may reuse it.
	Identity string
	// Duration is how long other candidates wait after the last renewal that they
	// observed.
	Duration time.Duration
	// RenewDeadline is how long after its last renewal this process may write. It must be
	// less than Duration, by at least the time that a write in flight may take.
	RenewDeadline time.Duration
	// RetryPeriod is the time between two renewals.
	RetryPeriod time.Duration
	// Log receives changes of leadership.
	Log *zap.Logger
	// Clock is the clock of the Fence; nil means the real one. client-go's elector always
	// uses the real clock.
	Clock clock.PassiveClock
	// Saw may be nil. It is called with the resource version of the Lease in each response
	// of the API server, in the order of the responses.
	Saw func(resourceVersion string)
	// OnChange may be nil. It is called with true before the work begins and with false
	// after it has returned, never concurrently.
	OnChange func(leading bool)
}

// Runner runs a function while it holds its lease. Only one Run may be active at a time.
type Runner struct {
	cfg   Config
	fence *Fence
}

// New returns a Runner, or an error if cfg is invalid. It starts no goroutines and sends
// no requests.
func New(cfg Config) (*Runner, error) {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.OnChange == nil {
		cfg.OnChange = func(bool) {}
	}
	if cfg.Saw != nil {
		cfg.Client = witness{cfg.Client, cfg.Saw}
	}
	r := &Runner{cfg: cfg, fence: &Fence{clock: cfg.Clock, deadline: cfg.RenewDeadline}}
	if cfg.Namespace == "" || cfg.Name == "" {
		return nil, errors.New("a lease needs a namespace and a name")
	}
	if _, err := leaderelection.NewLeaderElector(r.electionConfig(r.lock(), func(context.Context) {})); err != nil {
		return nil, fmt.Errorf("lease %s/%s: %w", cfg.Namespace, cfg.Name, err)
	}
	return r, nil
}

// Fence returns the Gate for the clients that the work writes with.
func (r *Runner) Fence() *Fence { return r.fence }

// Run is a candidate for the lease until ctx is done, and calls work while it holds the
// lease. The context of work is cancelled when ctx is done or the lease is lost. work
// must return then, and Run waits for it. After a lost lease Run is a candidate again. If
// work returns by itself, Run returns its error; if ctx is done, Run returns nil. In both
// cases it first releases the lease, for which it tries for at most 5 seconds. It never
// releases the lease while work is running.
func (r *Runner) Run(ctx context.Context, work func(ctx context.Context) error) error {
	for ctx.Err() == nil {
		done, err := r.term(ctx, work)
		if done || err != nil {
			return err
		}
	}
	return nil
}

// term is one candidacy and the leadership that may follow it. It returns true if work
// returned by itself.
func (r *Runner) term(ctx context.Context, work func(ctx context.Context) error) (bool, error) {
	// The elector must renew the lease until work has returned, so its context outlives
	// ctx.
	electorCtx, stopElector := context.WithCancel(context.WithoutCancel(ctx))
	defer stopElector()
	lock := r.lock()
	elected := make(chan context.Context, 1)
	elector, err := leaderelection.NewLeaderElector(r.electionConfig(lock, func(c context.Context) { elected <- c }))
	if err != nil {
		return false, fmt.Errorf("lease %s/%s: %w", r.cfg.Namespace, r.cfg.Name, err)
	}
	electorDone := make(chan struct{})
	go func() {
		defer close(electorDone)
		elector.Run(electorCtx)
	}()
	select {
	case <-ctx.Done():
	case leading := <-elected:
		err = r.lead(ctx, leading, work)
	}
	ended := ctx.Err() == nil
	stopElector()
	<-electorDone
	r.fence.close()
	if errors.Is(err, errLost) {
		return false, nil
	}
	if elector.IsLeader() {
		r.release(ctx, lock)
	}
	return ended, err
}

// lead runs work until it returns. leading is done when the lease is lost, ctx when the
// process terminates.
func (r *Runner) lead(ctx, leading context.Context, work func(ctx context.Context) error) error {
	workCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	stopWatching := context.AfterFunc(leading, func() {
		r.fence.close()
		cancel()
	})
	defer stopWatching()
	log := r.cfg.Log.With(zap.String("lease", r.cfg.Namespace+"/"+r.cfg.Name), zap.String("identity", r.cfg.Identity))
	log.Info("lease acquired")
	r.cfg.OnChange(true)
	err := work(workCtx)
	r.cfg.OnChange(false)
	switch {
	case leading.Err() != nil:
		log.Warn("lease lost; work has stopped", zap.NamedError("workError", err))
		return errLost
	case ctx.Err() != nil:
		log.Info("work has stopped; giving the lease back", zap.NamedError("workError", err))
		return nil
	}
	return err
}

// release clears the holder of the lease if it is still this process. client-go's own
// release is not used, because it would act on a lost lease while work is still running.
func (r *Runner) release(ctx context.Context, lock resourcelock.Interface) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if err := r.giveBack(ctx, lock); err != nil {
		r.cfg.Log.Warn("lease not given back; it will expire", zap.String("lease", lock.Describe()), zap.Error(err))
	}
}

func (r *Runner) giveBack(ctx context.Context, lock resourcelock.Interface) error {
	have, _, err := lock.Get(ctx)
	if err != nil {
		return fmt.Errorf("reading the lease: %w", err)
	}
	if have.HolderIdentity != r.cfg.Identity {
		return nil
	}
	now := metav1.NewTime(r.cfg.Clock.Now())
	err = lock.Update(ctx, resourcelock.LeaderElectionRecord{
		LeaseDurationSeconds: 1, // 0 is not valid
		AcquireTime:          now,
		RenewTime:            now,
		LeaderTransitions:    have.LeaderTransitions,
	})
	if err != nil {
		return fmt.Errorf("clearing the holder: %w", err)
	}
	return nil
}

func (r *Runner) lock() resourcelock.Interface {
	// One request without a response must not exhaust the renew deadline.
	return &timedLock{fence: r.fence, timeout: r.cfg.RenewDeadline / 2, Interface: &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: r.cfg.Namespace, Name: r.cfg.Name},
		Client:     r.cfg.Client,
		LockConfig: resourcelock.ResourceLockConfig{Identity: r.cfg.Identity},
	}}
}

func (r *Runner) electionConfig(lock resourcelock.Interface, started func(context.Context)) leaderelection.LeaderElectionConfig {
	return leaderelection.LeaderElectionConfig{
		Lock:          lock,
		Name:          r.cfg.Name,
		LeaseDuration: r.cfg.Duration,
		RenewDeadline: r.cfg.RenewDeadline,
		RetryPeriod:   r.cfg.RetryPeriod,
		Callbacks:     leaderelection.LeaderCallbacks{OnStartedLeading: started, OnStoppedLeading: func() {}},
	}
}
