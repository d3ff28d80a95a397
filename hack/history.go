package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// keptRuns is the number of runs of a set that the history keeps.
const keptRuns = 10

// history is the record of earlier runs on this machine. It is a file in the user's cache
// directory: a lost or unreadable file only costs the order of the tests.
type history struct {
	path string
	// Took has the duration of the last run of each scenario, by name.
	Took map[string]time.Duration `json:"took,omitempty"`
	// Runs are the last runs of each set, oldest first.
	Runs map[string][]pastRun `json:"runs,omitempty"`
}

// pastRun is a run of the tests, with those that failed, and passed when they ran again.
type pastRun struct {
	Commit string    `json:"commit"`
	When   time.Time `json:"when"`
	Flakes []flake   `json:"flakes,omitempty"`
}

type flake struct {
	Test   string `json:"test"`
	Output string `json:"output,omitempty"` // its end
}

// readHistory reads the history, or returns an empty one.
func readHistory() history {
	h := history{}
	if cache, err := os.UserCacheDir(); err == nil {
		h.path = filepath.Join(cache, "liqod-tests", "history.json")
		data, err := os.ReadFile(h.path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) || err == nil && json.Unmarshal(data, &h) != nil {
			fmt.Printf("%s cannot be read: the run begins without a history\n", h.path)
		}
	}
	if h.Took == nil {
		h.Took = map[string]time.Duration{}
	}
	if h.Runs == nil {
		h.Runs = map[string][]pastRun{}
	}
	return h
}

func (h history) write() error {
	if h.path == "" {
		return nil
	}
	data, err := json.MarshalIndent(h, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the history of the tests: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(h.path), 0o755); err != nil {
		return fmt.Errorf("writing the history of the tests: %w", err)
	}
	if err := os.WriteFile(h.path, data, 0o644); err != nil {
		return fmt.Errorf("writing the history of the tests: %w", err)
	}
	return nil
}

func (h history) took(s scenario) time.Duration {
	if d, ok := h.Took[s.name()]; ok {
		return d
	}
	return unknownDuration
}

// add adds a run of a set. It returns those of its flakes that an earlier one of the kept runs had
// too: one flake may be the machine's, two have a cause.
func (h history) add(set string, run pastRun) (repeated []flake) {
	runs := append(h.Runs[set], run)
	h.Runs[set] = runs[max(0, len(runs)-keptRuns):]
	return slices.DeleteFunc(slices.Clone(run.Flakes), func(f flake) bool { return h.count(set, f.Test) < 2 })
}

// count returns the number of kept runs of a set in which a test was flaky.
func (h history) count(set, test string) (n int) {
	for _, run := range h.Runs[set] {
		if slices.ContainsFunc(run.Flakes, func(f flake) bool { return f.Test == test }) {
			n++
		}
	}
	return n
}

// printFlakes prints the flakes of the kept runs: each is a bug with a cause.
func (h history) printFlakes() {
	for _, set := range slices.Sorted(maps.Keys(h.Runs)) {
		for _, run := range slices.Backward(h.Runs[set]) {
			for _, f := range run.Flakes {
				fmt.Printf("flaky in an earlier run (%s has its output): %s  %.12s  %s\n", h.path, run.When.Format(time.DateTime), run.Commit, f.Test)
			}
		}
	}
}
