package main

import (
	"os"
	"path/filepath"
	"testing"

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
	got, err := fuzzTargets(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"FuzzOne", "FuzzTwo"}, got)
}

func TestFuzzFailed(t *testing.T) {
	require.False(t, fuzzFailed("fuzz: elapsed: 3s\n--- FAIL: FuzzMap (3.00s)\n    context deadline exceeded\nFAIL\n"))
	require.True(t, fuzzFailed("--- FAIL: FuzzMap (0.10s)\n    --- FAIL: FuzzMap (0.00s)\n        x_test.go:3: wrong\n    \n    Failing input written to testdata/fuzz/FuzzMap/1\n"))
	require.True(t, fuzzFailed("panic: wrong\n"))
}
