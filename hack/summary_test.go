package main

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSummary: the output of failed tests is printed, that of others is not; the table
// counts worlds and skipped tests, and names what is left to make test-all.
func TestSummary(t *testing.T) {
	var out strings.Builder
	s := newSummary(&out)
	failures := readEvents(t, s,
		`{"Action":"output","Package":"p","Test":"TestA","Output":"    world of 2 clusters, after waiting for 1m0s\n"}`,
		`{"Action":"output","Package":"p","Test":"TestA","Output":"    kubelab.go:9: building kubelab: minutes\n"}`,
		`{"Action":"pass","Package":"p","Test":"TestA","Elapsed":70.5}`,
		`{"Action":"output","Package":"p","Test":"TestB","Output":"    x_test.go:1: no root\n"}`,
		`{"Action":"skip","Package":"p","Test":"TestB"}`,
		`{"Action":"output","Package":"p","Test":"TestC","Output":"    left to make test-all: TestC: half of it\n"}`,
		`{"Action":"output","Package":"p","Test":"TestC","Output":"    it is wrong\n"}`,
		`{"Action":"fail","Package":"p","Test":"TestC"}`,
		`{"Action":"fail","Package":"p","Elapsed":2.5}`,
		`not JSON`,
	)
	require.Equal(t, 2, failures)
	s.leave(scenario{folder: "e2e/scenarios", test: "TestLong"})
	s.late(scenario{folder: "e2e/scenarios", test: "TestLate"})
	s.cpu("p", 1500*time.Millisecond)
	s.print(3 * time.Second)
	text := out.String()
	require.Contains(t, text, "=== FAILED p TestC")
	require.Contains(t, text, "it is wrong")
	require.Contains(t, text, "pass p TestA 70.5s, after waiting for 1m0s\n")
	require.NotContains(t, text, "world of")
	require.True(t, strings.HasPrefix(text, "building kubelab: minutes\n"))
	require.Regexp(t, `p +fail +2\.5 +1\.5 +1 +3 +1\n`, text)
	require.Contains(t, text, "p TestB: x_test.go:1: no root")
	require.Contains(t, text, "left to make test-all:\n  TestC: half of it")
	require.Contains(t, text, "run by make test-more and make test-all:\n  e2e/scenarios TestLong")
	require.Contains(t, text, "NOT RUN, since the time of this run was over (make test-more runs them):\n  e2e/scenarios TestLate\n")
	require.Contains(t, text, "1 passed, 1 failed, 1 skipped")
	require.Contains(t, text, "not JSON")
}

func readEvents(t *testing.T, s *summary, lines ...string) (failures int) {
	t.Helper()
	failures = must(s.read(strings.NewReader(strings.Join(lines, "\n"))))
	return failures
}

// TestFailedTests: a test that fails is known by its name at the top level. A package in
// which a panic kept tests from running counts as a whole, and so does one that did not build.
func TestFailedTests(t *testing.T) {
	for name, test := range map[string]struct {
		events []string
		want   []failedTest
		failed []string
	}{
		"subtest": {
			events: []string{
				`{"Action":"fail","Package":"p","Test":"TestA/one"}`, `{"Action":"fail","Package":"p","Test":"TestA"}`,
				`{"Action":"pass","Package":"p","Test":"TestB"}`, `{"Action":"fail","Package":"p"}`,
			},
			want: []failedTest{{"p", "TestA"}}, failed: []string{"p TestA/one", "p TestA"},
		},
		"panic": {
			events: []string{
				`{"Action":"output","Package":"p","Test":"TestA","Output":"panic: index out of range\n"}`,
				`{"Action":"fail","Package":"p","Test":"TestA"}`, `{"Action":"fail","Package":"p"}`,
			},
			want: []failedTest{{"p", ""}}, failed: []string{"p TestA"},
		},
		"does not build": {
			events: []string{`{"Action":"fail","Package":"p"}`},
			want:   []failedTest{{"p", ""}}, failed: []string{"p"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSummary(io.Discard)
			readEvents(t, s, test.events...)
			require.Equal(t, test.want, s.failedTests())
			require.Equal(t, test.failed, s.failed)
		})
	}
}

// TestAgainArgs: the repetition of a package runs all of its tests. With a pattern that is empty
// it would run none, and pass.
func TestAgainArgs(t *testing.T) {
	require.Equal(t, []string{"-count=1", "-timeout=30m", "-run", "^TestA$", "p"}, againArgs(failedTest{"p", "TestA"}))
	require.Equal(t, []string{"-count=1", "-timeout=30m", "p"}, againArgs(failedTest{pkg: "p"}))
}

// TestRetry: a failed test that passes when it runs again is flaky and not failed, is counted
// once, and stands last in the output. One that fails again has failed.
func TestRetry(t *testing.T) {
	var out strings.Builder
	s := newSummary(&out)
	readEvents(t, s,
		`{"Action":"output","Package":"p","Test":"TestA/one","Output":"want 3\n"}`,
		`{"Action":"fail","Package":"p","Test":"TestA/one"}`, `{"Action":"fail","Package":"p","Test":"TestA"}`, `{"Action":"fail","Package":"p"}`,
		`{"Action":"fail","Package":"q","Test":"TestB"}`, `{"Action":"pass","Package":"q","Test":"TestC"}`, `{"Action":"fail","Package":"q"}`,
	)
	require.Equal(t, []failedTest{{"p", "TestA"}, {"q", "TestB"}}, s.failedTests())
	said := s.retry(failedTest{"p", "TestA"})
	require.Contains(t, said, "=== FAILED p TestA/one\nwant 3\n")
	s.retry(failedTest{"q", "TestB"})
	readEvents(t, s,
		`{"Action":"pass","Package":"p","Test":"TestA/one"}`, `{"Action":"pass","Package":"p","Test":"TestA"}`, `{"Action":"pass","Package":"p"}`,
		`{"Action":"fail","Package":"q","Test":"TestB"}`, `{"Action":"fail","Package":"q"}`,
	)
	s.passedAgain(failedTest{"p", "TestA"}, said)
	s.passedAgain(failedTest{"q", "TestB"}, "")
	require.Equal(t, []flake{{Test: "p TestA", Output: said}}, s.flaky)
	require.Equal(t, []failedTest{{"q", "TestB"}}, s.failedTests())
	s.print(time.Second)
	s.printFlaky()
	require.Contains(t, out.String(), "3 passed, 1 failed, 0 skipped\n")
	_, last, _ := strings.Cut(out.String(), "FLAKY p TestA: it failed, and passed when it ran again, alone. The failure:\n")
	require.Contains(t, last, "want 3\n")
}
