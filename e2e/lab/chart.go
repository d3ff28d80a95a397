package lab

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// ChartOptions say what Install installs.
type ChartOptions struct {
	// Chart is the folder of the chart. Default: charts/liqod of this repository.
	Chart string
	// Release is the name of the release. Default liqod.
	Release string
	// Namespace of the release. Default liqod. Install makes it if it is missing.
	Namespace string
	// KubeVersion is the version of Kubernetes that Render shows to the chart. Install sees to it. Default: KubernetesVersion.
	KubeVersion string
	// Values override the chart's, as a tree. They win over the chart's defaults.
	Values map[string]any
	// APIVersions are versions of APIs, or kinds as apps/v1/Deployment, that Render shows to the
	// chart beside those of Kubernetes. Without a kind, the chart sees no cluster.
	APIVersions []string
	// Hooks makes Render return the hooks, and nothing else.
	Hooks bool
	// Without are objects that are not installed, as KIND/NAME.
	Without []string
}

// Render returns what Helm would install: YAML documents in Helm's order, without hooks; or only these.
func (l *Lab) Render(ctx context.Context, opts ChartOptions) ([]byte, error) {
	tools, err := toolDir(ctx, "")
	if err != nil {
		return nil, err
	}
	setDefault(&opts.Chart, filepath.Join(tools, "..", "..", "charts", "liqod"))
	setDefault(&opts.Release, "liqod")
	setDefault(&opts.Namespace, "liqod")
	setDefault(&opts.KubeVersion, KubernetesVersion)
	binary, err := buildTool(ctx, "helm", l.Logf)
	if err != nil {
		return nil, err
	}
	values, err := yaml.Marshal(opts.Values)
	if err != nil {
		return nil, fmt.Errorf("encoding the values: %w", err)
	}
	args := []string{"--name", opts.Release, "--namespace", opts.Namespace, "--kube-version", opts.KubeVersion, "--values", "/dev/stdin"}
	if opts.Hooks {
		args = append(args, "--hooks")
	}
	for _, version := range opts.APIVersions {
		args = append(args, "--api-versions", version)
	}
	out, err := command(ctx, string(values), binary, append(args, opts.Chart)...)
	if err != nil {
		return nil, err
	}
	return []byte(out), nil
}

// Install renders a chart and applies it. Installing again upgrades, but does not
// remove what the chart no longer has.
func (c *Cluster) Install(ctx context.Context, opts ChartOptions) error {
	setDefault(&opts.Namespace, "liqod")
	opts.KubeVersion = c.KubernetesVersion()
	manifests, err := c.lab.Render(ctx, opts)
	if err != nil {
		return err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: opts.Namespace}}
	_, err = c.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{FieldManager: fieldManager})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("making namespace %s: %w", opts.Namespace, err)
	}
	if manifests, err = without(manifests, opts.Without); err != nil {
		return err
	}
	return c.Apply(ctx, manifests)
}

// Upgrade goes from one chart, which is installed, to another, as helm upgrade and helm
// rollback do: it applies the new chart, and then deletes what only the old one has, unless the
// object is to be kept.
func (c *Cluster) Upgrade(ctx context.Context, from, to ChartOptions) error {
	from.KubeVersion, to.KubeVersion = c.KubernetesVersion(), c.KubernetesVersion()
	have, err := c.lab.Render(ctx, from)
	if err != nil {
		return err
	}
	want, err := c.lab.Render(ctx, to)
	if err != nil {
		return err
	}
	gone, err := dropped(have, want)
	if err != nil {
		return err
	}
	if err := c.Apply(ctx, want); err != nil {
		return err
	}
	return c.Delete(ctx, gone)
}

// dropped are the objects that only the manifests have has, and that Helm may delete.
func dropped(have, want []byte) ([]byte, error) {
	old, err := parseManifests(have)
	if err != nil {
		return nil, err
	}
	wanted, err := parseManifests(want)
	if err != nil {
		return nil, err
	}
	id := func(obj *unstructured.Unstructured) string {
		return obj.GroupVersionKind().GroupKind().String() + "/" + obj.GetNamespace() + "/" + obj.GetName()
	}
	stays := map[string]bool{}
	for _, obj := range wanted {
		stays[id(obj)] = true
	}
	return documents(old, func(obj *unstructured.Unstructured) bool {
		return !stays[id(obj)] && obj.GetAnnotations()["helm.sh/resource-policy"] != "keep"
	})
}

// documents are the manifests of some objects.
func documents(objects []*unstructured.Unstructured, some func(*unstructured.Unstructured) bool) ([]byte, error) {
	var out [][]byte
	for _, obj := range objects {
		if !some(obj) {
			continue
		}
		document, err := yaml.Marshal(obj.Object)
		if err != nil {
			return nil, fmt.Errorf("encoding %s %s: %w", obj.GetKind(), obj.GetName(), err)
		}
		out = append(out, document)
	}
	return bytes.Join(out, []byte("---\n")), nil
}

// without leaves objects out of manifests.
func without(manifests []byte, names []string) ([]byte, error) {
	if len(names) == 0 {
		return manifests, nil
	}
	objects, err := parseManifests(manifests)
	if err != nil {
		return nil, err
	}
	return documents(objects, func(obj *unstructured.Unstructured) bool {
		return !slices.Contains(names, obj.GetKind()+"/"+obj.GetName())
	})
}
