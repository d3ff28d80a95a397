package scenarios

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

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
	sites, list := site.World{
		Clusters: []string{"rome", "milan"}, RealNodes: []int{1, 2}, Settings: []map[string]any{settings},
		Adjust: func(o *lab.ClusterOptions) {
			o.Audit = false
			o.ControllerManagerArgs = []string{"--horizontal-pod-autoscaler-sync-period", "3s",
				"--horizontal-pod-autoscaler-initial-readiness-delay", "1s", "--horizontal-pod-autoscaler-cpu-initialization-period", "1s"}
		},
	}.Start(t)
	w := &fullWorld{world{sites: sites, rome: list[0], milan: list[1]}, sites.Full}
	t.Cleanup(func() { site.LogPods(t, list...) })
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	begin := time.Now()
	require.NoError(t, w.rome.Peer(ctx, w.milan, site.PeerOptions{
		ExtraArgs: []string{"--vkubelet.homeAPIServer=" + strings.TrimPrefix(w.rome.APIServer, "https://")},
	}))
	t.Logf("virtual node Ready: %s", time.Since(begin).Round(time.Millisecond))
	return w
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
	// The last four disturb the cluster that the others use.
	for _, test := range []struct {
		name string
		run  func(*testing.T, *fullWorld)
	}{
		{"Deployment across both", fullDeployment}, {"logs and exec", fullLogsAndExec}, {"Jobs", fullJobs},
		{"restarts are counted", fullRestarts}, {"grace", fullGrace}, {"tokens", fullTokens}, {"features of pods", fullFeatures}, {"what a pod names", fullNamed},
		{"kubectl", fullKubectl}, {"anti-affinity", fullApart}, {"zones", fullZones}, {"hundreds of streams", fullStreams}, {"renewal", fullRenewal}, {"top and autoscaling", fullTop}, {"storage", fullStorage},
		{"vkubelet pod deleted", fullVKubeletDeleted}, {"node of the provider dies", fullNodeDies},
		{"node failure controller", fullNodeFailure},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, w) })
	}
}
