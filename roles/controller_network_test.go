package roles

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	"github.com/liqod/liqod/health"
	"github.com/liqod/liqod/kube/client"
	"github.com/liqod/liqod/roles/config"
)

// TestNetworkIsWired: the loops of the network run with the lease, whether it is on or off; and
// heartbeats without it.
func TestNetworkIsWired(t *testing.T) {
	text, err := os.ReadFile("../config.yaml")
	require.NoError(t, err)
	settings, err := config.Schema(text)
	require.NoError(t, err)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(`{apiVersion: v1, kind: Config, current-context: x, contexts: [{name: x, context: {cluster: x, user: x}}],
  users: [{name: x, user: {}}], clusters: [{name: x, cluster: {server: "https://192.0.2.1"}}]}`), 0o600))
	for _, enabled := range []string{"true", "false"} {
		flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
		config.AddFlags(flags, settings)
		require.NoError(t, flags.Parse([]string{
			"--kubeconfig=" + kubeconfig, "--clusterID=rome", "--controller.vkubelet.image=liqod:v1", "--authentication.address=",
			"--networking.enabled=" + enabled, "--networking.podCIDRs=10.244.0.0/16", "--networking.serviceCIDRs=10.96.0.0/12",
			"--networking.nodeCIDRs=192.0.2.0/24", "--networking.reservedSubnets=172.20.0.0/16",
		}))
		cfg, err := config.Load(config.Sources{Settings: settings, Flags: flags})
		require.NoError(t, err)
		require.NoError(t, cfg.ValidateFor([]string{"controller"}))
		parts, err := buildController(t.Context(), Env{
			Config: cfg, Log: zap.NewNop(), Clock: clock.RealClock{}, Registry: &registry{Registerer: prometheus.NewRegistry()}, Tracker: health.NewTracker(time.Minute, clock.RealClock{}),
			Ready: &health.Checks{}, Requests: func(string) client.Observer { return nil },
		})
		require.NoError(t, err)
		leased := map[string]bool{}
		for _, a := range parts.Actors {
			leased[a.Name] = a.Leased
		}
		require.True(t, leased["network-published"] && leased["network-exchanged"], enabled)
		for _, every := range []string{"heartbeat", "directory"} {
			one, there := leased[every]
			require.True(t, there && !one, "%s runs in every replica", every)
		}

		own := givenRanges(cfg.Networking)
		require.Equal(t, "10.244.0.0/16", own.Pods[0].String())
		require.Len(t, own.Reserved, 2, "those of nodes and the reserved ones")
		if enabled == "true" {
			require.Contains(t, vkubeletDefaults(cfg).Args, "--networking.enabled=true")
		}
	}
}

// TestAdmitted: the Configuration of a peer that has rights here is not pulled.
func TestAdmitted(t *testing.T) {
	t.Parallel()
	fc := func(id, user string) *corev1beta1.ForeignCluster {
		return &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: id}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: id, UserName: user}}
	}
	factory := externalversions.NewSharedInformerFactory(fake.NewSimpleClientset(fc("milan", "liqo.io:peer:milan:1"), fc("paris", "")), 0)
	factory.Core().V1beta1().ForeignClusters().Informer()
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	p := &controller{liqo: factory}
	require.True(t, p.admitted("milan"))
	require.False(t, p.admitted("paris"))
	require.False(t, p.admitted("oslo"))
}
