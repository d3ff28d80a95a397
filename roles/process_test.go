package roles

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/roles/config"
)

func newTestProcess(t *testing.T) *process {
	t.Helper()
	return newProcess(&config.Effective{Config: config.Config{
		Log: config.Log{Level: "info", Format: "json"},
	}}, io.Discard)
}

// live says whether a role's loop that hangs after its first sync is alive after an hour.
func live(t *testing.T, leased bool, leader Leader) (result error) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestProcess(t)
		build := func(_ context.Context, env Env) (Parts, error) {
			return Parts{Leader: leader, Actors: []Actor{{Name: "loop", Leased: leased, Run: func(ctx context.Context) error {
				env.Observer.Synced("pods", loop.Key{Name: "a"}, time.Second, nil)
				env.Observer.Queued("pods", loop.Key{Name: "b"})
				<-ctx.Done()
				return nil
			}}}}, nil
		}
		signals, done := make(chan os.Signal), make(chan error, 1)
		go func() { done <- p.run(t.Context(), []Role{{Name: "r", Build: build}}, signals) }()
		time.Sleep(time.Hour) // the bubble's clock
		result = p.live()
		signals <- os.Interrupt
		require.NoError(t, <-done)
	})
	return result
}

type never struct{}

func (never) Run(ctx context.Context, _ func(context.Context) error) error { <-ctx.Done(); return nil }

func TestALoopThatHangsIsNotAlive(t *testing.T) {
	const want = "role r: loop pods: key b has waited 1h0m0s, more than 5m0s"
	require.EqualError(t, live(t, false, nil), want)
	require.EqualError(t, live(t, true, always{}), want)
	require.NoError(t, live(t, true, never{}), "a standby has no work")
}

func TestSignals(t *testing.T) {
	stubborn := actor("rock", func(ctx context.Context) error {
		<-ctx.Done()
		time.Sleep(time.Hour) // the bubble's clock
		return nil
	})
	for name, tc := range map[string]struct {
		second time.Duration // after the first; 0: none
		want   string
		after  time.Duration
	}{
		"the deadline":      {0, "not stopped within 30s: r/rock", 30 * time.Second},
		"the second signal": {2 * time.Second, errKilled.Error(), 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				signals, done := make(chan os.Signal, 2), make(chan error, 1)
				p := newTestProcess(t)
				go func() { done <- p.run(t.Context(), []Role{{Name: "r", Build: stubborn}}, signals) }()
				synctest.Wait()
				began := time.Now()
				signals <- os.Interrupt
				if tc.second > 0 {
					time.Sleep(tc.second) // the bubble's clock
					signals <- os.Interrupt
				}
				require.EqualError(t, <-done, tc.want)
				require.Equal(t, tc.after, time.Since(began))
				time.Sleep(time.Hour) // the bubble's clock
			})
		})
	}
}

func TestTheDeadlineHoldsAfterAFailureToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		build := func(context.Context, Env) (Parts, error) {
			return Parts{Actors: []Actor{
				{Name: "bad", Run: func(context.Context) error { return errors.New("disk on fire") }},
				{Name: "rock", Run: func(context.Context) error { time.Sleep(time.Hour); return nil }}, // the bubble's clock
			}}, nil
		}
		err := newTestProcess(t).run(t.Context(), []Role{{Name: "r", Build: build}}, nil)
		require.EqualError(t, err, "not stopped within 30s: r/rock")
		time.Sleep(time.Hour) // the bubble's clock
	})
}

// TestRolesRunOnLinux: a program for another system has the commands, and refuses its roles by name.
func TestRolesRunOnLinux(t *testing.T) {
	t.Parallel()
	roles := []Role{{Name: "webhook"}, {Name: "route"}}
	require.NoError(t, runsOn("linux", roles))
	require.EqualError(t, runsOn("darwin", roles), "role webhook, route: roles run on Linux only; this program, for darwin, has the commands")
}
