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
	corev1 "k8s.io/api/core/v1"
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

func TestLabFullTwoClusters(t *testing.T) {
	f := newTestFull(t, FullOptions{})
	clusters := startFull(t, f, 2, 1)
	rome, milan := clusters[0], clusters[1]
	for _, c := range clusters {
		require.NoError(t, c.Apply(t.Context(), []byte(webManifests)))
	}
	for _, c := range clusters {
		within(t, time.Minute, "4 pods in "+c.Name, func(ctx context.Context) error { return webReady(ctx, c, 4) })
	}
	pods := webPods(t, rome)
	t.Run("service by name", func(t *testing.T) { testServiceByName(t, rome, pods) })
	t.Run("logs", func(t *testing.T) {
		out, err := rome.Logs(t.Context(), "default", pods[0].Name)
		require.NoError(t, err)
		require.Contains(t, out, "serving on port 8080")
	})
	t.Run("pods of both clusters reach each other", func(t *testing.T) {
		target := webPods(t, milan)[0].Status.PodIP
		out, err := rome.Exec(t.Context(), "default", pods[0].Name, "get", "http://"+target+":8080/ip")
		require.NoError(t, err)
		require.Equal(t, pods[0].Status.PodIP, strings.TrimSpace(out), "the source address is not translated")
	})
	t.Run("pods reach the other API server from the node's address", func(t *testing.T) {
		_, err := rome.Exec(t.Context(), "default", pods[0].Name, "get", milan.APIServer)
		require.ErrorContains(t, err, "certificate", "the connection is made, its certificate unknown")
	})
	t.Run("node dies and returns", func(t *testing.T) { testNodeDies(t, f, rome) })
}

func testServiceByName(t *testing.T, c *Cluster, pods []corev1.Pod) {
	seen := map[string]bool{}
	within(t, time.Minute, "the Service answers from every pod", func(ctx context.Context) error {
		out, err := c.Exec(ctx, "default", pods[0].Name, "get", "http://web.default.svc.cluster.local/")
		if err != nil {
			return err
		}
		seen[strings.TrimSpace(out)] = true
		if len(seen) < len(pods) {
			return fmt.Errorf("only %v answered", seen)
		}
		return nil
	})
}

func testNodeDies(t *testing.T, f *Full, c *Cluster) {
	node := f.Node(c, "rome-2")
	require.NoError(t, node.Kill(t.Context()))
	require.False(t, node.Running())
	within(t, 30*time.Second, "the node is NotReady", func(ctx context.Context) error {
		if node.ready(ctx) == nil {
			return fmt.Errorf("still Ready")
		}
		return nil
	})
	require.NoError(t, node.Start(t.Context()))
	within(t, time.Minute, "its pods are Ready again", func(ctx context.Context) error { return webReady(ctx, c, 4) })
	require.NoError(t, f.Node(c, "rome-1").ready(t.Context()))
}

func webReady(ctx context.Context, c *Cluster, want int32) error {
	deployment, err := c.Client().AppsV1().Deployments("default").Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if have := deployment.Status.ReadyReplicas; have != want {
		return fmt.Errorf("%d of %d pods are ready", have, want)
	}
	return nil
}

func webPods(t *testing.T, c *Cluster) []corev1.Pod {
	t.Helper()
	list, err := c.Client().CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	require.NoError(t, err)
	return list.Items
}
