package lease

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/liqod/liqod/kube/kubetest"
)

const (
	duration      = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// server is a fake API server that can be made unreachable.
type server struct {
	*fake.Clientset

	away atomic.Bool

	mu      sync.Mutex
	version int
}

var leases = coordinationv1.SchemeGroupVersion.WithResource("leases")

func newServer() *server {
	s := &server{Clientset: fake.NewClientset()}
	s.PrependReactor("update", "leases", func(a k8stesting.Action) (bool, runtime.Object, error) {
		lease := a.(k8stesting.UpdateAction).GetObject().(*coordinationv1.Lease).DeepCopy()
		lease.ManagedFields = []metav1.ManagedFieldsEntry{{Time: &metav1.Time{Time: time.Now()}}}
		if len(a.(k8stesting.UpdateActionImpl).UpdateOptions.DryRun) > 0 {
			return true, lease, nil
		}
		err := s.compareAndSwap(lease)
		return true, lease, err
	})
	s.PrependReactor("*", "leases", func(k8stesting.Action) (bool, runtime.Object, error) {
		return s.away.Load(), nil, apierrors.NewServiceUnavailable("away")
	})
	return s
}

// compareAndSwap rejects a write with an outdated resource version, which the fake
// tracker of client-go does not.
func (s *server) compareAndSwap(lease *coordinationv1.Lease) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	have, err := s.Tracker().Get(leases, lease.Namespace, lease.Name)
	if err != nil {
		return err
	}
	if have.(*coordinationv1.Lease).ResourceVersion != lease.ResourceVersion {
		return apierrors.NewConflict(leases.GroupResource(), lease.Name, errors.New("stale"))
	}
	s.version++
	lease.ResourceVersion = strconv.Itoa(s.version)
	return s.Tracker().Update(leases, lease, lease.Namespace)
}

func (s *server) holder(t *testing.T) string {
	t.Helper()
	got, err := s.Tracker().Get(leases, "ns", "work")
	require.NoError(t, err)
	holder := got.(*coordinationv1.Lease).Spec.HolderIdentity
	if holder == nil {
		return ""
	}
	return *holder
}

func (s *server) setHolder(t *testing.T, identity string) {
	t.Helper()
	got := kubetest.Get(t, s.CoordinationV1().Leases("ns"), "work")
	got = got.DeepCopy()
	now := metav1.NewMicroTime(time.Now())
	got.Spec.HolderIdentity, got.Spec.RenewTime = &identity, &now
	kubetest.Update(t, s.CoordinationV1().Leases("ns"), got)
}

// diary records events in order.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) add(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
}

func (d *diary) take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	lines := d.lines
	d.lines = nil
	return lines
}

func newRunner(t *testing.T, s *server, identity string, change ...func(*Config)) *Runner {
	t.Helper()
	cfg := Config{
		Client: s.CoordinationV1(), Namespace: "ns", Name: "work", Identity: identity,
		Duration: duration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod, Log: zap.NewNop(), Clock: clock.RealClock{},
	}
	for _, f := range change {
		f(&cfg)
	}
	r, err := New(cfg)
	require.NoError(t, err)
	r.fence.boot = neverSuspended
	return r
}

// neverSuspended replaces the time since the boot, which a bubble does not stop: on a slow machine
// a few seconds of the bubble take longer than the renew deadline.
func neverSuspended() time.Duration { return 0 }

// worker returns a function that works until its context is done, and returns linger
// later.
func worker(d *diary, name string, linger time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		d.add(name + " works")
		<-ctx.Done()
		d.add(name + " stops")
		time.Sleep(linger) // fake time: what is under test is that it is waited for
		d.add(name + " stopped")
		return ctx.Err()
	}
}

func TestReleaseComesAfterWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := newServer(), &diary{}
		s.PrependReactor("update", "leases", func(a k8stesting.Action) (bool, runtime.Object, error) {
			lease := a.(k8stesting.UpdateAction).GetObject().(*coordinationv1.Lease)
			if *lease.Spec.HolderIdentity == "" {
				d.add("released")
			}
			return false, nil, nil
		})
		r := newRunner(t, s, "a")
		require.ErrorIs(t, r.Fence().Allow(), ErrFenced)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx, worker(d, "a", 20*time.Second)) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"a works"}, d.take())
		require.NoError(t, r.Fence().Allow())

		cancel()
		time.Sleep(19 * time.Second)
		// Work that winds down still holds the lease, and may write.
		require.Equal(t, "a", s.holder(t))
		require.NoError(t, r.Fence().Allow())
		require.NoError(t, <-done)
		require.Equal(t, []string{"a stops", "a stopped", "released"}, d.take())
		require.Empty(t, s.holder(t))
		require.ErrorIs(t, r.Fence().Allow(), ErrFenced)
	})
}

func TestServerAwayCostsTheLeaseButNotTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := newServer(), &diary{}
		r := newRunner(t, s, "a")
		stop := kubetest.Run(t, func(ctx context.Context) error { return r.Run(ctx, worker(d, "a", 30*time.Second)) })
		time.Sleep(time.Second)
		synctest.Wait()
		d.take()

		s.away.Store(true)
		time.Sleep(renewDeadline + retryPeriod + time.Second)
		require.ErrorIs(t, r.Fence().Allow(), ErrFenced)
		require.Equal(t, []string{"a stops"}, d.take())
		// It is back before the old work has ended: the new work waits for that.
		s.away.Store(false)
		time.Sleep(25 * time.Second)
		require.Empty(t, d.take())
		require.ErrorIs(t, r.Fence().Allow(), ErrFenced)
		time.Sleep(10 * time.Second)
		require.Equal(t, []string{"a stopped", "a works"}, d.take())
		require.NoError(t, r.Fence().Allow())

		stop()
	})
}

// A process that loses its lease by load, again and again, backs off: its work lists everything
// when it begins. After a lease that it kept for longer it begins again at once.
func TestLeaseThatIsLostAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		var lists int
		var lost, began time.Time
		var loaded atomic.Bool
		loaded.Store(true)
		r := newRunner(t, s, "a")
		stop := kubetest.Run(t, func(ctx context.Context) error {
			return r.Run(ctx, func(ctx context.Context) error {
				lists++
				began = time.Now()
				s.away.Store(loaded.Load())
				<-ctx.Done()
				lost = time.Now()
				s.away.Store(false)
				return nil
			})
		})
		time.Sleep(renewDeadline + time.Second)
		synctest.Wait()
		require.Equal(t, 2, lists)
		require.Less(t, began.Sub(lost), time.Second, "the first time")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		// A term of renewDeadline, and 1 to 2 times longestPause without the lease.
		require.LessOrEqual(t, lists, 10*60/(10+16)+6)
		require.GreaterOrEqual(t, lists, 10*60/(10+2*16))
		loaded.Store(false)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		steady := lists
		s.away.Store(true)
		time.Sleep(renewDeadline + retryPeriod)
		synctest.Wait()
		require.Equal(t, steady+1, lists)
		require.Less(t, began.Sub(lost), time.Second, "the first time again")
		stop()
	})
}

func TestTakeOverWaitsOutTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := newServer(), &diary{}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		a, b := newRunner(t, s, "a"), newRunner(t, s, "b")
		var wg sync.WaitGroup
		wg.Go(func() { _ = a.Run(ctx, worker(d, "a", 0)) })
		time.Sleep(time.Second)
		wg.Go(func() { _ = b.Run(ctx, worker(d, "b", 0)) })
		time.Sleep(time.Minute)
		require.Equal(t, []string{"a works"}, d.take())
		require.ErrorIs(t, b.Fence().Allow(), ErrFenced)

		// Somebody else has taken the lease: a must notice, and b must wait.
		s.setHolder(t, "c")
		time.Sleep(retryPeriod + renewDeadline + time.Second)
		require.Equal(t, []string{"a stops", "a stopped"}, d.take())
		require.ErrorIs(t, a.Fence().Allow(), ErrFenced)
		require.Equal(t, "c", s.holder(t))
		time.Sleep(2 * duration)
		require.Len(t, d.take(), 1)
		cancel()
		wg.Wait()
	})
}

func TestCandidateStopsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := newServer(), &diary{}
		s.away.Store(true)
		r := newRunner(t, s, "a")
		stop := kubetest.Run(t, func(ctx context.Context) error { return r.Run(ctx, worker(d, "a", 0)) })
		time.Sleep(time.Hour)
		start := time.Now()
		stop()
		require.Less(t, time.Since(start), time.Second)
		require.Empty(t, d.take())
	})
}

func TestWorkThatEndsGivesTheLeaseBack(t *testing.T) {
	for name, want := range map[string]error{"well": nil, "badly": errors.New("broken")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				got := newRunner(t, s, "a").Run(t.Context(), func(context.Context) error { return want })
				require.Equal(t, want, got)
				require.Empty(t, s.holder(t))
			})
		})
	}
}

func TestReleaseGivesUpInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := newServer(), &diary{}
		r := newRunner(t, s, "a")
		stop := kubetest.Run(t, func(ctx context.Context) error { return r.Run(ctx, worker(d, "a", 0)) })
		time.Sleep(time.Second)
		s.away.Store(true)
		start := time.Now()
		stop()
		require.LessOrEqual(t, time.Since(start), releaseTimeout)
		require.Equal(t, "a", s.holder(t))
	})
}

func TestFenceClosesWithoutRenewal(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(time.Now())
	f := &Fence{clock: clk, boot: func() time.Duration { return 0 }}
	require.ErrorIs(t, f.Allow(), ErrFenced)
	start := clk.Now()
	f.open(start, 0, renewDeadline)
	require.NoError(t, f.Allow())
	clk.SetTime(start.Add(renewDeadline - time.Nanosecond))
	require.NoError(t, f.Allow())
	// A paused process wakes up here: nobody has closed the fence.
	clk.SetTime(start.Add(renewDeadline))
	require.ErrorIs(t, f.Allow(), ErrFenced)
	f.open(clk.Now(), 0, renewDeadline)
	require.NoError(t, f.Allow())
	f.shut()
	require.ErrorIs(t, f.Allow(), ErrFenced)
}

// TestFenceBeforeAShorterLease: the answer to the write that makes the lease shorter may be lost.
func TestFenceBeforeAShorterLease(t *testing.T) {
	start := time.Now()
	clk := clocktesting.NewFakePassiveClock(start)
	f := &Fence{clock: clk, boot: neverSuspended}
	f.narrow(start, 0, renewDeadline)
	require.ErrorIs(t, f.Allow(), ErrFenced, "the lease is not held")
	f.open(start, 0, time.Minute)
	clk.SetTime(start.Add(30 * time.Second))
	f.narrow(clk.Now(), 0, renewDeadline)
	require.NoError(t, f.Allow(), "it still holds the longer one")
	require.Equal(t, renewDeadline, f.left())
	clk.SetTime(clk.Now().Add(time.Second))
	f.narrow(clk.Now(), 0, renewDeadline)
	require.Equal(t, renewDeadline-time.Second, f.left(), "a write that was not answered is no renewal")
}

// TestFenceOfASuspendedMachine: the monotonic clock stands still meanwhile, and other candidates
// take over.
func TestFenceOfASuspendedMachine(t *testing.T) {
	t.Parallel()
	booted := time.Hour
	f := &Fence{clock: clocktesting.NewFakePassiveClock(time.Now()), boot: func() time.Duration { return booted }}
	f.open(f.clock.Now(), booted, renewDeadline)
	require.NoError(t, f.Allow())
	booted += renewDeadline
	require.ErrorIs(t, f.Allow(), ErrFenced)
	require.LessOrEqual(t, f.left(), time.Duration(0))
	f.open(f.clock.Now(), booted-renewDeadline, renewDeadline)
	require.ErrorIs(t, f.Allow(), ErrFenced, "an answer that waited in the socket")
	f.open(f.clock.Now(), booted, renewDeadline)
	require.NoError(t, f.Allow())

	before := sinceBoot()
	require.Positive(t, before)
	require.GreaterOrEqual(t, sinceBoot(), before)
}

func TestRenewalCountsFromBeforeItWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.PrependReactor("*", "leases", func(k8stesting.Action) (bool, runtime.Object, error) {
			time.Sleep(4 * time.Second) // fake time: a slow server
			return false, nil, nil
		})
		r := newRunner(t, s, "a")
		var age time.Duration
		require.NoError(t, r.Run(t.Context(), func(context.Context) error {
			age = time.Since(r.fence.renewed)
			return nil
		}))
		require.GreaterOrEqual(t, age, 4*time.Second)
	})
}

func TestNewRefusesImpossibleTimes(t *testing.T) {
	for name, cfg := range map[string]Config{
		"no name":                        {Namespace: "ns", Identity: "a", Duration: 15, RenewDeadline: 10, RetryPeriod: 2},
		"no identity":                    {Namespace: "ns", Name: "n", Duration: duration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod},
		"deadline longer than the lease": {Namespace: "ns", Name: "n", Identity: "a", Duration: renewDeadline, RenewDeadline: duration, RetryPeriod: retryPeriod},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(cfg)
			require.Error(t, err)
		})
	}
}

func TestRunnerTellsOfAnswers(t *testing.T) {
	client := fake.NewClientset()
	version, holder := "7", "self"
	answer := func() *coordinationv1.Lease {
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "l", ResourceVersion: version}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder},
		}
	}
	client.PrependReactor("*", "leases", func(k8stesting.Action) (bool, runtime.Object, error) {
		if version == "" {
			return false, nil, nil // there is no Lease
		}
		return true, answer(), nil
	})
	var saw []string
	r := newRunner(t, &server{Clientset: client}, holder, func(c *Config) { c.Saw = func(v string) { saw = append(saw, v) } })
	held, err := r.write(t.Context(), nil)
	require.NoError(t, err)
	version = "8"
	_, err = r.write(t.Context(), held)
	require.NoError(t, err)
	version = "9"
	require.NoError(t, r.giveBack(t.Context()), "it reads and writes")

	version, holder = "10", "other"
	c := &candidacy{clock: r.cfg.Clock}
	c.see(answer())
	events := watch.NewFakeWithChanSize(2, false)
	client.PrependWatchReactor("leases", k8stesting.DefaultWatchReactor(events, nil))
	version = "11"
	events.Modify(answer())
	version = "12"
	events.Delete(answer())
	require.NoError(t, r.follow(t.Context(), c))

	version = ""
	_, err = r.get(t.Context())
	require.Error(t, err)
	require.Equal(t, []string{"7", "8", "9", "9", "11", "12"}, saw)
}
