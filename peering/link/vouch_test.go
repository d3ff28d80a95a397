package link

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
)

// TestVouch: each peer with rights here sees that the controller runs, and a peer without rights
// has no Lease. A controller that takes over deletes what an earlier one has left.
func TestVouch(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		turin := milan("")
		turin.Name, turin.Spec.ClusterID = "turin", "turin"
		left := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-turin", Name: corev1beta1.ControllerLease, UID: "left"}}
		w := newWorld(t, tenant("milan"), milan("liqo.io:peer:milan:1"), tenant("turin"), turin, left)
		v := NewVouch(VouchConfig{Base: w.base("rome"), Clock: clock.RealClock{}})
		w.liqoInformers.Start(t.Context().Done())
		w.coreInformers.Start(t.Context().Done())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- v.Run(ctx) }()
		lease := func(peer string) *coordinationv1.Lease {
			return kubetest.Find(t, w.core.CoordinationV1().Leases(corev1beta1.TenantNamespace(peer)), corev1beta1.ControllerLease)
		}
		synctest.Wait()
		require.Nil(t, lease("turin"))
		first := lease("milan").Spec.RenewTime
		time.Sleep(vouchEvery)
		synctest.Wait()
		require.Equal(t, vouchEvery, lease("milan").Spec.RenewTime.Sub(first.Time))

		kubetest.Update(t, w.liqo.CoreV1beta1().ForeignClusters(), milan(""))
		time.Sleep(vouchEvery)
		synctest.Wait()
		require.Nil(t, lease("milan"), "it has no rights any more")
		writes := kubetest.Settled(time.Minute, w.core)
		require.Equal(t, writes, kubetest.Settled(time.Minute, w.core), "nothing is written for peers without rights")
		cancel()
		require.NoError(t, <-done)
	})
}

// TestListen: a provider's controller that renews its Lease no more is silent after three
// renewals that it has missed. One that has never had a Lease is not judged.
func TestListen(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		core := corefake.NewClientset()
		leases := core.CoordinationV1().Leases("liqo-tenant-rome")
		c := NewCheck(CheckConfig{Provider: core, Namespace: "liqo-tenant-rome"})
		for range 10 {
			require.False(t, c.listen(t.Context()), "it has no Lease")
			time.Sleep(vouchEvery)
		}
		lease := kubetest.Create(t, leases, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: corev1beta1.ControllerLease, ResourceVersion: "1"}})
		renew := func() {
			lease.ResourceVersion += "1"
			kubetest.Update(t, leases, lease)
		}
		for range 3 {
			require.False(t, c.listen(t.Context()))
			require.Empty(t, c.Silent())
			time.Sleep(vouchEvery)
			renew()
		}
		require.False(t, c.listen(t.Context()))
		for range missedBeats - 1 {
			time.Sleep(vouchEvery)
			require.False(t, c.listen(t.Context()))
		}
		time.Sleep(vouchEvery)
		require.True(t, c.listen(t.Context()))
		require.Contains(t, c.Silent(), "no controller of the provider has renewed Lease liqo-tenant-rome/liqod-provider there for 30s")
		renew()
		require.True(t, c.listen(t.Context()), "a controller that has just renewed its Lease runs")
		require.Empty(t, c.Silent())
	})
}

// TestSilenceIsWatched: the Lease of a silent controller is read at each probe, so that its return
// is noticed at once. While the controller runs, every tenth probe is enough.
func TestSilenceIsWatched(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		core := corefake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "milan"}},
			&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: corev1beta1.ControllerLease, ResourceVersion: "1"}})
		c := NewCheck(CheckConfig{
			Provider: core, Namespace: "liqo-tenant-rome", RecordedUID: func(context.Context) (types.UID, error) { return "milan", nil },
			Interval: time.Second, Timeout: time.Second, OnState: func(ProviderState) {}, OnOpen: func() {}, Log: zaptest.NewLogger(t),
		})
		c.set(nil)
		for c.Silent() == "" {
			next := c.identify(t.Context())
			require.Equal(t, c.Silent() != "", next == time.Second, "the next read is after %s", next)
			time.Sleep(next)
		}
		require.Equal(t, time.Second, c.identify(t.Context()))
	})
}
