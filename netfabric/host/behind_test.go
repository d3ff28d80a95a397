package host

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"

	"github.com/liqod/liqod/api/generated/informers/externalversions"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/netfabric/plan"
)

// between are the Connections of a hub to milan and oslo, which it leads to each other.
func between(t *testing.T) (milan, oslo *networkingv1beta1.Connection) {
	t.Helper()
	keys := publicKeys(t, 2)
	milan, oslo = linked("milan", 1, keys[0]), linked("oslo", 2, keys[1])
	for to, other := range map[*networkingv1beta1.Connection]*networkingv1beta1.Connection{milan: oslo, oslo: milan} {
		to.Spec.Local = append(to.Spec.Local, networkingv1beta1.Mapping{Own: other.Spec.Remote[0].View, View: "10.60.0.0/16", Use: networkingv1beta1.RangeTransit})
	}
	return milan, oslo
}

// A gateway gives a peer the pods of another one, of namespaces that are offloaded to both, while
// that one is a peer.
func TestPeersMeetAtAGateway(t *testing.T) {
	t.Parallel()
	milan, oslo := between(t)
	milan.Spec.Remote = append(milan.Spec.Remote, networkingv1beta1.Mapping{Own: "10.99.0.0/16", View: "10.98.0.0/16", Use: networkingv1beta1.RangeTransit})
	yes := metav1.ConditionTrue
	o := Objects{
		Connections: []*networkingv1beta1.Connection{milan, oslo}, Nodes: []*corev1.Node{hostNode("node-1", "192.0.2.11", "10.244.1.0/24")},
		Gateways: []Announcement{ownGateway(publicKeys(t, 1)[0])},
		Shared: Shared{
			Pods:        []*corev1.Pod{podOf("shop", "", "10.201.1.4"), podOf("shop", "", "10.202.1.4"), podOf("shop", "", "10.244.1.4"), podOf("shop", "", "10.98.0.1"), podOf("apps", "", "10.202.1.5")},
			Offloadings: []*offloadingv1beta1.NamespaceOffloading{offloaded("shop", map[string]metav1.ConditionStatus{"milan": yes, "oslo": yes})},
		},
	}
	set := Settings{ClusterID: "rome", Self: "gw-a", Ports: plan.Ports{Overlay: 1, Tunnel: 2}, MTU: 1500, AllPods: everyPod}
	in, refused, err := BuildInput(o, set)
	require.NoError(t, err)
	require.Empty(t, refused)
	require.Equal(t, ranges("10.98.0.0/16"), in.Peers[0].Theirs.Transit)
	require.Len(t, in.Peers[0].Ours, 3)
	require.Equal(t, plan.Map{Own: ranges("10.202.0.0/16")[0], View: ranges("10.60.0.0/16")[0]}, in.Peers[0].Ours[2])
	require.Equal(t, ranges("10.202.1.4/32"), in.Peers[0].Through)
	require.Equal(t, ranges("10.201.1.4/32"), in.Peers[1].Through, "what is behind a peer is not led on")
	_, err = plan.Gateway(in)
	require.NoError(t, err)
	set.Self = "node-1"
	in, _, err = BuildInput(o, set)
	require.NoError(t, err)
	_, err = plan.Node(in)
	require.NoError(t, err)

	// Without the other one the peer stays.
	o.Connections, set.Self = o.Connections[:1], "gw-a"
	in, refused, err = BuildInput(o, set)
	require.NoError(t, err)
	require.Empty(t, refused)
	require.Len(t, in.Peers[0].Ours, 2)
	require.Empty(t, in.Peers[0].Through)
	require.NoError(t, in.Check())
}

// The pods are watched from the first namespace on that is offloaded to two peers.
func TestPodsBehindAreWatchedWhenNeeded(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		a := apisWith(t)
		kube, liqo := informers.NewSharedInformerFactory(a.kube, 0), externalversions.NewSharedInformerFactory(a.liqo, 0)
		b := NewBehind(liqo.Offloading().V1beta1().NamespaceOffloadings(), kube.Core().V1().Pods())
		changes := 0
		l := loop.New(loop.Config{})
		b.watch(l, func() { changes++ })
		liqo.Start(ctx.Done())
		var running sync.WaitGroup
		running.Go(func() { b.run(ctx) })
		kubetest.Create(t, a.kube.CoreV1().Pods("shop"), podOf("shop", "", "10.201.1.4"))
		kubetest.Create(t, a.kube.CoreV1().Pods("apps"), podOf("apps", "", "10.201.1.5"))
		const yes = metav1.ConditionTrue
		offloadings := a.liqo.OffloadingV1beta1().NamespaceOffloadings("shop")
		kubetest.Create(t, offloadings, offloaded("shop", map[string]metav1.ConditionStatus{"milan": yes}))
		kubetest.Settled(time.Second)
		require.True(t, l.HasSynced())
		got, known := b.read()
		require.True(t, known)
		require.Empty(t, got)
		require.False(t, b.pods.Informer().HasSynced(), "nobody needs the pods")

		kubetest.Update(t, offloadings, offloaded("shop", map[string]metav1.ConditionStatus{"milan": yes, "oslo": yes}))
		kubetest.Settled(time.Second)
		_, known = b.read()
		require.False(t, known, "the pods are not known yet")
		before := changes
		kubetest.Settled(time.Second)
		require.Greater(t, changes, before)
		got, known = b.read()
		require.True(t, known)
		require.Len(t, got.Offloadings, 1)
		require.Len(t, got.Pods, 1)
		require.Equal(t, "shop", got.Pods[0].Namespace)
		cancel()
		running.Wait()
		liqo.Shutdown()
	})
}
