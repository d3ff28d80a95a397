package timed

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// parallel is how many scenarios run at a time. They disturb each other: a role that is
	// killed for one is killed for all.
	parallel = 4
	// recordings is how often each scenario runs without a fault; once for a sample.
	recordings = 2
	// tries is how often a scenario runs until the write of its case occurs: roles fold
	// concurrent changes into one write or not.
	tries = 12
	// triesInOne of them are in a namespace that was used before.
	triesInOne = 2
	// tooMany failed cases end the test.
	tooMany = 10
	// mayBeAbsent is the share of the cases, one in so many, whose write may never occur.
	mayBeAbsent = 20
	// repeats is how many of the writes that a role repeats as long as it runs get cases.
	repeats = 2
)

// faultCase is a scenario with one fault at one of its writes, or with none.
type faultCase struct {
	scenario *scenario
	at       *write
	mode     mode
	try      int
}

func (c faultCase) String() string {
	if c.at == nil {
		return c.scenario.name
	}
	return fmt.Sprintf("%s, %s", c.at, c.mode)
}

// runner runs cases, several at a time.
type runner struct {
	*world
	faults *faults
	alone  sync.Mutex // held by a scenario that runs alone

	mu     sync.Mutex
	writes writes
	queue  []*faultCase
	// passed and failed count cases, absent those whose write did not occur.
	passed, failed, absent int
}

// record runs the scenarios without a fault, last those that run alone.
func (r *runner) record(t *testing.T, scenarios []scenario) {
	t.Helper()
	begin := time.Now()
	var together, alone []*faultCase
	times := 1
	if *all {
		times = recordings
	}
	for range times {
		for i := range scenarios {
			if c := (&faultCase{scenario: &scenarios[i]}); len(c.scenario.outside) == 0 {
				together = append(together, c)
			} else {
				alone = append(alone, c)
			}
		}
	}
	r.run(t, together)
	r.run(t, alone)
	t.Logf("%d runs in %s: %d writes", len(together)+len(alone), time.Since(begin).Round(time.Second), len(r.writes))
}

// runCases runs cases, and requires that the write of most of them has occurred.
func (r *runner) runCases(t *testing.T, cases []*faultCase) {
	t.Helper()
	begin, before, absent := time.Now(), r.passed, r.absent
	killed := r.roles.kills()
	r.run(t, cases)
	require.NoError(t, r.roles.err())
	logLeftOut(t)
	t.Logf("%d of %d cases in %s, %d kills", r.passed-before, len(cases), time.Since(begin).Round(time.Second), r.roles.kills()-killed)
	// A write that was made by chance while the writes were recorded may never occur again.
	require.LessOrEqual(t, r.absent-absent, len(cases)/mayBeAbsent, "writes that did not occur")
}

// cases are those for the writes and modes that are chosen.
func (r *runner) cases(scenarios []scenario, modes []mode, is chosen) []*faultCase {
	byScenario := map[string][]write{}
	for _, w := range r.writes.sorted() {
		byScenario[w.scenario] = append(byScenario[w.scenario], w)
	}
	var out []*faultCase
	for i := range scenarios {
		writes := byScenario[scenarios[i].name]
		for j := range writes {
			for k, m := range modes {
				if is(i, j, len(writes), k) {
					out = append(out, &faultCase{scenario: &scenarios[i], at: &writes[j], mode: m})
				}
			}
		}
	}
	return out
}

// run runs cases until none is left.
func (r *runner) run(t *testing.T, cases []*faultCase) {
	t.Helper()
	r.queue = cases
	var wg sync.WaitGroup
	for range parallel {
		wg.Go(func() {
			namespace, clean := "", false
			for c := r.next(); c != nil && t.Context().Err() == nil; c = r.next() {
				// A failed case leaves objects behind. Some writes occur once in a namespace.
				if !clean || c.try >= triesInOne {
					if clean {
						r.deleteNamespace(t, namespace)
					}
					namespace = r.newNamespace(t)
				}
				clean = r.runOne(t, namespace, c)
			}
		})
	}
	wg.Wait()
}

func (r *runner) newNamespace(t *testing.T) string {
	namespace := fmt.Sprintf("%s%d", prefix, r.number.Add(1))
	if err := r.offload(t.Context(), namespace); err != nil {
		t.Error(err)
	}
	return namespace
}

// deleteNamespace deletes a namespace that is not used any more: each costs the roles watches,
// and each new process opens all of them.
func (r *runner) deleteNamespace(t *testing.T, namespace string) {
	if err := r.Rome.Client().CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

func (r *runner) next() *faultCase {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) == 0 || r.failed >= tooMany {
		return nil
	}
	c := r.queue[0]
	r.queue = r.queue[1:]
	return c
}

// runOne runs a case as a subtest and records the outcome. It queues a case again whose write
// did not occur, and reports whether the case passed.
func (r *runner) runOne(t *testing.T, namespace string, c *faultCase) bool {
	if len(c.scenario.outside) > 0 {
		r.alone.Lock()
		defer r.alone.Unlock()
	}
	rec := &recording{scenario: c.scenario.name, outside: c.scenario.outside}
	if c.at != nil {
		rec.at = map[write]fault{*c.at: r.faults.fault(c.mode)}
	}
	passed := t.Run(c.String(), func(t *testing.T) {
		run := r.newRun(t, namespace)
		if c.scenario.own {
			run.namespace = fmt.Sprintf("%sown-%d", prefix, run.number)
		}
		rec.namespaces = []string{run.namespace, run.twin()}
		r.faults.start(rec)
		defer func() {
			r.faults.stop(rec)
			for _, wrong := range r.pods.check(run.namespace, run.expected) {
				t.Error(wrong)
			}
		}()
		c.scenario.run(run)
		run.end()
	})
	occurred := rec.all()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !passed:
		r.failed++
	case c.at == nil:
		for _, w := range occurred {
			if !w.repeated() {
				r.writes[w] = true
			}
		}
	case slices.Contains(occurred, *c.at):
		r.passed++
	case c.try+1 < tries:
		again := *c
		again.try++
		r.queue = append(r.queue, &again)
	default:
		r.absent++
		t.Logf("the write did not occur in %d runs: %s", tries, c)
	}
	return passed
}

// repeated writes go on as long as their role runs.
func (w write) repeated() bool {
	return w.n > repeats && slices.ContainsFunc([]string{" leases ", " events ", "nodes/status "}, func(s string) bool { return strings.Contains(w.what+" ", s) })
}
