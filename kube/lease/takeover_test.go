package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

// The defaults of config.yaml.
const (
	defaultDuration = 8 * time.Second
	defaultDeadline = 6 * time.Second
	defaultRetry    = 1500 * time.Millisecond
)

func withDefaults(c *Config) {
	c.Duration, c.RenewDeadline, c.RetryPeriod = defaultDuration, defaultDeadline, defaultRetry
}

// line is the connection of one candidate to the API server, which may be cut, or slow.
type line struct {
	coordinationv1client.LeasesGetter

	cut  atomic.Bool
	late atomic.Int64 // nanoseconds from a request to its answer
}

// Leases implements coordinationv1client.LeasesGetter.
func (l *line) Leases(namespace string) coordinationv1client.LeaseInterface {
	return lineLeases{l.LeasesGetter.Leases(namespace), l}
}

type lineLeases struct {
	coordinationv1client.LeaseInterface

	line *line
}

var errCut = errors.New("the line is cut")

func (l lineLeases) Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error) {
	if l.line.cut.Load() {
		return nil, errCut
	}
	got, err := l.LeaseInterface.Get(ctx, name, o)
	return l.line.answer(ctx, got, err)
}

func (l lineLeases) Update(ctx context.Context, lease *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if l.line.cut.Load() {
		return nil, errCut
	}
	got, err := l.LeaseInterface.Update(ctx, lease, o)
	return l.line.answer(ctx, got, err)
}

// answer delivers what the API server has done already.
func (l *line) answer(ctx context.Context, lease *coordinationv1.Lease, err error) (*coordinationv1.Lease, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(time.Duration(l.late.Load())):
		return lease, err
	}
}

// candidates are two processes with the default times. Each notes when its work begins and
// ends.
type candidates struct {
	*server

	alone atomic.Bool // Config.Alone of both
	lines map[string]*line
	stop  map[string]context.CancelFunc

	mu    sync.Mutex
	began map[string]time.Time
	ended map[string]time.Time
}

// newCandidates starts a, which leads then, and b, which stands by.
func newCandidates(t *testing.T, s *server, linger time.Duration) *candidates {
	t.Helper()
	c := &candidates{server: s, lines: map[string]*line{}, stop: map[string]context.CancelFunc{}, began: map[string]time.Time{}, ended: map[string]time.Time{}}
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	for _, name := range []string{"a", "b"} {
		c.lines[name] = &line{LeasesGetter: s.CoordinationV1()}
		r := newRunner(t, s, name, withDefaults, func(cfg *Config) { cfg.Client, cfg.Alone = c.lines[name], c.alone.Load })
		ctx, cancel := context.WithCancel(t.Context())
		c.stop[name] = cancel
		t.Cleanup(cancel)
		wg.Go(func() {
			_ = r.Run(ctx, func(ctx context.Context) error {
				c.note(c.began, name)
				<-ctx.Done()
				time.Sleep(linger) // fake time
				c.note(c.ended, name)
				return nil
			})
		})
		time.Sleep(20 * time.Second)
		synctest.Wait()
	}
	require.Equal(t, "a", s.holder(t))
	require.NotContains(t, c.began, "b")
	return c
}

func (c *candidates) note(in map[string]time.Time, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in[name] = time.Now()
}

// take waits until b works, and returns when that was and when the work of a had ended.
func (c *candidates) take(t *testing.T) (began, ended time.Time) {
	t.Helper()
	time.Sleep(time.Minute)
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	require.Contains(t, c.began, "b")
	require.Contains(t, c.ended, "a")
	return c.began["b"], c.ended["a"]
}

// A standby sends no requests while it watches, and follows a leader that stops at once.
func TestStoppedLeaderIsFollowedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCandidates(t, newServer(), 200*time.Millisecond)
		var gets atomic.Int32
		c.PrependReactor("get", "leases", func(k8stesting.Action) (bool, runtime.Object, error) {
			gets.Add(1)
			return false, nil, nil
		})
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Zero(t, gets.Load())
		require.Equal(t, "a", c.holder(t))
		c.stop["a"]()
		began, ended := c.take(t)
		require.False(t, began.Before(ended))
		require.Less(t, began.Sub(ended), 10*time.Millisecond)
	})
}

// A leader whose API server is unreachable is followed within 10 s at any moment between two
// renewals, after its own work has ended.
func TestSilentLeaderIsFollowedInTime(t *testing.T) {
	for name, refuse := range map[string]bool{"watched": false, "polled": true} {
		for _, phase := range []time.Duration{0, 300 * time.Millisecond, 700 * time.Millisecond, 1100 * time.Millisecond, 1400 * time.Millisecond} {
			t.Run(fmt.Sprintf("%s, %s after the renewal", name, phase), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newServer()
					if refuse {
						s.PrependWatchReactor("leases", func(k8stesting.Action) (bool, watch.Interface, error) {
							return true, nil, apierrors.NewForbidden(leases.GroupResource(), "work", errors.New("no right to watch"))
						})
					}
					c := newCandidates(t, s, 0)
					time.Sleep(phase)
					cut := time.Now()
					c.lines["a"].cut.Store(true)
					began, ended := c.take(t)
					require.Less(t, began.Sub(cut), 10*time.Second)
					require.GreaterOrEqual(t, began.Sub(ended), defaultDuration-defaultDeadline, "the time for writes in flight")
				})
			})
		}
	}
}

// aheadClock is ahead of the other clocks.
type aheadClock struct{ by time.Duration }

func (c aheadClock) Now() time.Time { return time.Now().Add(c.by) }

func (c aheadClock) Since(at time.Time) time.Duration { return c.Now().Sub(at) }

// A process that starts when a lease has not been renewed for long takes it at once: it is that of a
// lost node. It goes by the clock of the API server alone, and waits where the silence is short.
func TestReplacementTakesAnOldLease(t *testing.T) {
	for name, tc := range map[string]struct {
		silent, ahead, least, most time.Duration
	}{
		"of a lost node":         {silent: 45 * time.Second, most: time.Second},
		"with another clock":     {silent: 45 * time.Second, ahead: -time.Hour, most: time.Second},
		"for some seconds":       {silent: 5 * time.Second, least: duration, most: duration + time.Second},
		"with a clock far ahead": {silent: 5 * time.Second, ahead: time.Hour, least: duration, most: duration + time.Second},
		// The last renewal was up to a retry period before the silence, and its time is in whole seconds.
		"after most of the time": {silent: 20 * time.Second, least: 5*time.Second - defaultRetry - time.Second, most: 7 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				r, d := newRunner(t, s, "a"), &diary{}
				ctx, stop := context.WithCancel(t.Context())
				go func() { _ = r.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil }) }()
				time.Sleep(time.Minute)
				s.away.Store(true)
				stop() // it cannot release the lease
				time.Sleep(tc.silent)
				s.away.Store(false)
				b := newRunner(t, s, "b", withDefaults, func(c *Config) { c.Clock = aheadClock{tc.ahead} })
				ctx, stop = context.WithCancel(t.Context())
				defer stop()
				began := time.Now()
				var took time.Duration
				require.NoError(t, b.Run(ctx, func(context.Context) error { took = time.Since(began); d.add("b works"); stop(); return nil }))
				require.Equal(t, []string{"b works"}, d.take())
				require.True(t, took >= tc.least && took <= tc.most, "it took the lease after %s", took)
			})
		})
	}
}

// A short outage and a slow API server cost no lease, at any moment between two renewals.
func TestSlowServerIsSurvived(t *testing.T) {
	for name, tc := range map[string]struct{ late, lasts time.Duration }{
		"no answers":                 {0, defaultDeadline - defaultRetry - defaultRetry/sooner - 100*time.Millisecond},
		"each answer takes its time": {defaultDeadline/2 - 100*time.Millisecond, time.Minute},
		"one answer does not come":   {time.Hour, defaultRetry + 100*time.Millisecond},
	} {
		for _, phase := range []time.Duration{0, 500 * time.Millisecond, time.Second, 1400 * time.Millisecond} {
			t.Run(fmt.Sprintf("%s, %s after the renewal", name, phase), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newCandidates(t, newServer(), 0)
					time.Sleep(phase)
					c.away.Store(tc.late == 0)
					c.lines["a"].late.Store(int64(tc.late))
					time.Sleep(tc.lasts)
					c.away.Store(false)
					c.lines["a"].late.Store(0)
					time.Sleep(time.Minute)
					synctest.Wait()
					require.Equal(t, "a", c.holder(t))
					c.mu.Lock()
					defer c.mu.Unlock()
					require.Empty(t, c.ended)
				})
			})
		}
	}
}

// The holder of a deleted lease has not noticed yet: nobody else creates the lease before
// the holder's time is over.
func TestDeletedLeaseIsNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCandidates(t, newServer(), 0)
		for range 5 {
			require.NoError(t, c.Tracker().Delete(leases, "ns", "work"))
			time.Sleep(3 * time.Second)
			synctest.Wait()
			require.Equal(t, "a", c.holder(t))
		}
		c.lines["a"].cut.Store(true)
		require.NoError(t, c.Tracker().Delete(leases, "ns", "work"))
		began, ended := c.take(t)
		require.GreaterOrEqual(t, began.Sub(ended), defaultDuration-defaultDeadline)
		require.Equal(t, "b", c.holder(t))
	})
}

// writesIn returns how often the lease is written in d.
func (c *candidates) writesIn(t *testing.T, d time.Duration) int {
	t.Helper()
	version := func() int {
		c.server.mu.Lock()
		defer c.server.mu.Unlock()
		return c.version
	}
	before := version()
	time.Sleep(d)
	synctest.Wait()
	require.Equal(t, "a", c.holder(t))
	return version() - before
}

// A holder that is the only candidate renews its lease rarely. When there is another one, it is
// followed as soon as any holder.
func TestOnlyCandidateRenewsRarely(t *testing.T) {
	for name, cut := range map[string]func(*line){
		"cut off": func(l *line) { l.cut.Store(true) },
		// The write that makes the lease shorter is stored, and its answer does not arrive.
		"cut off before the next answer": func(l *line) { l.late.Store(int64(time.Hour)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCandidates(t, newServer(), 0)
				require.GreaterOrEqual(t, c.writesIn(t, time.Minute), 39)
				c.alone.Store(true)
				c.writesIn(t, 2*defaultRetry)
				require.LessOrEqual(t, c.writesIn(t, 10*time.Minute), 10*60/18+1, "about every 20 s")

				// A short outage costs no lease, as any.
				c.away.Store(true)
				time.Sleep(15 * time.Second)
				c.away.Store(false)
				require.Positive(t, c.writesIn(t, 30*time.Second))

				c.alone.Store(false)
				if name == "cut off" {
					c.writesIn(t, defaultRetry)
					require.GreaterOrEqual(t, c.writesIn(t, time.Minute), 39)
				}
				since := time.Now()
				cut(c.lines["a"])
				began, ended := c.take(t)
				require.Less(t, began.Sub(since), 10*time.Second+defaultRetry)
				require.GreaterOrEqual(t, began.Sub(ended), defaultDuration-defaultDeadline, "the time for writes in flight")
			})
		})
	}
}

// A holder that was alone is followed when its longer lease has expired, and not before.
func TestLongerLeaseIsWaitedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCandidates(t, newServer(), 0)
		c.alone.Store(true)
		c.writesIn(t, 2*defaultRetry)
		c.lines["a"].cut.Store(true)
		since := time.Now()
		began, ended := c.take(t)
		require.Greater(t, began.Sub(since), (longer-1)*defaultDuration)
		require.GreaterOrEqual(t, began.Sub(ended), defaultDuration-defaultDeadline)
	})
}

// The holder's own duration counts, which may be that of another version.
func TestHoldersDurationCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, now := newServer(), metav1.NewMicroTime(time.Now())
		require.NoError(t, s.Tracker().Add(&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "work"},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: ptr.To("old"), LeaseDurationSeconds: ptr.To[int32](15), AcquireTime: &now, RenewTime: &now, LeaseTransitions: ptr.To[int32](3),
			},
		}))
		start := time.Now()
		var after time.Duration
		r := newRunner(t, s, "a", withDefaults, func(c *Config) { c.Duration = 8500 * time.Millisecond })
		require.NoError(t, r.Run(t.Context(), func(context.Context) error {
			after = time.Since(start)
			got, err := s.Tracker().Get(leases, "ns", "work")
			require.NoError(t, err)
			spec := got.(*coordinationv1.Lease).Spec
			require.EqualValues(t, 9, *spec.LeaseDurationSeconds, "rounded up")
			require.EqualValues(t, 4, *spec.LeaseTransitions)
			return nil
		}))
		require.GreaterOrEqual(t, after, 15*time.Second)
		require.Less(t, after, 16*time.Second)
	})
}

// Of several candidates one gets a released lease.
func TestOneOfSeveralTakesTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		var mu sync.Mutex
		working, most, terms := 0, 0, []string{}
		stops := map[string]context.CancelFunc{}
		var wg sync.WaitGroup
		for _, name := range []string{"a", "b", "c", "d"} {
			r := newRunner(t, s, name)
			ctx, cancel := context.WithCancel(t.Context())
			stops[name] = cancel
			wg.Go(func() {
				_ = r.Run(ctx, func(ctx context.Context) error {
					mu.Lock()
					working++
					most, terms = max(most, working), append(terms, name)
					mu.Unlock()
					<-ctx.Done()
					mu.Lock()
					working--
					mu.Unlock()
					return nil
				})
			})
		}
		for range 4 {
			time.Sleep(5 * time.Second)
			synctest.Wait()
			stops[s.holder(t)]()
		}
		wg.Wait()
		require.Equal(t, 1, most)
		slices.Sort(terms)
		require.Equal(t, []string{"a", "b", "c", "d"}, terms)
	})
}

// A process that has taken one lease from a holder takes the other one, whose writes the first
// one fences too, at once. That of anybody else it does not take.
func TestSecondLeaseIsInherited(t *testing.T) {
	for name, holder := range map[string]string{"of the same holder": "a", "of another": "c"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, now := newServer(), metav1.NewMicroTime(time.Now())
				for lease, by := range map[string]string{"first": "a", "second": holder} {
					require.NoError(t, s.Tracker().Add(&coordinationv1.Lease{
						ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: lease},
						Spec:       coordinationv1.LeaseSpec{HolderIdentity: &by, LeaseDurationSeconds: ptr.To[int32](8), RenewTime: &now},
					}))
				}
				first := newRunner(t, s, "b", withDefaults, func(c *Config) { c.Name = "first" })
				require.False(t, first.Took("a"))
				second := newRunner(t, s, "b", withDefaults, func(c *Config) { c.Name, c.Inherits = "second", first.Took })
				var took time.Duration
				require.NoError(t, first.Run(t.Context(), func(ctx context.Context) error {
					require.True(t, first.Took("a"))
					require.False(t, first.Took(""))
					start := time.Now()
					return second.Run(ctx, func(context.Context) error {
						took = time.Since(start)
						return nil
					})
				}))
				require.False(t, first.Took("a"), "it is released")
				if holder == "a" {
					require.Zero(t, took)
				} else {
					require.GreaterOrEqual(t, took, defaultDuration)
				}
			})
		})
	}
}
