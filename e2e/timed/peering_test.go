package timed

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqod/liqod/e2e/lab"
)

const (
	// sampled is how many writes of each chapter are a sample.
	sampled = 4
	// atOnce is how many blows there are in a chapter of one life, at most.
	atOnce = 3
	// tellings is how often a write is waited for in a life: what comes of concurrent work
	// is not written each time.
	tellings = 3
	// lastLife is kept for a life that goes wrong, and the report.
	lastLife = 4 * time.Minute
	// eachPause is how many writes of a chapter lie between two at which an API server is
	// paused; with each one another chapter begins elsewhere.
	eachPause = 3
)

// TestPeerings lets two clusters become peers and part, and strikes at each write on the
// way: those of the controllers of both sides, of the vkubelet and of the commands that
// people run. It comes to the same, or is told why not; never is half a peering taken for
// one; at its end nothing is left.
func TestPeerings(t *testing.T) {
	w := newClusters(t, map[string]any{"authentication": map[string]any{"lifetime": "10m", "requestsPerAddress": 6000, "requestsPerMinute": 6000}})
	c, err := newCast(w)
	require.NoError(t, err)
	_, err = w.rome.Client().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, c.rest(t.Context()))
	for _, s := range sagas() {
		t.Run(s.name, func(t *testing.T) { testSaga(t, c, s) })
	}
}

func testSaga(t *testing.T, c *cast, s saga) {
	c.witnesses = []*witness{newWitness(t, c.romeUses())}
	if s.mutual {
		c.witnesses = append(c.witnesses, newWitness(t, c.milanUses()))
	}
	r := &repertoire{cast: c, saga: s, table: &table{}}
	r.tell(t, nil)
	if *all {
		r.tell(t, nil)
	}
	t.Logf("%d writes", len(r.table.rows))
	r.tellAll(t)
	r.table.report(t, column{killBefore, "killed before it"}, column{killLost, "killed after it, answer lost"}, column{pauseServer, "its API server paused"})
}

// blow is a strike at a write of a chapter.
type blow struct {
	at   point
	mode mode
	try  int
	// alone: in a life without others, because one with others went wrong.
	alone bool
}

func (b *blow) String() string {
	return fmt.Sprintf("%s, %s", &b.at, b.mode)
}

// repertoire tells lives of a saga, with some blows in each chapter, and notes what came of it.
type repertoire struct {
	*cast
	saga  saga
	table *table
	wrong int
}

// blows are those at the writes of a chapter, the n-th, that are asked for.
func (r *repertoire) blows(n int, points []point) (out []*blow) {
	for _, m := range []mode{killBefore, killLost, pauseServer} {
		for i, p := range points {
			wanted := *all && (m != pauseServer || i%eachPause == n%eachPause)
			for s := range sampled {
				wanted = wanted || !*all && i == (s*len(points)/sampled+n+*sample*max(len(points)/sampled/samples, 1))%len(points) && m == r.sampleMode(n, s)
			}
			if b := (&blow{at: p, mode: m}); wanted && strings.Contains(b.String(), *onlyLives) {
				out = append(out, b)
			}
		}
	}
	return out
}

// sampleMode is what is done at the s-th write of the sample of the n-th chapter.
func (r *repertoire) sampleMode(n, s int) mode {
	if s == sampled-1 && r.saga.chapters[n].slow {
		return pauseServer
	}
	return []mode{killBefore, killLost}[(n+s)%2]
}

// tellAll tells lives until there has been each blow that is asked for.
func (r *repertoire) tellAll(t *testing.T) {
	t.Helper()
	points := r.table.points()
	todo := map[string][]*blow{}
	for n, c := range r.saga.chapters {
		todo[c.name] = r.blows(n, slices.DeleteFunc(slices.Clone(points), func(p point) bool { return p.life != c.name }))
	}
	begin, lives, cases, kills := time.Now(), 0, left(todo), r.roles.kills()
	for left(todo) > 0 && r.wrong < tooMany {
		if end, ok := t.Deadline(); ok && time.Until(end) < lastLife {
			t.Errorf("the time is over: %d cases are left", left(todo))
			break
		}
		for _, b := range r.tell(t, next(todo)) {
			todo[b.at.life] = append(todo[b.at.life], b)
		}
		lives++
	}
	require.NoError(t, r.roles.err())
	count := map[string]int{}
	for _, row := range r.table.rows {
		for m, outcome := range row.outcomes {
			if count[outcome]++; outcome == notMet {
				t.Logf("the write was not met in %d lives: %s, %s", tellings, row.point, m)
			}
		}
	}
	leaveToAll(t)
	t.Logf("%d cases: %v, in %d lives and %s, %d kills", cases, count, lives, time.Since(begin).Round(time.Second), r.roles.kills()-kills)
	if count[notMet] > cases/mayBeUnmet+1 {
		t.Errorf("%d of %d writes were not met", count[notMet], cases)
	}
}

// next takes the blows of one life: some of each chapter, far apart, or one that is to be
// alone.
func next(todo map[string][]*blow) map[string][]*blow {
	now := map[string][]*blow{}
	for chapter, blows := range todo {
		if at := slices.IndexFunc(blows, func(b *blow) bool { return b.alone }); at >= 0 {
			lone := blows[at]
			todo[chapter] = slices.Delete(blows, at, at+1)
			return map[string][]*blow{chapter: {lone}}
		}
	}
	for chapter, blows := range todo {
		for n := atOnce - 1; n >= 0; n-- {
			at := n * len(blows) / atOnce
			if at >= len(blows) || slices.ContainsFunc(now[chapter], blows[at].hinders) {
				continue
			}
			now[chapter] = append(now[chapter], blows[at])
			blows = slices.Delete(blows, at, at+1)
		}
		todo[chapter] = blows
	}
	return now
}

// hinders says that two blows do not fit into one chapter: the same write happens once,
// and one pause would end within the other.
func (b *blow) hinders(other *blow) bool {
	return b.at == other.at || b.mode == pauseServer && other.mode == pauseServer
}

// left counts blows.
func left(todo map[string][]*blow) (n int) {
	for _, blows := range todo {
		n += len(blows)
	}
	return n
}

// tell tells one life with blows, by chapter; nil: in peace. It returns those that have to
// come again.
func (r *repertoire) tell(t *testing.T, blows map[string][]*blow) (again []*blow) {
	t.Helper()
	begin := time.Now()
	p := &peering{cast: r.cast, ctx: t.Context()}
	var took []string
	short := blows != nil && !slices.ContainsFunc(r.saga.chapters, func(c chapter) bool { return c.needsAll && len(blows[c.name]) > 0 })
	for i, c := range r.saga.chapters {
		if short && c.needless {
			continue
		}
		since := time.Now()
		met, wrong := r.chapter(p, c, blows[c.name])
		took = append(took, time.Since(since).Round(100*time.Millisecond).String())
		if blows == nil {
			r.found(met)
		}
		if len(wrong) > 0 {
			r.wrong++
			t.Errorf("%s: %s", c.name, strings.Join(append(wrong, p.said...), "\n        "))
			r.clear(t)
			return append(again, r.apart(t, blows, i)...)
		}
		for _, b := range blows[c.name] {
			if !r.enter(b, met) {
				again = append(again, &blow{at: b.at, mode: b.mode, try: b.try + 1, alone: b.alone})
			}
		}
	}
	t.Logf("a life of %s %v %q", time.Since(begin).Round(100*time.Millisecond), took, p.said)
	return again
}

// apart deals with the blows of a life that went wrong in its n-th chapter. What is left of
// an earlier one is found at the end only: each of those up to there comes again, alone;
// the one that was alone is wrong.
func (r *repertoire) apart(t *testing.T, blows map[string][]*blow, n int) (again []*blow) {
	t.Helper()
	lone := left(blows) == 1
	for i, c := range r.saga.chapters {
		for _, b := range blows[c.name] {
			switch {
			case lone:
				r.table.row(b.at).outcomes[b.mode] = "WRONG"
			case i <= n:
				again = append(again, &blow{at: b.at, mode: b.mode, alone: true})
			default:
				again = append(again, b)
				continue
			}
			t.Errorf("    in this life: %s", b)
		}
	}
	return again
}

// chapter plays one chapter with blows, and waits until nothing of them goes on.
func (r *repertoire) chapter(p *peering, c chapter, blows []*blow) (met []point, wrong []string) {
	plot := &plot{life: c.name, ignores: aside, at: map[point]strike{}}
	for name := range r.roles.byName {
		plot.everywhere = append(plot.everywhere, name)
	}
	for _, b := range blows {
		plot.at[b.at] = r.theatre.strike(b.mode)
	}
	begin := time.Now()
	r.theatre.open(plot)
	err := c.play(p)
	r.theatre.close(plot)
	if took := time.Since(begin); *all && err == nil && took > patience {
		err = fmt.Errorf("it took %s", took.Round(time.Second))
	}
	for _, cluster := range r.theatre.clusters {
		if err == nil {
			err = cluster.WaitReady(p.ctx)
		}
	}
	for _, w := range r.witnesses {
		if err == nil {
			err = w.settled(p.ctx)
		}
		wrong = append(wrong, w.take()...)
	}
	if err != nil {
		wrong = append(wrong, err.Error())
	}
	return plot.points(), wrong
}

// aside are writes that are none of a peering: they come and go with the time.
func aside(r lab.Request) bool { return r.Resource == "leases" || r.Resource == "events" }

// found notes the writes of a chapter in peace.
func (r *repertoire) found(met []point) {
	for _, p := range met {
		if p.n <= repeats {
			r.table.row(p)
		}
	}
}

// enter notes that a blow did no harm. It returns false if it was not met, and is to come
// again.
func (r *repertoire) enter(b *blow, met []point) bool {
	outcomes := r.table.row(b.at).outcomes
	if slices.Contains(met, b.at) {
		outcomes[b.mode] = "ok"
		return true
	}
	outcomes[b.mode] = notMet
	return b.try+1 >= tellings
}

// clear takes away what a life that went wrong has left, or ends the test.
func (r *repertoire) clear(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	require.NoError(t, r.saga.clear(&peering{cast: r.cast, ctx: ctx}))
}
