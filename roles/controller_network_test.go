package roles

import (
	"reflect"
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

// TestConditionsHaveTheirSources: each condition of a peer has all sources that judge it, in the order in which they count.
func TestConditionsHaveTheirSources(t *testing.T) {
	t.Parallel()
	for heartbeat, servers := range map[string][]string{"5s": {"exchange.PeerServers", "*link.Pulse"}, "0s": {"exchange.PeerServers"}} {
		env := hostEnv(t, "controller", "--controller.vkubelet.image=liqod:v1", "--authentication.address=", "--health.heartbeat="+heartbeat)
		c := &controller{env: env, cfg: env.Config.Controller, home: must(newHome(env, env.Config.Namespace, controllerLease))}
		c.makeFactories()
		c.addPeering()
		c.addOffers()
		c.followGateways()
		must(c.addNetwork())
		c.addJoin()
		have := map[string][]string{}
		for kind, sources := range reflect.ValueOf(c.conditions).Elem().FieldByName("sources").Seq2() {
			for _, source := range sources.Seq2() {
				have[kind.String()] = append(have[kind.String()], source.Elem().Type().String())
			}
		}
		require.Equal(t, map[string][]string{
			corev1beta1.ConditionAuthenticated: {"*join.Join"}, corev1beta1.ConditionNetwork: {"*exchange.NetworkStatus"}, corev1beta1.ConditionAPIServer: servers,
			corev1beta1.ConditionOutgoingPeering: {"*offer.Consumer"}, corev1beta1.ConditionIncomingPeering: {"*offer.Provider"},
		}, have, heartbeat)
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
