package main

import (
	"archive/tar"
	"compress/gzip"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// TestRelease: two checkouts of one commit give equal bytes, and all files of a release agree
// on its version and on the digest of its image.
func TestRelease(t *testing.T) {
	t.Parallel()
	repo := releaseRepo(t)
	other := filepath.Join(t.TempDir(), "elsewhere")
	gitIn(t, repo, "clone", "-q", repo, other)
	key := releaseKey(t, repo)
	first, second := releaseOf(t, repo, "-key", key), releaseOf(t, other, "-key", key)
	require.Equal(t, first[checksums], second[checksums])
	for name, data := range first {
		require.Equal(t, data, second[name], name)
	}

	platform := runtime.GOOS + "_" + runtime.GOARCH
	require.Len(t, first, 8, "program, program for macOS, image, SBOM, chart, checksums, their signature, provenance")
	require.Contains(t, first, "liqod_0.1.0_darwin_"+runtime.GOARCH)
	require.Contains(t, first, "liqod-image_0.1.0_"+platform+".spdx.json")
	require.Equal(t, 5, strings.Count(first[checksums], "\n"))

	program := filepath.Join(t.TempDir(), "liqod")
	require.NoError(t, os.WriteFile(program, []byte(first["liqod_0.1.0_"+platform]), 0o600))
	info := must(buildinfo.ReadFile(program))
	require.Equal(t, "v0.1.0", info.Main.Version, "the version of the binary, without a tag in the repository")

	chart := chartIn(t, first["liqod-0.1.0.tgz"])
	var meta struct{ Version, AppVersion string }
	require.NoError(t, yaml.Unmarshal([]byte(chart["liqod/Chart.yaml"]), &meta))
	require.Equal(t, struct{ Version, AppVersion string }{"0.1.0", "0.1.0"}, meta)
	var values struct {
		Image struct{ Repository, Tag, Digest string }
	}
	require.NoError(t, yaml.Unmarshal([]byte(chart["liqod/values.yaml"]), &values))
	image := filepath.Join(t.TempDir(), "image.tar")
	require.NoError(t, os.WriteFile(image, []byte(first["liqod-image_0.1.0.tar"]), 0o600))
	require.Equal(t, manifestIn(t, image), values.Image.Digest)
	require.Contains(t, chart, "liqod/templates/_helpers.tpl")
	require.Contains(t, chart, "liqod/values.schema.json")
	signedBy(t, filepath.Join(repo, "..", "key.pem"), gitHead(t, repo), first)
}

// signedBy checks signature and provenance with openssl, as docs/install.md does.
func signedBy(t *testing.T, key, commit string, files map[string]string) {
	t.Helper()
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, data, 0o600))
		return path
	}
	verify := func(data, sig []byte) error {
		return exec.CommandContext(t.Context(), "openssl", "pkeyutl", "-verify", "-inkey", key, "-rawin", "-in", write("data", data), "-sigfile", write("sig", sig)).Run()
	}
	sig := must(base64.StdEncoding.DecodeString(strings.TrimSpace(files[signature])))
	require.NoError(t, verify([]byte(files[checksums]), sig))
	require.Error(t, verify([]byte(files[checksums]+"\n"), sig))

	var envelope dsse.Envelope
	require.NoError(t, json.Unmarshal([]byte(files[provenance]), &envelope))
	payload := must(envelope.DecodeB64Payload())
	require.Len(t, envelope.Signatures, 1)
	sig = must(base64.StdEncoding.DecodeString(envelope.Signatures[0].Sig))
	require.NoError(t, verify(dsse.PAE(envelope.PayloadType, payload), sig))
	var statement struct {
		Subject   []subject
		Predicate struct {
			BuildDefinition struct {
				ExternalParameters   map[string]string
				ResolvedDependencies []subject
			}
		}
	}
	require.NoError(t, json.Unmarshal(payload, &statement))
	require.Len(t, statement.Subject, 5)
	for _, s := range statement.Subject {
		require.Contains(t, files[checksums], s.Digest["sha256"]+"  "+s.Name)
	}
	require.Equal(t, "0.1.0", statement.Predicate.BuildDefinition.ExternalParameters["version"])
	require.Equal(t, commit, statement.Predicate.BuildDefinition.ResolvedDependencies[0].Digest["gitCommit"])
}

func gitHead(t *testing.T, repo string) string {
	t.Helper()
	out := must(exec.CommandContext(t.Context(), "git", "-C", repo, "rev-parse", "HEAD").Output())
	return strings.TrimSpace(string(out))
}

// releaseKey writes a key of openssl beside a repository, unless it is there.
func releaseKey(t *testing.T, repo string) string {
	t.Helper()
	path := filepath.Join(repo, "..", "key.pem")
	if _, err := os.Stat(path); err != nil {
		out, err := exec.CommandContext(t.Context(), "openssl", "genpkey", "-algorithm", "ed25519", "-out", path).CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.NoError(t, os.Chmod(path, 0o600))
	}
	return path
}

// noVulnerabilities adds a database and a tool that find none.
func (o *releaseOptions) noVulnerabilities(t *testing.T) {
	t.Helper()
	database := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(database.Close)
	o.db, o.tool = database.URL, "true"
}

// TestReleaseRefuses: what would make a release that is not of its commit, or remove what is
// no release, changes nothing.
func TestReleaseRefuses(t *testing.T) {
	t.Parallel()
	repo := releaseRepo(t)
	options := releaseOptions{dir: repo, out: filepath.Join(t.TempDir(), "dist"), version: "0.1.0"}
	options.noVulnerabilities(t)
	for _, version := range []string{"", "v0.1.0", "0.1", "0.1.0+build", "01.1.0", "0.1.0-", "latest"} {
		_, err := parseRelease([]string{"-version", version}, io.Discard)
		require.ErrorContains(t, err, "is not of the form", version)
	}

	foreign := options
	foreign.out = t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(foreign.out, "thesis.txt"), []byte("mine"), 0o600))
	require.ErrorContains(t, makeRelease(t.Context(), foreign, io.Discard), "no former release")
	require.FileExists(t, filepath.Join(foreign.out, "thesis.txt"))

	unseen := options
	unseen.db = "http://127.0.0.1:1"
	require.ErrorContains(t, makeRelease(t.Context(), unseen, io.Discard), "looking for vulnerabilities")
	for name, mode := range map[string]os.FileMode{"open": 0o644, "empty": 0o600} {
		signed := options
		signed.key = filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(signed.key, nil, mode))
		require.ErrorContains(t, makeRelease(t.Context(), signed, io.Discard), map[string]string{"open": "chmod 600", "empty": "openssl genpkey"}[name])
	}

	gitIn(t, repo, "tag", "v0.1.0")
	require.NoError(t, os.WriteFile(filepath.Join(repo, "new.go"), []byte("package main\n"), 0o600))
	require.ErrorContains(t, makeRelease(t.Context(), options, io.Discard), "new.go")
	gitIn(t, repo, "add", ".")
	gitIn(t, repo, "commit", "-q", "-m", "more")
	require.ErrorContains(t, makeRelease(t.Context(), options, io.Discard), "tag v0.1.0 is at commit")
	require.NoDirExists(t, options.out)
	left := must(os.ReadDir(filepath.Dir(options.out)))
	require.Empty(t, left)
}

// releaseRepo is a repository with the chart and with a program that compiles at once.
func releaseRepo(t *testing.T) string {
	t.Helper()
	repo := filepath.Join(t.TempDir(), "repo")
	require.NoError(t, os.CopyFS(filepath.Join(repo, "charts"), os.DirFS(filepath.Join("..", "charts"))))
	require.NoError(t, os.WriteFile(filepath.Join(repo, "go.mod"), []byte("module github.com/liqod/liqod\n\ngo 1.26.0\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(repo, "main.go"), []byte("package main\n\nfunc main() {}\n"), 0o600))
	gitIn(t, repo, "init", "-q")
	gitIn(t, repo, "config", "user.email", "test@example.com")
	gitIn(t, repo, "config", "user.name", "test")
	gitIn(t, repo, "add", ".")
	gitIn(t, repo, "commit", "-q", "-m", "all")
	return repo
}

func gitIn(t *testing.T, dir string, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir}, args...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// releaseOf makes a release for this machine only, and returns its files.
func releaseOf(t *testing.T, repo string, more ...string) map[string]string {
	t.Helper()
	here := must(os.Getwd())
	out, err := filepath.Rel(here, filepath.Join(t.TempDir(), "dist")) // relative, as make has it
	require.NoError(t, err)
	o := must(parseRelease(append([]string{"-dir", repo, "-version", "0.1.0", "-out", out}, more...), io.Discard))
	o.architectures = []string{runtime.GOARCH}
	o.noVulnerabilities(t)
	require.NoError(t, makeRelease(t.Context(), o, io.Discard))
	files := map[string]string{}
	entries := must(os.ReadDir(o.out))
	for _, e := range entries {
		data := must(os.ReadFile(filepath.Join(o.out, e.Name())))
		files[e.Name()] = string(data)
	}
	return files
}

func chartIn(t *testing.T, packed string) map[string]string {
	t.Helper()
	zipped := must(gzip.NewReader(strings.NewReader(packed)))
	files := map[string]string{}
	for archive := tar.NewReader(zipped); ; {
		header, err := archive.Next()
		if err == io.EOF {
			return files
		}
		require.NoError(t, err)
		data := must(io.ReadAll(archive))
		files[header.Name] = string(data)
	}
}
