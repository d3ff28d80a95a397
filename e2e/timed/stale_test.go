package timed

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/liqod/liqod/e2e/lab"
)

// fog is a role that sees the pods and ShadowPods of a cluster late.
type fog struct{ role, cluster string }

// thickest is how long nothing is seen in a fog, at most; the same for the clear time.
const thickest = 4 * time.Second

// testStaleCaches plays the lives while the watches of one role are held back again and
// again, its reads and writes being answered, and while it is killed meanwhile.
func testStaleCaches(t *testing.T, w *world, lives []life) {
	fogs := []fog{{vkubelet, "rome"}, {vkubelet, "milan"}, {milanController, "milan"}}
	if !*all {
		fogs = fogs[int(*seed)%len(fogs):][:1]
	}
	for i, f := range fogs {
		t.Run(f.role+" sees "+f.cluster+" late", func(t *testing.T) {
			e := &ensemble{world: w, theatre: newTheatre(w), table: &table{}}
			ctx, lift := context.WithCancel(t.Context())
			lifted := make(chan int)
			go func() { lifted <- w.roll(ctx, f, rand.New(rand.NewPCG(*seed, uint64(i)))) }()
			begin := time.Now()
			scenes := make([]*scene, 0, len(lives))
			for j := range lives {
				if len(lives[j].everywhere) == 0 {
					scenes = append(scenes, &scene{life: &lives[j]})
				}
			}
			e.play(t, scenes)
			lift()
			t.Logf("%d lives in %s, watches held %d times", len(scenes), time.Since(begin).Round(time.Second), <-lifted)
		})
	}
}

// roll lets fog come and go until ctx ends, and kills the role in every other one. It
// returns how often.
func (w *world) roll(ctx context.Context, f fog, random *rand.Rand) int {
	cluster := w.rome.Cluster
	if f.cluster == w.milan.Name {
		cluster = w.milan.Cluster
	}
	pause := func() {
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(random.Int64N(int64(thickest)))):
		}
	}
	n := 0
	for ; ctx.Err() == nil; n++ {
		release := cluster.Proxied().HoldWatches(func(r lab.Request) bool {
			return roleOf(f.cluster, r) == f.role && (r.Resource == "pods" || r.Resource == "shadowpods")
		})
		pause()
		if n%2 == 1 {
			w.roles.byName[f.role].kill()
			pause()
		}
		release()
		pause()
	}
	return n
}
