package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// fuzzTarget finds the fuzz targets in a test file.
var fuzzTarget = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(\w+ \*testing\.F\)`)

// runFuzz runs each fuzz target of some packages for a while, one after the other. It
// prints the output of those that fail, and returns the exit code.
func runFuzz(ctx context.Context, args []string) int {
	flags := flag.NewFlagSet("fuzz", flag.ContinueOnError)
	packages := flags.String("packages", "./...", "which packages, separated by spaces")
	each := flags.Duration("for", 3*time.Second, "how long each target runs")
	inAll := flags.Duration("in-all", 0, "how long all targets run together, each as long as the others; wins over -for")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	dir, err := os.MkdirTemp("", "fuzz")
	if err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	share := func(targets int) time.Duration { return shareOf(*inAll, *each, targets) }
	if err := fuzzAll(ctx, strings.Fields(*packages), share, filepath.Join(dir, "fuzz.test")); err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		return 1
	}
	return 0
}

// shareOf is how long one of so many targets runs: its share of inAll, at least a second, or
// each if inAll is zero.
func shareOf(inAll, each time.Duration, targets int) time.Duration {
	if inAll == 0 || targets == 0 {
		return each
	}
	return max(time.Second, (inAll / time.Duration(targets)).Round(time.Second))
}

// fuzzed is a package with fuzz targets.
type fuzzed struct {
	name, dir string
	targets   []string
}

// fuzzAll fuzzes packages. The test of each is built once, as binary.
func fuzzAll(ctx context.Context, packages []string, share func(targets int) time.Duration, binary string) error {
	list, total, err := fuzzedPackages(ctx, packages)
	if err != nil {
		return err
	}
	cache, err := exec.CommandContext(ctx, "go", "env", "GOCACHE").Output()
	if err != nil {
		return fmt.Errorf("looking for the cache: %w", err)
	}
	var errs []error
	for _, p := range list {
		// Without instrumentation, which would compile all dependencies a second time.
		build := exec.CommandContext(ctx, "go", "test", "-c", "-o", binary, p.name)
		build.Stdout, build.Stderr = os.Stdout, os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("building the test of %s: %w", p.name, err)
		}
		inputs := filepath.Join(strings.TrimSpace(string(cache)), "fuzz", p.name)
		for _, target := range p.targets {
			begin := time.Now()
			cmd := exec.CommandContext(ctx, binary, "-test.run=^$", "-test.fuzz=^"+target+"$", fmt.Sprintf("-test.fuzztime=%s", share(total)), "-test.fuzzcachedir="+inputs)
			cmd.Dir = p.dir // where an input that fails is written
			out, err := cmd.CombinedOutput()
			if err != nil && fuzzFailed(string(out)) {
				fmt.Printf("%s\n", out)
				errs = append(errs, fmt.Errorf("fuzzing %s of %s: %w", target, p.name, err))
				continue
			}
			fmt.Printf("fuzzed %s of %s for %s\n", target, p.name, time.Since(begin).Round(time.Second/10))
		}
	}
	return errors.Join(errs...)
}

// fuzzedPackages are those of the packages that have fuzz targets, and how many all have.
func fuzzedPackages(ctx context.Context, packages []string) (found []fuzzed, total int, err error) {
	list, err := exec.CommandContext(ctx, "go", append([]string{"list", "-f", "{{.ImportPath}} {{.Dir}}"}, packages...)...).Output()
	if err != nil {
		return nil, 0, fmt.Errorf("listing packages: %w", err)
	}
	for line := range strings.Lines(string(list)) {
		p := fuzzed{}
		p.name, p.dir, _ = strings.Cut(strings.TrimSpace(line), " ")
		if p.targets, err = fuzzTargets(p.dir); err != nil {
			return nil, 0, err
		}
		if len(p.targets) > 0 {
			found, total = append(found, p), total+len(p.targets)
		}
	}
	return found, total, nil
}

// fuzzTargets are those of the package in a directory.
func fuzzTargets(dir string) (names []string, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, fmt.Errorf("looking for fuzz targets: %w", err)
		}
		for _, match := range fuzzTarget.FindAllStringSubmatch(string(text), -1) {
			names = append(names, match[1])
		}
	}
	return names, nil
}

// fuzzFailed reports whether the output of a target that ended with an error says more than
// that its time was over: Go before 1.27 takes that for a failure now and then
// (https://go.dev/issue/75804).
func fuzzFailed(out string) bool {
	return !strings.Contains(out, "\n    context deadline exceeded\n") || strings.Contains(out, "Failing input written")
}
