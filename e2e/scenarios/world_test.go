// Package scenarios tests liqod from outside: real control planes, the liqod binary as
// separate processes with the rights of the chart, and nothing but the Kubernetes API
// to look through.
package scenarios

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/apply"
)

// world is a consumer, rome, that uses a provider, milan.
type world struct {
	sites       *site.Sites
	rome, milan *site.Site
}

// newWorld starts two simulated clusters, installs liqod, with settings beside the
// lab's, and connects them.
func newWorld(t *testing.T, settings ...map[string]any) *world {
	t.Helper()
	return newAdjustedWorld(t, func(*lab.ClusterOptions) {}, settings...)
}

// newAdjustedWorld is newWorld with clusters made otherwise.
func newAdjustedWorld(t *testing.T, adjust func(*lab.ClusterOptions), settings ...map[string]any) *world {
	t.Helper()
	w := newClusters(t, adjust, settings...)
	begin := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, w.rome.Peer(ctx, w.milan, site.PeerOptions{Labels: map[string]string{"region": "north"}}))
	t.Logf("virtual node Ready: %s", time.Since(begin).Round(time.Millisecond))
	return w
}

// newClusters is newAdjustedWorld with clusters that do not know each other.
func newClusters(t *testing.T, adjust func(*lab.ClusterOptions), settings ...map[string]any) *world {
	t.Helper()
	all := newSites(t, []string{"rome", "milan"}, adjust, settings...)
	return &world{sites: all.sites, rome: all.list[0], milan: all.list[1]}
}

// made are clusters with liqod, not connected.
type made struct {
	sites *site.Sites
	list  []*site.Site
}

// newSites starts simulated clusters of those names, and installs liqod, with settings
// beside the lab's.
func newSites(t *testing.T, names []string, adjust func(*lab.ClusterOptions), settings ...map[string]any) made {
	t.Helper()
	if testing.Short() {
		t.Skip("starts clusters: not with -short")
	}
	l, err := lab.New(t.Context(), lab.Options{Log: t.Logf, Exited: func(p *lab.Process) {
		t.Errorf("%s ended by itself: %v\n%s", p.Name, p.Err(), p.Tail(4000))
	}})
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			keepLogs(t, l)
		}
		require.NoError(t, l.Close())
	})
	sites, err := site.New(t.Context(), l, nil)
	require.NoError(t, err)
	sites.Settings = map[string]any{}
	for _, s := range settings {
		maps.Copy(sites.Settings, s)
	}
	begin := time.Now()
	m := made{sites, make([]*site.Site, len(names))}
	m.start(t, names, adjust)
	t.Logf("%d clusters with liqod: %s", len(names), time.Since(begin).Round(time.Millisecond))
	return m
}

// startedAtOnce is how many clusters are started at the same time: a control plane needs
// most of its CPU then, and has a deadline.
const startedAtOnce = 3

func (m made) start(t *testing.T, names []string, adjust func(*lab.ClusterOptions)) {
	t.Helper()
	var wg sync.WaitGroup
	errs := make([]error, len(names))
	room := make(chan struct{}, startedAtOnce)
	for i, name := range names {
		wg.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			var c *lab.Cluster
			options := lab.ClusterOptions{
				Name: name, SimulatedNodes: 2, Audit: true,
				PodCIDR: fmt.Sprintf("10.%d.0.0/16", 100+i), ServiceCIDR: fmt.Sprintf("10.%d.0.0/16", 220+i),
			}
			adjust(&options)
			c, errs[i] = m.sites.Lab.Start(t.Context(), options)
			if errs[i] == nil {
				m.list[i], errs[i] = m.sites.Install(t.Context(), c)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
}

// keepLogs copies the logs of the roles to where they outlive the lab.
func keepLogs(t *testing.T, l *lab.Lab) {
	t.Helper()
	dir, err := os.MkdirTemp("", "liqod-e2e-")
	if err != nil {
		t.Logf("keeping logs: %v", err)
		return
	}
	logs, err := filepath.Glob(filepath.Join(l.Dir(), "*.log"))
	require.NoError(t, err)
	for _, path := range logs {
		if data, err := os.ReadFile(path); err == nil {
			require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.Base(path)), data, 0o600))
		}
	}
	t.Logf("the logs of the roles are in %s", dir)
}

// within waits for a condition with a deadline, and logs how long it took.
func within(t *testing.T, patience time.Duration, what string, cond func(context.Context) error) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	begin := time.Now()
	require.NoError(t, lab.Eventually(ctx, cond), what)
	took := time.Since(begin)
	t.Logf("%s: %s", what, took.Round(time.Millisecond))
	return took
}

// vkubeletGoes waits until a vkubelet's Deployment is gone. Its process goes as the pods of
// the Deployment would: after that is deleted, and before it is gone.
func vkubeletGoes(t *testing.T, s *site.Site, patience time.Duration, namespace, node string) {
	t.Helper()
	look := func(ctx context.Context) (*appsv1.Deployment, error) {
		return s.Client().AppsV1().Deployments(namespace).Get(ctx, "vk-"+node, metav1.GetOptions{})
	}
	within(t, patience, "the vkubelet's Deployment is deleted", func(ctx context.Context) error {
		d, err := look(ctx)
		if err == nil && d.DeletionTimestamp == nil {
			return fmt.Errorf("Deployment %s stands", d.Name)
		}
		return apply.IgnoreNotFound(err)
	})
	(*s.VKubelet(node)).Kill()
	within(t, soon, "it is gone", func(ctx context.Context) error { return absent(look(ctx)) })
}
