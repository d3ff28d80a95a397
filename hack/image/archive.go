// Package image builds the program as it is shipped, and writes container images without
// a container engine: one layer for each image, in a tar that is an OCI layout and a
// docker archive at once, so that containerd, Docker, Podman and kind load it. The same
// input gives the same bytes.
package image

import (
	"archive/tar"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"
)

// ErrNoFiles is returned for an image without content.
var ErrNoFiles = errors.New("an image needs at least one file")

// An Image is what Write writes.
type Image struct {
	// Name with tag: registry/repository:tag.
	Name string
	// Architecture as Go names it. Default: this machine's.
	Architecture string
	// Created is the time in the image's configuration. The zero value is 1970.
	Created time.Time
	// Entrypoint, Cmd, Env (NAME=value), User (uid or uid:gid) and Labels of the image.
	Entrypoint, Cmd, Env []string
	User                 string
	Labels               map[string]string
	// Files of the only layer. Missing parent directories are made, 0755.
	Files []File
	// Layer is the path of a tar on this machine, which is the only layer in place of Files.
	Layer string
}

// A File is one entry of the layer: a copy of Source, or a symbolic link if Link is
// set, or a directory if Dir is set, or Data.
type File struct {
	// Path in the image; a leading slash is optional.
	Path string
	// Mode is the permission bits, with 0o1000 for sticky. Default 0o755 for
	// directories, 0o555 for copies, 0o444 for data.
	Mode int64
	// Source is the path of a file on this machine.
	Source string
	// Link is the target of a symbolic link.
	Link string
	// Dir makes a directory.
	Dir bool
	// Data is the content of a small file.
	Data []byte
}

const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	indexType    = "application/vnd.oci.image.index.v1+json"
)

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

// Write writes images to one archive, and returns the digests of their manifests (sha256:…),
// by which a registry has them. It reads every source twice: once for its digest.
func Write(w io.Writer, images ...Image) (digests []string, err error) {
	var all []prepared
	var tops []descriptor
	var docker []map[string]any
	for _, img := range images {
		p, err := prepare(img)
		if err != nil {
			return nil, err
		}
		all, tops, digests = append(all, p), append(tops, named(p.top, img.Name)), append(digests, p.top.Digest)
		docker = append(docker, map[string]any{"Config": blob(p.configDesc), "RepoTags": []string{img.Name}, "Layers": []string{blob(p.layer)}})
	}
	manifest, err := json.Marshal(docker)
	if err != nil {
		return nil, fmt.Errorf("encoding the docker manifest: %w", err)
	}
	return digests, writeArchive(w, all, File{Path: "manifest.json", Data: manifest}, tops...)
}

// WriteAll writes one image of several architectures under the given name, as an OCI layout.
// It returns the digest of the list of their manifests, by which each node of a cluster pulls
// the image of its architecture.
func WriteAll(w io.Writer, name string, images []Image) (digest string, err error) {
	var all []prepared
	var manifests []descriptor
	for _, img := range images {
		p, err := prepare(img)
		if err != nil {
			return "", err
		}
		p.top.Platform = &platform{Architecture: cmp.Or(img.Architecture, runtime.GOARCH), OS: "linux"}
		all, manifests = append(all, p), append(manifests, p.top)
	}
	list, err := encodeIndex(manifests...)
	if err != nil {
		return "", err
	}
	top := describe(indexType, list)
	return top.Digest, writeArchive(w, all, File{Path: blob(top), Data: list}, named(top, name))
}

// named gives an entry of an OCI layout the name of its image.
func named(top descriptor, name string) descriptor {
	top.Annotations = map[string]string{
		"io.containerd.image.name":          name,
		"org.opencontainers.image.ref.name": name[strings.LastIndexByte(name, ':')+1:],
	}
	return top
}

// prepared is an image with its metadata. The layer itself is too large to keep in memory.
type prepared struct {
	writeLayer             func(io.Writer) error
	config, manifest       []byte
	configDesc, layer, top descriptor
}

func prepare(img Image) (prepared, error) {
	if len(img.Files) == 0 && img.Layer == "" {
		return prepared{}, ErrNoFiles
	}
	files := normalize(img.Files)
	p := prepared{writeLayer: func(w io.Writer) error { return writeLayer(w, files) }}
	if img.Layer != "" {
		p.writeLayer = func(w io.Writer) error { return copyLayer(w, img.Layer) }
	}
	var err error
	if p.layer, err = digestLayer(p.writeLayer); err != nil {
		return prepared{}, err
	}
	if p.config, err = json.Marshal(configOf(img, p.layer.Digest)); err != nil {
		return prepared{}, fmt.Errorf("encoding the configuration: %w", err)
	}
	p.configDesc = describe("application/vnd.oci.image.config.v1+json", p.config)
	p.manifest, err = json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": manifestType,
		"config": p.configDesc, "layers": []descriptor{p.layer},
	})
	if err != nil {
		return prepared{}, fmt.Errorf("encoding the manifest: %w", err)
	}
	p.top = describe(manifestType, p.manifest)
	return p, nil
}

// write writes the blobs of the image that are not written yet.
func (p prepared) write(tw *tar.Writer, written map[string]bool) error {
	for _, b := range []struct {
		descriptor
		data []byte
	}{{p.top, p.manifest}, {p.configDesc, p.config}} {
		if written[b.Digest] {
			continue
		}
		written[b.Digest] = true
		if err := writeFile(tw, File{Path: blob(b.descriptor), Mode: 0o444, Data: b.data}); err != nil {
			return err
		}
	}
	if written[p.layer.Digest] {
		return nil
	}
	written[p.layer.Digest] = true
	if err := writeHeader(tw, &tar.Header{Name: blob(p.layer), Size: p.layer.Size, Mode: 0o444, Typeflag: tar.TypeReg}); err != nil {
		return err
	}
	return p.writeLayer(tw)
}

// writeArchive writes an OCI layout of images with the given entries, and one file more.
func writeArchive(w io.Writer, images []prepared, more File, tops ...descriptor) error {
	index, err := encodeIndex(tops...)
	if err != nil {
		return err
	}
	tw := tar.NewWriter(w)
	for _, f := range []File{
		{Path: "oci-layout", Data: []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{Path: "index.json", Data: index},
		more,
	} {
		f.Mode = 0o444
		if err := writeFile(tw, f); err != nil {
			return err
		}
	}
	written := map[string]bool{}
	for _, p := range images {
		if err := p.write(tw, written); err != nil {
			return err
		}
	}
	return tw.Close()
}

func encodeIndex(manifests ...descriptor) ([]byte, error) {
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": indexType, "manifests": manifests})
	if err != nil {
		return nil, fmt.Errorf("encoding the index: %w", err)
	}
	return index, nil
}

func configOf(img Image, layerDigest string) map[string]any {
	return map[string]any{
		"architecture": cmp.Or(img.Architecture, runtime.GOARCH),
		"os":           "linux",
		"created":      timeOf(img).Format(time.RFC3339),
		"config": map[string]any{
			"Entrypoint": img.Entrypoint, "Cmd": img.Cmd, "Env": img.Env, "User": img.User, "Labels": img.Labels, "WorkingDir": "/",
		},
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{layerDigest}},
		"history": []map[string]any{{"created": timeOf(img).Format(time.RFC3339), "created_by": "hack/image"}},
	}
}

func timeOf(img Image) time.Time {
	if img.Created.IsZero() {
		return time.Unix(0, 0).UTC()
	}
	return img.Created.UTC()
}

// normalize sorts the files, gives them relative names and default modes, and adds
// the directories that are missing.
func normalize(files []File) []File {
	byPath := map[string]File{}
	for _, f := range files {
		f.Path = strings.TrimPrefix(path.Clean("/"+f.Path), "/")
		byPath[f.Path] = f
		for dir := path.Dir(f.Path); dir != "."; dir = path.Dir(dir) {
			if _, ok := byPath[dir]; !ok {
				byPath[dir] = File{Path: dir, Dir: true}
			}
		}
	}
	out := make([]File, 0, len(byPath))
	for _, f := range byPath {
		f.Mode = cmp.Or(f.Mode, defaultMode(f))
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	return out
}

func defaultMode(f File) int64 {
	switch {
	case f.Dir:
		return 0o755
	case f.Source != "":
		return 0o555
	case f.Link != "":
		return 0o777
	default:
		return 0o444
	}
}

func digestLayer(write func(io.Writer) error) (descriptor, error) {
	h := sha256.New()
	count := &counter{w: h}
	if err := write(count); err != nil {
		return descriptor{}, err
	}
	return descriptor{MediaType: "application/vnd.oci.image.layer.v1.tar", Digest: "sha256:" + hex.EncodeToString(h.Sum(nil)), Size: count.n}, nil
}

func describe(mediaType string, data []byte) descriptor {
	sum := sha256.Sum256(data)
	return descriptor{MediaType: mediaType, Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: int64(len(data))}
}

func blob(d descriptor) string { return "blobs/" + strings.Replace(d.Digest, ":", "/", 1) }

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
