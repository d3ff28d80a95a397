package lab

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/liqod/liqod/hack/image"
)

// KubernetesVersion is the version of the clusters, unless they ask for another one.
const KubernetesVersion = "v1.36.3"

// otherVersions are the other versions of Kubernetes that a cluster may run, by minor version.
// e2e/tools/kube-1.N has the module of each.
func otherVersions() map[string]string {
	return map[string]string{"1.32": "v1.32.9", "1.33": "v1.33.13", "1.34": "v1.34.4", "1.35": "v1.35.4", "1.37": "v1.37.2"}
}

const module = "github.com/liqod/liqod"

// cacheFolder is the folder of the lab in the user's cache directory.
const cacheFolder = "liqod-lab"

// findKubelab returns the path of the kubelab binary: the one given, the one the
// variable LIQOD_KUBELAB names, or one built from e2e/tools/kube, once for each state
// of that folder.
func findKubelab(ctx context.Context, opts Options) (string, error) {
	given := opts.Kubelab
	setDefault(&given, os.Getenv("LIQOD_KUBELAB"))
	if given != "" {
		if _, err := os.Stat(given); err != nil {
			return "", fmt.Errorf("looking for the given kubelab: %w", err)
		}
		return filepath.Abs(given)
	}
	return buildTool(ctx, "kube", opts.Log)
}

// findKubernetes finds or builds the programs of the cluster's version of Kubernetes. A cold build takes minutes.
func (c *Cluster) findKubernetes(ctx context.Context) (err error) {
	minor := c.Options.Kubernetes
	if minor == "" {
		c.kubelab = c.lab.kubelab
		return nil
	}
	c.kubelab, err = buildTool(ctx, "kube-"+minor, c.lab.opts.Log)
	return err
}

// KubernetesVersion is the version of Kubernetes that the cluster runs, such as v1.36.3.
func (c *Cluster) KubernetesVersion() string {
	return cmp.Or(otherVersions()[c.Options.Kubernetes], KubernetesVersion)
}

// tools are the programs of the lab by their folders in e2e/tools.
func tools() map[string]ToolOptions {
	const small = "-s -w"
	all := map[string]ToolOptions{
		conformanceFolder: {Name: "e2e.test", LDFlags: versionFlags(KubernetesVersion), Package: "k8s.io/kubernetes/test/e2e", Tests: true},
		"coredns":         {Name: "coredns", LDFlags: small},
		"flannel":         {Name: "flannel", LDFlags: small},
		"helm":            {Name: "helmrender", LDFlags: small},
		"kube":            {Name: "kubelab", LDFlags: versionFlags(KubernetesVersion)},
		"kube-router":     {Name: "kube-router", LDFlags: small},
		"local-path-provisioner": {
			Name: "local-path-provisioner", LDFlags: small, Package: "github.com/rancher/local-path-provisioner",
		},
		"metrics-server": {Name: "metrics-server", LDFlags: small},
	}
	for minor, version := range otherVersions() {
		all["kube-"+minor] = ToolOptions{Name: "kubelab-" + minor, LDFlags: versionFlags(version)}
	}
	return all
}

// BuildTools builds the programs of the lab, so that no cluster waits for a compiler: all but the other
// versions of Kubernetes and its conformance suite, or those of the simulated tier where the full one is not
// possible. log is called with progress.
func BuildTools(ctx context.Context, log func(format string, args ...any)) error {
	folders := []string{"helm", "kube"}
	if len(FullTierMissing()) == 0 {
		folders = slices.DeleteFunc(slices.Sorted(maps.Keys(tools())), func(folder string) bool {
			return strings.HasPrefix(folder, "kube-1.") || folder == conformanceFolder
		})
	}
	for _, folder := range folders {
		if _, err := buildTool(ctx, folder, log); err != nil {
			return err
		}
	}
	return nil
}

// conformanceFolder has the module of the conformance suite.
const conformanceFolder = "conformance"

// BuildConformance builds the conformance suite of KubernetesVersion, e2e.test, what runs it, ginkgo, and the programs
// of the images that it asks for: agnhost, etcd, nonewprivs and sample-apiserver. It returns their paths by these names.
// log is called with progress. A cold build takes minutes.
func BuildConformance(ctx context.Context, log func(format string, args ...any)) (map[string]string, error) {
	source, err := toolDir(ctx, conformanceFolder)
	if err != nil {
		return nil, err
	}
	all := []ToolOptions{tools()[conformanceFolder]}
	for name, program := range map[string]string{
		"agnhost": "k8s.io/kubernetes/test/images/agnhost", "etcd": "go.etcd.io/etcd/server/v3", "ginkgo": "github.com/onsi/ginkgo/v2/ginkgo",
		"nonewprivs": "k8s.io/kubernetes/test/images/nonewprivs", "sample-apiserver": "k8s.io/sample-apiserver",
	} {
		all = append(all, ToolOptions{Name: name, LDFlags: "-s -w", Package: program})
	}
	paths := map[string]string{}
	for _, tool := range all {
		tool.Source, tool.Log = source, log
		if paths[tool.Name], err = BuildTool(ctx, tool); err != nil {
			return nil, err
		}
	}
	return paths, nil
}

// buildTool returns the path of the program of a folder of e2e/tools.
func buildTool(ctx context.Context, folder string, log func(format string, args ...any)) (string, error) {
	opts, known := tools()[folder]
	if !known {
		return "", fmt.Errorf("e2e/tools/%s is in no list of the lab's tools", folder)
	}
	source, err := toolDir(ctx, folder)
	if err != nil {
		return "", err
	}
	opts.Source, opts.Log = source, log
	return BuildTool(ctx, opts)
}

// versionFlags has the linker write a version such as v1.36.3 into the programs of Kubernetes.
func versionFlags(version string) string {
	const variable = " -X k8s.io/component-base/version."
	minor := strings.Split(version, ".")[1]
	return "-s -w" + variable + "gitVersion=" + version + variable + "gitMajor=1" + variable + "gitMinor=" + minor
}

// toolDir is the folder of a tool's module in the sources of this module.
func toolDir(ctx context.Context, name string) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("looking for the sources of %s (is this inside its folder?): %w", module, err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "e2e", "tools", name), nil
}

// ToolOptions say which tool to build.
type ToolOptions struct {
	// Source is the folder of a module.
	Source string
	// Package of the program. Empty: the root package of the module. A main package of another
	// module cannot be imported, so a module that only has it built has no package of its own.
	Package string
	// Tests builds the tests of the package.
	Tests bool
	// Name of the binary.
	Name string
	// LDFlags for the linker, such as "-s -w".
	LDFlags string
	// Log is called with progress; nil is silent.
	Log func(format string, args ...any)
}

// BuildTool builds a static program from a module of its own and returns its path in
// the user's cache directory. A program is built once for each content of its go.mod,
// go.sum and Go files; callers in several processes wait for one another.
func BuildTool(ctx context.Context, opts ToolOptions) (string, error) {
	sum, err := toolSum(opts)
	if err != nil {
		return "", err
	}
	if opts.Log == nil {
		opts.Log = func(string, ...any) {}
	}
	dir, unlock, err := lockCache(ctx, sum, func() { opts.Log("waiting for another process that builds %s", opts.Name) })
	if err != nil {
		return "", fmt.Errorf("building %s: %w", opts.Name, err)
	}
	defer unlock()
	binary := filepath.Join(dir, opts.Name)
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	return binary, goBuild(ctx, opts, binary)
}

// lockPoll is how often a lock is tried that another process holds.
const lockPoll = 100 * time.Millisecond

// lockCache makes a folder in the user's cache directory, and keeps other processes out
// of it until unlock. It calls waits if another process is in there.
func lockCache(ctx context.Context, name string, waits func()) (dir string, unlock func(), err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", nil, fmt.Errorf("looking for the cache directory: %w", err)
	}
	dir = filepath.Join(cache, cacheFolder, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", nil, fmt.Errorf("making the cache directory: %w", err)
	}
	path := filepath.Join(dir, lockFile)
	lock, err := tryLock(path)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		waits()
	}
	for errors.Is(err, syscall.EWOULDBLOCK) {
		select {
		case <-ctx.Done():
			return "", nil, fmt.Errorf("waiting for another build: %w", ctx.Err())
		case <-time.After(lockPoll):
			lock, err = tryLock(path)
		}
	}
	if err != nil {
		return "", nil, fmt.Errorf("locking the cache directory: %w", err)
	}
	return dir, func() { lock.Close() }, nil
}

// BuildLiqod builds liqod from the sources in root, as it is shipped, and puts it at out.
// The binary comes from the user's cache directory, where the Go command links it again
// only when a source has changed.
func BuildLiqod(ctx context.Context, root, out string) error {
	root, err := filepath.Abs(root)
	if err != nil {
		return fmt.Errorf("looking for the sources of liqod: %w", err)
	}
	sum := sha256.Sum256([]byte(root))
	dir, unlock, err := lockCache(ctx, "liqod-"+hex.EncodeToString(sum[:8]), func() {})
	if err != nil {
		return fmt.Errorf("building liqod: %w", err)
	}
	defer unlock()
	cached := filepath.Join(dir, "liqod")
	if err := image.Build(ctx, image.BuildOptions{Dir: root, Out: cached}); err != nil {
		return err
	}
	// A file of its own: the next build must not change what runs.
	data, err := os.ReadFile(cached)
	if err != nil {
		return fmt.Errorf("reading the binary that was built: %w", err)
	}
	// A process that is forked while the file is open for writing would keep it from being executed.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(out, data, 0o755); err != nil {
		return fmt.Errorf("copying the binary that was built: %w", err)
	}
	return nil
}

func toolSum(opts ToolOptions) (string, error) {
	files, err := filepath.Glob(filepath.Join(opts.Source, "*.go"))
	if err != nil {
		return "", fmt.Errorf("listing the sources of %s: %w", opts.Name, err)
	}
	hash := sha256.New()
	fmt.Fprintln(hash, runtime.Version(), runtime.GOARCH, opts.LDFlags+opts.Package)
	for _, file := range append(files, filepath.Join(opts.Source, "go.mod"), filepath.Join(opts.Source, "go.sum")) {
		data, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("reading the sources of %s: %w", opts.Name, err)
		}
		fmt.Fprintln(hash, filepath.Base(file), len(data))
		hash.Write(data)
	}
	return hex.EncodeToString(hash.Sum(nil))[:16], nil
}
