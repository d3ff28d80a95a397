package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const fullCrashVariable = "LIQOD_LAB_CRASH"

// remains is what a run may leave behind.
type remains struct {
	ID, Dir string
	Groups  []string
}

func remainsOf(t *testing.T, f *Full, c *Cluster) remains {
	t.Helper()
	r := remains{ID: f.Lab().ID(), Dir: f.Lab().Dir()}
	for _, node := range f.Nodes(c) {
		require.NotEmpty(t, node.groups.dirs)
		r.Groups = append(r.Groups, node.groups.dirs...)
	}
	require.NotEmpty(t, r.find(t), "it looks at the right things")
	return r
}

func startLoaded(t *testing.T) (*Full, *Cluster) {
	t.Helper()
	f := newTestFull(t, FullOptions{})
	c := startFull(t, f, 1)[0]
	require.NoError(t, c.Apply(t.Context(), []byte(webManifests)))
	within(t, time.Minute, "pods", func(ctx context.Context) error { return webReady(ctx, c, 4) })
	return f, c
}

func TestLabFullCloseLeavesNothing(t *testing.T) {
	f, c := startLoaded(t)
	r := remainsOf(t, f, c)
	begin := time.Now()
	require.NoError(t, f.Lab().Close())
	t.Logf("closed in %s", time.Since(begin).Round(time.Millisecond))
	require.Empty(t, r.find(t))
}

// TestLabFullCrash runs itself in a second process, which kills itself.
func TestLabFullCrash(t *testing.T) {
	if path := os.Getenv(fullCrashVariable); path != "" {
		f, c := startLoaded(t)
		data, err := json.Marshal(remainsOf(t, f, c))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, data, 0o600))
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGKILL))
		select {}
	}
	// It skips where it must, and has the binaries built. The second process needs its seats.
	require.NoError(t, newTestFull(t, FullOptions{}).Lab().Close())
	path := filepath.Join(t.TempDir(), "remains")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLabFullCrash$", "-test.v")
	cmd.Env = append(os.Environ(), fullCrashVariable+"="+path)
	out, err := cmd.CombinedOutput()
	require.Error(t, err, "it was killed")
	data, err := os.ReadFile(path)
	require.NoError(t, err, "%s", out)
	var r remains
	require.NoError(t, json.Unmarshal(data, &r))
	l, err := New(t.Context(), Options{Log: t.Logf})
	require.NoError(t, err)
	require.NoError(t, l.Close())
	require.Empty(t, r.find(t))
}

// find lists what is left: namespaces, links, mounts, groups, files and processes.
func (r remains) find(t *testing.T) []string {
	t.Helper()
	var found []string
	namespaces, err := exec.Command("ip", "netns").Output()
	require.NoError(t, err)
	links, err := exec.Command("ip", "-br", "link").Output()
	require.NoError(t, err)
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	for line := range strings.Lines(string(namespaces) + string(links) + string(mounts)) {
		if strings.Contains(line, "lq"+r.ID) || strings.Contains(line, r.Dir) {
			found = append(found, line)
		}
	}
	for _, path := range append(r.Groups, r.Dir) {
		if _, err := os.Stat(path); err == nil {
			found = append(found, path)
		}
	}
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, path := range commands {
		if data, err := os.ReadFile(path); err == nil && strings.Contains(string(data), r.Dir) {
			found = append(found, fmt.Sprintf("%s: %q", path, data))
		}
	}
	return found
}
