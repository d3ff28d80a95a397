package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestVolume: a folder is made for pods of any user, kept where it exists, and removed with what
// is in it.
func TestVolume(t *testing.T) {
	path := filepath.Join(t.TempDir(), "volumes", "pvc-1")
	do := func(action, mode string) error {
		return volume([]string{"-p", path, "-s", "1024", "-m", mode, "-a", action})
	}
	require.NoError(t, do("create", "Filesystem"))
	require.NoError(t, os.WriteFile(filepath.Join(path, "bytes"), []byte("1"), 0o600))
	require.NoError(t, do("create", "Filesystem"))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o777), info.Mode().Perm())
	require.FileExists(t, filepath.Join(path, "bytes"))
	require.ErrorContains(t, do("create", "Block"), "mode Block")
	require.ErrorContains(t, do("grow", "Filesystem"), `"grow"`)
	require.NoError(t, do("delete", "Filesystem"))
	require.NoDirExists(t, path)
	require.NoError(t, do("delete", "Filesystem"), "it may be removed twice")
}
