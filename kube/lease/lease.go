// Package lease runs a function while this process holds a Lease. When the process loses
// the lease, it cancels the function, waits until it has returned, and becomes a
// candidate again. It does not exit when the API server is unreachable.
//
// It reads and writes Leases as client-go's leader election does, so both may be candidates
// for one Lease. There are two differences. A candidate watches the Lease instead of polling
// it: it takes a released Lease at once, and an expired one when its duration has passed. And
// client-go does not prevent writes after a lost lease (no fencing). The Fence does: it
// rejects writes in the transport of the clients that the function uses.
package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/liqod/liqod/kube/loop"
)

var errLost = errors.New("lease lost")

const (
	// releaseTimeout bounds the attempts of a terminating process to release its lease.
	releaseTimeout = 5 * time.Second
	// calm is the number of durations from the beginning of a candidacy after which a lost lease is
	// taken again at once.
	calm = 10
	// longestPause is the longest back-off after a lost lease in retry periods, without jitter.
	longestPause = 8
)

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
	// RetryPeriod is the time between two renewals, and between two attempts of a candidate
	// that cannot watch the Lease.
	RetryPeriod time.Duration
	// Log receives changes of leadership.
	Log *zap.Logger
	// Clock measures the ages of renewals. Timers always use the real clock.
	Clock clock.PassiveClock
	// Saw may be nil. It is called with the resource version of the Lease in each response
	// of the API server, in the order of the responses.
	Saw func(resourceVersion string)
	// Inherits may be nil. It reports that the writes of this holder are refused already,
	// because another lease, whose Fence they pass too, has gone from it to this process. What
	// it holds is taken at once.
	Inherits func(holder string) bool
	// Alone may be nil. It reports that no other process is a candidate, except one that Inherits
	// lets take the Lease at once. The Lease then lasts five times its Duration, and is renewed
	// when half of that is left. When Alone reports false again, the next write, within a
	// RetryPeriod, gives the Lease its usual Duration. A wrong report is safe, because candidates
	// and the Fence use the duration that was written.
	Alone func() bool
}

// Runner runs a function while it holds its lease. Only one Run may be active at a time.
type Runner struct {
	cfg   Config
	fence *Fence
	// before held the lease when this process took it; empty: this process does not hold the
	// lease, or nobody held it.
	before loop.Value[string]
}

// New returns a Runner, or an error if cfg is invalid. It starts no goroutines and sends
// no requests.
func New(cfg Config) (*Runner, error) {
	if cfg.Saw == nil {
		cfg.Saw = func(string) {}
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Runner{cfg: cfg, fence: &Fence{clock: cfg.Clock, boot: sinceBoot}}, nil
}

func (c Config) validate() error {
	if c.Namespace == "" || c.Name == "" {
		return errors.New("a lease needs a namespace and a name")
	}
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("lease %s/%s: "+format, append([]any{c.Namespace, c.Name}, args...)...)
	}
	switch {
	case c.Identity == "":
		return wrong("the identity is empty: a name that no other candidate has is accepted")
	case c.RetryPeriod <= 0:
		return wrong("a retry period of %s is not accepted: more than 0 is", c.RetryPeriod)
	case c.RenewDeadline <= time.Duration(jitter*float64(c.RetryPeriod)):
		return wrong("a renew deadline of %s is not accepted: more than %g times the retry period of %s is", c.RenewDeadline, jitter, c.RetryPeriod)
	case c.Duration <= c.RenewDeadline:
		return wrong("a duration of %s is not accepted: more than the renew deadline of %s is", c.Duration, c.RenewDeadline)
	}
	return nil
}

// Fence returns the Gate for the clients that the work writes with.
func (r *Runner) Fence() *Fence { return r.fence }

// Took reports whether this process holds the lease and has taken it from this holder, who
// had not released it.
func (r *Runner) Took(holder string) bool { return holder != "" && r.before.Get() == holder }

// Run is a candidate for the lease until ctx is done, and calls work while it holds the
// lease. The context of work is cancelled when ctx is done or the lease is lost. work
// must return then, and Run waits for it. After a lost lease Run is a candidate again. The first
// time it is one at once. If it loses the lease again soon, it backs off, because work lists
// everything when it begins: processes that lose their leases by load would add to the load. If
// work returns by itself, Run returns its error; if ctx is done, Run returns nil. In both
// cases it first releases the lease, for which it tries for at most 5 seconds. It never
// releases the lease while work is running.
func (r *Runner) Run(ctx context.Context, work func(ctx context.Context) error) error {
	var pause time.Duration
	for ctx.Err() == nil {
		began := r.cfg.Clock.Now()
		done, err := r.term(ctx, work)
		if done || err != nil {
			return err
		}
		if r.cfg.Clock.Since(began) > calm*r.cfg.Duration {
			pause = 0
		}
		_ = loop.Pause(ctx, wait.Jitter(pause, 1))
		pause = loop.Backoff{First: r.cfg.RetryPeriod, Longest: longestPause * r.cfg.RetryPeriod}.Next(pause)
	}
	return nil
}

// term is one candidacy and the leadership that may follow it. It returns true if work
// returned by itself.
func (r *Runner) term(ctx context.Context, work func(ctx context.Context) error) (bool, error) {
	held := r.acquire(ctx)
	if held == nil {
		return false, nil
	}
	// The lease is renewed until work has returned, so the renewals outlive ctx.
	keeping, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	leading, lose := context.WithCancel(keeping)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		defer lose()
		r.keep(keeping, held)
	}()
	err := r.lead(ctx, leading, work)
	ended := ctx.Err() == nil
	stop()
	<-kept
	r.fence.shut()
	r.before.Swap("")
	if errors.Is(err, errLost) {
		return false, nil
	}
	r.release(ctx)
	return ended, err
}

// lead runs work until it returns. leading is done when the lease is lost, ctx when the
// process terminates.
func (r *Runner) lead(ctx, leading context.Context, work func(ctx context.Context) error) error {
	workCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	stopWatching := context.AfterFunc(leading, func() {
		r.fence.shut()
		r.before.Swap("")
		cancel()
	})
	defer stopWatching()
	log := r.cfg.Log.With(zap.String("lease", r.name()), zap.String("identity", r.cfg.Identity))
	log.Info("lease acquired")
	err := work(workCtx)
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

// release clears the holder of the lease if it is still this process.
func (r *Runner) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if err := r.giveBack(ctx); err != nil {
		r.cfg.Log.Warn("lease not given back; it will expire", zap.String("lease", r.name()), zap.Error(err))
	}
}

func (r *Runner) giveBack(ctx context.Context) error {
	have, err := r.get(ctx)
	if err != nil {
		return fmt.Errorf("reading the lease: %w", err)
	}
	if Holder(have) != r.cfg.Identity {
		return nil
	}
	next := have.DeepCopy()
	Hold(next, "", r.cfg.Clock.Now(), time.Second) // a Lease of no duration is not valid
	given, err := r.leases().Update(ctx, next, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("clearing the holder: %w", err)
	}
	r.cfg.Saw(given.ResourceVersion)
	return nil
}

func (r *Runner) leases() coordinationv1client.LeaseInterface {
	return r.cfg.Client.Leases(r.cfg.Namespace)
}

func (r *Runner) name() string { return r.cfg.Namespace + "/" + r.cfg.Name }

// requestTimeout bounds one request: a renewal whose response takes this long, and the one after
// it, fit into the renew deadline. One without a response leaves time for another.
func (r *Runner) requestTimeout() time.Duration { return r.cfg.RenewDeadline / 2 }

func (r *Runner) get(ctx context.Context) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, r.requestTimeout())
	defer cancel()
	lease, err := r.leases().Get(ctx, r.cfg.Name, metav1.GetOptions{})
	if err == nil {
		r.cfg.Saw(lease.ResourceVersion)
	}
	return lease, err
}

// clocksApart bounds by how much the clocks of a cluster's API servers differ.
const clocksApart = 10 * time.Second

// Holder returns the holder of a Lease; "" if it has none.
func Holder(l *coordinationv1.Lease) string {
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// Hold writes a holder into a Lease, with a renewal at the time at. An empty name releases the Lease. Each holder
// after the first one is a transition.
func Hold(l *coordinationv1.Lease, by string, at time.Time, duration time.Duration) {
	now := metav1.NewMicroTime(at)
	if by != "" && by != Holder(l) {
		l.Spec.AcquireTime, l.Spec.LeaseTransitions = &now, ptr.To(ptr.Deref(l.Spec.LeaseTransitions, -1)+1)
	}
	l.Spec.HolderIdentity, l.Spec.RenewTime, l.Spec.LeaseDurationSeconds = &by, &now, ptr.To(wholeSeconds(duration))
}

// wholeSeconds rounds up: a candidate must not wait for less than d.
func wholeSeconds(d time.Duration) int32 { return int32((d + time.Second - 1) / time.Second) }

// Duration returns how long after a renewal a Lease expires; otherwise, if it has no duration.
func Duration(l *coordinationv1.Lease, otherwise time.Duration) time.Duration {
	if s := l.Spec.LeaseDurationSeconds; s != nil && *s > 0 {
		return time.Duration(*s) * time.Second
	}
	return otherwise
}

// Silence is the time since the last renewal of a Lease, measured from the moment at which
// this process saw that renewal: the clocks of hosts differ. The zero value has seen none.
type Silence struct {
	renewal string
	since   time.Time
}

// See records a Lease at the time now. A Lease with the renewal that was seen before changes
// nothing.
func (s *Silence) See(l *coordinationv1.Lease, now time.Time) {
	if s.Broken(l) {
		s.renewal, s.since = renewal(l), now
	}
}

// Recall is See for a process that waits for a Lease. The first time it counts the time before, too: a
// process that replaces one of a lost node has not seen the last renewal. The clocks of hosts have no
// part in it. An API server notes the time of each write in the Lease, and a write that it does not
// store says what the time is now. With an error nothing is counted.
func (s *Silence) Recall(ctx context.Context, leases coordinationv1client.LeaseInterface, l *coordinationv1.Lease, now time.Time) {
	first, last := s.since.IsZero(), written(l)
	s.See(l, now)
	if !first || last.IsZero() || Holder(l) == "" {
		return
	}
	try := l.DeepCopy()
	try.Spec.RenewTime = &metav1.MicroTime{Time: now}
	if try, err := leases.Update(ctx, try, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}); err == nil {
		s.since = s.since.Add(min(0, clocksApart-written(try).Sub(last)))
	}
}

// written returns when an API server has written a Lease last, by its clock; zero: it is not known.
func written(l *coordinationv1.Lease) (out time.Time) {
	for _, f := range l.ManagedFields {
		if f.Time != nil && f.Time.After(out) {
			out = f.Time.Time
		}
	}
	return out
}

// Broken reports whether a Lease has another renewal than the one that was seen.
func (s Silence) Broken(l *coordinationv1.Lease) bool {
	return s.since.IsZero() || s.renewal != renewal(l)
}

// Left returns the time until a Lease of this duration expires.
func (s Silence) Left(now time.Time, duration time.Duration) time.Duration {
	return duration - now.Sub(s.since)
}

// renewal identifies the last renewal of a Lease.
func renewal(l *coordinationv1.Lease) string {
	text := string(l.UID) + " " + Holder(l)
	if l.Spec.RenewTime != nil {
		text += " " + l.Spec.RenewTime.UTC().Format(time.RFC3339Nano)
	}
	return text
}
