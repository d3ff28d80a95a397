package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const tested = `package tested

func Tested(a int, done map[string]bool, then func() error) (bool, error) {
	if !done["a"] && a < 2 {
		done["b"] = true
	}
	return true, then()
}

func Other() int { return 1 }
`

const itsTests = `package tested

import ("errors"; "testing")

func run(t *testing.T, a int, want bool) {
	done := map[string]bool{}
	if _, err := Tested(a, done, func() error { return errors.New("x") }); done["b"] != want || want && err == nil {
		t.Fatal(done, err)
	}
}

func TestBoth(t *testing.T) {
	t.Run("few", func(t *testing.T) { run(t, 1, true) })
	t.Run("many", func(t *testing.T) { run(t, 2, false) })
}

func TestFew(t *testing.T) { run(t, 1, true) }
`

func TestMutants(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module tested\n\ngo 1.26\n", "tested.go": tested, "tested_test.go": itsTests} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	t.Chdir(dir)
	trial := &trial{run: ".", skip: "^$", limit: time.Minute}
	mutants, err := trial.mutants(t.Context(), ".")
	require.NoError(t, err)
	got := map[string][]string{}
	for _, m := range mutants {
		got[m.place+" "+m.what] = m.killers
		require.Equal(t, m.place != "tested.go:10", len(m.reachedBy) > 0, m.what)
	}
	few, many := []string{"TestBoth/few", "TestFew"}, []string{"TestBoth/many"}
	require.Equal(t, map[string][]string{
		`tested.go:4 || in !done["a"] && a < 2`: many,
		`tested.go:4 not done["a"]`:             few,
		`tested.go:4 not a < 2`:                 {"TestBoth/few", "TestBoth/many", "TestFew"},
		`tested.go:4 <= in a < 2`:               many,
		`tested.go:4 1 more than 2`:             many,
		`tested.go:5 without done["b"] = true`:  few,
		`tested.go:5 not true`:                  few,
		`tested.go:7 not true`:                  nil,
		`tested.go:7 nil for then()`:            few,
		`tested.go:10 1 more than 1`:            nil,
	}, got)
	require.Equal(t, []string{"TestBoth/few", "TestBoth/many", "TestFew"}, trial.names)
	require.Equal(t, []string{"TestFew"}, unneeded(mutants, trial.names, test))
	require.Equal(t, []string{"TestBoth/few"}, unneeded(mutants, trial.names, strings.Clone))
}
