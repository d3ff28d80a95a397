package replication

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
)

var milanKey = loop.Key{Namespace: "liqo-tenant-milan", Name: "milan"}

// pair returns a pair with running informers and without workers, so that the test calls
// sync itself.
func (w *world) pair(clk *clocktesting.FakeClock) *pair[*nm] {
	cfg := w.r.cfg
	cfg.Clock = clk
	p := newPair(cfg, namespaceMaps(cfg.ClusterID, w.home), cfg.Maps.Informer(), "milan", *w.way("1"))
	require.NoError(w.t, p.wire())
	p.factory.Start(w.t.Context().Done())
	p.factory.WaitForCacheSync(w.t.Context().Done())
	return p
}

func selecting(id string, change ...func(*offloadingv1beta1.NamespaceOffloading)) *offloadingv1beta1.NamespaceOffloading {
	o := &offloadingv1beta1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "offloading"}}
	o.Status.RemoteNamespacesConditions = map[string][]metav1.Condition{id: {{Type: "OffloadingRequired", Status: metav1.ConditionTrue}}}
	for _, f := range change {
		f(o)
	}
	return o
}

// TestMapDeletedByHand deletes the NamespaceMap in the consumer under different
// conditions.
func TestMapDeletedByHand(t *testing.T) {
	t.Parallel()
	now := metav1.Now()
	stays := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-milan"}}
	goes := stays.DeepCopy()
	goes.DeletionTimestamp, goes.Finalizers = &now, []string{"kubernetes"}
	young := stays.DeepCopy()
	young.CreationTimestamp = metav1.NewTime(now.Add(-2 * moment))
	for name, tc := range map[string]struct {
		namespace    *corev1.Namespace
		offloading   *offloadingv1beta1.NamespaceOffloading
		atOnce, then bool // the copy is withdrawn
		used         bool // capacity of the peer is wanted
	}{
		"an offloading wants it": {stays, selecting("milan"), false, false, false},
		"one wants another peer": {stays, selecting("oslo"), false, true, false},
		"one is being deleted": {stays, selecting("milan", func(o *offloadingv1beta1.NamespaceOffloading) {
			o.DeletionTimestamp = &now
			o.Finalizers = []string{"x"}
		}), false, true, false},
		"one no longer selects": {stays, selecting("milan", func(o *offloadingv1beta1.NamespaceOffloading) {
			o.Status.RemoteNamespacesConditions["milan"][0].Status = metav1.ConditionFalse
		}), false, true, false},
		"nobody wants it":              {stays, nil, false, true, false},
		"the tenant namespace goes":    {goes, selecting("milan"), true, true, false},
		"the tenant namespace is gone": {nil, selecting("milan"), true, true, false},
		"it goes, the peer is used":    {goes, selecting("milan"), false, false, true},
		"it is gone, the peer is used": {nil, selecting("milan"), false, false, true},
		"it was made again just now":   {young, nil, false, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var home []runtime.Object
			if tc.offloading != nil {
				home = append(home, tc.offloading)
			}
			w := newWorld(t, home, []runtime.Object{remoteMap(map[string]string{"web": "web-rome"})})
			if tc.namespace != nil {
				require.NoError(t, w.core.Tracker().Add(tc.namespace.DeepCopy()))
			}
			clk := clocktesting.NewFakeClock(time.Now())
			w.r.cfg.CapacityWanted = func(context.Context, string) (bool, error) { return tc.used, nil }
			p := w.pair(clk)
			err := p.sync(t.Context(), milanKey)
			if tc.namespace == young {
				clk.Step(2 * moment)
				err = p.sync(t.Context(), milanKey)
			}
			require.Equal(t, tc.atOnce, w.copied() == nil)
			if !tc.atOnce {
				require.ErrorContains(t, err, "again in")
			}
			clk.Step(time.Hour)
			err = p.sync(t.Context(), milanKey)
			require.Equal(t, tc.then, w.copied() == nil)
			if !tc.then {
				require.ErrorContains(t, err, "again in")
			}
		})
	}
}

// TestMapMadeAgain deletes the NamespaceMap several times and creates it again in time.
func TestMapMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil, []runtime.Object{remoteMap(map[string]string{"web": "web-rome"})})
		require.NoError(t, w.core.Tracker().Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-milan"}}))
		clk := clocktesting.NewFakeClock(time.Now())
		p := w.pair(clk)
		maps := w.home.OffloadingV1beta1().NamespaceMaps("liqo-tenant-milan")
		cached := func() bool { h, _ := p.both(milanKey.Name); return h != nil }
		for range 3 {
			require.ErrorContains(t, p.sync(t.Context(), milanKey), "again in")
			clk.Step(moment / 2)
			kubetest.Create(t, maps, homeMap(map[string]string{"web": "web-rome"}))
			synctest.Wait()
			require.True(t, cached())
			require.NoError(t, p.sync(t.Context(), milanKey))
			require.NoError(t, maps.Delete(t.Context(), "milan", metav1.DeleteOptions{}))
			synctest.Wait()
			require.False(t, cached())
			clk.Step(moment / 2)
		}
		require.Zero(t, writes(w.remote))
	})
}
