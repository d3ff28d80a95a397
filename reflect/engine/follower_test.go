package engine

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	liqodfake "github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// held is what a component of the test has of an open namespace.
type held struct{ local, remote string }

func newHeld(log *[]string) *Spaces[*held] {
	return NewSpaces(func(_ context.Context, local, remote string) *held {
		*log = append(*log, "open "+local+" "+remote)
		return &held{local, remote}
	}, func(h *held) { *log = append(*log, "close "+h.local+" "+h.remote) })
}

func twins(of map[string]string) *offloadingv1beta1.NamespaceMap {
	m := &offloadingv1beta1.NamespaceMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "milan"},
		Spec:       offloadingv1beta1.NamespaceMapSpec{DesiredMapping: of},
		Status:     offloadingv1beta1.NamespaceMapStatus{CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{}},
	}
	for local, remote := range of {
		m.Status.CurrentMapping[local] = offloadingv1beta1.RemoteNamespaceStatus{RemoteNamespace: remote, Phase: offloadingv1beta1.MappingAccepted}
	}
	return m
}

func TestSpaces(t *testing.T) {
	var log []string
	s := newHeld(&log)
	s.set(t.Context(), map[string]string{"stays": "stays-rome", "moves": "moves-rome", "goes": "goes-rome"})
	require.Len(t, log, 3)
	stays := s.Get("stays")
	log = nil
	s.set(t.Context(), map[string]string{"stays": "stays-rome", "moves": "moved", "comes": "comes-rome"})
	require.ElementsMatch(t, []string{"close moves moves-rome", "close goes goes-rome"}, log[:2], "first")
	require.ElementsMatch(t, []string{"open moves moved", "open comes comes-rome"}, log[2:])
	require.Same(t, stays, s.Get("stays"))
	require.Nil(t, s.Get("goes"))
	require.ElementsMatch(t, []string{"stays", "moves", "comes"}, slices.Collect(maps.Keys(maps.Collect(s.Each(corev1.NamespaceAll)))))
	require.Equal(t, map[string]*held{"comes": {"comes", "comes-rome"}}, maps.Collect(s.Each("comes")))
	s.set(t.Context(), nil)
	require.Empty(t, maps.Collect(s.Each(corev1.NamespaceAll)))
}

// TestAllSubscribersSeeOneState: what a component opens late is what others have open, and one
// that ends closes only its own.
func TestAllSubscribersSeeOneState(t *testing.T) {
	own := externalversions.NewSharedInformerFactory(liqodfake.NewSimpleClientset(), 0)
	f, err := NewFollower(own.Offloading().V1beta1().NamespaceMaps(), tenant, "milan")
	require.NoError(t, err)
	own.Start(t.Context().Done())
	var first, second, changed []string
	a, b := newHeld(&first), newHeld(&second)
	stop := f.Follow(t.Context(), func(ns string) { changed = append(changed, ns) }, a)
	m := twins(map[string]string{"shop": "shop-rome"})
	f.changed(nil, twins(nil))
	f.changed(twins(nil), m)
	other := twins(map[string]string{"bank": "bank-rome"})
	other.Name = "oslo"
	f.changed(nil, other)
	stopB := f.Follow(t.Context(), nil, b)
	require.Equal(t, []string{"open shop shop-rome"}, first)
	require.Equal(t, first, second)
	require.Equal(t, []string{corev1.NamespaceAll, "shop"}, changed)

	pending := m.DeepCopy()
	pending.Spec.DesiredMapping["bank"] = "bank-rome"
	f.changed(m, pending)
	require.Equal(t, []string{corev1.NamespaceAll, "shop", "bank"}, changed, "also if it does not open")
	require.Len(t, first, 1)

	stop()
	require.Equal(t, []string{"open shop shop-rome", "close shop shop-rome"}, first)
	require.NotNil(t, b.Get("shop"))
	f.changed(pending, nil)
	require.Nil(t, b.Get("shop"))
	stopB()
	require.Len(t, first, 2)
	require.Len(t, second, 2)
}

// TestNothingOpensAfterTheEnd: a component that ends opens nothing more.
func TestNothingOpensAfterTheEnd(t *testing.T) {
	own := externalversions.NewSharedInformerFactory(liqodfake.NewSimpleClientset(), 0)
	f, err := NewFollower(own.Offloading().V1beta1().NamespaceMaps(), tenant, "milan")
	require.NoError(t, err)
	own.Start(t.Context().Done())
	cache.WaitForCacheSync(t.Context().Done(), f.registration.HasSynced)
	var log []string
	ctx, cancel := context.WithCancel(t.Context())
	stop := f.Follow(ctx, nil, newHeld(&log))
	cancel()
	f.changed(nil, twins(map[string]string{"shop": "shop-rome"}))
	stop()
	require.Empty(t, log)
}
