// Command helmrender prints what Helm would install from a chart: its CRDs and
// its manifests, in Helm's install order. It links Helm's template engine only,
// not its command, which takes minutes to build. Without --hooks it leaves hooks out.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/releaseutil"
	"helm.sh/helm/v3/pkg/strvals"
	"sigs.k8s.io/yaml"
)

// A request says which chart to render, as what release, and with which values.
type request struct {
	chart, name, namespace, kubeVersion string
	files, sets, setStrings             []string
	apiVersions                         []string
	crds, hooks, strict, upgrade        bool
}

func main() {
	req, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "helmrender:", err)
		os.Exit(2)
	}
	if err := render(req, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "helmrender:", err)
		os.Exit(1)
	}
}

func parse(args []string, stderr io.Writer) (request, error) {
	var r request
	fs := flag.NewFlagSet("helmrender", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&r.name, "name", "release", "release name")
	fs.StringVar(&r.namespace, "namespace", "default", "release namespace")
	fs.StringVar(&r.kubeVersion, "kube-version", "v1.36.3", "Kubernetes version that the chart sees")
	fs.BoolVar(&r.crds, "include-crds", true, "print the chart's crds/ folder first")
	fs.BoolVar(&r.hooks, "hooks", false, "print the hooks only")
	fs.BoolVar(&r.strict, "strict", false, "fail on a template that uses a value that does not exist")
	fs.BoolVar(&r.upgrade, "is-upgrade", false, "render as an upgrade instead of an install")
	collect := func(list *[]string) func(string) error {
		return func(s string) error { *list = append(*list, s); return nil }
	}
	fs.Func("api-versions", "a version of an API, or a kind of it, that the chart sees (repeatable)", collect(&r.apiVersions))
	fs.Func("values", "YAML file of values (repeatable, later wins)", collect(&r.files))
	fs.Func("set", "key=value (repeatable, after the files)", collect(&r.sets))
	fs.Func("set-string", "key=value, always a string (repeatable, after --set)", collect(&r.setStrings))
	if err := fs.Parse(args); err != nil {
		return r, err
	}
	if fs.NArg() != 1 {
		return r, fmt.Errorf("got %d charts; give one chart directory or archive after the flags", fs.NArg())
	}
	r.chart = fs.Arg(0)
	return r, nil
}

func render(r request, out io.Writer) error {
	chrt, err := loader.Load(r.chart)
	if err != nil {
		return fmt.Errorf("loading chart %s: %w", r.chart, err)
	}
	given, err := readValues(r)
	if err != nil {
		return err
	}
	files, err := execute(r, chrt, given)
	if err != nil {
		return err
	}
	hooks, manifests, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		return fmt.Errorf("sorting the manifests: %w", err)
	}
	if r.hooks {
		for _, h := range hooks {
			if _, err := fmt.Fprintf(out, "---\n# Source: %s\n%s\n", h.Path, strings.TrimSpace(h.Manifest)); err != nil {
				return err
			}
		}
		return nil
	}
	if r.crds {
		for _, crd := range chrt.CRDObjects() {
			if _, err := fmt.Fprintf(out, "---\n# Source: %s\n%s\n", crd.Filename, crd.File.Data); err != nil {
				return err
			}
		}
	}
	for _, m := range manifests {
		if _, err := fmt.Fprintf(out, "---\n# Source: %s\n%s\n", m.Name, strings.TrimSpace(m.Content)); err != nil {
			return err
		}
	}
	return nil
}

// execute runs the templates. Partials and NOTES.txt are dropped.
func execute(r request, chrt *chart.Chart, given map[string]any) (map[string]string, error) {
	if err := chartutil.ProcessDependencies(chrt, given); err != nil {
		return nil, fmt.Errorf("resolving the chart's dependencies: %w", err)
	}
	version, err := chartutil.ParseKubeVersion(r.kubeVersion)
	if err != nil {
		return nil, fmt.Errorf("parsing --kube-version %q: %w", r.kubeVersion, err)
	}
	caps := chartutil.DefaultCapabilities.Copy()
	caps.KubeVersion = *version
	caps.APIVersions = append(caps.APIVersions, r.apiVersions...)
	release := chartutil.ReleaseOptions{Name: r.name, Namespace: r.namespace, Revision: 1, IsInstall: !r.upgrade, IsUpgrade: r.upgrade}
	values, err := chartutil.ToRenderValues(chrt, given, release, caps)
	if err != nil {
		return nil, fmt.Errorf("checking the values: %w", err)
	}
	files, err := engine.Engine{Strict: r.strict}.Render(chrt, values)
	if err != nil {
		return nil, fmt.Errorf("rendering: %w", err)
	}
	maps.DeleteFunc(files, func(name, _ string) bool {
		return path.Base(name) == "NOTES.txt" || strings.HasPrefix(path.Base(name), "_")
	})
	return files, nil
}

// readValues merges the files, in the order given, and then the single settings.
func readValues(r request) (map[string]any, error) {
	merged := map[string]any{}
	for _, file := range slices.Backward(r.files) { // CoalesceTables keeps what is there: the last file goes first
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading values: %w", err)
		}
		layer := map[string]any{}
		if err := yaml.Unmarshal(data, &layer); err != nil {
			return nil, fmt.Errorf("parsing values %s: %w", file, err)
		}
		merged = chartutil.CoalesceTables(merged, layer)
	}
	for _, s := range r.sets {
		if err := strvals.ParseInto(s, merged); err != nil {
			return nil, fmt.Errorf("parsing --set %q: %w", s, err)
		}
	}
	for _, s := range r.setStrings {
		if err := strvals.ParseIntoString(s, merged); err != nil {
			return nil, fmt.Errorf("parsing --set-string %q: %w", s, err)
		}
	}
	return merged, nil
}
