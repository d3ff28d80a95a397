package timed

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/liqod/liqod/e2e/lab"
)

// recovery is how long after the last fault everything is Ready; on a busy machine twice that.
const recovery = 2 * time.Minute

// TestAnarchy breaks three clusters at random for a while, several parts at a time: processes
// are killed and paused, networks cut, nodes and whole clusters lose their power, and
// Deployments are rolled out. Each pod tells an observer that it runs, and asks every endpoint
// that its cluster lists as ready. No pod is lost, doubled or run again, and all is well two
// minutes after the last fault. With -all no ready endpoint fails to answer for longer than
// four seconds, less the times that are excused.
func TestAnarchy(t *testing.T) {
	nodes, patience := 1, 2*recovery
	if *all {
		nodes, patience = 2, recovery
	}
	w := newAnarchic(t, nodes)
	plan := w.realm.schedule(rand.New(rand.NewPCG(*seed, uint64(*sample))), *duration)
	t.Logf("seed %d and sample %d: %d faults in %s; left to make test-all: 15 minutes of two nodes each, and the limit of time of endpoints",
		*seed, *sample, len(plan), *duration)
	begin := time.Now()
	w.wreak(t, begin, plan)
	last := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var wrong error
	err := lab.Eventually(ctx, func(ctx context.Context) error {
		wrong = w.well(ctx)
		return wrong
	})
	require.NoError(t, err, "%s after the last fault: %v", patience, wrong)
	t.Logf("all is well %s after the last fault", time.Since(last).Round(time.Second))
	// A pod that is gone has to be missed.
	waitUntil(t, time.Now().Add(hushed+overlap))
	w.judge(t)
}

// wreak inflicts the faults and returns when the last one has ended.
func (w *anarchic) wreak(t *testing.T, begin time.Time, plan []outrage) {
	t.Helper()
	var under sync.WaitGroup
	for i, o := range plan {
		waitUntil(t, begin.Add(o.at))
		// An earlier fault may take longer to mend than was planned.
		w.free(t, o)
		h := w.begin(o)
		t.Logf("%3d. %s: %s", i+1, time.Since(begin).Round(100*time.Millisecond), o)
		under.Go(func() {
			if err := w.suffer(t, h); err != nil {
				t.Errorf("%s: %v", o, err)
			}
		})
	}
	under.Wait()
}

// begin notes that a fault begins, and returns its number.
func (w *anarchic) begin(o outrage) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, harmed{outrage: o, span: span{from: time.Now()}})
	return len(w.faults) - 1
}

// free waits until no other fault hits the parts that a fault is to hit.
func (w *anarchic) free(t *testing.T, o outrage) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), mending)
	defer cancel()
	require.NoError(t, lab.Eventually(ctx, func(context.Context) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, h := range w.faults {
			if h.to.IsZero() && h.meets(o) {
				return fmt.Errorf("%s has not ended", h.outrage)
			}
		}
		return nil
	}))
}

// suffer inflicts a fault, and undoes it after its time.
func (w *anarchic) suffer(t *testing.T, number int) error {
	w.mu.Lock()
	o := w.faults[number].outrage
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), mending)
	defer cancel()
	end, node, err := w.inflict(ctx, o)
	w.mu.Lock()
	w.faults[number].node = node
	w.mu.Unlock()
	if end != nil && err == nil {
		<-time.After(o.lasts)
		err = end(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults[number].to = time.Now()
	return err
}

// byKind counts faults.
func byKind(faults []harmed) map[string]int {
	out := map[string]int{}
	for _, f := range faults {
		out[f.kind]++
	}
	return out
}

// judge compares the testimonies with the rules of this test.
func (w *anarchic) judge(t *testing.T) {
	t.Helper()
	now := time.Now()
	pods, ends := w.seen.testimonies(now)
	w.mu.Lock()
	revised, faults := w.revised, slices.Clone(w.faults)
	w.mu.Unlock()
	found := tried(pods, revised, faults, now)
	ready := lies(ends, pods, faults)
	untold := tooLong(ready)
	t.Logf("faults: %v", byKind(faults))
	t.Logf("%d pods, %d endpoints; answers: %v; ready without an answer for longer than %s: %d", len(pods), len(ends), w.seen.traffic(), untrue, len(untold))
	for i, l := range ready {
		if i == 0 || i < len(untold) {
			t.Logf("ready without an answer for %s: %s", l.rest.length().Round(100*time.Millisecond), l)
		}
	}
	for _, from := range w.realm.clusters {
		require.NotZero(t, w.seen.traffic()[from+" → "+from], "traffic within %s", from)
	}
	for consumer, providers := range uses() {
		for _, provider := range providers {
			require.NotZero(t, w.seen.traffic()[consumer+" → "+provider], "traffic from %s to %s", consumer, provider)
			require.NotZero(t, w.seen.traffic()[provider+" → "+consumer], "traffic from %s to %s", provider, consumer)
		}
	}
	require.Empty(t, found.lost, "lost")
	require.Empty(t, found.doubled, "doubled")
	require.Empty(t, found.again, "run again")
	require.Empty(t, found.left, "left over")
	if *all {
		require.Empty(t, untold, "ready and does not answer")
	}
}
