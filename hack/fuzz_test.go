package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFuzzTargets(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a_test.go": "package a\n\nfunc FuzzOne(f *testing.F) {\n}\n\n// func FuzzNo(f *testing.F)\nfunc TestFuzz(t *testing.T) {}\n",
		"b_test.go": "package a\n\nfunc FuzzTwo(fuzz *testing.F) {}\n",
		"c.go":      "package a\n\nfunc FuzzThree(f *testing.F) {}\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	got := must(fuzzTargets(dir))
	require.Equal(t, []string{"FuzzOne", "FuzzTwo"}, got)
}

func TestFuzzFailed(t *testing.T) {
	require.False(t, fuzzFailed("fuzz: elapsed: 3s\n--- FAIL: FuzzMap (3.00s)\n    context deadline exceeded\nFAIL\n"))
	require.True(t, fuzzFailed("--- FAIL: FuzzMap (0.10s)\n    --- FAIL: FuzzMap (0.00s)\n        x_test.go:3: wrong\n    \n    Failing input written to testdata/fuzz/FuzzMap/1\n"))
	require.True(t, fuzzFailed("panic: wrong\n"))
}

func TestFuzzingIsShared(t *testing.T) {
	require.Equal(t, 225*time.Second, shareOf(time.Hour, time.Minute, 16))
	require.Equal(t, time.Second, shareOf(time.Second, time.Minute, 16))
	require.Equal(t, time.Minute, shareOf(0, time.Minute, 16))
}

// TestHostileInputIsFuzzed: make test-all fuzzes what is said to be fuzzed, and make test a
// little.
func TestHostileInputIsFuzzed(t *testing.T) {
	makefile := must(os.ReadFile("../Makefile"))
	match := regexp.MustCompile(`(?m)^FUZZED := (.*)$`).FindSubmatch(makefile)
	require.NotNil(t, match)
	found, _, err := fuzzedPackages(t.Context(), strings.Fields(strings.ReplaceAll(string(match[1]), "./", "../")))
	require.NoError(t, err)
	var targets []string
	for _, p := range found {
		targets = append(targets, p.targets...)
	}
	require.Subset(t, targets, []string{"FuzzHarden", "FuzzStatus", "FuzzTranslate", "FuzzCheckRanges"})
}
