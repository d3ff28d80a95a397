// Package lease runs a function while this process holds a Lease. A lease that is lost
// stops the function, which is waited for, and the process stands for election again;
// it never exits because the API server is away. client-go's leases do not fence: the
// Fence does, in the transport of the clients that the function writes with.
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

// releaseTimeout bounds how long a process that ends tries to give its lease back.
const releaseTimeout = 5 * time.Second

// Config configures a Runner.
type Config struct {
	// Client reads and writes the Lease. It must not pass through the Fence, and is
	// best given a connection of its own.
	Client coordinationv1client.LeasesGetter
	// Namespace and Name of the Lease, which is created when it is missing.
	Namespace, Name string
	// Identity of this process. No other live process may have it; a successor may.
	Identity string
	// Duration is how long others wait after the last renewal that they have seen.
	Duration time.Duration
	// RenewDeadline is how long after its last renewal this process may write. It is
	// less than Duration by what a write in flight may take.
	RenewDeadline time.Duration
	// RetryPeriod is the time between renewals.
	RetryPeriod time.Duration
	// Log receives what changes.
	Log *zap.Logger
	// Clock is the real one if nil. The elector itself always uses the real one.
	Clock clock.PassiveClock
	// Saw may be nil. It is told the resource version of the Lease with each answer of the
	// API server, in their order.
	Saw func(resourceVersion string)
	// OnChange may be nil. It is called with true before the function runs and with
	// false when it has returned, never concurrently.
	OnChange func(leading bool)
}

// Runner runs functions while it holds its lease. Run it once at a time.
type Runner struct {
	cfg   Config
	fence *Fence
}

// New returns a Runner, or what is wrong with cfg. It starts nothing.
func New(cfg Config) (*Runner, error) {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.OnChange == nil {
		cfg.OnChange = func(bool) {}
	}
	if cfg.Saw != nil {
		cfg.Client = versionReporter{cfg.Client, cfg.Saw}
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

// Fence returns the gate for the clients that the function writes with.
func (r *Runner) Fence() *Fence { return r.fence }

// Run stands for election until ctx is done, and calls work while it leads. The context
// of work ends when ctx does and when the lease is lost; work must return then, and is
// waited for. When work has returned otherwise, or ctx is done, the lease is given
// back: only after work has returned, and for at most 5 seconds. Run returns the error
// of work if that returned by itself, and else nil.
func (r *Runner) Run(ctx context.Context, work func(ctx context.Context) error) error {
	for ctx.Err() == nil {
		done, err := r.term(ctx, work)
		if done || err != nil {
			return err
		}
	}
	return nil
}

// term is one candidacy and what follows from it. It reports whether work came to its
// own end.
func (r *Runner) term(ctx context.Context, work func(ctx context.Context) error) (bool, error) {
	// The elector must renew until work has returned: it outlives ctx.
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
	r.fence.shut()
	if errors.Is(err, errLost) {
		return false, nil
	}
	if elector.IsLeader() {
		r.release(ctx, lock)
	}
	return ended, err
}

// lead runs work until it returns. leading ends with the lease, ctx with the process.
func (r *Runner) lead(ctx, leading context.Context, work func(ctx context.Context) error) error {
	workCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	stopWatching := context.AfterFunc(leading, func() {
		r.fence.shut()
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

// release gives the lease back if it is still ours. client-go's own release would do
// so after a loss while work still runs.
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
	// One request without an answer must not cost the lease.
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
