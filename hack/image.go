package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/liqod/liqod/hack/image"
)

type imageOptions struct {
	dir, binary, out, name, version, arch string
}

// runImage builds liqod and writes its container image as a tar, without a container
// engine: an OCI layout that Docker, Podman, containerd and kind load. Beside it are the list
// of its packages and values of the chart. It returns the exit code.
func runImage(ctx context.Context, args []string) int {
	opts, err := parseImage(args, os.Stderr)
	if err == nil {
		err = makeImage(ctx, opts, os.Stdout)
	}
	return exitCode("image", err)
}

func parseImage(args []string, stderr io.Writer) (imageOptions, error) {
	var o imageOptions
	fs := flag.NewFlagSet("image", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&o.dir, "dir", ".", "root of the repository")
	fs.StringVar(&o.binary, "binary", "", "use this static binary instead of building one")
	fs.StringVar(&o.out, "out", "bin/liqod-image.tar", "file to write")
	fs.StringVar(&o.name, "name", "", "image name with tag (default liqod.io/liqod:VERSION)")
	fs.StringVar(&o.version, "version", "", "version in the image's tag and label (default: from git, else dev)")
	fs.StringVar(&o.arch, "arch", "", "architecture, as Go names it (default: this machine's)")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() != 0 {
		return o, fmt.Errorf("unexpected argument %q: only flags are accepted", fs.Arg(0))
	}
	return o, nil
}

func makeImage(ctx context.Context, o imageOptions, out io.Writer) error {
	o.version = cmp.Or(o.version, gitVersion(ctx, o.dir), "dev")
	o.name = cmp.Or(o.name, "liqod.io/liqod:"+tag(o.version))
	if o.binary == "" {
		tmp, err := os.MkdirTemp("", "liqod-image-")
		if err != nil {
			return fmt.Errorf("making a directory for the binary: %w", err)
		}
		defer os.RemoveAll(tmp)
		o.binary = filepath.Join(tmp, "liqod")
		if err := image.Build(ctx, image.BuildOptions{Dir: o.dir, Out: o.binary, OS: "linux", Arch: o.arch}); err != nil {
			return err
		}
	}
	digest, err := writeImage(o)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s: %s\ndigest: %s\npackages: %s\nvalues of the chart: %s\n", o.out, o.name, digest, o.beside(".spdx.json"), o.beside(".values.yaml"))
	return err
}

// beside is the path of a file about the image.
func (o imageOptions) beside(suffix string) string {
	return strings.TrimSuffix(o.out, filepath.Ext(o.out)) + suffix
}

// writeImage writes the image, the list of its packages (SPDX), and the values by which the
// chart installs this image and no other. It returns the digest. The output is replaced only
// when all is complete.
func writeImage(o imageOptions) (digest string, err error) {
	if err := os.MkdirAll(filepath.Dir(o.out), 0o755); err != nil {
		return "", fmt.Errorf("making the output directory: %w", err)
	}
	err = replace(o.out, func(w io.Writer) error {
		digests, err := image.Write(w, liqodImage(o))
		if err != nil {
			return err
		}
		digest = digests[0]
		sbom := func(w io.Writer) error { return image.SBOM(w, o.name, digest, o.binary) }
		if err := replace(o.beside(".spdx.json"), sbom); err != nil {
			return err
		}
		return replace(o.beside(".values.yaml"), func(w io.Writer) error { return writeValues(w, o.name, digest) })
	})
	return digest, err
}

// writeValues writes values of the chart. With the digest the tag only informs.
func writeValues(w io.Writer, name, digest string) error {
	repository, tag := image.Split(name)
	_, err := fmt.Fprintf(w, "# The image of this digest, whatever its tag is moved to later.\nimage:\n  repository: %s\n  tag: %q\n  digest: %s\n", repository, tag, digest)
	return err
}

// replace replaces a file by what write writes, when that is complete.
func replace(path string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".image-")
	if err != nil {
		return fmt.Errorf("making the output: %w", err)
	}
	defer os.Remove(f.Name())
	err = write(f)
	if err := errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return os.Rename(f.Name(), path)
}

func liqodImage(o imageOptions) image.Image {
	return image.Image{
		Name: o.name, Architecture: o.arch, Entrypoint: []string{"/liqod"}, User: "65532:65532",
		Env:    []string{"PATH=/"},
		Labels: map[string]string{"org.opencontainers.image.version": o.version, "org.opencontainers.image.licenses": "Apache-2.0"},
		Files: []image.File{
			{Path: "/liqod", Source: o.binary},
			{Path: "/tmp", Dir: true, Mode: 0o1777},
			{Path: "/etc/passwd", Data: []byte("root:x:0:0:root:/:/\nliqod:x:65532:65532:liqod:/:/\n")},
			{Path: "/etc/group", Data: []byte("root:x:0:\nliqod:x:65532:\n")},
		},
	}
}

func gitVersion(ctx context.Context, dir string) string {
	version, _ := git(ctx, dir, "describe", "--tags", "--always", "--dirty") // none without git or a repository
	return version
}

// tag makes a version fit for an image tag, in which + is not allowed. It has the form of the chart's version, 0.1.0.
func tag(version string) string {
	return strings.ReplaceAll(strings.TrimPrefix(version, "v"), "+", "-")
}
