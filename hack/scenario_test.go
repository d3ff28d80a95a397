package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
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
		files, err := filepath.Glob(filepath.Join("..", folder, "*_test.go"))
		require.NoError(t, err)
		var tests []string
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
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

// TestScenariosCoverFolders: what a scenario covers exists.
func TestScenariosCoverFolders(t *testing.T) {
	for _, s := range scenarios() {
		for folder := range s.folders() {
			_, err := os.Stat(filepath.Join("..", folder))
			require.NoError(t, err, s.name())
		}
	}
}

// TestMoreScenarios: scenarios that the change concerns run first, then a third of the others,
// those that have not run for longest; in three runs each has run.
func TestMoreScenarios(t *testing.T) {
	h := history{Took: map[string]time.Duration{}, Ran: map[string]time.Time{}}
	offer := []string{"peering/offer/consumer.go", "README.md"}
	concerned := func(s scenario) bool { return s.touched(offer) }
	list := moreScenarios(h, offer, 0)
	require.True(t, concerned(list[0]))
	first := slices.IndexFunc(list, func(s scenario) bool { return !concerned(s) })
	require.False(t, slices.ContainsFunc(list[first:], concerned))
	seen := map[string]bool{}
	for round := range 3 {
		list := moreScenarios(h, nil, round)
		require.NotEmpty(t, list)
		require.Less(t, len(list), len(scenarios())/2)
		for _, s := range list {
			require.Equal(t, more, s.when, s.test)
			seen[s.name()] = true
			h.Ran[s.name()] = time.Unix(int64(round+1), 0)
		}
	}
	for _, s := range scenarios() {
		require.Equal(t, s.when == more, seen[s.name()], s.name())
	}
}

// TestLongestFirst: a scenario without a known duration goes before short ones.
func TestLongestFirst(t *testing.T) {
	a, b, c := scenario{test: "A"}, scenario{test: "B"}, scenario{test: "C"}
	h := history{Took: map[string]time.Duration{a.name(): time.Minute, b.name(): time.Hour}}
	require.Equal(t, []scenario{b, c, a}, longestFirst(h, []scenario{a, b, c}))
}

// TestHistory: what a run records, the next one reads; an unreadable file is no error.
func TestHistory(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	h := readHistory()
	require.Empty(t, h.Flakes)
	s := scenario{folder: "e2e/scenarios", test: "TestA"}
	require.Equal(t, unknownDuration, h.took(s))
	h.Took[s.name()], h.Ran[s.name()], h.Proven = time.Minute, time.Unix(7, 0), "abc"
	h.Flakes = slices.Repeat([]flake{{Test: "p TestB"}}, keptFlakes+1)
	require.NoError(t, h.write())
	again := readHistory()
	require.Equal(t, time.Minute, again.took(s))
	require.True(t, again.ran(s).Equal(time.Unix(7, 0)))
	require.Equal(t, "abc", again.Proven)
	require.Len(t, again.Flakes, keptFlakes)
	require.NoError(t, os.WriteFile(again.path, []byte("{"), 0o600))
	require.Empty(t, readHistory().Took)
}
