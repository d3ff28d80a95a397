package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// sampleVariable names the variable with the number of the sample: tests of long tables
// play a part of their cases that depends on it.
const sampleVariable = "LAB_SAMPLE"

// startByVariable names the variable with the time, in seconds of Unix, after which no scenario starts: a run
// that has a limit of time, as .ci/run has, ends before it. Empty: all scenarios start.
const startByVariable = "TEST_START_BY"

// Values of -set.
const (
	setCore = "core"
	setMore = "more"
	setAll  = "all"
)

// mostFlakes is the number of failed tests that run again. If more fail, none of them does.
const mostFlakes = 3

// testOptions are the flags of `hack test`.
type testOptions struct {
	set, packages, alone, sample string
	startBy                      int64    // seconds of Unix; 0: no limit
	flags                        []string // of go test
}

// runTest runs the tests of the project as `make test`, `make test-more` and `make test-all`
// do. It prints the output of failed tests only, and at the end a table of packages and
// scenarios, the tests that were skipped, and the tests that other targets run. A test that
// fails runs once more, alone, at the end. It returns the exit code.
func runTest(ctx context.Context, args []string) int {
	o := testOptions{}
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	flags.StringVar(&o.set, "set", setCore, "core: make test; more: the scenarios that make test does not run; all: everything")
	flags.StringVar(&o.packages, "packages", "./...", "packages, separated by spaces; -set says which of their scenarios run")
	flags.StringVar(&o.alone, "alone", "", "packages, separated by spaces, that run before the others")
	startBy, err := strconv.ParseInt(cmp.Or(os.Getenv(startByVariable), "0"), 10, 64)
	if err != nil {
		fmt.Fprintf(os.Stderr, "test: %s is %q: a number of seconds of Unix is accepted\n", startByVariable, os.Getenv(startByVariable))
		return 2
	}
	flags.Int64Var(&o.startBy, "start-by", startBy, "time after which no scenario starts, in seconds of Unix; the sample says which start after the longest then. 0: no limit")
	flags.StringVar(&o.sample, "sample", os.Getenv(sampleVariable), "number of the sample; default: from the content of the tree")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if !slices.Contains([]string{setCore, setMore, setAll}, o.set) {
		fmt.Fprintf(os.Stderr, "test: -set is %q: %s, %s or %s is accepted\n", o.set, setCore, setMore, setAll)
		return 2
	}
	o.flags = flags.Args()
	r, err := newRun(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "test:", err)
		return 2
	}
	defer os.RemoveAll(r.dir)
	return r.all(ctx)
}

// testRun is one run of the tests.
type testRun struct {
	testOptions
	begin   time.Time
	listed  []string // import paths of the packages
	dir     string   // of the binaries of tests
	commit  string
	history history
	summary *summary

	mu     sync.Mutex
	broken []error // that no test reports
}

func newRun(ctx context.Context, o testOptions) (*testRun, error) {
	r := &testRun{testOptions: o, begin: time.Now(), history: readHistory(), summary: newSummary(os.Stdout), commit: gitLine(ctx, "rev-parse", "HEAD")}
	if r.sample == "" {
		r.sample = sampleOf(gitLine(ctx, "rev-parse", "HEAD^{tree}"))
	}
	r.history.printFlakes()
	fmt.Printf("sample %s (%s=%s repeats it)\n", r.sample, sampleVariable, r.sample)
	listed, err := exec.CommandContext(ctx, "go", append([]string{"list"}, strings.Fields(o.packages)...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("listing packages: %w", err)
	}
	r.listed = strings.Fields(string(listed))
	if r.dir, err = os.MkdirTemp("", "liqod-test-"); err != nil {
		return nil, fmt.Errorf("making a directory for the tests: %w", err)
	}
	return r, nil
}

// all runs the tests and returns the exit code.
func (r *testRun) all(ctx context.Context) int {
	selected := r.selected()
	if r.set != setMore && r.alone != "" {
		r.goTest(ctx, append(slices.Clone(r.flags), strings.Fields(r.alone)...)...)
	}
	if r.set != setMore {
		r.units(ctx) // they compute, and scenarios wait with deadlines: not beside each other
	}
	r.scenarios(ctx, selected)
	r.again(ctx)
	repeated := r.history.add(r.set, pastRun{Commit: r.commit, When: time.Now().Round(time.Second), Flakes: r.summary.flaky})
	if err := r.history.write(); err != nil {
		fmt.Fprintln(os.Stderr, "test:", err)
	}
	r.summary.print(time.Since(r.begin))
	for _, err := range r.broken {
		fmt.Fprintln(os.Stderr, "test:", err)
	}
	r.summary.printFlaky()
	for _, f := range repeated {
		fmt.Printf("FAILED %s: it needed a second run in %d of the last %d runs: find its cause\n", f.Test, r.history.count(r.set, f.Test), keptRuns)
	}
	if len(r.summary.failed)+len(r.broken)+len(repeated) > 0 {
		return 1
	}
	return 0
}

// selected returns the scenarios of the run, and notes the others in the summary.
func (r *testRun) selected() []scenario {
	list := scenariosOf(r.set, r.history)
	unlisted := func(s scenario) bool { return !slices.Contains(r.listed, importPath(s.folder)) }
	for _, s := range slices.DeleteFunc(scenarios(), unlisted) {
		if !slices.Contains(list, s) && (r.set != setMore || s.when != core) {
			r.summary.leave(s)
		}
	}
	list = slices.DeleteFunc(list, unlisted)
	if r.startBy > 0 {
		list = turned(list, r.sample)
	}
	return list
}

// units runs the tests that are not scenarios.
func (r *testRun) units(ctx context.Context) {
	skip := map[string][]string{}
	for _, s := range scenarios() {
		skip[importPath(s.folder)] = append(skip[importPath(s.folder)], s.test)
	}
	alone := strings.Fields(r.alone)
	var plain []string
	var parts sync.WaitGroup
	for _, p := range r.listed {
		if slices.ContainsFunc(alone, func(a string) bool { return importPath(strings.TrimPrefix(a, "./")) == p }) {
			continue
		}
		if names := skip[p]; names != nil {
			parts.Go(func() {
				r.goTest(ctx, append(slices.Clone(r.flags), "-skip", "^("+strings.Join(names, "|")+")$", p)...)
			})
			continue
		}
		plain = append(plain, p)
	}
	if len(plain) > 0 {
		r.goTest(ctx, append(slices.Clone(r.flags), plain...)...)
	}
	parts.Wait()
}

// goTest runs `go test` with these arguments.
func (r *testRun) goTest(ctx context.Context, args ...string) {
	if _, err := r.follow(exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)); err != nil {
		r.breaks(fmt.Errorf("running go test: %w", err))
	}
}

func (r *testRun) breaks(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken = append(r.broken, err)
}

// gitLine returns the output of a git command, or nothing if it fails.
func gitLine(ctx context.Context, args ...string) string {
	out, err := exec.CommandContext(ctx, "git", args...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// turned returns the first quarter of the list, then the others from the place on that the sample says, a tenth of them
// for each, and then the begin of those. So the longest scenarios end in time, and if a run has no time for all, the
// changes lack different ones.
func turned(list []scenario, sample string) []scenario {
	tenths, err := strconv.ParseUint(sample, 10, 8)
	if err != nil {
		return list
	}
	longest, others := list[:len(list)/4], list[len(list)/4:]
	from := int(tenths) % 10 * len(others) / 10
	return slices.Concat(longest, others[from:], others[:from])
}

// sampleOf returns a digit that follows from the hash of a tree, so that changes after one
// another play different samples.
func sampleOf(tree string) string {
	sum := 0
	for _, b := range []byte(tree) {
		sum += int(b)
	}
	return fmt.Sprint(sum % 10)
}
