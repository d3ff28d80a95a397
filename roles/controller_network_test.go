package roles

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
)

// TestNetworkIsWired: the loops of the network run with the lease, whether it is on or off; and
// heartbeats without it.
func TestNetworkIsWired(t *testing.T) {
	for _, enabled := range []string{"true", "false"} {
		env := hostEnv(t, "controller", "--controller.vkubelet.image=liqod:v1", "--authentication.address=", "--networking.enabled="+enabled, "--networking.podCIDRs=10.244.0.0/16",
			"--networking.serviceCIDRs=10.96.0.0/12", "--networking.nodeCIDRs=192.0.2.0/24", "--networking.reservedSubnets=172.20.0.0/16")
		parts := must(buildController(t.Context(), env))
		leased := map[string]bool{}
		for _, a := range parts.Actors {
			leased[a.Name] = a.Leased
		}
		require.True(t, leased["network-published"] && leased["network-exchanged"], enabled)
		for _, every := range []string{"heartbeat", "directory"} {
			one, there := leased[every]
			require.True(t, there && !one, "%s runs in every replica", every)
		}

		own := givenRanges(env.Config.Networking)
		require.Equal(t, "10.244.0.0/16", own.Pods[0].String())
		require.Len(t, own.Reserved, 2, "those of nodes and the reserved ones")
		if enabled == "true" {
			require.Contains(t, vkubeletDefaults(env.Config).Args, "--networking.enabled=true")
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
