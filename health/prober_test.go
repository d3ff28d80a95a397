package health

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

type change struct {
	State
	at time.Duration
}

// run probes for d of the bubble's time and returns the changes of the verdict. Checks may run at
// the same time.
func run(t *testing.T, d time.Duration, check func(ctx context.Context, since time.Duration) error) []change {
	start := time.Now()
	var got []change
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	NewProber(Window{Size: 5, Failures: 3, Successes: 2}).Run(ctx, time.Second, time.Second,
		func(ctx context.Context) error { return check(ctx, time.Since(start)) },
		func(s State) { got = append(got, change{s, time.Since(start)}) })
	return got
}

// TestTurnsDownInTimeAndBack lets a fault begin at many moments between two probes, also right
// after a success.
func TestTurnsDownInTimeAndBack(t *testing.T) {
	for name, tc := range map[string]struct {
		fail func(ctx context.Context) error
		down time.Duration // at the latest
	}{
		"refused":         {func(context.Context) error { return errors.New("refused") }, 2 * time.Second},
		"packets dropped": {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, 2500 * time.Millisecond},
		"answers too late": {func(context.Context) error {
			time.Sleep(1500 * time.Millisecond) // the bubble's clock
			return nil
		}, 2500 * time.Millisecond},
		"errors after 900 ms": {func(context.Context) error {
			time.Sleep(900 * time.Millisecond) // the bubble's clock
			return errors.New("no leader")
		}, 2500 * time.Millisecond},
	} {
		for _, later := range []time.Duration{1, 100, 300, 600, 999} {
			t.Run(fmt.Sprintf("%s/%d ms", name, later), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					dies, recovers := 10*time.Second+later*time.Millisecond, time.Minute
					got := run(t, 2*time.Minute, func(ctx context.Context, since time.Duration) error {
						if since < dies || since >= recovers {
							return nil
						}
						return tc.fail(ctx)
					})
					require.Equal(t, []Verdict{Up, Down, Up}, verdicts(got))
					require.Zero(t, got[0].at, "the first success is enough")
					require.LessOrEqual(t, got[1].at-dies, tc.down)
					require.LessOrEqual(t, got[2].at-recovers, 4*time.Second)
				})
			})
		}
	}
}

func verdicts(changes []change) (out []Verdict) {
	for _, c := range changes {
		out = append(out, c.Verdict)
	}
	return out
}

// TestShortFaultsChangeNothing: two retries after a refusal take a second. What is held for less than
// one and a half timeouts, as by TCP when packets are lost, is answered in time.
func TestShortFaultsChangeNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		lasts time.Duration
		fail  func(ctx context.Context, rest time.Duration) error
	}{
		"refused": {990 * time.Millisecond, func(context.Context, time.Duration) error { return errors.New("refused") }},
		"held": {1490 * time.Millisecond, func(ctx context.Context, rest time.Duration) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(rest): // the bubble's clock
				return nil
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const every = 10 * time.Second
				got := run(t, 5*time.Minute, func(ctx context.Context, since time.Duration) error {
					if rest := tc.lasts - since%every; rest > 0 && since >= every {
						return tc.fail(ctx, rest)
					}
					return nil
				})
				require.Equal(t, []Verdict{Up}, verdicts(got))
			})
		})
	}
}

// TestLostPacketsAreNoOutage: one of ten packets is lost in each direction, and TCP sends what is lost
// again after 0.2 s, then 0.4 s, and so on.
func TestLostPacketsAreNoOutage(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			chance := rand.New(rand.NewPCG(seed, seed))
			slow := 0
			var deciding sync.Mutex
			got := run(t, 30*time.Minute, func(ctx context.Context, _ time.Duration) error {
				deciding.Lock()
				took := time.Millisecond
				for again := 200 * time.Millisecond; chance.IntN(100) < 19; again *= 2 {
					took += again
				}
				if took > time.Second {
					slow++
				}
				deciding.Unlock()
				select {
				case <-time.After(took): // the bubble's clock
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
			require.Equal(t, []Verdict{Up}, verdicts(got), "seed %d", seed)
			require.Greater(t, slow, 5)
		})
	}
}

// TestFaultsThatAreNoOutage: what a server does to single checks, and how many checks it gets.
func TestFaultsThatAreNoOutage(t *testing.T) {
	silent := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for name, tc := range map[string]struct {
		lasts  time.Duration
		check  func(ctx context.Context, n int32, since time.Duration) error
		want   Verdict
		least  int32 // checks
		failed int32 // of them at least
		most   int32
	}{
		"one failure in ten": {5 * time.Minute, func(ctx context.Context, n int32, _ time.Duration) error {
			if n%10 == 0 {
				return silent(ctx)
			}
			return nil
		}, Up, 290, 1, 900},
		"two timeouts are not three": {20 * time.Second, func(ctx context.Context, n int32, _ time.Duration) error {
			if n == 5 || n == 6 {
				return silent(ctx)
			}
			return nil
		}, Up, 0, 2, 900},
		// A lost packet is no failure when the next check gets an answer, which ends the checks under way.
		"two of three get no answer": {5 * time.Minute, func(ctx context.Context, n int32, _ time.Duration) error {
			if n%3 != 0 {
				return silent(ctx)
			}
			return nil
		}, Up, 0, 1, 900},
		// The end of a connection ends all checks on it.
		"checks that fail together are one failure": {5 * time.Minute, func(_ context.Context, _ int32, since time.Duration) error {
			const every, lasts = 10 * time.Second, 600 * time.Millisecond
			rest := lasts - since%every
			if rest <= 0 || since < every {
				return nil
			}
			time.Sleep(rest) // the bubble's clock
			return errors.New("connection reset by peer")
		}, Up, 0, 3 * 29, 900},
		"a server that needs 0.9 s for each answer": {5 * time.Minute, func(ctx context.Context, _ int32, _ time.Duration) error {
			select {
			case <-time.After(900 * time.Millisecond): // the bubble's clock
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}, Up, 0, 0, 900},
		"a quiet server gets one check in an interval": {time.Minute, func(context.Context, int32, time.Duration) error { return nil }, Up, 0, 0, 62},
		"and so does one that is down":                 {time.Minute, func(context.Context, int32, time.Duration) error { return errors.New("refused") }, Down, 0, 1, 62},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var n, failed, most, under atomic.Int32
				got := run(t, tc.lasts, func(ctx context.Context, since time.Duration) error {
					most.Store(max(most.Load(), under.Add(1)))
					defer under.Add(-1)
					err := tc.check(ctx, n.Add(1), since)
					if err != nil {
						failed.Add(1)
					}
					return err
				})
				require.Equal(t, []Verdict{tc.want}, verdicts(got))
				require.GreaterOrEqual(t, failed.Load(), tc.failed)
				require.LessOrEqual(t, most.Load(), int32(3), "at a time")
				require.GreaterOrEqual(t, n.Load(), tc.least)
				require.LessOrEqual(t, n.Load(), tc.most)
			})
		})
	}
}

// TestAStepCountsOnceHoweverLongItTook: a process that stood still has not waited for an answer.
func TestAStepCountsOnceHoweverLongItTook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewProber(Window{Size: 1, Failures: 1, Successes: 1})
		r := &probing{prober: p, interval: time.Second, retry: 500 * time.Millisecond, quarter: 250 * time.Millisecond, timeout: time.Second,
			check:    func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
			onChange: func(State) {}, answers: make(chan answer)}
		r.start(t.Context())
		for range steps - 1 {
			time.Sleep(time.Minute) // the bubble's clock
			require.LessOrEqual(t, r.wait(time.Now()), time.Duration(0))
			r.tick(t.Context())
			require.Equal(t, 250*time.Millisecond, r.wait(time.Now()), "the next step begins when this one was noticed")
			require.Equal(t, Unknown, p.State().Verdict)
		}
		time.Sleep(250 * time.Millisecond) // the bubble's clock
		r.tick(t.Context())
		require.Equal(t, State{Down, "1 of the last 1 probes failed: no answer within 1s"}, p.State())
		r.end()
	})
}

func TestRunWaitsForChecksThatIgnoreTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended atomic.Bool
		var calls atomic.Int32
		got := run(t, time.Minute, func(context.Context, time.Duration) error {
			calls.Add(1)
			time.Sleep(2 * time.Minute) // the bubble's clock
			ended.Store(true)
			return nil
		})
		require.Equal(t, int32(3), calls.Load(), "no more than a verdict takes")
		require.True(t, ended.Load())
		require.Len(t, got, 1)
		require.Equal(t, Down, got[0].Verdict)
		require.LessOrEqual(t, got[0].at, 5*time.Second)
	})
}
