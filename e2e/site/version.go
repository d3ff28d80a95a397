package site

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/liqod/liqod/e2e/lab"
)

// ending is how long a process has to end after SIGTERM, also on a busy machine.
const ending = 2 * time.Minute

// Version is liqod of one state of the sources: its chart and its binary.
type Version struct {
	// Tag of the image.
	Tag string

	root, binary string
	image        string // an archive; empty in the simulated tier
}

func (v Version) chart() string { return filepath.Join(v.root, "charts", "liqod") }

// Version builds liqod as it was at a commit of this repository, whose full hash is given.
func (s *Sites) Version(ctx context.Context, commit string) (Version, error) {
	root, err := lab.Sources(ctx, s.root, commit)
	if err != nil {
		return Version{}, err
	}
	v := Version{Tag: commit[:12], root: root, binary: filepath.Join(s.Lab.Dir(), "liqod-"+commit[:12])}
	if err := lab.BuildLiqod(ctx, root, v.binary); err != nil {
		return v, err
	}
	return v, s.pack(ctx, &v)
}

// Build builds liqod of this tree and of a commit, so that no cluster waits for a compiler. dir is a
// folder for the binaries, of which nothing is needed afterwards. log is called with progress.
func Build(ctx context.Context, dir, commit string, log func(format string, args ...any)) error {
	root, err := repository(ctx)
	if err != nil {
		return err
	}
	log("building liqod")
	if err := lab.BuildLiqod(ctx, root, filepath.Join(dir, "liqod")); err != nil {
		return err
	}
	if lab.HasCommit(ctx, root, commit) != nil {
		return nil // the tests of an earlier version say so
	}
	log("building liqod of %.12s", commit)
	earlier, err := lab.Sources(ctx, root, commit)
	if err != nil {
		return err
	}
	return lab.BuildLiqod(ctx, earlier, filepath.Join(dir, "liqod"))
}

// Upgrade brings the site to a version, which may be an earlier one, as helm upgrade and helm
// rollback do: the objects of the chart first, and then one process after the other. Only in
// the simulated tier.
func (s *Site) Upgrade(ctx context.Context, to Version) error {
	return s.upgrade(ctx, to, map[string]any{"image": map[string]any{"tag": to.Tag}})
}

// Configure changes settings of a site, as helm upgrade does. Only in the simulated tier.
func (s *Site) Configure(ctx context.Context, settings map[string]any) error {
	return s.upgrade(ctx, s.version, map[string]any{"config": settings})
}

// UpgradePods brings a site of the full tier, whose fabric are pods, to a version with changes of
// the chart's values, as helm upgrade --wait does.
func (s *Site) UpgradePods(ctx context.Context, to Version, changes map[string]any) error {
	if err := s.sites.Full.LoadImage(ctx, s.Cluster, to.image); err != nil {
		return err
	}
	values := map[string]any{"image": map[string]any{"tag": to.Tag}}
	merge(values, changes)
	if err := s.upgradeChart(ctx, to, values); err != nil {
		return err
	}
	if err := lab.Eventually(ctx, s.rolled); err != nil {
		return fmt.Errorf("bringing the pods of %s to %s: %w", s.Name, to.Tag, err)
	}
	return nil
}

// rolled returns what lacks until all pods of roles, and no others, are of the site's version.
func (s *Site) rolled(ctx context.Context) error {
	list, err := s.Client().AppsV1().Deployments(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, d := range list.Items {
		image := d.Spec.Template.Spec.Containers[0].Image
		if !strings.HasPrefix(image, imageRepository+":") {
			continue
		}
		want, have := ptr.Deref(d.Spec.Replicas, 1), d.Status
		if image != imageRepository+":"+s.version.Tag || have.ObservedGeneration != d.Generation || have.UpdatedReplicas != want || have.AvailableReplicas != want || have.Replicas != want {
			return fmt.Errorf("deployment %s with image %s has %d pods, %d new, %d available, of %d", d.Name, image, have.Replicas, have.UpdatedReplicas, have.AvailableReplicas, want)
		}
	}
	return s.routing(ctx)
}

// upgradeChart brings the objects of the chart to a version, with changes of the values.
func (s *Site) upgradeChart(ctx context.Context, to Version, changes map[string]any) error {
	from := lab.ChartOptions{Chart: s.version.chart(), Values: s.chart}
	values := map[string]any{}
	merge(values, s.chart)
	merge(values, changes)
	if err := s.Cluster.Upgrade(ctx, from, lab.ChartOptions{Chart: to.chart(), Values: values}); err != nil {
		return fmt.Errorf("bringing %s to the chart of %s: %w", s.Name, to.Tag, err)
	}
	s.chart, s.version = values, to
	return nil
}

func (s *Site) upgrade(ctx context.Context, to Version, changes map[string]any) error {
	if err := s.upgradeChart(ctx, to, changes); err != nil {
		return err
	}
	if _, err := s.writeConfig(ctx); err != nil {
		return err
	}
	for _, p := range []**lab.Process{&s.Controller, &s.Webhook} {
		if err := s.replace(ctx, p); err != nil {
			return err
		}
	}
	for _, node := range s.virtualNodes() {
		if err := s.replaceVKubelet(ctx, node); err != nil {
			return err
		}
	}
	return nil
}

// replace ends a process and starts it from the binary of the site's version.
func (s *Site) replace(ctx context.Context, p **lab.Process) error {
	if err := (*p).Stop(ctx, ending); err != nil {
		return err
	}
	options := (*p).Options
	options.Path = s.version.binary
	again, err := s.sites.Lab.Process(options)
	if err != nil {
		return err
	}
	*p = again
	return nil
}

// virtualNodes are the names of the virtual nodes whose vkubelets run as processes.
func (s *Site) virtualNodes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.vkubelets))
}

// replaceVKubelet waits until the controller has given the Deployment of a vkubelet the image
// of the site's version, and starts the process that it asks for now in place of the old one.
func (s *Site) replaceVKubelet(ctx context.Context, node string) error {
	image := imageRepository + ":" + s.version.Tag
	var d *appsv1.Deployment
	err := lab.Eventually(ctx, lab.Those(s.Client().AppsV1().Deployments(metav1.NamespaceAll), metav1.ListOptions{}, func(list *appsv1.DeploymentList) error {
		at := slices.IndexFunc(list.Items, func(d appsv1.Deployment) bool { return d.Name == "vk-"+node })
		if at < 0 {
			return fmt.Errorf("virtual node %s has no Deployment", node)
		}
		d = &list.Items[at]
		have := d.Spec.Template.Spec.Containers[0].Image
		return lab.Wrong(nil, have != image, "the vkubelet of %s has image %s, not %s", node, have, image)
	}))
	if err != nil {
		return fmt.Errorf("waiting for the new image of a vkubelet in %s: %w", s.Name, err)
	}
	if err := (*s.VKubelet(node)).Stop(ctx, ending); err != nil {
		return err
	}
	return s.StartVKubelet(ctx, d.Namespace, node)
}
