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
	"text/tabwriter"
	"time"
)

// Lines that tests log for the summary.
var (
	worldLine = regexp.MustCompile(`world of \d+ clusters, after waiting for (\S+)`)
	leftLine  = regexp.MustCompile(`left to make test-all: (.*)`)
)

// longTest is from how many seconds on a test is printed when it ends, so that one sees
// how far the run is.
const longTest = 15

// event is a line of `go test -json` (go doc test2json).
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

// result is what is known of a package.
type result struct {
	name            string
	action          string
	seconds         float64
	worlds, skipped int
	tests           int
}

// summary collects what the tests report.
type summary struct {
	out     io.Writer
	output  map[string][]string // of tests that are not over, by package and test
	waited  map[string]string   // for seats, by package and test
	results map[string]*result
	skipped []string
	left    map[string]bool
	failed  []string
}

func newSummary(out io.Writer) *summary {
	return &summary{out: out, output: map[string][]string{}, waited: map[string]string{}, results: map[string]*result{}, left: map[string]bool{}}
}

// read takes events until there are no more. A line that is none is printed.
func (s *summary) read(in io.Reader) error {
	r := bufio.NewReader(in)
	for {
		line, err := r.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				fmt.Fprintf(s.out, "%s", line)
			} else {
				s.take(e)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading what the tests print: %w", err)
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
		r = &result{name: name}
		s.results[name] = r
	}
	return r
}

func (s *summary) line(e event) {
	if left := leftLine.FindStringSubmatch(e.Output); left != nil {
		s.left[left[1]] = true
	}
	key := e.Package + " " + e.Test
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
	if e.Elapsed >= longTest && !strings.Contains(e.Test, "/") {
		fmt.Fprintf(s.out, "%-4s %s %s %.1fs%s\n", e.Action, e.Package, e.Test, e.Elapsed, s.waited[key])
	}
	switch e.Action {
	case "skip":
		r.skipped++
		s.skipped = append(s.skipped, key+": "+reason(lines))
	case "fail":
		s.failed = append(s.failed, key)
		fmt.Fprintf(s.out, "\n=== FAILED %s\n%s", key, strings.Join(lines, ""))
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

// print prints the table, longest first.
func (s *summary) print(took time.Duration) {
	all := slices.SortedFunc(maps.Values(s.results), func(a, b *result) int {
		return cmp.Or(cmp.Compare(b.seconds, a.seconds), cmp.Compare(a.name, b.name))
	})
	total := result{}
	fmt.Fprintln(s.out)
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PACKAGE\tRESULT\tSECONDS\tWORLDS\tTESTS\tSKIPPED")
	for _, r := range all {
		total.worlds, total.tests, total.skipped = total.worlds+r.worlds, total.tests+r.tests, total.skipped+r.skipped
		if r.tests > 0 || r.action == "fail" {
			fmt.Fprintf(w, "%s\t%s\t%.1f\t%d\t%d\t%d\n", r.name, r.action, r.seconds, r.worlds, r.tests, r.skipped)
		}
	}
	fmt.Fprintf(w, "all\t\t%.1f\t%d\t%d\t%d\n", took.Seconds(), total.worlds, total.tests, total.skipped)
	w.Flush()
	s.list("skipped", s.skipped)
	s.list("left to make test-all", slices.Sorted(maps.Keys(s.left)))
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
