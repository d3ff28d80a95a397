package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/liqod/liqod/roles/cmd/report"
)

// counted is a source that counts its snapshots, and may fail.
type counted struct {
	still
	asked atomic.Int32
	down  atomic.Bool
	slow  time.Duration
}

func (c *counted) Observe(ctx context.Context) (*report.Snapshot, error) {
	c.asked.Add(1)
	time.Sleep(c.slow)
	if c.down.Load() {
		return nil, errors.New("the API server is away")
	}
	s, err := c.still.Observe(ctx)
	if err == nil {
		s.Taken = time.Now()
	}
	return s, err
}

// look shows a feed as a page does, until the returned function is called.
func look(f *feed, got chan<- View) (leave func()) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		for {
			var v View
			if data := f.current(ctx); data == nil || json.Unmarshal(data, &v) != nil {
				return
			}
			got <- v
			select {
			case <-time.After(time.Duration(v.Every * float64(time.Second))):
			case <-ctx.Done():
				return
			}
		}
	}()
	return cancel
}

func bubble(t *testing.T, source Source, test func(*testing.T, *feed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, &feed{Config: Config{Source: source, Every: 5 * time.Second, Timeout: time.Minute}})
	})
}

// The cluster is asked while somebody watches, once for all watchers, and at no other time.
func TestNobodyWatches(t *testing.T) {
	source := &counted{}
	bubble(t, source, func(t *testing.T, f *feed) {
		time.Sleep(time.Hour)
		require.Zero(t, source.asked.Load())
		one, two := make(chan View, 100), make(chan View, 100)
		leaveOne, leaveTwo := look(f, one), look(f, two)
		time.Sleep(12 * time.Second)
		require.EqualValues(t, 3, source.asked.Load(), "after 0, 5 and 10 seconds")
		require.Len(t, one, 3)
		require.Len(t, two, 3)
		leaveOne()
		time.Sleep(10 * time.Second)
		require.EqualValues(t, 5, source.asked.Load())
		leaveTwo()
		time.Sleep(time.Hour)
		require.EqualValues(t, 5, source.asked.Load())
	})
}

// A cluster that does not answer is not waited for without end.
func TestNoAnswer(t *testing.T) {
	bubble(t, &silent{}, func(t *testing.T, f *feed) {
		got := make(chan View, 100)
		defer look(f, got)()
		v := <-got
		require.Equal(t, "no answer within 1m0s", v.Trouble)
		require.InDelta(t, 70, v.Patience, 0)
		require.InDelta(t, 5, v.Every, 0)
	})
}

// silent is a source that does not answer.
type silent struct{ still }

func (silent) Observe(ctx context.Context) (*report.Snapshot, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// After a pause nobody gets the state of before.
func TestAfterAPause(t *testing.T) {
	source := &counted{slow: time.Second}
	bubble(t, source, func(t *testing.T, f *feed) {
		got := make(chan View, 100)
		leave := look(f, got)
		first := <-got
		leave()
		synctest.Wait()
		again := make(chan View, 100)
		leave = look(f, again) // a reload of the page
		synctest.Wait()
		require.Len(t, again, 1)
		require.True(t, (<-again).Taken.Equal(first.Taken), "what was read just now is shown at once")
		leave()
		time.Sleep(time.Minute)
		last := make(chan View, 100)
		defer look(f, last)()
		synctest.Wait()
		require.Empty(t, last)
		require.WithinDuration(t, time.Now(), (<-last).Taken, 2*time.Second)
	})
}

// While the cluster does not answer, the last state is marked as old.
func TestOutage(t *testing.T) {
	source := &counted{still: still{snapshot: report.Snapshot{ClusterID: "rome"}}}
	source.down.Store(true)
	bubble(t, source, func(t *testing.T, f *feed) {
		got := make(chan View, 100)
		defer look(f, got)()
		v := <-got
		require.Equal(t, "the API server is away", v.Trouble)
		require.Equal(t, report.Unknown, v.Health)
		require.True(t, v.Taken.IsZero())
		source.down.Store(false)
		v = <-got
		require.Empty(t, v.Trouble)
		taken := v.Taken
		source.down.Store(true)
		for range 2 {
			v = <-got
			require.Equal(t, "the API server is away", v.Trouble)
			require.Equal(t, report.Unknown, v.Health)
			require.Equal(t, "unknown", v.Headline)
			require.True(t, v.Taken.Equal(taken))
			require.Equal(t, "rome", v.Cluster)
		}
	})
}

// Pages that ask at the same time get one state. One that leaves meanwhile takes it from no other.
func TestPagesAskAtOnce(t *testing.T) {
	source := &counted{}
	f := &feed{Config: Config{Source: source, Every: time.Hour, Timeout: time.Minute}}
	left, leave := context.WithCancel(t.Context())
	leave()
	require.Nil(t, f.current(left))
	require.EqualValues(t, 1, source.asked.Load())
	var pages sync.WaitGroup
	var states [10][]byte
	for i := range states {
		pages.Go(func() { states[i] = f.current(t.Context()) })
	}
	pages.Wait()
	require.EqualValues(t, 2, source.asked.Load())
	for _, state := range states {
		require.NotEmpty(t, state)
		require.Equal(t, states[0], state)
	}
}
