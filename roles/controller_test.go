package roles

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestVKubeletDefaults(t *testing.T) {
	have := vkubeletDefaults(effective(t, []string{"POD_IP=10.0.0.9", "POD_NAMESPACE=apps"}, "--clusterID=rome", "--controller.vkubelet.image=liqod:v1",
		"--controller.vkubelet.imagePullSecrets=one,two", "--controller.vkubelet.nodeAddress=10.0.0.1", "--controller.vkubelet.extraArgs=--log.level=warn", "--probe.window=9"))
	require.Equal(t, []string{"--clusterID=rome", "--probe.window=9", "--vkubelet.nodeAddress=10.0.0.1", "--log.level=warn"}, have.Args)
	require.Equal(t, []corev1.LocalObjectReference{{Name: "one"}, {Name: "two"}}, have.ImagePullSecrets)
	require.Equal(t, "liqod:v1", have.Image)
	require.Equal(t, corev1.PullIfNotPresent, have.ImagePullPolicy)
}
