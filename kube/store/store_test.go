package store

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/liqod/liqod/kube/loop"
)

// newStore returns a Store of ConfigMaps, whose cache has those given, and the API server, which
// has no object.
func newStore(t *testing.T, cached ...*corev1.ConfigMap) (*Store[*corev1.ConfigMap], *fake.Clientset, *Informer) {
	t.Helper()
	c := fake.NewClientset()
	inf := newInformer(c)
	for _, cm := range cached {
		require.NoError(t, inf.GetStore().Add(cm))
	}
	s := New("ConfigMap", inf, clocktesting.NewFakePassiveClock(time.Unix(1000, 0)), func(ns string) API[*corev1.ConfigMap] { return c.CoreV1().ConfigMaps(ns) })
	return s, c, inf
}

func TestStoreOverlaysTheCache(t *testing.T) {
	t.Parallel()
	s, _, inf := newStore(t, configMap("a", "5"))
	a, b := cache.NewObjectName("shop", "a"), cache.NewObjectName("shop", "b")
	require.Equal(t, "5", s.Get(a).ResourceVersion)
	require.Nil(t, s.Get(b))
	s.Wrote(configMap("a", "7"))
	s.Wrote(configMap("b", "8"))
	require.Equal(t, "7", s.Get(a).ResourceVersion)
	require.Equal(t, "8", s.Get(b).ResourceVersion)
	require.Equal(t, "5", s.Cached(a).ResourceVersion)
	require.Nil(t, s.Cached(b))
	require.Len(t, s.List(), 1)
	require.Equal(t, "7", s.List()[0].ResourceVersion, "a list has own writes too")
	require.Equal(t, "7", s.ByIndex(cache.NamespaceIndex, "shop")[0].ResourceVersion)
	require.Equal(t, "5", s.Cached(a).ResourceVersion, "the cache is not changed")

	var gone []string
	_, err := s.On(Handler[*corev1.ConfigMap]{Gone: func(last *corev1.ConfigMap, missed bool) {
		require.False(t, missed)
		gone = append(gone, last.Name)
	}}).Add()
	require.NoError(t, err)
	require.NoError(t, feed{inf}.Delete(configMap("a", "9")))
	require.Equal(t, []string{"a"}, gone)
	require.Nil(t, s.Get(a), "the record of the write goes with the object")
}

func TestAbsenceIsConfirmedLive(t *testing.T) {
	t.Parallel()
	s, c, _ := newStore(t)
	key := cache.NewObjectName("shop", "a")
	require.NoError(t, s.ConfirmGone(t.Context(), key))
	live, err := s.Live(t.Context(), key)
	require.NoError(t, err)
	require.Nil(t, live)

	require.NoError(t, c.Tracker().Add(configMap("a", "1")))
	require.Equal(t, loop.After(CatchUp), s.ConfirmGone(t.Context(), key))
	require.NoError(t, s.ConfirmNone(t.Context(), key, func(cm *corev1.ConfigMap) bool { return cm.UID == "another" }))
	live, err = s.Live(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, "a", live.Name)

	away := errors.New("the API server is away")
	c.PrependReactor("get", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, away })
	err = s.ConfirmGone(t.Context(), key)
	require.ErrorIs(t, err, away)
	require.ErrorContains(t, err, "confirming that ConfigMap a is gone")
	_, err = s.Live(t.Context(), key)
	require.ErrorIs(t, err, away)
}

// deletions records the requests of a Store.
type deletions struct {
	API[*corev1.ConfigMap]
	err  error
	last metav1.DeleteOptions
}

func (d *deletions) Delete(_ context.Context, _ string, o metav1.DeleteOptions) error {
	d.last = o
	return d.err
}

func TestDeleteIsByUID(t *testing.T) {
	t.Parallel()
	s, _, _ := newStore(t)
	d := &deletions{}
	s.api = func(string) API[*corev1.ConfigMap] { return d }
	cm := configMap("a", "3")
	require.NoError(t, s.Delete(t.Context(), cm))
	require.Equal(t, cm.UID, *d.last.Preconditions.UID)
	require.Nil(t, d.last.Preconditions.ResourceVersion)
	require.True(t, s.WasDeleted(cm.UID))

	other := configMap("b", "4")
	d.err = errors.New("no")
	require.ErrorContains(t, s.Delete(t.Context(), other, Unchanged(other)), "deleting ConfigMap shop/b: no")
	require.Equal(t, "4", *d.last.Preconditions.ResourceVersion)
	require.False(t, s.WasDeleted(other.UID))
}

func TestHandlerOfOneType(t *testing.T) {
	t.Parallel()
	var heard []string
	h := Each(func(cm *corev1.ConfigMap) { heard = append(heard, cm.Name) })
	h.OnAdd(configMap("a", "1"), true)
	h.OnUpdate(configMap("a", "1"), configMap("b", "2"))
	h.OnDelete(cache.DeletedFinalStateUnknown{Obj: configMap("c", "3")})
	h.OnAdd(&corev1.Secret{}, false)
	require.Equal(t, []string{"a", "b", "c"}, heard)
	Handler[*corev1.ConfigMap]{}.OnDelete(configMap("a", "1"))
}
