// Package scenarios tests liqod from outside: real control planes, the liqod binary as
// separate processes with the rights of the chart, and nothing but the Kubernetes API
// to look through.
package scenarios

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/store"
)

// world is a consumer, rome, that uses a provider, milan.
type world struct {
	*site.Pair
	sites       *site.Sites
	rome, milan *site.Site
}

// newWorld starts two simulated clusters, installs liqod, with settings beside the
// lab's, and connects them.
func newWorld(t *testing.T, settings ...map[string]any) *world {
	t.Helper()
	return newAdjustedWorld(t, nil, settings...)
}

// newAdjustedWorld is newWorld with clusters made otherwise.
func newAdjustedWorld(t *testing.T, adjust func(*lab.ClusterOptions), settings ...map[string]any) *world {
	t.Helper()
	w := newClusters(t, adjust, settings...)
	w.Peer(t, site.PeerOptions{Labels: map[string]string{"region": "north"}})
	return w
}

// newClusters is newAdjustedWorld with clusters that do not know each other.
func newClusters(t *testing.T, adjust func(*lab.ClusterOptions), settings ...map[string]any) *world {
	t.Helper()
	p := site.World{Adjust: adjust, Settings: settings}.StartPair(t)
	return &world{Pair: p, sites: p.Sites, rome: p.Rome, milan: p.Milan}
}

// made are clusters with liqod, not connected.
type made struct {
	sites *site.Sites
	list  []*site.Site
}

// newSites starts simulated clusters of those names, and installs liqod, with settings
// beside the lab's. The test runs beside others.
func newSites(t *testing.T, names []string, adjust func(*lab.ClusterOptions), settings ...map[string]any) made {
	t.Helper()
	sites, list := site.World{Clusters: names, Adjust: adjust, Settings: settings}.Start(t)
	return made{sites, list}
}

// part is a subtest of a scenario, on its world.
type part[W any] struct {
	name string
	run  func(*testing.T, W)
}

// inTurn runs subtests one after the other.
func inTurn[W any](t *testing.T, w W, parts []part[W]) {
	t.Helper()
	for _, p := range parts {
		t.Run(p.name, func(t *testing.T) { p.run(t, w) })
	}
}

// must returns the answer of a request: answer := must(request())(t). The test fails for an error.
func must[T any](answer T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		require.NoError(t, err)
		return answer
	}
}

// longest is how long a test waits for anything at most, and shortest how long it waits
// at least: what has not come by then does not come. The machine may be busy with other
// tests, so nothing is said of speed.
const (
	shortest = time.Minute
	longest  = 3 * time.Minute
)

// within waits for a condition with a deadline, and logs how long it took.
func within(t *testing.T, patience time.Duration, what string, cond func(context.Context) error) time.Duration {
	t.Helper()
	begin := time.Now()
	require.NoError(t, lab.Within(t.Context(), max(patience, shortest), cond), what)
	took := time.Since(begin)
	t.Logf("%s: %s", what, took.Round(time.Millisecond))
	return took
}

// await is within for an answer, which it returns.
func await[T any](t *testing.T, patience time.Duration, what string, ask func(context.Context) (T, error)) (answer T) {
	t.Helper()
	within(t, patience, what, func(ctx context.Context) (err error) {
		answer, err = ask(ctx)
		return err
	})
	return answer
}

// requireFaster requires, with -all, that something took less than limit.
func requireFaster(t *testing.T, took, limit time.Duration, what string) {
	t.Helper()
	if *all {
		require.Less(t, took, limit, what)
	}
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
		return store.IgnoreNotFound(err)
	})
	(*s.VKubelet(node)).Kill()
	within(t, soon, "it is gone", func(ctx context.Context) error { return absent(look(ctx)) })
}
