package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSummary: the output of failed tests is printed, that of others is not; the table
// counts worlds and skipped tests, and what is left to make test-all is named.
func TestSummary(t *testing.T) {
	var out strings.Builder
	s := newSummary(&out)
	require.NoError(t, s.read(strings.NewReader(strings.Join([]string{
		`{"Action":"output","Package":"p","Test":"TestA","Output":"    world of 2 clusters, after waiting for 1m0s\n"}`,
		`{"Action":"pass","Package":"p","Test":"TestA","Elapsed":70.5}`,
		`{"Action":"output","Package":"p","Test":"TestB","Output":"    x_test.go:1: no root\n"}`,
		`{"Action":"skip","Package":"p","Test":"TestB"}`,
		`{"Action":"output","Package":"p","Test":"TestC","Output":"    left to make test-all: TestC: half of it\n"}`,
		`{"Action":"output","Package":"p","Test":"TestC","Output":"    it is wrong\n"}`,
		`{"Action":"fail","Package":"p","Test":"TestC"}`,
		`{"Action":"fail","Package":"p","Elapsed":2.5}`,
		`not JSON`,
	}, "\n"))))
	s.print(3 * time.Second)
	text := out.String()
	require.Contains(t, text, "=== FAILED p TestC")
	require.Contains(t, text, "it is wrong")
	require.Contains(t, text, "pass p TestA 70.5s, after waiting for 1m0s\n")
	require.NotContains(t, text, "world of")
	require.Regexp(t, `p +fail +2\.5 +1 +3 +1\n`, text)
	require.Contains(t, text, "p TestB: x_test.go:1: no root")
	require.Contains(t, text, "left to make test-all:\n  TestC: half of it")
	require.Contains(t, text, "1 passed, 1 failed, 1 skipped")
	require.Contains(t, text, "not JSON")
}
