package timed

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

const (
	// sampled is how many writes of each step are a sample.
	sampled = 4
	// faultsInOne is how many faults there are in a step of one run, at most.
	faultsInOne = 3
	// peeringTries is how often a peering runs until the write of a case occurs: roles fold
	// concurrent changes into one write or not.
	peeringTries = 3
	// lastRun is the time that is left for a run that fails, and the report.
	lastRun = 4 * time.Minute
	// eachPause is how many writes of a step lie between two at which an API server is paused.
	// Each step begins at another one.
	eachPause = 3
)

// TestPeerings peers two clusters and ends the peering, and makes faults at each write of the
// controllers of both sides, of the vkubelet and of the commands. Each step comes to the same
// result; no cluster reports a peering that is not complete; at the end nothing is left.
func TestPeerings(t *testing.T) {
	w := newClusters(t, map[string]any{"authentication": map[string]any{"lifetime": "10m", "requestsPerAddress": 6000, "requestsPerMinute": 6000}})
	p, err := newPeeringWorld(w)
	require.NoError(t, err)
	kubetest.Create(t, w.Rome.Client().CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}})
	require.NoError(t, p.recordInventory(t.Context()))
	for _, s := range peeringScenarios() {
		t.Run(s.name, func(t *testing.T) { testPeering(t, p, s) })
	}
}

// testPeering runs the steps without a fault, which records the writes of the roles, and then
// until each chosen write had each chosen fault.
func testPeering(t *testing.T, w *peeringWorld, s peeringScenario) {
	w.statuses = []*statusWatch{newStatusWatch(t, w.romeUses())}
	if s.mutual {
		w.statuses = append(w.statuses, newStatusWatch(t, w.milanUses()))
	}
	r := &peeringRunner{peeringWorld: w, scenario: s, writes: writes{}}
	r.run(t, nil)
	if *all {
		r.run(t, nil)
	}
	t.Logf("%d writes", len(r.writes))
	r.runAll(t)
}

// peeringCase is a fault at a write of a step.
type peeringCase struct {
	at   write
	mode mode
	try  int
	// alone: in a run without other faults, because one with others failed.
	alone bool
}

func (c *peeringCase) String() string { return fmt.Sprintf("%s, %s", &c.at, c.mode) }

// peeringRunner runs a scenario again and again, with some faults in each step.
type peeringRunner struct {
	*peeringWorld
	scenario peeringScenario
	writes   writes
	failed   int // runs
	// passed and absent count cases, and those whose write did not occur.
	passed, absent int
}

// cases are those at the writes of the n-th step that are chosen.
func (r *peeringRunner) cases(n int, writes []write) (out []*peeringCase) {
	for _, m := range []mode{killBefore, killLost, pauseServer} {
		for i, w := range writes {
			wanted := *all && (m != pauseServer || i%eachPause == n%eachPause)
			for s := range sampled {
				wanted = wanted || !*all && i == (s*len(writes)/sampled+n+*sample*max(len(writes)/sampled/samples, 1))%len(writes) && m == r.sampleMode(n, s)
			}
			if c := (&peeringCase{at: w, mode: m}); wanted && strings.Contains(c.String(), *only) {
				out = append(out, c)
			}
		}
	}
	return out
}

// sampleMode is the mode of the s-th write of the sample of the n-th step.
func (r *peeringRunner) sampleMode(n, s int) mode {
	if s == sampled-1 && r.scenario.steps[n].slow {
		return pauseServer
	}
	return []mode{killBefore, killLost}[(n+s)%2]
}

// runAll runs the scenario until each chosen case has run.
func (r *peeringRunner) runAll(t *testing.T) {
	t.Helper()
	writes := r.writes.sorted()
	todo := map[string][]*peeringCase{}
	for n, s := range r.scenario.steps {
		todo[s.name] = r.cases(n, slices.DeleteFunc(slices.Clone(writes), func(w write) bool { return w.scenario != s.name }))
	}
	begin, runs, cases, kills := time.Now(), 0, left(todo), r.roles.kills()
	for left(todo) > 0 && r.failed < tooMany {
		if end, ok := t.Deadline(); ok && time.Until(end) < lastRun {
			t.Errorf("the time is over: %d cases are left", left(todo))
			break
		}
		for _, c := range r.run(t, next(todo)) {
			todo[c.at.scenario] = append(todo[c.at.scenario], c)
		}
		runs++
	}
	require.NoError(t, r.roles.err())
	logLeftOut(t)
	t.Logf("%d of %d cases, in %d runs and %s, %d kills", r.passed, cases, runs, time.Since(begin).Round(time.Second), r.roles.kills()-kills)
	require.LessOrEqual(t, r.absent, cases/mayBeAbsent+1, "writes that did not occur")
}

// next takes the cases of one run: some of each step, far apart, or one that is to run alone.
func next(todo map[string][]*peeringCase) map[string][]*peeringCase {
	now := map[string][]*peeringCase{}
	for step, cases := range todo {
		if at := slices.IndexFunc(cases, func(c *peeringCase) bool { return c.alone }); at >= 0 {
			alone := cases[at]
			todo[step] = slices.Delete(cases, at, at+1)
			return map[string][]*peeringCase{step: {alone}}
		}
	}
	for step, cases := range todo {
		for n := faultsInOne - 1; n >= 0; n-- {
			at := n * len(cases) / faultsInOne
			if at >= len(cases) || slices.ContainsFunc(now[step], cases[at].excludes) {
				continue
			}
			now[step] = append(now[step], cases[at])
			cases = slices.Delete(cases, at, at+1)
		}
		todo[step] = cases
	}
	return now
}

// excludes reports whether two cases do not fit into one step: the same write occurs once, and
// one pause would end within the other.
func (c *peeringCase) excludes(other *peeringCase) bool {
	return c.at == other.at || c.mode == pauseServer && other.mode == pauseServer
}

// left counts cases.
func left(todo map[string][]*peeringCase) (n int) {
	for _, cases := range todo {
		n += len(cases)
	}
	return n
}

// run runs the scenario once, with cases by step; nil: without a fault. It returns the cases
// that have to run again.
func (r *peeringRunner) run(t *testing.T, cases map[string][]*peeringCase) (again []*peeringCase) {
	t.Helper()
	begin := time.Now()
	p := &peering{peeringWorld: r.peeringWorld}
	var took []string
	short := cases != nil && !slices.ContainsFunc(r.scenario.steps, func(s step) bool { return s.needsOptional && len(cases[s.name]) > 0 })
	for i, s := range r.scenario.steps {
		if short && s.optional {
			continue
		}
		since := time.Now()
		rec, ok := r.runStep(t, p, s, cases[s.name])
		took = append(took, time.Since(since).Round(100*time.Millisecond).String())
		if !ok {
			r.failed++
			cleaned := t.Run("clean up", func(t *testing.T) { r.scenario.cleanUp(&peering{peeringWorld: r.peeringWorld, t: t}) })
			require.True(t, cleaned, "what the failed run has left could not be deleted")
			return append(again, r.retryAlone(t, cases, i)...)
		}
		for _, w := range rec.all() {
			if cases == nil && w.n <= repeats {
				r.writes[w] = true
			}
		}
		for _, c := range cases[s.name] {
			if slices.Contains(rec.all(), c.at) {
				r.passed++
			} else if c.try+1 < peeringTries {
				again = append(again, &peeringCase{at: c.at, mode: c.mode, try: c.try + 1, alone: c.alone})
			} else {
				r.absent++
				t.Logf("the write did not occur in %d runs: %s", peeringTries, c)
			}
		}
	}
	t.Logf("a run of %s %v %q", time.Since(begin).Round(100*time.Millisecond), took, p.errors)
	return again
}

// retryAlone returns the cases of a run that failed in its n-th step. An earlier step may have
// left an object that fails a later one, so each case up to the n-th step runs again, alone. A
// case that was alone has failed.
func (r *peeringRunner) retryAlone(t *testing.T, cases map[string][]*peeringCase, n int) (again []*peeringCase) {
	t.Helper()
	alone := left(cases) == 1
	for i, s := range r.scenario.steps {
		for _, c := range cases[s.name] {
			switch {
			case alone: // it has failed
			case i <= n:
				again = append(again, &peeringCase{at: c.at, mode: c.mode, alone: true})
			default:
				again = append(again, c)
				continue
			}
			t.Errorf("    in this run: %s", c)
		}
	}
	return again
}

// runStep runs one step with faults as a subtest, waits until the API servers answer, and
// requires that the statuses are right.
func (r *peeringRunner) runStep(t *testing.T, p *peering, s step, cases []*peeringCase) (rec *recording, ok bool) {
	rec = &recording{scenario: s.name, ignores: fromTimers, at: map[write]fault{}}
	for name := range r.roles {
		rec.outside = append(rec.outside, name)
	}
	for _, c := range cases {
		rec.at[c.at] = r.faults.fault(c.mode)
	}
	ok = t.Run(s.name, func(t *testing.T) {
		p.t = t
		defer func() {
			for _, w := range r.statuses {
				for _, wrong := range w.take() {
					t.Error(wrong)
				}
			}
			if t.Failed() {
				t.Log(strings.Join(p.errors, "\n"))
			}
		}()
		begin := time.Now()
		r.faults.start(rec)
		func() {
			defer r.faults.stop(rec)
			s.run(p)
		}()
		if *all {
			require.LessOrEqual(t, time.Since(begin), patience)
		}
		for _, cluster := range r.faults.clusters {
			require.NoError(t, cluster.WaitReady(t.Context()))
		}
		for _, w := range r.statuses {
			require.NoError(t, w.settled(t.Context()))
		}
	})
	return rec, ok
}

// fromTimers are writes that do not belong to a peering: roles make them as time passes.
func fromTimers(r lab.Request) bool { return r.Resource == "leases" || r.Resource == "events" }
