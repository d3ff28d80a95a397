package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/liqod/liqod/hack/image"
)

// checksums is the file of a release that lists its other files, as sha256sum -c reads it.
const checksums = "SHA256SUMS"

// versionForm is Semantic Versioning 2.0.0 without build metadata, which a tag of an image
// cannot have (https://semver.org).
var versionForm = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`)

type releaseOptions struct {
	dir, out, version, repository string
	key                           string // of the releaser; empty: the release is not signed
	tool, db                      string // as in vulnOptions
	// architectures of Linux, as Go names them, and of macOS, which has the commands only.
	architectures []string
}

// runRelease writes the files of a release: static binaries, an archive with the images of
// all Linux architectures, the chart with the digest of that image, an SBOM for each
// architecture, and checksums; with a key, the signature of these, and the provenance. Equal commits, versions and keys give equal bytes. It returns the
// exit code.
func runRelease(ctx context.Context, args []string) int {
	opts, err := parseRelease(args, os.Stderr)
	if err == nil {
		err = makeRelease(ctx, opts, os.Stdout)
	}
	return exitCode("release", err)
}

func parseRelease(args []string, stderr io.Writer) (releaseOptions, error) {
	o := releaseOptions{architectures: []string{"amd64", "arm64"}}
	fs := flag.NewFlagSet("release", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&o.dir, "dir", ".", "root of the repository")
	fs.StringVar(&o.out, "out", "dist", "directory to write; a former release there is replaced")
	fs.StringVar(&o.version, "version", "", "version of the release, such as 0.1.0")
	fs.StringVar(&o.repository, "repository", "ghcr.io/liqod/liqod", "repository in the name of the image; the digest does not depend on it")
	fs.StringVar(&o.key, "key", "", "file with the private key that signs the release, of openssl genpkey -algorithm ed25519; empty: it is not signed")
	fs.StringVar(&o.tool, "tool", "bin/tools/govulncheck", "the govulncheck to run")
	fs.StringVar(&o.db, "db", vulnDB, "URL of the vulnerability database, without which there is no release")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() != 0 {
		return o, fmt.Errorf("unexpected argument %q: only flags are accepted", fs.Arg(0))
	}
	if !versionForm.MatchString(o.version) {
		return o, fmt.Errorf("version %q is not of the form 0.1.0 or 0.1.0-rc.1: with make, make release VERSION=0.1.0", o.version)
	}
	return o, nil
}

// makeRelease writes the release from the last commit into a directory beside o.out, and
// renames it when it is complete.
func makeRelease(ctx context.Context, o releaseOptions, log io.Writer) error {
	if err := replaceable(o.out); err != nil {
		return err
	}
	if err := checkRelease(ctx, o, log); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(o.out), 0o755); err != nil {
		return fmt.Errorf("making the directory of %s: %w", o.out, err)
	}
	beside, err := filepath.Abs(filepath.Dir(o.out)) // the build runs in another directory
	if err != nil {
		return fmt.Errorf("finding the directory of %s: %w", o.out, err)
	}
	tmp, err := os.MkdirTemp(beside, ".release-")
	if err != nil {
		return fmt.Errorf("making a directory for the release: %w", err)
	}
	defer os.RemoveAll(tmp)
	source, built := filepath.Join(tmp, "source"), filepath.Join(tmp, "built")
	if err := os.Mkdir(built, 0o755); err != nil {
		return fmt.Errorf("making a directory for the release: %w", err)
	}
	if err := cloneRelease(ctx, o, source); err != nil {
		return err
	}
	if err := writeRelease(ctx, o, source, built); err != nil {
		return err
	}
	if o.key != "" {
		commit, err := git(ctx, source, "rev-parse", "HEAD")
		if err != nil {
			return err
		}
		if err := signRelease(ctx, o, commit, built); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(o.out); err != nil {
		return fmt.Errorf("removing the former release: %w", err)
	}
	if err := os.Rename(built, o.out); err != nil {
		return fmt.Errorf("moving the release to its place: %w", err)
	}
	sums, err := os.ReadFile(filepath.Join(o.out, checksums))
	if err != nil {
		return fmt.Errorf("reading the checksums: %w", err)
	}
	_, err = fmt.Fprintf(log, "%s:\n%s", o.out, sums)
	return err
}

// replaceable refuses a directory that is not a release.
func replaceable(out string) error {
	entries, err := os.ReadDir(out)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the directory of the release: %w", err)
	}
	for _, e := range entries {
		if e.Name() == checksums {
			return nil
		}
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s has files but no %s, so it is no former release: name another directory by -out, or remove it", out, checksums)
	}
	return nil
}

// cloneRelease clones the last commit and gives it the version as its tag. The Go command
// records that tag in the binaries. Uncommitted changes are refused: the release would not
// have them.
func cloneRelease(ctx context.Context, o releaseOptions, to string) error {
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return fmt.Errorf("finding the repository: %w", err)
	}
	changes, err := git(ctx, dir, "status", "--porcelain")
	if err != nil {
		return err
	}
	if changes != "" {
		return fmt.Errorf("the repository has changes that no commit has, and a release is made of commits: commit or remove them:\n%s", changes)
	}
	name := "v" + o.version
	head, err := git(ctx, dir, "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	if tagged, err := git(ctx, dir, "rev-parse", "--verify", "--quiet", name+"^{commit}"); err == nil && tagged != head {
		return fmt.Errorf("tag %s is at commit %s, and the repository at %s: check out the tag, or choose another version", name, tagged, head)
	}
	if _, err := git(ctx, dir, "clone", "--quiet", "--no-tags", "--shared", dir, to); err != nil {
		return err
	}
	if _, err := git(ctx, to, "checkout", "--quiet", "--detach", head); err != nil {
		return err
	}
	_, err = git(ctx, to, "tag", name)
	return err
}

func git(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", dir}, args...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s in %s: %w\n%s", args[0], dir, err, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}

// writeRelease writes all files of the release from a clone.
func writeRelease(ctx context.Context, o releaseOptions, source, out string) error {
	var images []image.Image
	var programs []string
	name := o.repository + ":" + o.version
	for _, arch := range o.architectures {
		binary := filepath.Join(out, fmt.Sprintf("liqod_%s_linux_%s", o.version, arch))
		if err := image.Build(ctx, image.BuildOptions{Dir: source, Out: binary, OS: "linux", Arch: arch}); err != nil {
			return err
		}
		commands := filepath.Join(out, fmt.Sprintf("liqod_%s_darwin_%s", o.version, arch))
		if err := image.Build(ctx, image.BuildOptions{Dir: source, Out: commands, OS: "darwin", Arch: arch}); err != nil {
			return err
		}
		images = append(images, liqodImage(imageOptions{binary: binary, name: name, version: o.version, arch: arch}))
		programs = append(programs, binary)
	}
	var digest string
	err := replace(filepath.Join(out, "liqod-image_"+o.version+".tar"), func(w io.Writer) (err error) {
		digest, err = image.WriteAll(w, name, images)
		return err
	})
	if err != nil {
		return err
	}
	for i, img := range images {
		path := filepath.Join(out, fmt.Sprintf("liqod-image_%s_linux_%s.spdx.json", o.version, img.Architecture))
		if err := replace(path, func(w io.Writer) error { return image.SBOM(w, name, digest, programs[i]) }); err != nil {
			return err
		}
	}
	path := filepath.Join(out, "liqod-"+o.version+".tgz")
	if err := replace(path, func(w io.Writer) error {
		return writeChart(w, filepath.Join(source, "charts", "liqod"), o.version, digest)
	}); err != nil {
		return err
	}
	return writeChecksums(out)
}

// writeChecksums lists the files of the directory in their order.
func writeChecksums(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("listing the release: %w", err)
	}
	var lines strings.Builder
	for _, e := range entries {
		sum, err := sumOf(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%s  %s\n", sum, e.Name())
	}
	if err := os.WriteFile(filepath.Join(dir, checksums), []byte(lines.String()), 0o644); err != nil {
		return fmt.Errorf("writing the checksums: %w", err)
	}
	return nil
}

func sumOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("reading a file of the release: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("reading %s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
