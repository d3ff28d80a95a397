package timed

import (
	"context"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/liqod/liqod/e2e/lab"
)

const (
	// catchUp is the deadline after the last change: liqod retries names that other objects had
	// seldom, and refused writes with growing delays.
	catchUp = 2 * time.Minute
	// quiet is how long nothing may be written once both clusters are equal.
	quiet  = 10 * time.Second
	logged = 30 // differences
)

// TestSoak makes random changes in both clusters and then compares them. It makes as many changes
// as the machine can make, up to -rate, and logs the rate. Every change must show in the outcome.
func TestSoak(t *testing.T) {
	w := newSoakWorld(t)
	w.offerStorage(t)
	for _, ns := range w.namespaces {
		require.NoError(t, w.offload(t.Context(), ns))
	}
	token, made := w.startTokenPod(t), time.Now()
	c := &changer{w: w, kinds: kinds(), preserved: &preserved{own: map[string]string{}, labels: map[types.UID]string{}}}
	c.createOwn(t)
	d := newDisruptor(w, c.kinds)
	ctx, cancel := context.WithCancel(t.Context())
	begin := time.Now()
	p := newReporter(w, c.kinds)
	var done sync.WaitGroup
	done.Go(func() { c.run(ctx) })
	done.Go(func() { p.run(ctx) })
	defer func() {
		cancel()
		done.Wait()
	}()
	d.run(t, *duration)
	cancel()
	done.Wait()
	took := time.Since(begin)
	t.Logf("seed %d: %d changes (%.1f of at most %d per second), %d refused; %v",
		*seed, c.done.Load(), float64(c.done.Load())/took.Seconds(), *rate, c.refused.Load(), d.counts)
	require.Positive(t, c.done.Load(), "changes that were made")
	both := &comparison{w: w, kinds: c.kinds, preserved: c.preserved, set: d.set}
	both.check(t)
	both.checkEvents(t, p)
	w.checkToken(t, token, made)
}

// check waits until both clusters are equal, and requires that nothing is written afterwards.
func (c *comparison) check(t *testing.T) {
	t.Helper()
	begin := time.Now()
	var last []string
	err := lab.Within(t.Context(), catchUp, func(ctx context.Context) error {
		found, err := c.differences(ctx)
		if err != nil {
			return err
		}
		last = found
		return lab.Wrong(nil, len(found) > 0, "%d differences", len(found))
	})
	require.NoError(t, err, "%d differences:\n%s", len(last), strings.Join(last[:min(len(last), logged)], "\n"))
	t.Logf("no difference after %s", time.Since(begin).Round(time.Millisecond))
	before := c.versions(t)
	count := map[string]int{}
	for of := range before {
		count[strings.Fields(of)[0]]++
	}
	t.Logf("%d objects in the twins: %v", len(before), count)
	waitUntil(t, time.Now().Add(quiet))
	require.True(t, maps.Equal(before, c.versions(t)), "something was written after both clusters were equal")
	found, err := c.differences(t.Context())
	require.NoError(t, err)
	require.Empty(t, found)
}

// versions are the resource versions of all objects in the twins.
func (c *comparison) versions(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, ns := range c.w.namespaces {
		for _, k := range c.kinds {
			all, err := k.at(c.w.remote, twinOf(ns)).list(t.Context())
			require.NoError(t, err)
			for _, o := range all {
				out[key(k, ns, o.GetName())] = o.GetResourceVersion()
			}
		}
	}
	return out
}
