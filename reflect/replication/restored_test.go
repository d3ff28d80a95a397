package replication

import (
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
)

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
