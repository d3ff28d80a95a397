package roles

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"github.com/liqod/liqod/kube/client"
	"github.com/liqod/liqod/roles/config"
)

func TestIPAM(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../config.yaml")
	require.NoError(t, err)
	settings, err := config.Schema(text)
	require.NoError(t, err)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(`{apiVersion: v1, kind: Config, current-context: x, contexts: [{name: x, context: {cluster: x, user: x}}],
  users: [{name: x, user: {}}], clusters: [{name: x, cluster: {server: "https://192.0.2.1"}}]}`), 0o600))
	env := func(args ...string) Env {
		flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
		config.AddFlags(flags, settings)
		require.NoError(t, flags.Parse(append(args, "--kubeconfig="+kubeconfig)))
		cfg, err := config.Load(config.Sources{Settings: settings, Flags: flags})
		require.NoError(t, err)
		require.NoError(t, cfg.ValidateFor([]string{"ipam"}))
		return Env{Config: cfg, Log: zap.NewNop(), Clock: clock.RealClock{}, Requests: func(string) client.Observer { return nil }}
	}
	parts, err := buildIPAM(t.Context(), env())
	require.NoError(t, err)
	require.NotNil(t, parts.Leader)
	var leased []string
	for _, a := range parts.Actors {
		if a.Leased {
			leased = append(leased, a.Name)
		}
	}
	require.Equal(t, []string{"allocator"}, leased)

	given := givenRanges(env("--networking.podCIDRs=10.244.0.0/16,fd00:10:244::/48", "--networking.serviceCIDRs=10.96.0.0/12",
		"--networking.nodeCIDRs=192.0.2.0/24", "--networking.reservedSubnets=192.168.0.0/24").Config.Networking)
	require.Len(t, given.Pods, 2)
	require.Equal(t, "[10.96.0.0/12] [192.0.2.0/24 192.168.0.0/24]", fmt.Sprint(given.Services, given.Reserved))
}
