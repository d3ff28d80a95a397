package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestScenariosAreListed: every test of e2e/scenarios is a scenario, and every scenario is a
// test. Other folders have scenarios and tests that need no cluster.
func TestScenariosAreListed(t *testing.T) {
	declared := map[string][]string{}
	for _, s := range scenarios() {
		require.NotContains(t, declared[s.folder], s.test)
		declared[s.folder] = append(declared[s.folder], s.test)
	}
	for folder, listed := range declared {
		files := must(filepath.Glob(filepath.Join("..", folder, "*_test.go")))
		var tests []string
		for _, file := range files {
			text := must(os.ReadFile(file))
			for _, match := range regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`).FindAllStringSubmatch(string(text), -1) {
				tests = append(tests, match[1])
			}
		}
		require.Subset(t, tests, listed, "tests of hack/scenario.go that %s lacks", folder)
		if folder == "e2e/scenarios" {
			require.Subset(t, listed, tests, "hack/scenario.go lacks tests of %s", folder)
		}
	}
}

// TestSets: make test and make test-more run each scenario between them, but those that are long
// by nature and those with a command of their own; make test-all runs the long ones too.
func TestSets(t *testing.T) {
	ran := map[scenario][]string{}
	for _, set := range []string{setCore, setMore, setAll} {
		for _, s := range scenariosOf(set, history{}) {
			ran[s] = append(ran[s], set)
		}
	}
	want := map[when][]string{core: {setCore, setAll}, more: {setMore, setAll}, long: {setAll}}
	for _, s := range scenarios() {
		require.Equal(t, want[s.when], ran[s], s.name())
	}
}

// TestLongestFirst: a scenario without a known duration goes before short ones.
func TestLongestFirst(t *testing.T) {
	a, b, c := scenario{test: "A"}, scenario{test: "B"}, scenario{test: "C"}
	h := history{Took: map[string]time.Duration{a.name(): time.Minute, b.name(): time.Hour}}
	require.Equal(t, []scenario{b, c, a}, longestFirst(h, []scenario{a, b, c}))
}

// TestTurned: ten samples begin at ten places, and no scenario is lost.
func TestTurned(t *testing.T) {
	list := scenariosOf(setMore, history{})
	begins := map[scenario]bool{}
	for sample := range 10 {
		got := turned(list, fmt.Sprint(sample))
		require.ElementsMatch(t, list, got)
		quarter := len(list) / 4
		require.Equal(t, list[:quarter], got[:quarter])
		begins[got[quarter]] = true
	}
	require.Len(t, begins, 10)
	require.Equal(t, list, turned(list, "-3"))
	require.Empty(t, turned(nil, "3"))
}

// TestHistory: what a run records, the next one reads; an unreadable file is no error. The runs of
// a set are its last ones, and a flake that two of them have is repeated.
func TestHistory(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	h := readHistory()
	require.Empty(t, h.Runs)
	s := scenario{folder: "e2e/scenarios", test: "TestA"}
	require.Equal(t, unknownDuration, h.took(s))
	h.Took[s.name()] = time.Minute
	failed := pastRun{Commit: "abc", Flakes: []flake{{Test: "p TestB", Output: "want 3"}}}
	require.Empty(t, h.add(setCore, failed))
	require.Empty(t, h.add(setMore, failed), "the other set")
	require.NoError(t, h.write())
	again := readHistory()
	require.Equal(t, time.Minute, again.took(s))
	require.Equal(t, failed.Flakes, again.add(setCore, failed))
	require.Equal(t, 2, again.count(setCore, "p TestB"))
	for range keptRuns {
		require.Empty(t, again.add(setCore, pastRun{}))
	}
	require.Len(t, again.Runs[setCore], keptRuns)
	require.Empty(t, again.add(setCore, failed), "the earlier ones are forgotten")
	require.NoError(t, os.WriteFile(again.path, []byte("{"), 0o600))
	require.Empty(t, readHistory().Took)
}
