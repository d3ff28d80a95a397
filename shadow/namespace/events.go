package namespace

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
)

// cacheDelay is how long a cache is given to catch up with the result of a live read.
const cacheDelay = time.Second

func offloadingKey(namespace string) loop.Key {
	return loop.Key{Namespace: namespace, Name: offloadingv1beta1.NamespaceOffloadingName}
}

func (o *Offloading) wakeAll(namespaces []string) {
	for _, ns := range namespaces {
		o.Wake(offloadingKey(ns))
	}
}

// everyone queues all NamespaceOffloadings.
func (o *Offloading) everyone() {
	o.Wake(loop.Keys(store.Listed(o.cfg.Offloadings.Lister().List(labels.Everything())))...)
}

func (o *Offloading) mapChanged(before, after *offloadingv1beta1.NamespaceMap) {
	namespaces, freed := changedEntries(asMap(before), asMap(after))
	o.wakeAll(namespaces)
	if freed {
		o.everyone() // another offloading may wait for the name
	}
}

func asMap(m *offloadingv1beta1.NamespaceMap) *offloadingv1beta1.NamespaceMap {
	if m == nil || !isHome(m) {
		return &offloadingv1beta1.NamespaceMap{}
	}
	return m
}

// changedEntries returns the namespaces whose entry, answer or trouble differs between two
// versions of a map, and whether a twin's name has become free.
func changedEntries(before, after *offloadingv1beta1.NamespaceMap) (namespaces []string, freed bool) {
	changed := store.ChangedKeys(before.Spec.DesiredMapping, after.Spec.DesiredMapping)
	freed = changed.HasAny(slices.Collect(maps.Keys(before.Spec.DesiredMapping))...)
	changed = changed.Union(store.ChangedKeys(before.Status.CurrentMapping, after.Status.CurrentMapping))
	if trouble(before) != trouble(after) {
		changed.Insert(slices.Collect(maps.Keys(after.Spec.DesiredMapping))...)
	}
	return changed.UnsortedList(), freed
}

// sameSelected reports whether cluster selectors see no difference between two versions of a VirtualNode.
func sameSelected(b, a *offloadingv1beta1.VirtualNode) bool {
	return a.Spec.ClusterID == b.Spec.ClusterID && equality.Semantic.DeepEqual(a.Spec.Labels, b.Spec.Labels)
}
