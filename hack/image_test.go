package main

import (
	"archive/tar"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// must returns the result of a call that does not fail.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestImage: the values name the image of the archive by its digest, and the list of
// packages is about it.
func TestImage(t *testing.T) {
	t.Parallel()
	self := must(os.Executable())
	dir := t.TempDir()
	var said strings.Builder
	o := imageOptions{dir: dir, binary: self, out: filepath.Join(dir, "out", "liqod.tar"), name: "localhost:5000/liqod:1", version: "1"}
	require.NoError(t, makeImage(t.Context(), o, &said))
	digest := manifestIn(t, o.out)
	require.Contains(t, said.String(), "digest: "+digest)

	var values struct {
		Image struct{ Repository, Tag, Digest string }
	}
	data := must(os.ReadFile(filepath.Join(dir, "out", "liqod.values.yaml")))
	require.NoError(t, yaml.UnmarshalStrict(data, &values))
	require.Equal(t, struct{ Repository, Tag, Digest string }{"localhost:5000/liqod", "1", digest}, values.Image)

	data = must(os.ReadFile(filepath.Join(dir, "out", "liqod.spdx.json")))
	require.Contains(t, string(data), digest[len("sha256:"):])
	require.Contains(t, string(data), "pkg:golang/stdlib@")
	left := must(os.ReadDir(filepath.Join(dir, "out")))
	require.Len(t, left, 3)
}

// TestImageThatFails leaves what is there as it was.
func TestImageThatFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := filepath.Join(dir, "liqod")
	require.NoError(t, os.WriteFile(text, []byte("no program"), 0o600))
	o := imageOptions{dir: dir, binary: text, out: filepath.Join(dir, "liqod.tar"), name: "liqod:1", version: "1"}
	require.NoError(t, os.WriteFile(o.out, []byte("before"), 0o600))
	require.ErrorContains(t, makeImage(t.Context(), o, io.Discard), "build information")
	data := must(os.ReadFile(o.out))
	require.Equal(t, "before", string(data))
}

// manifestIn is the digest of the only manifest in an OCI layout.
func manifestIn(t *testing.T, path string) string {
	t.Helper()
	f := must(os.Open(path))
	defer f.Close()
	for archive := tar.NewReader(f); ; {
		header, err := archive.Next()
		require.NoError(t, err, "no index")
		if header.Name != "index.json" {
			continue
		}
		var index struct{ Manifests []struct{ Digest string } }
		require.NoError(t, json.NewDecoder(archive).Decode(&index))
		require.Len(t, index.Manifests, 1)
		return index.Manifests[0].Digest
	}
}
