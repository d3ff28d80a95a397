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
	clienttesting "k8s.io/client-go/testing"
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
	return started(w.t, p, &p.factory)
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

func TestPushDesired(t *testing.T) {
	for name, c := range map[string]struct {
		home, before, want map[string]string
		kept, stillKept    string
	}{
		"nothing kept":          {home: map[string]string{"a": "x"}, before: map[string]string{"b": "y"}, want: map[string]string{"a": "x"}},
		"kept":                  {home: map[string]string{"a": "x"}, before: map[string]string{"b": "y"}, kept: "b", want: map[string]string{"a": "x", "b": "y"}, stillKept: "b"},
		"home knows it again":   {home: map[string]string{"b": "z"}, before: map[string]string{"b": "y"}, kept: "b", want: map[string]string{"b": "z"}},
		"the mark is shortened": {before: map[string]string{"b": "y", "c": "z"}, kept: "c", want: map[string]string{"c": "z"}, stillKept: "c"},
		"marked and not there":  {home: map[string]string{"a": "x"}, kept: "b", want: map[string]string{"a": "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			remote := remoteMap(c.before)
			if c.kept != "" {
				remote.Annotations = map[string]string{offloadingv1beta1.KeptNamespacesAnnotation: c.kept}
			}
			pushDesired(homeMap(c.home), remote)
			require.Equal(t, c.want, remote.Spec.DesiredMapping)
			require.Equal(t, c.stillKept, remote.Annotations[offloadingv1beta1.KeptNamespacesAnnotation])
			require.Equal(t, len(c.home), len(desiredHere(remote)))
		})
	}
}

// TestRestoredConsumer has a consumer whose NamespaceMap requests less than the copy: it
// was restored from a backup, or its user has withdrawn a namespace.
func TestRestoredConsumer(t *testing.T) {
	both := map[string]string{"web": "web-rome", "shop": "shop-rome"}
	now := time.Now()
	for name, c := range map[string]struct {
		home    *nm
		lost    time.Time
		created time.Time // the copy
		want    map[string]string
		kept    string
	}{
		"it went on":                {home: homeMap(map[string]string{"web": "web-rome"}), created: now.Add(-time.Hour), want: map[string]string{"web": "web-rome"}},
		"it went back":              {home: homeMap(map[string]string{"web": "web-rome"}), lost: now, created: now.Add(-time.Hour), want: both, kept: "shop"},
		"the peer's clock is ahead": {home: homeMap(map[string]string{"web": "web-rome"}), lost: now, created: now.Add(4 * time.Minute), want: both, kept: "shop"},
		"it has lost the map":       {lost: now, created: now.Add(-time.Hour), want: both, kept: "shop,web"},
		"it went back before that":  {home: homeMap(map[string]string{"web": "web-rome"}), lost: now.Add(-30 * time.Minute), created: now, want: map[string]string{"web": "web-rome"}},
		"it went back long ago":     {home: homeMap(map[string]string{"web": "web-rome"}), lost: now.Add(-24 * time.Hour), created: now.Add(-48 * time.Hour), want: map[string]string{"web": "web-rome"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var home []runtime.Object
				if c.home != nil {
					home = append(home, c.home)
				}
				copied := remoteMap(both)
				copied.CreationTimestamp = metav1.NewTime(c.created)
				w := newWorld(t, home, []runtime.Object{copied})
				require.NoError(t, w.core.Tracker().Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-milan"}}))
				w.r.cfg.HomeLost = func() time.Time { return c.lost }
				p := w.pair(clocktesting.NewFakeClock(now))
				_ = p.sync(t.Context(), milanKey) // a home without the map asks for another look
				require.Equal(t, c.want, w.copied().Spec.DesiredMapping)
				require.Equal(t, c.kept, w.copied().Annotations[offloadingv1beta1.KeptNamespacesAnnotation])
				if c.home == nil {
					return
				}
				// What is no longer wanted after that goes, and what is kept stays.
				synctest.Wait() // the cache has it
				own := w.own()
				own.Spec.DesiredMapping = nil
				kubetest.Update(t, w.home.OffloadingV1beta1().NamespaceMaps(own.Namespace), own)
				synctest.Wait() // the cache has it
				_ = p.sync(t.Context(), milanKey)
				require.NotContains(t, w.copied().Spec.DesiredMapping, "web")
				require.Equal(t, c.kept != "", len(w.copied().Spec.DesiredMapping) == 1)
			})
		})
	}
}

// TestRestoredConsumerWithAStaleCache has a cache with the NamespaceMap from before the
// restore.
func TestRestoredConsumerWithAStaleCache(t *testing.T) {
	both := map[string]string{"web": "web-rome", "shop": "shop-rome"}
	before := homeMap(both)
	before.ResourceVersion = "500"
	copied := remoteMap(both)
	copied.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
	w := newWorld(t, []runtime.Object{before}, []runtime.Object{copied})
	w.r.cfg.HomeLost = time.Now
	w.home.PrependReactor("get", "namespacemaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		now := homeMap(map[string]string{"web": "web-rome"})
		now.ResourceVersion = "400"
		return true, now, nil
	})
	p := w.pair(clocktesting.NewFakeClock(time.Now()))
	require.ErrorContains(t, p.sync(t.Context(), milanKey), "again in")
	require.Zero(t, p.judged)
	require.Zero(t, writes(w.remote))
}
