package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLockCacheSaysThatItWaits: a process that another one keeps out of the cache says so once.
// It stops waiting when its context ends, and goes on when the other process has left.
func TestLockCacheSaysThatItWaits(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	never := func() { t.Error("nobody is in there") }
	dir, leave, err := lockCache(t.Context(), "tool", never)
	require.NoError(t, err)
	require.DirExists(t, dir)

	ctx, cancel := context.WithCancel(t.Context())
	_, _, err = lockCache(ctx, "tool", cancel)
	require.ErrorIs(t, err, context.Canceled)

	var waits atomic.Int32
	_, leaveAgain, err := lockCache(t.Context(), "tool", func() {
		waits.Add(1)
		leave()
	})
	require.NoError(t, err)
	require.EqualValues(t, 1, waits.Load())
	leaveAgain()
}

// TestGoBuildSaysHowLongItTook: the second build tells the time of the first one, and a build
// that fails shows what the compiler said.
func TestGoBuildSaysHowLongItTook(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a program")
	}
	source := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(source, name), []byte(text), 0o644))
	}
	write("go.mod", "module example.com/tool\n")
	write("main.go", "package main\n\nfunc main() {}\n")
	var said []string
	opts := ToolOptions{Source: source, Name: "tool", Log: func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }}
	binary := filepath.Join(t.TempDir(), "sum", "tool")
	require.NoError(t, os.Mkdir(filepath.Dir(binary), 0o755))

	require.NoError(t, goBuild(t.Context(), opts, binary))
	require.FileExists(t, binary)
	require.Equal(t, "building tool: minutes with a cold cache", said[0])
	require.Contains(t, said[len(said)-1], "built tool in ")

	said = nil
	require.NoError(t, goBuild(t.Context(), opts, binary))
	require.Regexp(t, `^building tool: it took \S+ the last time on this machine$`, said[0])

	write("main.go", "package main\n\nfunc main() { undeclared() }\n")
	require.ErrorContains(t, goBuild(t.Context(), opts, binary), "undefined: undeclared")
}

// TestToolsAreListed: each folder of e2e/tools is the source of one tool.
func TestToolsAreListed(t *testing.T) {
	folders, err := filepath.Glob("../tools/*/go.mod")
	require.NoError(t, err)
	require.Len(t, tools(), len(folders))
	for _, folder := range folders {
		require.Contains(t, tools(), filepath.Base(filepath.Dir(folder)))
	}
}

// TestOtherVersions: the module of each version of Kubernetes requires that version.
func TestOtherVersions(t *testing.T) {
	for minor, version := range otherVersions() {
		module, err := os.ReadFile("../tools/kube-" + minor + "/go.mod")
		require.NoError(t, err)
		require.Contains(t, string(module), "\tk8s.io/kubernetes "+version+"\n")
		require.True(t, strings.HasPrefix(version, "v"+minor+"."))
	}
}

func TestBuildOutput(t *testing.T) {
	var o buildOutput
	for range 100 {
		_, err := fmt.Fprintln(&o, strings.Repeat("x", 99))
		require.NoError(t, err)
	}
	require.Equal(t, 100, o.count())
	require.Len(t, o.tail(), buildTail)
}

func TestExpectation(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tool.took")
	require.Equal(t, "minutes with a cold cache", expectation(file))
	require.NoError(t, os.WriteFile(file, []byte("no time"), 0o644))
	require.Equal(t, "minutes with a cold cache", expectation(file))
	require.NoError(t, os.WriteFile(file, []byte((90*time.Second).String()), 0o644))
	require.Equal(t, "it took 1m30s the last time on this machine", expectation(file))
}
