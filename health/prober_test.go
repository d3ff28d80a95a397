package health

import (
	"context"
	"errors"
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

// run probes for d of the bubble's time and returns the changes of the verdict.
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

func TestTurnsDownInTimeAndBack(t *testing.T) {
	refused := errors.New("refused")
	for name, fail := range map[string]func(ctx context.Context) error{
		"refused":         func(context.Context) error { return refused },
		"packets dropped": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"answers too late": func(context.Context) error {
			time.Sleep(1500 * time.Millisecond) // the bubble's clock
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const dies, recovers = 10*time.Second + time.Millisecond, time.Minute
				got := run(t, 2*time.Minute, func(ctx context.Context, since time.Duration) error {
					if since < dies || since >= recovers {
						return nil
					}
					return fail(ctx)
				})
				require.Len(t, got, 3)
				require.Equal(t, []Verdict{Up, Down, Up}, []Verdict{got[0].Verdict, got[1].Verdict, got[2].Verdict})
				require.Zero(t, got[0].at, "the first success is enough")
				require.LessOrEqual(t, got[1].at-dies, 5*time.Second)
				require.LessOrEqual(t, got[2].at-recovers, 5*time.Second)
			})
		})
	}
}

func TestOneFailureInTenChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		got := run(t, 5*time.Minute, func(ctx context.Context, _ time.Duration) error {
			if n++; n%10 == 0 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		require.Len(t, got, 1)
		require.GreaterOrEqual(t, n, 290)
	})
}

func TestATimeoutCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		got := run(t, 20*time.Second, func(ctx context.Context, _ time.Duration) error {
			if n++; n == 5 || n == 6 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		require.Len(t, got, 1, "two failures are not three")
	})
}

func TestRunWaitsForACheckThatIgnoresItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended atomic.Bool
		calls := 0
		got := run(t, 10*time.Second, func(context.Context, time.Duration) error {
			calls++
			time.Sleep(time.Minute) // the bubble's clock
			ended.Store(true)
			return nil
		})
		require.Equal(t, 1, calls, "no second check beside one that has not ended")
		require.True(t, ended.Load())
		require.Len(t, got, 1)
		require.Equal(t, Down, got[0].Verdict)
		require.LessOrEqual(t, got[0].at, 5*time.Second)
	})
}

func TestStateIsReadableBesideRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewProber(Window{Size: 5, Failures: 3, Successes: 2})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.Run(ctx, time.Second, time.Second, func(context.Context) error { return nil }, func(State) {})
		}()
		require.Equal(t, Unknown, p.State().Verdict)
		synctest.Wait()
		require.Equal(t, Up, p.State().Verdict)
		cancel()
		<-done
	})
}
