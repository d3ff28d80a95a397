package timed

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/liqod/liqod/e2e/lab"
)

// lateWatch is a role whose watches of the pods and ShadowPods of a cluster are held back.
type lateWatch struct{ role, cluster string }

// longestHold is how long watches are held, and how long they are not, at most.
const longestHold = 4 * time.Second

// testStaleCaches runs the scenarios while the watches of one role are held back again and
// again. Its other requests are answered. Each other time the role is killed meanwhile.
func testStaleCaches(t *testing.T, w *world, scenarios []scenario) {
	late := []lateWatch{{vkubelet, "rome"}, {vkubelet, "milan"}, {milanController, "milan"}}
	if !*all {
		late = late[int(*seed)%len(late):][:1]
	}
	for i, l := range late {
		t.Run(l.role+" sees "+l.cluster+" late", func(t *testing.T) {
			r := &runner{world: w, faults: newFaults(w), writes: writes{}}
			ctx, cancel := context.WithCancel(t.Context())
			held := make(chan int)
			go func() { held <- w.holdWatches(ctx, l, rand.New(rand.NewPCG(*seed, uint64(i)))) }()
			begin := time.Now()
			var cases []*faultCase
			for j := range scenarios {
				if len(scenarios[j].outside) == 0 {
					cases = append(cases, &faultCase{scenario: &scenarios[j]})
				}
			}
			r.run(t, cases)
			cancel()
			t.Logf("%d runs in %s, watches held %d times", len(cases), time.Since(begin).Round(time.Second), <-held)
			require.NoError(t, w.roles.err())
		})
	}
}

// holdWatches holds watches and releases them until ctx ends, and kills the role each other
// time. It returns how often it has held them.
func (w *world) holdWatches(ctx context.Context, l lateWatch, random *rand.Rand) int {
	cluster := w.Rome.Cluster
	if l.cluster == w.Milan.Name {
		cluster = w.Milan.Cluster
	}
	pause := func() {
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(random.Int64N(int64(longestHold)))):
		}
	}
	n := 0
	for ; ctx.Err() == nil; n++ {
		release := cluster.Proxied().HoldWatches(func(r lab.Request) bool {
			return roleOf(l.cluster, r) == l.role && (r.Resource == "pods" || r.Resource == "shadowpods")
		})
		pause()
		if n%2 == 1 {
			w.roles[l.role].kill()
			pause()
		}
		release()
		pause()
	}
	return n
}
