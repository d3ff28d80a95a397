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

// TestAnarchy makes random faults in three clusters for a while, several at a time: processes are
// killed and paused, networks cut, nodes and whole clusters lose their power, and Deployments are
// rolled out. Each pod reports that it runs, and requests every endpoint that its cluster lists as
// ready. No pod is lost, runs twice at a time or runs again, and everything is Ready two minutes
// after the last fault. With -all no ready endpoint fails to answer for longer than four seconds,
// less the times that a fault explains.
func TestAnarchy(t *testing.T) {
	nodes, patience := 1, 2*recovery
	if *all {
		nodes, patience = 2, recovery
	}
	w := newAnarchyWorld(t, nodes)
	plan := w.targets.schedule(rand.New(rand.NewPCG(*seed, uint64(*sample))), *duration)
	t.Logf("seed %d and sample %d: %d faults in %s; left to make test-all: 15 minutes of two nodes each, and the limit of time of endpoints",
		*seed, *sample, len(plan), *duration)
	begin := time.Now()
	w.makeFaults(t, begin, plan)
	last := time.Now()
	var wrong error
	err := lab.Within(t.Context(), patience, func(ctx context.Context) error {
		wrong = w.healthy(ctx)
		return wrong
	})
	require.NoError(t, err, "%s after the last fault: %v", patience, wrong)
	t.Logf("everything is Ready %s after the last fault", time.Since(last).Round(time.Second))
	// After this time the report of a lost pod is missing.
	waitUntil(t, time.Now().Add(silentAtMost+overlap))
	w.check(t)
}

// makeFaults makes the faults and returns when the last one has ended.
func (w *anarchyWorld) makeFaults(t *testing.T, begin time.Time, plan []clusterFault) {
	t.Helper()
	var under sync.WaitGroup
	for i, o := range plan {
		waitUntil(t, begin.Add(o.at))
		// An earlier fault may take longer to mend than was planned.
		w.waitUntilFree(t, o)
		number := w.record(o)
		t.Logf("%3d. %s: %s", i+1, time.Since(begin).Round(100*time.Millisecond), o)
		under.Go(func() {
			if err := w.makeFault(t, number); err != nil {
				t.Errorf("%s: %v", o, err)
			}
		})
	}
	under.Wait()
}

// record records that a fault begins, and returns its number.
func (w *anarchyWorld) record(o clusterFault) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, pastFault{clusterFault: o, span: span{from: time.Now()}})
	return len(w.faults) - 1
}

// waitUntilFree waits until no other fault hits the parts that a fault is to hit.
func (w *anarchyWorld) waitUntilFree(t *testing.T, o clusterFault) {
	t.Helper()
	require.NoError(t, lab.Within(t.Context(), undoWithin, func(context.Context) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, h := range w.faults {
			if h.to.IsZero() && h.meets(o) {
				return fmt.Errorf("%s has not ended", h.clusterFault)
			}
		}
		return nil
	}))
}

// makeFault makes a fault, and undoes it after its time.
func (w *anarchyWorld) makeFault(t *testing.T, number int) error {
	w.mu.Lock()
	o := w.faults[number].clusterFault
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), undoWithin)
	defer cancel()
	end, node, err := w.begin(ctx, o)
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
func byKind(faults []pastFault) map[string]int {
	out := map[string]int{}
	for _, f := range faults {
		out[f.kind]++
	}
	return out
}

// check checks the reports of the pods and the times of the endpoints.
func (w *anarchyWorld) check(t *testing.T) {
	t.Helper()
	now := time.Now()
	pods, ends := w.reports.collected(now)
	w.mu.Lock()
	revised, faults := w.revised, slices.Clone(w.faults)
	w.mu.Unlock()
	found := checkRuns(pods, revised, faults, now)
	ready := falselyReady(ends, pods, faults)
	long := tooLong(ready)
	t.Logf("faults: %v", byKind(faults))
	t.Logf("%d pods, %d endpoints; answers: %v; ready without an answer for longer than %s: %d", len(pods), len(ends), w.reports.traffic(), readyAtMost, len(long))
	for i, l := range ready {
		if i == 0 || i < len(long) {
			t.Logf("ready without an answer for %s: %s", l.rest.length().Round(100*time.Millisecond), l)
		}
	}
	for _, from := range w.targets.clusters {
		require.NotZero(t, w.reports.traffic()[from+" → "+from], "traffic within %s", from)
	}
	for consumer, providers := range uses() {
		for _, provider := range providers {
			require.NotZero(t, w.reports.traffic()[consumer+" → "+provider], "traffic from %s to %s", consumer, provider)
			require.NotZero(t, w.reports.traffic()[provider+" → "+consumer], "traffic from %s to %s", provider, consumer)
		}
	}
	require.Empty(t, found.lost, "lost")
	require.Empty(t, found.twice, "twice at a time")
	require.Empty(t, found.again, "run again")
	require.Empty(t, found.left, "left over")
	if *all {
		require.Empty(t, long, "ready and does not answer")
	}
}
