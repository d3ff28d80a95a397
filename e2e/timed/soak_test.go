package timed

import (
	"context"
	"fmt"
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
	// catchUp is granted after the last change: names that something else had are tried
	// again seldom, and refused writes with growing delays.
	catchUp = 2 * time.Minute
	// still is how long nothing may be written once all is equal.
	still = 10 * time.Second
	shown = 30 // differences that are shown
)

// TestSoak shakes both clusters and compares them. The clusters get as many changes as the
// machine can make, up to the rate; the rate that was reached is logged. Every change that
// was made must show in the outcome.
func TestSoak(t *testing.T) {
	w := newShaken(t)
	w.offerStorage(t)
	for _, ns := range w.namespaces {
		require.NoError(t, w.offload(t.Context(), ns))
	}
	token, made := w.startHolder(t), time.Now()
	s := &shaker{w: w, kinds: kinds(), kept: &kept{foreign: map[string]string{}, labels: map[types.UID]string{}}}
	s.occupy(t)
	j := newJolts(w, s.kinds)
	ctx, cancel := context.WithCancel(t.Context())
	begin := time.Now()
	p := newReporter(w, s.kinds)
	var done sync.WaitGroup
	done.Go(func() { s.shake(ctx) })
	done.Go(func() { p.run(ctx) })
	defer func() {
		cancel()
		done.Wait()
	}()
	j.run(t, *duration)
	cancel()
	done.Wait()
	took := time.Since(begin)
	t.Logf("seed %d: %d changes (%.1f of at most %d per second), %d refused; %v",
		*seed, s.done.Load(), float64(s.done.Load())/took.Seconds(), *rate, s.refused.Load(), j.told)
	require.Positive(t, s.done.Load(), "changes that were made")
	c := &checker{w: w, kinds: s.kinds, kept: s.kept, set: j.set}
	c.check(t)
	c.checkEvents(t, p)
	w.checkToken(t, token, made)
}

// check waits until both clusters are equal, and requires that nothing is written then.
func (c *checker) check(t *testing.T) {
	t.Helper()
	begin := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), catchUp)
	defer cancel()
	var last []string
	err := lab.Eventually(ctx, func(ctx context.Context) error {
		found, err := c.differences(ctx)
		if err != nil {
			return err
		}
		if last = found; len(found) > 0 {
			return fmt.Errorf("%d differences", len(found))
		}
		return nil
	})
	require.NoError(t, err, "%d differences:\n%s", len(last), strings.Join(last[:min(len(last), shown)], "\n"))
	t.Logf("no difference after %s", time.Since(begin).Round(time.Millisecond))
	before := c.versions(t)
	count := map[string]int{}
	for of := range before {
		count[strings.Fields(of)[0]]++
	}
	t.Logf("%d objects in the twins: %v", len(before), count)
	waitUntil(t, time.Now().Add(still))
	require.True(t, maps.Equal(before, c.versions(t)), "something was written after all was equal")
	found, err := c.differences(t.Context())
	require.NoError(t, err)
	require.Empty(t, found)
}

// versions are the resource versions of all objects in the twins.
func (c *checker) versions(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, ns := range c.w.namespaces {
		for _, k := range c.kinds {
			all, err := k.at(c.w.away, twinOf(ns)).list(t.Context())
			require.NoError(t, err)
			for _, o := range all {
				out[key(k, ns, o.GetName())] = o.GetResourceVersion()
			}
		}
	}
	return out
}
