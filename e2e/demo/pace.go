package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// longSilence is how long a step prints nothing before the demo says that it still works.
const longSilence = 15 * time.Second

// pace knows how long each step took the last time that the demo was shown on this machine.
type pace struct {
	path string
	took map[string]time.Duration
}

// newPace reads the times of the last run. Without them it knows none.
func newPace(path string) *pace {
	p := &pace{path: path, took: map[string]time.Duration{}}
	data, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(data, &p.took) != nil || p.took == nil {
		p.took = map[string]time.Duration{}
	}
	return p
}

// pacePath is the file with the times, in the user's cache directory.
func pacePath() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("looking for the cache directory: %w", err)
	}
	return filepath.Join(cache, "liqod-lab", "demo-steps.json"), nil
}

// expected says how long a step took the last time; empty if that is not known, or no time
// to speak of.
func (p *pace) expected(title string) string {
	took := p.took[title]
	if took < time.Second {
		return ""
	}
	return fmt.Sprintf("%s the last time", rounded(took))
}

// keep writes the times of this run.
func (p *pace) keep(steps []step) error {
	for _, s := range steps {
		p.took[s.title] = s.took
	}
	data, err := json.Marshal(p.took)
	if err != nil {
		return fmt.Errorf("noting how long the steps took: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(p.path), 0o755); err != nil {
		return fmt.Errorf("noting how long the steps took: %w", err)
	}
	if err := os.WriteFile(p.path, data, 0o644); err != nil {
		return fmt.Errorf("noting how long the steps took: %w", err)
	}
	return nil
}

// company says, until ctx ends, that a step still works whenever it is silent for long.
func (d *demo) company(ctx context.Context, expected string) {
	begin := time.Now()
	ticks := time.NewTicker(time.Second)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
			if d.console.silence() >= longSilence {
				d.console.note("%s", soFar(rounded(time.Since(begin)), expected))
			}
		}
	}
}

func soFar(d time.Duration, expected string) string {
	if expected == "" {
		return fmt.Sprintf("%s so far", d)
	}
	return fmt.Sprintf("%s so far; it took %s", d, expected)
}
