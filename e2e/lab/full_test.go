package lab

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const webManifests = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 4
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}
      containers:
      - name: web
        image: lab.local/test:1
        imagePullPolicy: Never
        command: [serve]
        readinessProbe: {httpGet: {path: /readyz, port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
`

// newTestFull makes a full tier. Where that is not possible the test is skipped, and
// in CI it fails.
func newTestFull(t *testing.T, opts FullOptions) *Full {
	t.Helper()
	if missing := FullTierMissing(); len(missing) > 0 {
		text := "THE FULL TIER IS NOT TESTED; missing: " + strings.Join(missing, "; ")
		if os.Getenv("CI") == "true" {
			t.Fatal(text)
		}
		t.Skip(text)
	}
	if testing.Short() {
		t.Skip("starts clusters: not with -short")
	}
	// The common directory: what a crashed test left behind goes with the next one.
	l, err := New(t.Context(), Options{Clusters: testClusters, Log: t.Logf, Exited: func(p *Process) {
		t.Errorf("%s ended by itself: %v\n%s", p.Name, p.Err(), p.Tail(2000))
	}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	f, err := NewFull(t.Context(), l, opts)
	require.NoError(t, err)
	return f
}

func startFull(t *testing.T, f *Full, nodes ...int) []*Cluster {
	t.Helper()
	clusters, errs := make([]*Cluster, len(nodes)), make([]error, len(nodes))
	begin := time.Now()
	var wg sync.WaitGroup
	for i, name := range []string{"rome", "milan", "turin"}[:len(nodes)] {
		wg.Go(func() {
			opts := ClusterOptions{Name: name, PodCIDR: fmt.Sprintf("10.%d.0.0/16", 100+i), ServiceCIDR: fmt.Sprintf("10.%d.0.0/16", 110+i)}
			if clusters[i], errs[i] = f.Start(t.Context(), opts, nodes[i]); errs[i] == nil {
				errs[i] = f.ApplyCoreDNS(t.Context(), clusters[i])
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	t.Logf("clusters with DNS: %s", time.Since(begin).Round(time.Millisecond))
	return clusters
}

func webReady(ctx context.Context, c *Cluster, want int32) error {
	deployment, err := c.Client().AppsV1().Deployments("default").Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		return err
	}
	have := deployment.Status.ReadyReplicas
	return Wrong(nil, have != want, "%d of %d pods are ready", have, want)
}
