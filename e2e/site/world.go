package site

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/liqod/liqod/e2e/lab"
)

// World says which clusters a test needs. Only Clusters is required.
type World struct {
	// Clusters are the names of the clusters; the first is mostly the consumer.
	Clusters []string
	// Adjust changes the options that the clusters are made with.
	Adjust func(*lab.ClusterOptions)
	// Settings of liqod, beside the lab's, merged in this order.
	Settings []map[string]any
	// Values of the chart, beside the lab's.
	Values map[string]any
	// RealNodes is the number of real nodes of each cluster, by place. Nil: the nodes are
	// simulated.
	RealNodes []int
	// Fabric gives the clusters, of real nodes, equal ranges, and connects their pods by the
	// roles of the network: nothing but the addresses of machines is reached otherwise.
	Fabric FabricMode
	// Families are those of a Fabric. Empty: IPv4.
	Families Families
	// CNI and Proxy are the network plugin and the mode of kube-proxy of real nodes. Without a
	// Fabric, only the default plugin is possible.
	CNI   lab.CNI
	Proxy lab.ProxyMode
	// KubeRouter says what kube-router does beside the network plugin.
	KubeRouter lab.KubeRouterMode
	// HostPorts gives pods on real nodes the ports of the node that they ask for.
	HostPorts bool
	// Commit whose liqod is installed; empty: the one of this tree.
	// Where the repository lacks the commit the test is skipped, and in CI it fails.
	Commit string
}

// startedAtOnce is how many clusters of a world start at the same time: a control plane
// needs most of its CPU then, and has a deadline.
const startedAtOnce = 3

// Start starts the clusters of a test with liqod on them; the clusters are not connected.
// It lets the test run beside others, as many as the machine has seats for, and ends
// everything with the test; of a failed test the logs are kept. Where clusters cannot run
// the test is skipped, and in CI it fails.
func (w World) Start(t *testing.T) (*Sites, []*Site) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts clusters: not with -short")
	}
	if len(w.RealNodes) > 0 {
		requireRealNodes(t)
	}
	if w.Commit != "" {
		requireCommit(t, w.Commit)
	}
	t.Parallel()
	waiting := time.Now()
	l, err := lab.New(t.Context(), lab.Options{
		Clusters: len(w.Clusters), Log: t.Logf,
		// Memory for time: collecting garbage is a fifth of what a control plane costs.
		PlaneEnv: []string{"GOGC=400"},
		Exited: func(p *lab.Process) {
			t.Errorf("%s ended by itself: %v\n%s", p.Name, p.Err(), p.Tail(4000))
		},
	})
	require.NoError(t, err)
	// The summary of the tests counts these lines.
	t.Logf("world of %d clusters, after waiting for %s", len(w.Clusters), time.Since(waiting).Round(time.Second))
	t.Cleanup(func() {
		if t.Failed() {
			keepLogs(t, l)
		}
		require.NoError(t, l.Close())
	})
	sites, err := w.sites(t, l)
	require.NoError(t, err)
	begin := time.Now()
	list, err := w.start(t.Context(), sites)
	require.NoError(t, err)
	t.Logf("%d clusters with liqod: %s", len(list), time.Since(begin).Round(time.Millisecond))
	return sites, list
}

func requireRealNodes(t *testing.T) {
	t.Helper()
	missing := lab.FullTierMissing()
	if len(missing) == 0 {
		return
	}
	text := "LIQOD IS NOT TESTED ON REAL NODES; missing: " + strings.Join(missing, "; ")
	if os.Getenv("CI") == "true" {
		t.Fatal(text)
	}
	t.Skip(text)
}

func requireCommit(t *testing.T, commit string) {
	t.Helper()
	root, err := repository(t.Context())
	require.NoError(t, err)
	err = lab.HasCommit(t.Context(), root, commit)
	if err == nil {
		return
	}
	text := fmt.Sprintf("LIQOD IS NOT TESTED WITH AN EARLIER VERSION: %v; git fetch --unshallow gets it", err)
	if os.Getenv("CI") == "true" {
		t.Fatal(text)
	}
	t.Skip(text)
}

func (w World) sites(t *testing.T, l *lab.Lab) (*Sites, error) {
	var full *lab.Full
	if len(w.RealNodes) > 0 {
		var err error
		network := lab.NetworkOptions{Isolated: w.Fabric != FabricOff, IPv6: strings.Contains(string(w.Families), string(IPv6))}
		options := lab.FullOptions{Network: network, CNI: w.CNI, Proxy: w.Proxy, KubeRouter: w.KubeRouter, HostPorts: w.HostPorts}
		if full, err = lab.NewFull(t.Context(), l, options); err != nil {
			return nil, err
		}
	}
	sites, err := New(t.Context(), l, full)
	if err != nil {
		return nil, err
	}
	sites.Settings, sites.Values, sites.Fabric, sites.Families = map[string]any{}, w.Values, w.Fabric, w.Families
	for _, s := range w.Settings {
		merge(sites.Settings, s)
	}
	if w.Commit == "" {
		return sites, nil
	}
	sites.Installs, err = sites.Version(t.Context(), w.Commit)
	return sites, err
}

func (w World) start(ctx context.Context, sites *Sites) ([]*Site, error) {
	var wg sync.WaitGroup
	list, errs := make([]*Site, len(w.Clusters)), make([]error, len(w.Clusters))
	room := make(chan struct{}, startedAtOnce)
	for i := range w.Clusters {
		wg.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			list[i], errs[i] = w.startOne(ctx, sites, i)
		})
	}
	wg.Wait()
	return list, errors.Join(errs...)
}

func (w World) startOne(ctx context.Context, sites *Sites, i int) (*Site, error) {
	options := lab.ClusterOptions{
		Name: w.Clusters[i], Audit: true,
		PodCIDR: fmt.Sprintf("10.%d.0.0/16", 100+i), ServiceCIDR: fmt.Sprintf("10.%d.0.0/16", 220+i),
	}
	if len(w.RealNodes) == 0 {
		options.SimulatedNodes = 2
	}
	if w.Fabric != FabricOff {
		FabricOptions(&options, w.Families)
	}
	if w.Adjust != nil {
		w.Adjust(&options)
	}
	var c *lab.Cluster
	var err error
	if sites.Full != nil {
		c, err = sites.Full.Start(ctx, options, w.RealNodes[i])
	} else {
		c, err = sites.Lab.Start(ctx, options)
	}
	if err != nil {
		return nil, err
	}
	return sites.Install(ctx, c)
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
