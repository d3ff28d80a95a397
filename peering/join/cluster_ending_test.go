package join

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
)

const tenantOfMilan = "liqo-tenant-milan"

// deletedPeer returns the ForeignCluster of an enrolled peer that is being deleted.
func deletedPeer(name, id string) *corev1beta1.ForeignCluster {
	return &corev1beta1.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Finalizers: []string{corev1beta1.ForeignClusterFinalizer}, DeletionTimestamp: &metav1.Time{Time: time.Now()}},
		Spec:       corev1beta1.ForeignClusterSpec{ClusterID: id, OutgoingPeeringEnabled: corev1beta1.PeeringYes, UserName: corev1beta1.PeerUserPrefix + id + ":1"},
	}
}

// used creates the objects of a peer that is used, and that uses this cluster.
func (c *cluster) used(t *testing.T, phase *metav1.Time) {
	t.Helper()
	made := map[string]string{corev1beta1.MadeByLabel: corev1beta1.MadeByLiqod}
	require.NoError(t, c.core.Tracker().Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenantOfMilan, DeletionTimestamp: phase}}))
	require.NoError(t, c.core.Tracker().Add(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tenantOfMilan, Name: "milan", Labels: map[string]string{corev1beta1.EnrolledLabel: "true"}}}))
	require.NoError(t, c.core.Tracker().Add(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: tenantOfMilan, Name: "peer-1", Labels: made}}))
	require.NoError(t, c.liqod.Tracker().Add(&offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: tenantOfMilan, Name: "milan"}}))
}

// released reports whether a ForeignCluster is gone or has no finalizer.
func (c *cluster) released(t *testing.T, name string) bool {
	t.Helper()
	fc := kubetest.Get(t, c.Liqo.CoreV1beta1().ForeignClusters(), name)
	return len(fc.Finalizers) == 0
}

// TestEnding: whichever write fails, everything is removed in the end, and the
// ForeignCluster last.
func TestEnding(t *testing.T) {
	for broken := range 20 {
		c := newCluster("rome", deletedPeer("milan", "milan"))
		c.used(t, nil)
		c.broken = broken
		e := &Ending{cfg: EndingConfig{Cluster: c.Cluster}}
		for i := 0; !c.released(t, "milan"); i++ {
			require.Less(t, i, 10, "it does not end: %v", c.writes)
			left, err := e.end(t.Context(), deletedPeer("milan", "milan"))
			if err != nil {
				require.ErrorIs(t, err, errBroken)
				continue
			}
			require.True(t, len(left) > 0 || c.released(t, "milan"), c.writes)
		}
		require.Nil(t, kubetest.Find(t, c.Kube.CoreV1().Namespaces(), tenantOfMilan), "%v", c.writes)
		require.Nil(t, kubetest.Find(t, c.Kube.CoreV1().Secrets(tenantOfMilan), "milan"), "%v", c.writes)
		require.NotContains(t, c.writes, "update foreignclusters")
	}
}

// TestEndingWithoutTheProvider: the wait for a reachable provider that does not remove its
// objects is limited.
func TestEndingWithoutTheProvider(t *testing.T) {
	for name, left := range map[string]runtime.Object{
		"its offer": &sharingv1alpha1.ResourceOffer{ObjectMeta: metav1.ObjectMeta{Namespace: tenantOfMilan, Name: "milan"},
			Spec: sharingv1alpha1.ResourceOfferSpec{ProviderClusterID: "milan", ConsumerClusterID: "rome"}},
		"its twins": &offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: tenantOfMilan, Name: "milan"},
			Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{"shop": {RemoteNamespace: "shop-rome"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			fc := deletedPeer("milan", "milan")
			fc.Status.TenantNamespace.Remote = "liqo-tenant-rome"
			fc.Status.Conditions = []metav1.Condition{{Type: corev1beta1.ConditionAPIServer, Status: metav1.ConditionTrue}}
			c := newCluster("rome", fc, left)
			c.used(t, nil)
			now := clocktesting.NewFakePassiveClock(time.Now())
			e := &Ending{cfg: EndingConfig{Cluster: c.Cluster, Env: loop.Env{Clock: now}}}
			for range 10 {
				left, err := e.end(t.Context(), fc)
				require.NoError(t, err)
				require.NotEmpty(t, left)
			}
			now.SetTime(now.Now().Add(theirPatience))
			for i := 0; !c.released(t, "milan"); i++ {
				require.Less(t, i, 10, "it does not end: %v", c.writes)
				_, err := e.end(t.Context(), fc)
				require.NoError(t, err)
			}
		})
	}
}

// TestEndingOfNoPeer: a ForeignCluster with an invalid id is released at once.
func TestEndingOfNoPeer(t *testing.T) {
	for _, id := range []string{"rome", "No.Label"} {
		c := newCluster("rome", deletedPeer("x", id))
		left, err := (&Ending{cfg: EndingConfig{Cluster: c.Cluster}}).end(t.Context(), deletedPeer("x", id))
		require.NoError(t, err)
		require.Empty(t, left)
		require.True(t, c.released(t, "x"))
	}
}

// TestEndingWaits: a tenant namespace that is being deleted is waited for, with one event.
func TestEndingWaits(t *testing.T) {
	fc := deletedPeer("milan", "milan")
	c := newCluster("rome", fc)
	c.used(t, &metav1.Time{Time: time.Now()})
	events := record.NewFakeRecorder(10)
	e := &Ending{cfg: EndingConfig{Cluster: c.Cluster, Events: events}}
	for range 2 {
		left, err := e.end(t.Context(), fc)
		require.NoError(t, err)
		require.Equal(t, []string{"namespace " + tenantOfMilan}, left)
		e.tell(fc, left)
	}
	require.Empty(t, c.writes)
	require.Equal(t, "Normal PeeringEnds still being removed: namespace liqo-tenant-milan", <-events.Events)
	require.Empty(t, events.Events)
}
