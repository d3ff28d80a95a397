package timed

import (
	"slices"
	"testing"
)

const (
	fewKills  = 20
	manyKills = 200
	// replicas of the Deployment that is rolled out under random kills.
	replicas = 100
)

// TestChaos runs scenarios of pods in one world. Its subtests kill and pause the roles at their
// writes, hold their watches back, kill them at random, and restore the consumer's etcd from a
// backup.
func TestChaos(t *testing.T) {
	w := newWorld(t)
	kills := fewKills
	if *all {
		kills = manyKills
	}
	t.Run("every write", func(t *testing.T) { testEveryWrite(t, w, scenarios()) })
	t.Run("stale caches", func(t *testing.T) { testStaleCaches(t, w, scenarios()) })
	t.Run("random kills", func(t *testing.T) { testRandomKills(t, w, replicas, kills) })
	t.Run("nobody else deletes", func(t *testing.T) { requireDeleters(t, w) })
	t.Run("restored consumer", func(t *testing.T) { testRestoredConsumer(t, w) })
}

// testEveryWrite runs each scenario without a fault, which records the writes of the roles. Then
// it runs the scenario again for each of these writes and each mode, with that fault at that write.
func testEveryWrite(t *testing.T, w *world, scenarios []scenario) {
	r := &runner{world: w, faults: newFaults(w), writes: writes{}}
	t.Run("no fault", func(t *testing.T) { r.record(t, scenarios) })
	if t.Failed() {
		return
	}
	is := chosen(some)
	if *all {
		is = every
	}
	t.Run("killed", func(t *testing.T) { r.runCases(t, r.cases(scenarios, kills(), is)) })
	for _, name := range []string{vkubelet, milanController} {
		if err := w.roles[name].startStandby(w); err != nil {
			t.Fatal(err)
		}
	}
	// A take-over lasts as long as a lease. A scenario that restarts roles has no standby.
	withStandby := slices.DeleteFunc(slices.Clone(scenarios), func(s scenario) bool { return len(s.outside) > 0 })
	t.Run("paused", func(t *testing.T) { r.runCases(t, r.cases(withStandby, pauses(), few)) })
}

// chosen decides whether a case is made of the write at place i of the of writes of a scenario,
// of the scenario at place scenario, and of the mode at place mode.
type chosen func(scenario, i, of, mode int) bool

func every(int, int, int, int) bool { return true }

// some is one write of each scenario for each mode; the next sample takes another one.
func some(scenario, i, of, mode int) bool {
	return i == (scenario*5+mode*of/len(kills())+*sample*max(of/samples, 1))%of
}

// few is each tenth write; in a sample only of two scenarios.
func few(scenario, i, _, _ int) bool {
	return i%samples == (scenario+*sample)%samples && (*all || (scenario+*sample)%len(scenarios()) < 2)
}
