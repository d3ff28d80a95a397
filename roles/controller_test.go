package roles

import (
	"os"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/liqod/liqod/roles/config"
)

func TestVKubeletDefaults(t *testing.T) {
	text, err := os.ReadFile("../config.yaml")
	require.NoError(t, err)
	settings, err := config.Schema(text)
	require.NoError(t, err)
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	config.AddFlags(flags, settings)
	require.NoError(t, flags.Parse([]string{
		"--clusterID=rome", "--controller.vkubelet.image=liqod:v1", "--controller.vkubelet.imagePullSecrets=one,two",
		"--controller.vkubelet.nodeAddress=10.0.0.1", "--controller.vkubelet.extraArgs=--log.level=warn", "--probe.window=9",
	}))
	cfg, err := config.Load(config.Sources{Settings: settings, Env: []string{"POD_IP=10.0.0.9", "POD_NAMESPACE=apps"}, Flags: flags})
	require.NoError(t, err)

	have := vkubeletDefaults(cfg)
	require.Equal(t, []string{"--clusterID=rome", "--probe.window=9", "--vkubelet.nodeAddress=10.0.0.1", "--log.level=warn"}, have.Args)
	require.Equal(t, []corev1.LocalObjectReference{{Name: "one"}, {Name: "two"}}, have.ImagePullSecrets)
	require.Equal(t, "liqod:v1", have.Image)
	require.Equal(t, corev1.PullIfNotPresent, have.ImagePullPolicy)
}
