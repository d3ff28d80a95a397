package health

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
)

func key(name string) cache.ObjectName { return cache.ObjectName{Namespace: "ns", Name: name} }

func TestTracker(t *testing.T) {
	const limit = 5 * time.Minute
	type env struct {
		*Tracker
		clock *clocktesting.FakePassiveClock
	}
	wait := func(e env, d time.Duration) { e.clock.SetTime(e.clock.Now().Add(d)) }
	begin := func(e env) {
		e.Queued("pods", key("first"))
		e.Synced("pods", key("first"), time.Millisecond, nil)
	}
	for name, tc := range map[string]struct {
		story func(e env)
		want  string
	}{
		"nothing to do is alive, for ever": {func(e env) { begin(e); wait(e, 1000*time.Hour) }, ""},
		"a key that waits its turn": {func(e env) {
			begin(e)
			e.Queued("pods", key("a"))
			wait(e, limit)
		}, ""},
		"a key that waits too long while nothing happens": {func(e env) {
			begin(e)
			e.Queued("pods", key("a"))
			wait(e, limit+time.Second)
		}, "loop pods: key ns/a has waited 5m1s, more than 5m0s"},
		"queued again is not queued later": {func(e env) {
			begin(e)
			for range 7 {
				e.Queued("pods", key("a"))
				wait(e, time.Minute)
			}
		}, "loop pods: key ns/a has waited 7m0s, more than 5m0s"},
		"a failed sync is a sync": {func(e env) {
			begin(e)
			for range 7 {
				e.Queued("pods", key("a"))
				wait(e, time.Minute)
				e.Synced("pods", key("a"), time.Second, errors.New("refused"))
			}
		}, ""},
		"a long queue that moves": {func(e env) {
			begin(e)
			for i := range 100 {
				e.Queued("pods", key(fmt.Sprint(i)))
			}
			for i := range 60 {
				wait(e, time.Minute)
				e.Synced("pods", key(fmt.Sprint(i)), time.Minute, nil)
			}
		}, ""},
		"one worker hangs while the others go on": {func(e env) {
			begin(e)
			e.Queued("pods", key("stuck"))
			for range 12 {
				wait(e, time.Minute)
				e.Queued("pods", key("b"))
				e.Synced("pods", key("b"), time.Second, nil)
			}
		}, "loop pods: key ns/stuck has waited 12m0s, more than 5m0s"},
		"a loop that still waits for its caches": {func(e env) {
			e.Queued("pods", key("a"))
			wait(e, time.Hour)
		}, ""},
		"a standby": {func(e env) {
			begin(e)
			e.Pause()
			e.Queued("pods", key("a"))
			wait(e, time.Hour)
		}, ""},
		"what waited before this replica led does not count": {func(e env) {
			e.Pause()
			e.Queued("pods", key("a"))
			wait(e, time.Hour)
			e.Resume()
			begin(e)
			wait(e, time.Hour)
		}, ""},
		"a leader that hangs": {func(e env) {
			e.Pause()
			e.Resume()
			begin(e)
			e.Queued("pods", key("a"))
			wait(e, time.Hour)
		}, "loop pods: key ns/a has waited 1h0m0s, more than 5m0s"},
		"a loop that has ended": {func(e env) {
			begin(e)
			e.Queued("pods", key("a"))
			e.Forget("pods")
			wait(e, time.Hour)
		}, ""},
		"each late loop is named": {func(e env) {
			for _, l := range []string{"nodes", "maps"} {
				e.Synced(l, key("x"), 0, nil)
				e.Queued(l, key("a"))
			}
			wait(e, 6*time.Minute)
		}, "loop maps: key ns/a has waited 6m0s, more than 5m0s\nloop nodes: key ns/a has waited 6m0s, more than 5m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clk := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
			e := env{NewTracker(limit, clk), clk}
			tc.story(e)
			if tc.want == "" {
				require.NoError(t, e.Check())
				return
			}
			require.EqualError(t, e.Check(), tc.want)
		})
	}
}

// TestTrackerLag: the lag of a key counts from its first event to the sync that succeeds.
func TestTrackerLag(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	wait := func() { clock.SetTime(clock.Now().Add(time.Minute)) }
	tracker := NewTracker(time.Hour, clock)
	var lags []time.Duration
	tracker.Caught = func(loop string, lag time.Duration) {
		require.Equal(t, "pods", loop)
		lags = append(lags, lag)
	}
	tracker.Queued("pods", key("a"))
	wait()
	tracker.Queued("pods", key("a"))
	tracker.Queued("pods", key("b"))
	tracker.Synced("pods", key("a"), 0, errors.New("refused"))
	wait()
	require.Equal(t, map[string]time.Duration{"pods": 2 * time.Minute}, tracker.Behind())
	tracker.Synced("pods", key("a"), 0, nil)
	require.Equal(t, map[string]time.Duration{"pods": time.Minute}, tracker.Behind())
	tracker.Synced("pods", key("b"), 0, nil)
	tracker.Synced("pods", key("b"), 0, nil) // by a timer
	require.Equal(t, []time.Duration{2 * time.Minute, time.Minute}, lags)
	require.Equal(t, map[string]time.Duration{"pods": 0}, tracker.Behind())
	tracker.Queued("pods", key("c"))
	tracker.Pause()
	require.Empty(t, tracker.Behind())
}
