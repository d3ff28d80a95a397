package timed

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// stages is how many lives are played at a time. They disturb each other: a role that
	// is killed for one is killed for all.
	stages = 4
	// rehearsals of each life, without an attack, show where its writes are; one for a sample.
	rehearsals = 2
	// tries is how often a life is played until the write to strike at is met: which writes
	// fall together differs.
	tries = 12
	// triesInOne of them are in a namespace that has seen lives before.
	triesInOne = 2
	// tooMany wrong cases end the test.
	tooMany = 10
	// mayBeUnmet is the share of the cases, one in so many, whose write may not be met.
	mayBeUnmet = 20
	// repeats is how many of the writes that go on for ever are struck at.
	repeats = 2
)

// testEveryWrite plays the lives, and again for each write that was met on the way and
// each mode, and strikes there.
func testEveryWrite(t *testing.T, w *world, lives []life) {
	e := &ensemble{world: w, theatre: newTheatre(w), table: &table{}}
	if e.rehearse(t, lives); t.Failed() {
		return
	}
	is := chosen(some)
	if *all {
		is = every
	}
	e.act(t, "killed", e.cases(lives, kills(), is))
	for _, name := range []string{vkubelet, milanController} {
		require.NoError(t, w.roles.byName[name].startStandby(w))
	}
	// A take-over lasts as long as a lease, and a life that starts roles anew has no other.
	quiet := slices.DeleteFunc(slices.Clone(lives), func(l life) bool { return len(l.everywhere) > 0 })
	e.act(t, "paused", e.cases(quiet, pauses(), few))
	e.table.report(t, column{killBefore, "killed before it"}, column{killAfter, "after it"}, column{killLost, "after it, answer lost"},
		column{pauseBefore, "paused before it"}, column{pauseAfter, "after it"})
}

// act plays the cases of one kind of attack.
func (e *ensemble) act(t *testing.T, attack string, cases []*scene) {
	t.Helper()
	begin, before := time.Now(), e.table.done()
	killed := e.roles.kills()
	e.play(t, cases)
	require.NoError(t, e.roles.err())
	leaveToAll(t)
	t.Logf("%s: %d of %d cases in %s, %d kills", attack, e.table.done()-before, len(cases), time.Since(begin).Round(time.Second), e.roles.kills()-killed)
	unmet := 0
	for _, s := range cases {
		if e.table.row(*s.at).outcomes[s.mode] == notMet {
			unmet++
			t.Logf("the write was not met in %d lives: %s", tries, s)
		}
	}
	// A write that only an accident in a rehearsal brought about may never come again.
	if unmet > len(cases)/mayBeUnmet {
		t.Errorf("%d of %d writes were not met", unmet, len(cases))
	}
}

// rehearse plays the lives without an attack, those last that disturb the others.
func (e *ensemble) rehearse(t *testing.T, lives []life) {
	t.Helper()
	begin := time.Now()
	var quiet, loud []*scene
	times := 1
	if *all {
		times = rehearsals
	}
	for range times {
		for i := range lives {
			if s := (&scene{life: &lives[i]}); len(s.life.everywhere) == 0 {
				quiet = append(quiet, s)
			} else {
				loud = append(loud, s)
			}
		}
	}
	e.play(t, quiet)
	e.play(t, loud)
	t.Logf("%d rehearsals in %s: %d writes", len(quiet)+len(loud), time.Since(begin).Round(time.Second), len(e.table.rows))
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

	mu    sync.Mutex
	queue []*scene
	wrong int
}

// chosen says whether the write at place i of those of a life, the one at place life of
// the lives, is struck at in the mode at place mode.
type chosen func(life, i, of, mode int) bool

func every(int, int, int, int) bool { return true }

// some is one write of each life for each mode; the next sample takes another.
func some(life, i, of, mode int) bool {
	return i == (life*5+mode*of/len(kills())+*sample*max(of/samples, 1))%of
}

// few is each tenth write; a sample, that of two lives.
func few(life, i, _, _ int) bool {
	return i%samples == (life+*sample)%samples && (*all || (life+*sample)%len(lives()) < 2)
}

// cases are the scenes for the writes and modes that are chosen.
func (e *ensemble) cases(lives []life, modes []mode, is chosen) []*scene {
	byLife := map[string][]point{}
	for _, p := range e.table.points() {
		byLife[p.life] = append(byLife[p.life], p)
	}
	var out []*scene
	for i := range lives {
		points := byLife[lives[i].name]
		for j := range points {
			for k, m := range modes {
				if is(i, j, len(points), k) {
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
	for range stages {
		wg.Go(func() {
			namespace, clean := "", false
			for next := e.next(); next != nil && t.Context().Err() == nil; next = e.next() {
				// What a life that went wrong has left is nothing to the next. And some writes
				// a namespace sees once.
				if !clean || next.try >= triesInOne {
					if clean {
						e.dropNamespace(t, namespace)
					}
					namespace = e.newNamespace(t)
				}
				clean = e.one(t, namespace, next)
			}
		})
	}
	wg.Wait()
}

func (e *ensemble) newNamespace(t *testing.T) string {
	namespace := fmt.Sprintf("%s%d", prefix, e.number.Add(1))
	if err := e.offload(t.Context(), namespace); err != nil {
		t.Error(err)
	}
	return namespace
}

// dropNamespace has a namespace go that is not needed any more: each costs the roles
// watches, and each new process opens all of them.
func (e *ensemble) dropNamespace(t *testing.T, namespace string) {
	if err := e.rome.Client().CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
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
// It reports whether all was well.
func (e *ensemble) one(t *testing.T, namespace string, s *scene) bool {
	if len(s.life.everywhere) > 0 {
		e.alone.Lock()
		defer e.alone.Unlock()
	}
	begin := time.Now()
	p := &plot{life: s.life.name, everywhere: s.life.everywhere}
	if s.at != nil {
		p.at = map[point]strike{*s.at: e.theatre.strike(s.mode)}
	}
	wrong := e.perform(t.Context(), e.stage(t.Context(), namespace, s.life), s.life, p)
	met := p.points()
	struck := s.at != nil && slices.Contains(met, *s.at)
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
	return len(wrong) == 0
}

func (e *ensemble) stage(ctx context.Context, namespace string, l *life) *stage {
	number := e.number.Add(1)
	if l.own {
		namespace = fmt.Sprintf("%sown-%d", prefix, number)
	}
	return &stage{world: e.world, ctx: ctx, namespace: namespace, number: number, want: map[types.UID]destiny{}}
}

// perform plays a life on a stage and judges it.
func (e *ensemble) perform(ctx context.Context, s *stage, l *life, p *plot) []string {
	p.namespaces = []string{s.namespace, s.twin()}
	e.theatre.open(p)
	err := l.play(s)
	if err == nil {
		err = s.end()
	}
	e.theatre.close(p)
	wrong := e.seen.judge(s.namespace, s.destiny)
	if err != nil {
		wrong = append([]string{err.Error()}, wrong...)
	}
	return wrong
}

const notMet = "not met"

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
		r.outcomes[s.mode] = notMet
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
