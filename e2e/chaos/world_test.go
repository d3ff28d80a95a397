package chaos

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
)

var (
	all       = flag.Bool("all", false, "every case instead of a sample")
	seed      = flag.Uint64("seed", 1, "where the random choices begin")
	onlyLives = flag.String("lives", "", "play only the lives whose name contains this, and of peerings the cases")
	tableFile = flag.String("table", "", "add the tables of cases to this file, as Markdown")
)

// world is a consumer, rome, that uses a provider, milan, with roles that can be attacked
// and an observer that sees all pods.
type world struct {
	sites       *site.Sites
	rome, milan *site.Site
	roles       *roles
	seen        *observer
	// number makes names unique.
	number atomic.Int64
}

// newWorld is newClusters whose consumer uses the provider, with all roles under attack.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := newClusters(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, w.rome.Peer(ctx, w.milan, site.PeerOptions{}))
	var err error
	w.roles, err = newRoles(w, vkubelet, romeController, milanController, romeWebhook)
	require.NoError(t, err)
	w.seen = newObserver(t, w)
	return w
}

// newClusters starts two clusters that do not know each other, with simulated nodes that
// outlive what is done to the processes, and installs liqod with more settings.
func newClusters(t *testing.T, settings map[string]any) *world {
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
	w := &world{}
	w.sites, err = site.New(t.Context(), l, nil)
	require.NoError(t, err)
	w.sites.Settings = settings
	w.start(t)
	return w
}

func (w *world) start(t *testing.T) {
	t.Helper()
	var wg sync.WaitGroup
	errs := make([]error, 2)
	for i, target := range []**site.Site{&w.rome, &w.milan} {
		wg.Go(func() {
			var c *lab.Cluster
			c, errs[i] = w.sites.Lab.Start(t.Context(), lab.ClusterOptions{
				Name: []string{"rome", "milan"}[i], SimulatedNodes: 2, Audit: true, NodeGrace: time.Minute,
				PodCIDR: fmt.Sprintf("10.%d.0.0/16", 100+i), ServiceCIDR: fmt.Sprintf("10.%d.0.0/16", 110+i),
			})
			if errs[i] == nil {
				*target, errs[i] = w.sites.Install(t.Context(), c)
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
	dir, err := os.MkdirTemp("", "liqod-chaos-")
	require.NoError(t, err)
	logs, err := filepath.Glob(filepath.Join(l.Dir(), "*.log"))
	require.NoError(t, err)
	for _, path := range logs {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.Base(path)), data, 0o600))
	}
	t.Logf("the logs of the roles are in %s", dir)
}

// offload makes an offloaded namespace, all of whose pods run in the provider.
func (w *world) offload(ctx context.Context, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return w.rome.Offload(ctx, namespace, offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsRemote})
}

func twinOf(namespace string) string { return namespace + "-rome" }
