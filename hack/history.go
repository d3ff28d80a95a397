package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// keptFlakes is the number of flakes that the history keeps.
const keptFlakes = 20

// history is the record of earlier runs on this machine. It is a file in the user's cache
// directory: a lost or unreadable file only costs the order of the tests.
type history struct {
	path string
	// Took has the duration of the last run of each scenario, and Ran its end, by name.
	Took map[string]time.Duration `json:"took,omitempty"`
	Ran  map[string]time.Time     `json:"ran,omitempty"`
	// Flakes are tests that failed and passed when they ran again, oldest first.
	Flakes []flake `json:"flakes,omitempty"`
	// Proven is the last commit of which `make test-more` passed with all scenarios that
	// concerned it.
	Proven string `json:"proven,omitempty"`
}

type flake struct {
	Test   string    `json:"test"`
	Commit string    `json:"commit"`
	When   time.Time `json:"when"`
	Output string    `json:"output,omitempty"` // its end
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
	if h.Ran == nil {
		h.Ran = map[string]time.Time{}
	}
	return h
}

func (h history) write() error {
	if h.path == "" {
		return nil
	}
	h.Flakes = h.Flakes[max(0, len(h.Flakes)-keptFlakes):]
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

func (h history) ran(s scenario) time.Time { return h.Ran[s.name()] }

// printFlakes prints the flakes of earlier runs: each is a bug with a cause.
func (h history) printFlakes() {
	if len(h.Flakes) == 0 {
		return
	}
	fmt.Printf("flaky in earlier runs on this machine (%s has their output):\n", h.path)
	for _, f := range slices.Backward(h.Flakes) {
		fmt.Printf("  %s  %.12s  %s\n", f.When.Format(time.DateTime), f.Commit, f.Test)
	}
}
