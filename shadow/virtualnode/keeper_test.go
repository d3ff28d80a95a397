package virtualnode

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	liqodfake "github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
)

type bench struct {
	client *fake.Clientset
	liqod  *liqodfake.Clientset
	keeper *Keeper
}

func keeping(t *testing.T, vn *offloadingv1beta1.VirtualNode, nodes ...*corev1.Node) *bench {
	t.Helper()
	b := &bench{client: fake.NewClientset(), liqod: liqodfake.NewSimpleClientset(vn)}
	for _, n := range nodes {
		require.NoError(t, b.client.Tracker().Add(n))
	}
	core := informers.NewSharedInformerFactory(b.client, 0)
	own := externalversions.NewSharedInformerFactory(b.liqod, 0)
	b.keeper = NewKeeper(KeeperConfig{
		Kube: b.client, VirtualNodes: own.Offloading().V1beta1().VirtualNodes(), Nodes: core.Core().V1().Nodes(),
		ForeignClusters: own.Core().V1beta1().ForeignClusters(), Namespace: vn.Namespace,
		NodeSettings:  NodeSettings{Name: vn.Name, Addresses: []string{"10.0.0.7"}, Port: 10250, Grace: 2 * time.Second},
		LeaseDuration: 40 * time.Second, Identity: "me", Clock: clock.RealClock{}, Log: zap.NewNop(),
	})
	core.Start(t.Context().Done())
	own.Start(t.Context().Done())
	kubetest.Run(t, b.keeper.Run)
	return b
}

func (b *bench) node(t *testing.T) *corev1.Node {
	t.Helper()
	return kubetest.Find(t, b.client.CoreV1().Nodes(), "milan")
}

func eventually(t *testing.T, cond func() bool, what string) {
	t.Helper()
	require.Eventually(t, cond, time.Minute, 5*time.Millisecond, what)
}

func TestKeeperCreatesRepairsAndReports(t *testing.T) {
	b := keeping(t, plainVirtualNode())
	eventually(t, func() bool { return b.node(t) != nil }, "the Node is created")
	require.Equal(t, corev1.ConditionFalse, ready(b.node(t)).Status)

	b.keeper.SetRemote(func(r *Remote) { r.Ready, r.Reason = ptr.To(true), "KubeletReady" })
	eventually(t, func() bool { return ready(b.node(t)).Status == corev1.ConditionTrue }, "Ready once the provider answers")
	b.keeper.SetRemote(func(r *Remote) { r.Ready, r.Reason = ptr.To(false), "RemoteAPIServerNotReady" })
	eventually(t, func() bool { return ready(b.node(t)).Status == corev1.ConditionFalse }, "and not when it does not")

	require.NoError(t, b.client.CoreV1().Nodes().Delete(t.Context(), "milan", metav1.DeleteOptions{}))
	eventually(t, func() bool { return b.node(t) != nil }, "a deleted Node is made again")
	eventually(t, func() bool {
		l, err := b.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), "milan", metav1.GetOptions{})
		return err == nil && *l.Spec.HolderIdentity == "me" && l.OwnerReferences[0].UID == b.node(t).UID
	}, "the heartbeat Lease is held, and goes with the Node")
}

func TestKeeperLeavesForeignNodesAlone(t *testing.T) {
	foreign := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "milan", Labels: map[string]string{"mine": "yes"}}}
	b := keeping(t, plainVirtualNode(), foreign)
	b.keeper.SetRemote(func(r *Remote) { r.Ready = ptr.To(true) })
	eventually(t, func() bool { return b.keeper.loop.Len() == 0 }, "the loop is idle")
	require.Equal(t, foreign.Labels, b.node(t).Labels)
	for _, a := range b.client.Actions() {
		if a.GetResource().Resource == "nodes" {
			require.Contains(t, []string{"get", "list", "watch"}, a.GetVerb(), "a foreign Node was written")
		}
		if a.GetResource().Resource == "leases" {
			require.Equal(t, "get", a.GetVerb(), "the Lease of a foreign Node was written")
		}
	}
}

func TestKeeperDoesNotReviveANodeThatIsTakenDown(t *testing.T) {
	vn := plainVirtualNode(func(vn *offloadingv1beta1.VirtualNode) {
		vn.DeletionTimestamp, vn.Finalizers = ptr.To(t0), []string{offloadingv1beta1.VirtualNodeFinalizer}
	})
	b := keeping(t, vn)
	b.keeper.SetRemote(func(r *Remote) { r.Ready = ptr.To(true) })
	eventually(t, func() bool { return b.keeper.loop.Len() == 0 }, "the keeper has looked")
	require.Nil(t, b.node(t))
}

func TestKeeperTellsOfTheNetwork(t *testing.T) {
	b := keeping(t, plainVirtualNode())
	eventually(t, func() bool { return b.node(t) != nil && network(b.node(t)).Reason == "NetworkNotChecked" }, "there is no fabric")
	fc := &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "milan"}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: "milan"}}
	fc.Status.Conditions = []metav1.Condition{{Type: corev1beta1.ConditionNetwork, Status: metav1.ConditionFalse, Reason: "Down", Message: "no probe is answered"}}
	kubetest.Create(t, b.liqod.CoreV1beta1().ForeignClusters(), fc)
	eventually(t, func() bool { return network(b.node(t)).Status == corev1.ConditionTrue }, "the network is down")
	require.Equal(t, "no probe is answered", network(b.node(t)).Message)
	fc.Status.Conditions[0].Status = metav1.ConditionTrue
	kubetest.Update(t, b.liqod.CoreV1beta1().ForeignClusters(), fc)
	eventually(t, func() bool { return network(b.node(t)).Reason == "LiqoNetworkingUp" }, "it works")
	fc.Status.Conditions[0].Status, fc.Status.Conditions[0].Reason = metav1.ConditionUnknown, "NoGateway"
	kubetest.Update(t, b.liqod.CoreV1beta1().ForeignClusters(), fc)
	eventually(t, func() bool { return network(b.node(t)).Reason == "NoGateway" }, "nobody can tell")
	eventually(t, func() bool { return network(b.node(t)).Status == corev1.ConditionTrue }, "nobody could tell for the grace period: it counts as down")
	fc.Status.Conditions[0].Status = metav1.ConditionTrue
	kubetest.Update(t, b.liqod.CoreV1beta1().ForeignClusters(), fc)
	eventually(t, func() bool { return network(b.node(t)).Reason == "LiqoNetworkingUp" }, "it works again")
}
