package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	ociimage "github.com/liqod/liqod/hack/image"
)

// CoreDNSImage is the name of the image with e2e/tools/coredns.
const CoreDNSImage = "lab.local/coredns:1"

// testProgram is the file of the program of TestImage in the directory of the run.
const testProgram = "test"

// buildTestImage builds the program of TestImage and returns the path of its ociimage.
func buildTestImage(ctx context.Context, l *Lab) (string, error) {
	tools, err := toolDir(ctx, "")
	if err != nil {
		return "", err
	}
	binary := filepath.Join(l.Dir(), testProgram)
	cmd := exec.CommandContext(ctx, "go", "build", "-C", filepath.Join(tools, "..", "image"), "-trimpath", "-ldflags", "-s -w", "-o", binary, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the test image: %w\n%s", err, out)
	}
	image := ociimage.Image{
		Name: TestImage, Entrypoint: []string{"/bin/test"}, Env: []string{"PATH=/bin"},
		Files: []ociimage.File{
			{Path: "/bin/test", Source: binary},
			{Path: "/tmp", Dir: true, Mode: 0o1777},
			{Path: "/etc/passwd", Data: []byte("root:x:0:0:root:/:/\nnobody:x:65534:65534:nobody:/:/\n")},
		},
	}
	for _, tool := range []string{"api", "burn", "cat", "echo", "env", "exit", "get", "hostname", "ignore", "lines", "lookup", "pause", "reach", "serve", "size", "sleep", "stream", "tar", "volume", "write"} {
		image.Files = append(image.Files, ociimage.File{Path: "/bin/" + tool, Link: "test"})
	}
	return writeImage(filepath.Join(l.Dir(), "test.tar"), image)
}

// toolImage is an image that holds a tool of e2e/tools and nothing else.
type toolImage struct{ tool, name string }

// buildToolImage builds the tool, once per state of its folder, and its ociimage.
func buildToolImage(ctx context.Context, l *Lab, image toolImage) (string, error) {
	binary, err := buildTool(ctx, image.tool, l.Logf)
	if err != nil {
		return "", err
	}
	// Beside the binary, whose folder is named by its sources: it is made once, too.
	path := filepath.Join(filepath.Dir(binary), "image.tar")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	return writeImage(path, ociimage.Image{
		Name: image.name, Entrypoint: []string{"/" + image.tool}, Files: []ociimage.File{{Path: "/" + image.tool, Source: binary}},
	})
}

func writeImage(path string, image ociimage.Image) (string, error) {
	file, err := os.CreateTemp(filepath.Dir(path), ".image-")
	if err != nil {
		return "", fmt.Errorf("writing image %s: %w", image.Name, err)
	}
	defer os.Remove(file.Name())
	_, err = ociimage.Write(file, image)
	if err := errors.Join(err, file.Close()); err != nil {
		return "", fmt.Errorf("writing image %s: %w", image.Name, err)
	}
	return path, os.Rename(file.Name(), path)
}
