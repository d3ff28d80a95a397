package lab

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSources(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	root := t.TempDir()
	git := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", root, "-c", "user.name=x", "-c", "user.email=x@example.com"}, args...)...).CombinedOutput()
		require.NoError(t, err, string(out))
		return strings.TrimSpace(string(out))
	}
	git("init", "-q")
	write := func(text string) {
		require.NoError(t, os.MkdirAll(filepath.Join(root, "a"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, "a", "b"), []byte(text), 0o644))
		git("add", "-A")
		git("commit", "-q", "-m", text)
	}
	write("first")
	first := git("rev-parse", "HEAD")
	write("second")

	for range 2 {
		dir, err := Sources(t.Context(), root, first)
		require.NoError(t, err)
		data, err := os.ReadFile(filepath.Join(dir, "a", "b"))
		require.NoError(t, err)
		require.Equal(t, "first", string(data))
	}
	require.Empty(t, git("status", "--porcelain"), "the repository is as it was")

	_, err := Sources(t.Context(), root, strings.Repeat("0", 40))
	require.ErrorIs(t, err, ErrNoCommit)
}

func TestDropped(t *testing.T) {
	t.Parallel()
	const have = `
{apiVersion: v1, kind: ConfigMap, metadata: {namespace: n, name: goes}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {namespace: n, name: stays}}
---
{apiVersion: v1, kind: Secret, metadata: {namespace: n, name: kept, annotations: {helm.sh/resource-policy: keep}}}
`
	const want = `
{apiVersion: v2, kind: ConfigMap, metadata: {namespace: n, name: stays}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {namespace: other, name: goes}}
`
	out, err := dropped([]byte(have), []byte(want))
	require.NoError(t, err)
	objects, err := parseManifests(out)
	require.NoError(t, err)
	require.Len(t, objects, 1)
	require.Equal(t, "goes", objects[0].GetName())
}
