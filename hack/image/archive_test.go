package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func example(t *testing.T) Image {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "bin")
	require.NoError(t, os.WriteFile(bin, []byte("program"), 0o700))
	return Image{
		Name: "lab.local/x:1", Entrypoint: []string{"/x"}, User: "65532", Env: []string{"PATH=/bin"},
		Files: []File{
			{Path: "/x", Source: bin},
			{Path: "/bin/cat", Link: "/x"},
			{Path: "/tmp", Dir: true, Mode: 0o1777},
			{Path: "/etc/passwd", Data: []byte("nobody:x:65534:65534::/:/\n")},
		},
	}
}

func entries(t *testing.T, data []byte) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for tr := tar.NewReader(bytes.NewReader(data)); ; {
		hdr, err := tr.Next()
		if err == io.EOF {
			return out
		}
		require.NoError(t, err)
		require.NotContains(t, out, hdr.Name)
		require.Zero(t, hdr.ModTime.Unix())
		out[hdr.Name], err = io.ReadAll(tr)
		require.NoError(t, err)
	}
}

func TestWriteIsReproducible(t *testing.T) {
	img := example(t)
	var a, b bytes.Buffer
	first, err := Write(&a, img)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(img.Files[0].Source, 0o755))
	second, err := Write(&b, img)
	require.NoError(t, err)
	require.Equal(t, a.Bytes(), b.Bytes())
	require.Equal(t, first, second)
}

func TestWriteGivesAnOCILayoutAndADockerArchive(t *testing.T) {
	var buf bytes.Buffer
	digests, err := Write(&buf, example(t))
	require.NoError(t, err)
	require.Len(t, digests, 1)
	files := entries(t, buf.Bytes())
	var index struct{ Manifests []descriptor }
	require.NoError(t, json.Unmarshal(files["index.json"], &index))
	require.Equal(t, index.Manifests[0].Digest, digests[0])
	require.Contains(t, files, "blobs/sha256/"+digests[0][len("sha256:"):])
	for name, data := range files {
		if dir, digest := filepath.Split(name); dir == "blobs/sha256/" {
			sum := sha256.Sum256(data)
			require.Equal(t, digest, hex.EncodeToString(sum[:]))
		}
	}
	var docker []struct {
		Config           string
		RepoTags, Layers []string
	}
	require.NoError(t, json.Unmarshal(files["manifest.json"], &docker))
	require.Equal(t, []string{"lab.local/x:1"}, docker[0].RepoTags)
	layer := entries(t, files[docker[0].Layers[0]])
	require.Equal(t, []byte("program"), layer["x"])
	require.Contains(t, layer, "bin/")
	require.Contains(t, layer, "tmp/")
	var config struct {
		Config struct{ User string }
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	require.NoError(t, json.Unmarshal(files[docker[0].Config], &config))
	require.Equal(t, "65532", config.Config.User)
	require.Equal(t, docker[0].Layers[0], "blobs/sha256/"+config.RootFS.DiffIDs[0][len("sha256:"):])
}

// TestWriteSeveral: images of one layer, which is there already, are in one archive, and what
// they have in common is in it once.
func TestWriteSeveral(t *testing.T) {
	layer := filepath.Join(t.TempDir(), "layer.tar")
	require.NoError(t, os.WriteFile(layer, []byte("a tar"), 0o600))
	sum := sha256.Sum256([]byte("a tar"))
	blobOfLayer := "blobs/sha256/" + hex.EncodeToString(sum[:])
	var buf bytes.Buffer
	digests, err := Write(&buf,
		Image{Name: "lab.local/a:1", Cmd: []string{"a"}, Layer: layer},
		Image{Name: "lab.local/a:2", Cmd: []string{"a"}, Layer: layer},
		Image{Name: "lab.local/b:1", Cmd: []string{"b"}, Layer: layer})
	require.NoError(t, err)
	require.Equal(t, digests[0], digests[1])
	require.NotEqual(t, digests[0], digests[2])
	files := entries(t, buf.Bytes())
	require.Equal(t, []byte("a tar"), files[blobOfLayer])

	var index struct{ Manifests []descriptor }
	require.NoError(t, json.Unmarshal(files["index.json"], &index))
	var docker []struct {
		Config           string
		RepoTags, Layers []string
	}
	require.NoError(t, json.Unmarshal(files["manifest.json"], &docker))
	for i, name := range []string{"lab.local/a:1", "lab.local/a:2", "lab.local/b:1"} {
		require.Equal(t, digests[i], index.Manifests[i].Digest)
		require.Equal(t, name, index.Manifests[i].Annotations["io.containerd.image.name"])
		require.Contains(t, files, blob(index.Manifests[i]))
		require.Equal(t, []string{name}, docker[i].RepoTags)
		require.Equal(t, []string{blobOfLayer}, docker[i].Layers)
		require.Contains(t, string(files[docker[i].Config]), hex.EncodeToString(sum[:]))
	}
	require.Len(t, files, 3+1+2*2, "the layer, two manifests and two configurations, beside the lists")
}

func TestWriteRefuses(t *testing.T) {
	_, err := Write(io.Discard, Image{Name: "x:1"})
	require.ErrorIs(t, err, ErrNoFiles)
	_, err = Write(io.Discard, Image{Name: "x:1", Files: []File{{Path: "a", Source: "/does/not/exist"}}})
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = Write(io.Discard, Image{Name: "x:1", Layer: "/does/not/exist"})
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestWriteAll: the one entry of the layout is a list with an image for each architecture,
// and all blobs are there.
func TestWriteAll(t *testing.T) {
	amd, arm := example(t), example(t)
	amd.Architecture, arm.Architecture = "amd64", "arm64"
	var buf bytes.Buffer
	digest, err := WriteAll(&buf, "lab.local/x:1", []Image{amd, arm})
	require.NoError(t, err)
	files := entries(t, buf.Bytes())
	var index, list struct{ Manifests []descriptor }
	require.NoError(t, json.Unmarshal(files["index.json"], &index))
	require.Len(t, index.Manifests, 1)
	require.Equal(t, digest, index.Manifests[0].Digest)
	require.Equal(t, "1", index.Manifests[0].Annotations["org.opencontainers.image.ref.name"])
	require.NoError(t, json.Unmarshal(files[blob(index.Manifests[0])], &list))
	require.Len(t, list.Manifests, 2)
	for i, arch := range []string{"amd64", "arm64"} {
		require.Equal(t, &platform{Architecture: arch, OS: "linux"}, list.Manifests[i].Platform)
		var manifest struct {
			Config descriptor
			Layers []descriptor
		}
		require.NoError(t, json.Unmarshal(files[blob(list.Manifests[i])], &manifest))
		require.Contains(t, files, blob(manifest.Config))
		require.Contains(t, files, blob(manifest.Layers[0]))
		require.Contains(t, string(files[blob(manifest.Config)]), arch)
	}
	_, err = WriteAll(io.Discard, "lab.local/x:1", []Image{{}})
	require.ErrorIs(t, err, ErrNoFiles)
}
