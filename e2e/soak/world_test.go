// Package soak shakes reflection for a while: random changes to objects of every kind in
// both clusters, with vkubelets that die, policies that change and API servers that stand
// still, while the provider reports what happens to the objects and a pod there needs a good
// token. Then a checker of its own compares both clusters object by object, looks up who
// wrote what, and what was told.
package soak

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
)

var (
	duration = flag.Duration("for", time.Minute, "how long the clusters are shaken")
	rate     = flag.Int("rate", 50, "changes a second")
	seed     = flag.Uint64("seed", 1, "where the random choices begin")
)

const (
	consumer, provider = "rome", "milan"
	tenant             = "liqo-tenant-" + provider
	// user and stranger are the field managers of what is done at home and in the provider.
	user     = "soak-user"
	stranger = "soak-stranger"
)

// world is a consumer, rome, that uses a provider, milan.
type world struct {
	sites       *site.Sites
	rome, milan *site.Site
	// home and away are clients that give up on an API server that does not answer.
	home, away kubernetes.Interface
	namespaces []string
}

func newWorld(t *testing.T) *world {
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
	w := &world{namespaces: []string{"soak-0", "soak-1", "soak-2"}}
	w.sites, err = site.New(t.Context(), l, nil)
	require.NoError(t, err)
	w.start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	require.NoError(t, w.rome.Peer(ctx, w.milan, site.PeerOptions{}))
	w.home, w.away = impatient(t, w.rome), impatient(t, w.milan)
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
				Name: []string{consumer, provider}[i], SimulatedNodes: 1, Audit: true, NodeGrace: time.Minute,
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

func impatient(t *testing.T, s *site.Site) kubernetes.Interface {
	t.Helper()
	config := s.Config()
	config.Timeout, config.WarningHandler = patience, rest.NoWarnings{}
	c, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return c
}

// keepLogs copies the logs of the roles to where they outlive the lab.
func keepLogs(t *testing.T, l *lab.Lab) {
	t.Helper()
	dir, err := os.MkdirTemp("", "liqod-soak-")
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

func twinOf(namespace string) string { return namespace + "-" + consumer }
