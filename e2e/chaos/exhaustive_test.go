package chaos

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// stages is how many lives are played at a time. They disturb each other: a role that
	// is killed for one is killed for all.
	stages = 4
	// rehearsals of each life, without an attack, show where its writes are.
	rehearsals = 2
	// tries is how often a life is played until the write to strike at is met: which writes
	// fall together differs.
	tries = 6
	// tooMany wrong cases end the test.
	tooMany = 10
	// repeats is how many of the writes that go on for ever are struck at.
	repeats = 2
)

// testEveryWrite plays the lives, and again for each write that was met on the way and
// each mode, and strikes there.
func testEveryWrite(t *testing.T, w *world, lives []life) {
	e := &ensemble{world: w, theatre: newTheatre(w), table: &table{}}
	for i := range stages {
		require.NoError(t, w.offload(t.Context(), fmt.Sprintf("%s%d", prefix, i)))
	}
	begin := time.Now()
	var first []*scene
	for range rehearsals {
		for i := range lives {
			first = append(first, &scene{life: &lives[i]})
		}
	}
	e.play(t, first)
	t.Logf("%d rehearsals in %s: %d writes", len(first), time.Since(begin).Round(time.Second), len(e.table.rows))
	if t.Failed() {
		return
	}
	begin = time.Now()
	cases := e.cases(lives, *everything)
	e.play(t, cases)
	require.NoError(t, w.roles.err())
	e.table.report(t)
	t.Logf("%d of %d cases in %s, %d kills", e.table.done(), len(cases), time.Since(begin).Round(time.Second), w.roles.kills())
}

// scene is one life with, or without, an attack.
type scene struct {
	life *life
	at   *point
	mode mode
	try  int
}

func (s scene) String() string {
	if s.at == nil {
		return s.life.name + ", in peace"
	}
	return fmt.Sprintf("%s, %s", s.at, s.mode)
}

// ensemble plays scenes on its stages.
type ensemble struct {
	*world
	theatre *theatre
	table   *table
	alone   sync.Mutex // held by a life that takes what belongs to no stage

	mu     sync.Mutex
	queue  []*scene
	number int
	wrong  int
}

// cases are a scene for each write and mode; of a sample, one for each life and mode.
func (e *ensemble) cases(lives []life, all bool) []*scene {
	byLife := map[string][]point{}
	for _, p := range e.table.points() {
		byLife[p.life] = append(byLife[p.life], p)
	}
	var out []*scene
	for i := range lives {
		points := byLife[lives[i].name]
		for j := range points {
			for k, m := range modes() {
				// Another place of each life for each mode, the same each time.
				if all || j == (i*5+k*len(points)/len(modes()))%len(points) {
					out = append(out, &scene{life: &lives[i], at: &points[j], mode: m})
				}
			}
		}
	}
	return out
}

// play plays scenes until none is left.
func (e *ensemble) play(t *testing.T, scenes []*scene) {
	t.Helper()
	e.queue = scenes
	var wg sync.WaitGroup
	for i := range stages {
		wg.Go(func() {
			for next := e.next(); next != nil && t.Context().Err() == nil; next = e.next() {
				e.one(t, fmt.Sprintf("%s%d", prefix, i), next)
			}
		})
	}
	wg.Wait()
}

func (e *ensemble) next() *scene {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.queue) == 0 || e.wrong >= tooMany {
		return nil
	}
	s := e.queue[0]
	e.queue = e.queue[1:]
	return s
}

// one plays a scene and enters what came of it; one whose write was not met comes again.
func (e *ensemble) one(t *testing.T, namespace string, s *scene) {
	if len(s.life.everywhere) > 0 {
		e.alone.Lock()
		defer e.alone.Unlock()
	}
	begin := time.Now()
	p := &plot{life: s.life.name, namespaces: []string{namespace, twinOf(namespace)}, everywhere: s.life.everywhere, at: s.at}
	if s.at != nil {
		p.do = e.theatre.strike(s.mode)
	}
	wrong := e.perform(t.Context(), namespace, s.life, p)
	met, struck := p.points()
	took := time.Since(begin).Round(10 * time.Millisecond)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.table.enter(s, met, struck, wrong)
	switch {
	case len(wrong) > 0:
		e.wrong++
		t.Errorf("%s (%s):", s, took)
		for _, line := range wrong {
			t.Errorf("    %s", line)
		}
	case s.at != nil && !struck && s.try+1 < tries:
		again := *s
		again.try++
		e.queue = append(e.queue, &again)
	}
}

// perform plays a life on a stage and judges it.
func (e *ensemble) perform(ctx context.Context, namespace string, l *life, p *plot) []string {
	e.mu.Lock()
	e.number++
	s := &stage{world: e.world, ctx: ctx, namespace: namespace, number: e.number, want: map[types.UID]destiny{}}
	e.mu.Unlock()
	e.theatre.open(p)
	err := l.play(s)
	if err == nil {
		err = s.end()
	}
	e.theatre.close(p)
	wrong := e.seen.judge(namespace, s.destiny)
	if err != nil {
		wrong = append([]string{err.Error()}, wrong...)
	}
	return wrong
}

// table has a row for each write and a column for each mode.
type table struct {
	rows []*row
}

type row struct {
	point
	outcomes map[mode]string
}

// endless are kinds of writes that go on as long as their role runs.
func (p point) endless() bool {
	return p.n > repeats && slices.ContainsFunc([]string{" leases ", " events ", "nodes/status"}, func(s string) bool { return containsWord(p.what, s) })
}

func (t *table) row(p point) *row {
	for _, r := range t.rows {
		if r.point == p {
			return r
		}
	}
	r := &row{point: p, outcomes: map[mode]string{}}
	t.rows = append(t.rows, r)
	return r
}

// enter notes the writes of a life in peace, or what came of an attack.
func (t *table) enter(s *scene, met []point, struck bool, wrong []string) {
	if s.at == nil {
		for _, p := range met {
			if !p.endless() {
				t.row(p)
			}
		}
		return
	}
	r := t.row(*s.at)
	switch {
	case len(wrong) > 0:
		r.outcomes[s.mode] = "WRONG"
	case struck:
		r.outcomes[s.mode] = "ok"
	default:
		r.outcomes[s.mode] = "not met"
	}
}

func (t *table) points() []point {
	slices.SortFunc(t.rows, func(a, b *row) int {
		return cmp.Or(cmp.Compare(a.life, b.life), cmp.Compare(a.role, b.role), cmp.Compare(a.what, b.what), cmp.Compare(a.n, b.n))
	})
	out := make([]point, 0, len(t.rows))
	for _, r := range t.rows {
		out = append(out, r.point)
	}
	return out
}

func (t *table) done() (n int) {
	for _, r := range t.rows {
		for _, o := range r.outcomes {
			if o == "ok" {
				n++
			}
		}
	}
	return n
}
