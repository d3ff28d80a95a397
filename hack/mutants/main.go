// Command mutants changes a package in many small ways, one at a time, and runs its tests with each change, a
// mutant. It prints the mutants that no test kills, and the tests and rows without which, all together, each
// mutant is still killed. One test binary has all mutants; go reads the changed files from a temporary folder.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	beside   = 2 // processes at a time
	patience = 8 // times the run without a mutant
	memory   = 6 << 20
	enough   = 2 // killers of a mutant: a test that panics hides those that would fail after it
)

// trial runs the tests of a package with mutants.
type trial struct {
	binary, dir, run, skip string
	without                []string
	limit                  time.Duration
	names                  []string // of all tests and rows
}

func main() {
	t := &trial{limit: 5 * time.Minute}
	flag.StringVar(&t.run, "run", ".", "tests that run, as of go test")
	flag.StringVar(&t.skip, "skip", "^$", "tests that do not run, as of go test")
	without := flag.String("without", "", "tests or rows (TestA/row), separated by commas: print the mutants that only these kill")
	flag.Parse()
	t.without = strings.FieldsFunc(*without, func(r rune) bool { return r == ',' })
	mutants, err := t.mutants(context.Background(), flag.Arg(0))
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
	t.report(mutants)
}

// mutants runs the tests of a package with each of its mutants.
func (t *trial) mutants(ctx context.Context, pkg string) ([]mutant, error) {
	m, err := mutate(ctx, pkg)
	if err != nil {
		return nil, err
	}
	temp, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	t.dir, t.binary = m.dir, filepath.Join(temp, "mutants.test")
	if err := t.build(ctx, m.changed, temp); err != nil {
		return nil, err
	}
	if err := t.clean(ctx, m.mutants, filepath.Join(temp, "reached")); err != nil {
		return nil, err
	}
	room, running := make(chan struct{}, beside), sync.WaitGroup{}
	for n := range m.mutants {
		if n%100 == 0 {
			fmt.Fprintf(os.Stderr, "%s: %d of %d mutants\n", time.Now().Format(time.TimeOnly), n, len(m.mutants))
		}
		if len(m.mutants[n].reachedBy) > 0 {
			room <- struct{}{}
			running.Go(func() {
				m.mutants[n].killers = t.killers(ctx, n, m.mutants[n].reachedBy)
				<-room
			})
		}
	}
	running.Wait()
	return m.mutants, nil
}

// build compiles the tests with other files, which it writes to temp.
func (t *trial) build(ctx context.Context, files map[string]string, temp string) error {
	replace, overlay := map[string]string{}, filepath.Join(temp, "overlay.json")
	for path, text := range files {
		replace[path] = filepath.Join(temp, filepath.Base(path))
		if err := os.WriteFile(replace[path], []byte(text), 0o600); err != nil {
			return err
		}
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	if err := os.WriteFile(overlay, data, 0o600); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", t.binary, t.dir)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("building the tests with mutants: %w", err)
	}
	return nil
}

// tests runs those tests that a pattern names, with a mutant. A mutant may allocate without end: memory bounds the
// process, in KiB.
func (t *trial) tests(ctx context.Context, run string, skip []string, env ...string) (string, error) {
	pattern := t.skip
	for _, name := range skip {
		pattern += "|^" + strings.ReplaceAll(regexp.QuoteMeta(name), "/", "$/^") + "$"
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", `ulimit -v "$0" && exec "$@"`, strconv.Itoa(memory), t.binary,
		"-test.v", "-test.timeout="+t.limit.String(), "-test.run="+run, "-test.skip="+pattern)
	cmd.Dir, cmd.Env = t.dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// clean runs the tests without a mutant, and then each alone to note the mutants that it reaches. It sets the limit of
// a run.
func (t *trial) clean(ctx context.Context, mutants []mutant, log string) error {
	begin := time.Now()
	out, err := t.tests(ctx, t.run, nil, "MUTANT=-1")
	if err != nil {
		return fmt.Errorf("running the tests without a mutant: %w\n%s", err, out)
	}
	t.names = rows(out, "PASS")
	t.limit = max(5*time.Second, patience*time.Since(begin).Round(time.Millisecond))
	tests := map[string]bool{}
	for _, row := range t.names {
		tests[test(row)] = true
	}
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		if err := os.WriteFile(log, nil, 0o600); err != nil {
			return err
		}
		if out, err := t.tests(ctx, "^"+name+"$", nil, "MUTANT=-1", "MUTANTS_REACHED="+log); err != nil {
			return fmt.Errorf("running %s alone: %w\n%s", name, err, out)
		}
		reached, err := os.ReadFile(log)
		if err != nil {
			return err
		}
		for line := range strings.FieldsSeq(string(reached)) {
			n, err := strconv.Atoi(line)
			if err != nil {
				return fmt.Errorf("reading what %s reaches: %w", name, err)
			}
			mutants[n].reachedBy = append(mutants[n].reachedBy, name)
		}
	}
	return nil
}

// killers returns those of the tests that fail with a mutant, or their rows. One that panics ends the process: the
// others run once more without it, until there are enough killers that are to stay.
func (t *trial) killers(ctx context.Context, n int, tests []string) (found []string) {
	for {
		out, err := t.tests(ctx, "^("+strings.Join(tests, "|")+")$", found, "MUTANT="+strconv.Itoa(n))
		if err == nil {
			return found
		}
		names := rows(out, "FAIL")
		if len(names) == 0 { // a time-out, or a panic of a goroutine that the test does not wait for
			return append(found, "(no test is named)")
		}
		if slices.Contains(found, names[0]) { // it was not skipped
			return found
		}
		found = append(found, names...)
		staying := slices.DeleteFunc(slices.Clone(found), t.goes)
		if !strings.Contains(out, "\npanic: ") && !strings.Contains(out, "\nfatal error: ") || len(staying) >= enough {
			return found
		}
	}
}

// goes reports whether t.without names a test or a row, or the test of the row.
func (t *trial) goes(name string) bool {
	return slices.ContainsFunc(t.without, func(out string) bool { return strings.HasPrefix(name+"/", out+"/") })
}

// rows returns the tests with an outcome; instead of a test its subtests that have it.
func rows(out, of string) (names []string) {
	outcome := regexp.MustCompile(`(?m)^ *--- (FAIL|PASS): (.+) \(`)
	for _, match := range outcome.FindAllStringSubmatch(out, -1) {
		if match[1] == of {
			names = append(names, match[2])
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.ContainsFunc(names, func(row string) bool { return strings.HasPrefix(row, name+"/") })
	})
}

// report prints the mutants that no test kills, what each test kills, and what only t.without kills.
func (t *trial) report(mutants []mutant) {
	killed := 0
	for _, m := range mutants {
		fate := "survived"
		switch {
		case len(m.reachedBy) == 0:
			fate = "not reached"
		case len(m.killers) > 0 && !slices.ContainsFunc(m.killers, func(name string) bool { return !t.goes(name) }):
			fate = "would survive"
		case len(m.killers) > 0:
			fate = ""
		}
		if fate != "" {
			fmt.Printf("%s: %s: %s\n", fate, m.place, m.what)
		}
		killed += min(1, len(m.killers))
	}
	for _, name := range unneeded(mutants, t.names, strings.Clone) {
		fmt.Printf("row that is not needed: %s\n", name)
	}
	for _, name := range unneeded(mutants, t.names, test) {
		fmt.Printf("test that is not needed: %s\n", name)
	}
	fmt.Printf("%d mutants, %d killed\n", len(mutants), killed)
}

// test returns the test of a row.
func test(row string) string { return strings.Split(row, "/")[0] }

// unneeded returns tests, or rows of them, without which, all together, each mutant still has a killer. Those that kill
// few go first.
func unneeded(mutants []mutant, names []string, part func(string) string) (spare []string) {
	kills, left := map[string][]int{}, make([]int, len(mutants))
	for _, name := range names {
		kills[part(name)] = nil
	}
	for n, m := range mutants {
		by := map[string]bool{}
		for _, name := range m.killers {
			by[part(name)] = true
		}
		left[n] = len(by)
		for name := range by {
			kills[name] = append(kills[name], n)
		}
	}
	few := func(a, b string) int { return cmp.Or(len(kills[a])-len(kills[b]), strings.Compare(a, b)) }
	for _, name := range slices.SortedFunc(maps.Keys(kills), few) {
		if slices.ContainsFunc(kills[name], func(n int) bool { return left[n] == 1 }) {
			continue
		}
		for _, n := range kills[name] {
			left[n]--
		}
		spare = append(spare, name)
	}
	return spare
}
