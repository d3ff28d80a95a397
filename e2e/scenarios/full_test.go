package scenarios

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
)

// fullWorld is a world of real nodes: liqod runs as pods of its image.
type fullWorld struct {
	world
	full *lab.Full
}

// newFullWorld starts rome with one real node and milan with two, installs liqod with more
// settings and connects them. Where that is not possible the test is skipped, and in CI it fails.
func newFullWorld(t *testing.T, settings map[string]any) *fullWorld {
	t.Helper()
	if missing := lab.FullTierMissing(); len(missing) > 0 {
		text := "LIQOD IS NOT TESTED ON REAL NODES; missing: " + strings.Join(missing, "; ")
		if os.Getenv("CI") == "true" {
			t.Fatal(text)
		}
		t.Skip(text)
	}
	if testing.Short() {
		t.Skip("starts clusters: not with -short")
	}
	l, err := lab.New(t.Context(), lab.Options{Log: t.Logf, Exited: func(p *lab.Process) {
		t.Errorf("%s ended by itself: %v\n%s", p.Name, p.Err(), p.Tail(4000))
	}})
	require.NoError(t, err)
	w := &fullWorld{}
	t.Cleanup(func() {
		if t.Failed() {
			w.logState(t)
		}
		require.NoError(t, l.Close())
	})
	w.full, err = lab.NewFull(t.Context(), l, lab.FullOptions{})
	require.NoError(t, err)
	w.sites, err = site.New(t.Context(), l, w.full)
	require.NoError(t, err)
	w.sites.Settings = settings
	begin := time.Now()
	w.startFull(t)
	t.Logf("two clusters of real nodes with liqod: %s", time.Since(begin).Round(time.Millisecond))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	begin = time.Now()
	require.NoError(t, w.rome.Peer(ctx, w.milan, site.PeerOptions{
		ExtraArgs: []string{"--vkubelet.homeAPIServer=" + strings.TrimPrefix(w.rome.APIServer, "https://")},
	}))
	t.Logf("virtual node Ready: %s", time.Since(begin).Round(time.Millisecond))
	return w
}

func (w *fullWorld) startFull(t *testing.T) {
	t.Helper()
	var wg sync.WaitGroup
	errs := make([]error, 2)
	for i, target := range []**site.Site{&w.rome, &w.milan} {
		wg.Go(func() {
			c, err := w.full.Start(t.Context(), lab.ClusterOptions{
				Name: []string{"rome", "milan"}[i], PodCIDR: fmt.Sprintf("10.%d.0.0/16", 100+i), ServiceCIDR: fmt.Sprintf("10.%d.0.0/16", 110+i),
				ControllerManagerArgs: []string{"--horizontal-pod-autoscaler-sync-period", "3s",
					"--horizontal-pod-autoscaler-initial-readiness-delay", "1s", "--horizontal-pod-autoscaler-cpu-initialization-period", "1s"},
			}, i+1)
			if err == nil {
				*target, err = w.sites.Install(t.Context(), c)
			}
			errs[i] = err
		})
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
}

// logState prints what the next reader of a failure asks for first.
func (w *fullWorld) logState(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
	defer cancel()
	for _, s := range []*site.Site{w.rome, w.milan} {
		if s == nil {
			continue
		}
		pods, err := s.Client().CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Logf("%s: %v", s.Name, err)
			continue
		}
		for _, p := range pods.Items {
			t.Logf("%s: %s/%s on %s: %s %s, deleted %v", s.Name, p.Namespace, p.Name, p.Spec.NodeName, p.Status.Phase, p.Status.Reason, p.DeletionTimestamp)
			if p.Namespace != site.Namespace && !strings.HasPrefix(p.Name, "vk-") {
				continue
			}
			out, err := s.Logs(ctx, p.Namespace, p.Name)
			t.Logf("log of %s (%v):\n%s", p.Name, err, out[max(0, len(out)-3000):])
		}
	}
}

// testSpec is the spec of a pod of the lab's test image.
func testSpec(grace int64, command ...string) corev1.PodSpec {
	return corev1.PodSpec{TerminationGracePeriodSeconds: &grace, Containers: []corev1.Container{{
		Name: "c", Image: lab.TestImage, ImagePullPolicy: corev1.PullNever, Command: command,
	}}}
}

// webDeployment is a Deployment of the test image's server.
func webDeployment(name string, replicas int32) *appsv1.Deployment {
	d := deployment(name, replicas)
	d.Spec.Template.Spec = testSpec(5, "serve")
	return d
}

func TestFull(t *testing.T) {
	w := newFullWorld(t, map[string]any{
		"peering":        map[string]any{"renewAt": 0.02}, // of 10 minutes: each 12 s
		"authentication": map[string]any{"lifetime": "10m"},
	})
	// The last two disturb the cluster that the others use.
	for _, test := range []struct {
		name string
		run  func(*testing.T, *fullWorld)
	}{
		{"Deployment across both", fullDeployment}, {"logs and exec", fullLogsAndExec}, {"Jobs", fullJobs},
		{"restarts are counted", fullRestarts}, {"grace", fullGrace}, {"tokens", fullTokens}, {"features of pods", fullFeatures},
		{"kubectl", fullKubectl}, {"hundreds of streams", fullStreams}, {"renewal", fullRenewal}, {"top and autoscaling", fullTop},
		{"vkubelet pod deleted", fullVKubeletDeleted}, {"node of the provider dies", fullNodeDies},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, w) })
	}
}
