package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// Lines that tests log for the summary.
var (
	worldLine = regexp.MustCompile(`world of \d+ clusters, after waiting for (\S+)`)
	leftLine  = regexp.MustCompile(`left to make test-all: (.*)`)
	// buildLine is progress of a build: it is printed at once.
	buildLine = regexp.MustCompile(`: (buil(?:ding|t) \S.*)`)
	// panicLine begins the output of a package whose other tests have not run.
	panicLine = regexp.MustCompile(`^(panic: |fatal error: )`)
)

// longTest is from how many seconds on a test is printed when it ends, so that one sees
// how far the run is.
const longTest = 15

// event is a line of `go test -json` (go doc test2json).
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

// failedTest is a test at the top level of a package that failed, itself or by a subtest. An
// empty name is the whole package: it did not build, or a panic ended it.
type failedTest struct{ pkg, test string }

func (f failedTest) String() string { return strings.TrimSpace(f.pkg + " " + f.test) }

// result is the record of a package, or of a scenario.
type result struct {
	name            string
	action          string
	seconds         float64
	cpu             time.Duration
	worlds, skipped int
	tests           int
	ended           map[string]int // tests by the test at the top level
	panicked        bool
}

// summary collects the events of tests. Its methods are safe for concurrent use.
type summary struct {
	mu      sync.Mutex
	out     io.Writer
	output  map[string][]string // of tests that are not over, by package and test
	waited  map[string]string   // for seats, by package and test
	results map[string]*result
	skipped []string
	left    map[string]bool
	notRun  []string // scenarios that other targets run
	alone   []string // scenarios with a command of their own
	tooLate []string // scenarios that did not start in time
	failed  []string // also subtests
	top     map[failedTest]bool
	said    map[string]string // output of failed tests, by package and test at the top level
	flaky   []flake
}

func newSummary(out io.Writer) *summary {
	return &summary{
		out: out, output: map[string][]string{}, waited: map[string]string{}, results: map[string]*result{},
		left: map[string]bool{}, top: map[failedTest]bool{}, said: map[string]string{},
	}
}

// read takes events until there are no more, and returns the number of failures among them. A
// line that is no event is printed.
func (s *summary) read(in io.Reader) (failures int, err error) {
	r := bufio.NewReader(in)
	for {
		line, err := r.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			s.mu.Lock()
			if json.Unmarshal(line, &e) != nil {
				fmt.Fprintf(s.out, "%s", line)
			} else {
				s.take(e)
			}
			s.mu.Unlock()
			if e.Action == "fail" {
				failures++
			}
		}
		if err == io.EOF {
			return failures, nil
		}
		if err != nil {
			return failures, fmt.Errorf("reading what the tests print: %w", err)
		}
	}
}

func (s *summary) take(e event) {
	switch e.Action {
	case "build-output":
		fmt.Fprint(s.out, e.Output)
	case "output":
		s.line(e)
	case "pass", "fail", "skip":
		if e.Test == "" {
			s.packageEnds(e)
		} else {
			s.testEnds(e)
		}
	}
}

func (s *summary) result(name string) *result {
	r := s.results[name]
	if r == nil {
		r = &result{name: name, ended: map[string]int{}}
		s.results[name] = r
	}
	return r
}

func (s *summary) line(e event) {
	if left := leftLine.FindStringSubmatch(e.Output); left != nil {
		s.left[left[1]] = true
	}
	if build := buildLine.FindStringSubmatch(e.Output); build != nil {
		fmt.Fprintln(s.out, build[1])
	}
	key := e.Package + " " + e.Test
	if panicLine.MatchString(e.Output) {
		s.result(e.Package).panicked = true
	}
	if world := worldLine.FindStringSubmatch(e.Output); world != nil {
		s.result(e.Package).worlds++
		s.waited[key] = ", after waiting for " + world[1]
	}
	s.output[key] = append(s.output[key], e.Output)
}

func (s *summary) testEnds(e event) {
	key := e.Package + " " + e.Test
	lines := s.output[key]
	delete(s.output, key)
	r := s.result(e.Package)
	r.tests++
	top, _, _ := strings.Cut(e.Test, "/")
	r.ended[top]++
	if e.Elapsed >= longTest && !strings.Contains(e.Test, "/") {
		fmt.Fprintf(s.out, "%-4s %s %s %.1fs%s\n", e.Action, e.Package, e.Test, e.Elapsed, s.waited[key])
	}
	switch e.Action {
	case "skip":
		r.skipped++
		s.skipped = append(s.skipped, key+": "+reason(lines))
	case "fail":
		s.failed = append(s.failed, key)
		s.top[failedTest{e.Package, top}] = true
		said := fmt.Sprintf("\n=== FAILED %s\n%s", key, strings.Join(lines, ""))
		s.said[e.Package+" "+top] += said
		fmt.Fprint(s.out, said)
	}
}

// reason is the last line that a test logged.
func reason(lines []string) string {
	for _, l := range slices.Backward(lines) {
		if l = strings.TrimSpace(l); l != "" && !strings.HasPrefix(l, "---") {
			return l
		}
	}
	return ""
}

func (s *summary) packageEnds(e event) {
	r := s.result(e.Package)
	r.action, r.seconds = e.Action, e.Elapsed
	key := e.Package + " "
	if e.Action == "fail" {
		s.packageFails(r)
		// A panic, or what did not build.
		fmt.Fprintf(s.out, "\n=== FAILED %s\n%s", e.Package, strings.Join(s.output[key], ""))
		for other, lines := range s.output {
			if strings.HasPrefix(other, key) && other != key {
				fmt.Fprintf(s.out, "\n=== NOT OVER %s\n%s", other, strings.Join(lines, ""))
			}
		}
	}
	if r.tests > 0 || e.Action == "fail" {
		fmt.Fprintf(s.out, "%-4s %s %.1fs\n", e.Action, e.Package, e.Elapsed)
	}
	delete(s.output, key)
}

// packageFails notes the failure of a package as a whole, where no failed test explains it, or
// where a panic kept others from running.
func (s *summary) packageFails(r *result) {
	tests := len(s.top)
	ofPackage := func(f failedTest, _ bool) bool { return f.pkg == r.name }
	if !r.panicked {
		for f := range s.top {
			if ofPackage(f, true) {
				return
			}
		}
	}
	maps.DeleteFunc(s.top, ofPackage)
	if len(s.top) == tests {
		s.failed = append(s.failed, r.name)
	}
	s.top[failedTest{pkg: r.name}] = true
}

// failedTests returns the failed tests at the top level, in order.
func (s *summary) failedTests() []failedTest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Keys(s.top), func(a, b failedTest) int { return cmp.Compare(a.String(), b.String()) })
}

// mostSaid is the number of bytes that retry returns.
const mostSaid = 8 << 10

// retry forgets the result of a failed test, which runs again, and returns the end of its output.
func (s *summary) retry(f failedTest) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	said := s.said[f.String()]
	delete(s.top, f)
	s.failed = slices.DeleteFunc(s.failed, func(key string) bool {
		pkg, test, _ := strings.Cut(key, " ")
		top, _, _ := strings.Cut(test, "/")
		return pkg == f.pkg && (f.test == "" || top == f.test)
	})
	r := s.result(f.pkg)
	r.panicked = false
	for top, n := range r.ended {
		if f.test == "" || top == f.test {
			r.tests -= n
			delete(r.ended, top)
		}
	}
	return strings.ToValidUTF8(said[max(0, len(said)-mostSaid):], "")
}

// passedAgain notes a test that ran again as flaky, if it passed. output is what it printed when it
// failed.
func (s *summary) passedAgain(f failedTest, output string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.result(f.pkg).action == "pass" {
		s.flaky = append(s.flaky, flake{Test: f.String(), Output: output})
	}
}

// leave notes a scenario that the run leaves to other targets.
func (s *summary) leave(t scenario) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch t.when {
	case long:
		s.left[t.name()] = true
	case own:
		s.alone = append(s.alone, t.name())
	case core, more:
		s.notRun = append(s.notRun, t.name())
	}
}

// late notes a scenario that did not start, since the time of the run was over.
func (s *summary) late(t scenario) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tooLate = append(s.tooLate, t.name())
}

// cpu notes the CPU time of a package or scenario.
func (s *summary) cpu(name string, used time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.result(name).cpu += used
}

// printFlaky prints the tests that failed once, with the end of what they printed then. It comes
// last in the output of a run.
func (s *summary) printFlaky() {
	for _, f := range s.flaky {
		fmt.Fprintf(s.out, "FLAKY %s: it failed, and passed when it ran again, alone. The failure:\n%s\n", f.Test, strings.TrimSpace(f.Output))
	}
}

// print prints the table, longest first.
func (s *summary) print(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.SortedFunc(maps.Values(s.results), func(a, b *result) int {
		return cmp.Or(cmp.Compare(b.seconds, a.seconds), cmp.Compare(a.name, b.name))
	})
	total := result{}
	fmt.Fprintln(s.out)
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PACKAGE OR SCENARIO\tRESULT\tSECONDS\tCPU\tWORLDS\tTESTS\tSKIPPED")
	for _, r := range all {
		total.worlds, total.tests, total.skipped = total.worlds+r.worlds, total.tests+r.tests, total.skipped+r.skipped
		if r.tests > 0 || r.action == "fail" {
			fmt.Fprintf(w, "%s\t%s\t%.1f\t%s\t%d\t%d\t%d\n", r.name, r.action, r.seconds, seconds(r.cpu), r.worlds, r.tests, r.skipped)
		}
	}
	fmt.Fprintf(w, "all\t\t%.1f\t\t%d\t%d\t%d\n", took.Seconds(), total.worlds, total.tests, total.skipped)
	w.Flush()
	s.list("skipped", s.skipped)
	s.list("run by make test-more and make test-all", s.notRun)
	s.list("run by a command of its own (CONTRIBUTING.md)", s.alone)
	s.list("left to make test-all", slices.Sorted(maps.Keys(s.left)))
	s.list("NOT RUN, since the time of this run was over (make test-more runs them)", s.tooLate)
	s.list("failed", s.failed)
	fmt.Fprintf(s.out, "%d passed, %d failed, %d skipped\n", total.tests-len(s.failed)-total.skipped, len(s.failed), total.skipped)
}

func (s *summary) list(title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(s.out, "\n%s:\n", title)
	for _, l := range lines {
		fmt.Fprintf(s.out, "  %s\n", l)
	}
}

func seconds(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f", d.Seconds())
}
