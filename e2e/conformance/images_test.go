package conformance

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	ociimage "github.com/liqod/liqod/hack/image"
)

// debian are the packages of the one file system that all images have. busybox has the commands that have no package here.
const debian = "busybox,bind9-dnsutils,curl,iproute2,netcat-openbsd,nginx-light,procps,tini"

// finish makes that file system, in ROOT, what the images of the suite have: agnhost's users and files, and two shells.
// /bin/sh is busybox's, as in those images: a spec compares its messages. A command without a path gets bash: Debian's
// busybox removes variables with a dash in their names, and specs look for those. Programs are built, FILES are of
// Kubernetes' sources.
const finish = `set -eu
ln -sf busybox "$ROOT/bin/sh"
ln -s /bin/bash "$ROOT/usr/local/bin/sh"
ln -s /usr/sbin/sysctl "$ROOT/bin/sysctl"
chroot "$ROOT" /bin/busybox --install -s
install "$AGNHOST" "$ROOT/agnhost"
ln -s agnhost "$ROOT/agnhost-2"
install "$SAMPLE_APISERVER" "$ROOT/sample-apiserver"
install "$ETCD" "$ROOT/usr/local/bin/etcd"
install -m 6755 "$NONEWPRIVS" "$ROOT/usr/local/bin/nnp"
install -m 644 "$FILES/agnhost/porter/localhost.crt" "$FILES/agnhost/porter/localhost.key" "$FILES/nautilus/html/data.json" "$ROOT/"
mkdir -m 777 "$ROOT/uploads"
chroot "$ROOT" useradd --uid 1000 user-defined-in-image
chroot "$ROOT" groupadd --gid 50000 group-defined-in-image
chroot "$ROOT" usermod --append --groups group-defined-in-image user-defined-in-image
tar -C "$ROOT" --numeric-owner --exclude=./dev/* --exclude=./proc/* --exclude=./sys/* --exclude=./var/cache/* --exclude=./var/lib/apt/* \
	--exclude=./usr/share/doc --exclude=./usr/share/locale --exclude=./usr/share/man -cf "$LAYER" .
`

// imageConfigs are those of the images of the suite, by the last part of the name.
func imageConfigs() map[string]ociimage.Image {
	agnhost := []string{"/agnhost"}
	return map[string]ociimage.Image{
		"agnhost":           {Entrypoint: agnhost, Cmd: []string{"pause"}},
		"busybox":           {Cmd: []string{"sh"}},
		"etcd":              {Cmd: []string{"etcd"}},
		"glibc-dns-testing": {Cmd: []string{"sh"}},
		"nautilus":          {Entrypoint: agnhost, Cmd: []string{"test-webserver"}},
		"nginx":             {Cmd: []string{"nginx", "-g", "daemon off;"}},
		"nonewprivs":        {Cmd: []string{"nnp"}},
		"nonroot":           {Entrypoint: agnhost, Cmd: []string{"pause"}, User: "1234"},
		"pause":             {Entrypoint: []string{"tini", "--", "sleep", "infinity"}},
		"sample-apiserver":  {Entrypoint: []string{"/sample-apiserver"}},
	}
}

// suiteImages are the images of those names that have a configuration, all of one layer.
func suiteImages(names []string, layer string) (images []ociimage.Image) {
	for _, name := range names {
		repository, _, _ := strings.Cut(path.Base(name), ":")
		image, known := imageConfigs()[repository]
		if !known || !strings.HasPrefix(name, "registry.k8s.io/") { // others are there to be refused
			continue
		}
		image.Name, image.Layer = name, layer
		image.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
		images = append(images, image)
	}
	return images
}

// writeImages writes the images that the suite asks for to an archive, once for each state of its programs, and returns
// its path. They are one file system with a configuration for each name.
func writeImages(ctx context.Context, programs map[string]string, log func(string, ...any)) (archive string, err error) {
	recipe := sha256.Sum256([]byte(debian + finish + fmt.Sprint(imageConfigs())))
	archive = filepath.Join(filepath.Dir(programs["e2e.test"]), "images-"+hex.EncodeToString(recipe[:4])+".tar")
	if _, err := os.Stat(archive); err == nil {
		return archive, nil
	}
	dir, err := os.MkdirTemp(filepath.Dir(archive), "images-")
	if err != nil {
		return "", fmt.Errorf("making a directory for the images: %w", err)
	}
	defer os.RemoveAll(dir)
	log("making the images of the suite from Debian packages: some minutes")
	layer, err := writeLayer(ctx, dir, programs)
	if err != nil {
		return "", err
	}
	names, err := exec.CommandContext(ctx, programs["e2e.test"], "--list-images").Output()
	if err != nil {
		return "", fmt.Errorf("asking the suite for its images: %w", err)
	}
	file, err := os.Create(filepath.Join(dir, "images.tar"))
	if err != nil {
		return "", fmt.Errorf("writing the images: %w", err)
	}
	_, err = ociimage.Write(file, suiteImages(strings.Fields(string(names)), layer)...)
	if err := errors.Join(err, file.Close()); err != nil {
		return "", fmt.Errorf("writing the images: %w", err)
	}
	return archive, os.Rename(file.Name(), archive)
}

// writeLayer writes the file system of the images to a tar below dir.
func writeLayer(ctx context.Context, dir string, programs map[string]string) (string, error) {
	root, layer := filepath.Join(dir, "root"), filepath.Join(dir, "layer.tar")
	sources := exec.CommandContext(ctx, "go", "list", "-C", "../tools/conformance", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes")
	module, err := sources.Output()
	if err != nil {
		return "", fmt.Errorf("looking for the sources of Kubernetes: %w", err)
	}
	for _, cmd := range []*exec.Cmd{
		exec.CommandContext(ctx, "debootstrap", "--variant=minbase", "--include="+debian, "bookworm", root, "http://deb.debian.org/debian"),
		exec.CommandContext(ctx, "sh", "-c", finish),
	} {
		cmd.Env = append(os.Environ(), "ROOT="+root, "LAYER="+layer, "FILES="+filepath.Join(strings.TrimSpace(string(module)), "test", "images"),
			"AGNHOST="+programs["agnhost"], "ETCD="+programs["etcd"], "NONEWPRIVS="+programs["nonewprivs"], "SAMPLE_APISERVER="+programs["sample-apiserver"])
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("making the file system of the images: %w\n%s", err, out[max(0, len(out)-2000):])
		}
	}
	return layer, nil
}

// TestSuiteImages: each name of the registry of Kubernetes that has a configuration is an image; names that specs expect to
// be refused are none.
func TestSuiteImages(t *testing.T) {
	images := suiteImages([]string{
		"registry.k8s.io/e2e-test-images/nonroot:1.5", "registry.k8s.io/pause:3.10.2", "invalid.registry.k8s.io/invalid/agnhost:3.1",
		"gcr.io/authenticated-image-pulling/agnhost:2.6", "registry.k8s.io/e2e-test-images/perl:5.26",
	}, "layer.tar")
	require.Len(t, images, 2)
	require.Equal(t, "registry.k8s.io/e2e-test-images/nonroot:1.5", images[0].Name)
	require.Equal(t, "1234", images[0].User)
	require.Equal(t, "registry.k8s.io/pause:3.10.2", images[1].Name)
	for _, image := range images {
		require.Equal(t, "layer.tar", image.Layer)
		require.Contains(t, image.Env[0], ":/usr/local/bin:")
		require.Less(t, strings.Index(image.Env[0], ":/usr/local/bin"), strings.Index(image.Env[0], ":/bin"), "bash is the sh without a path")
	}
}
