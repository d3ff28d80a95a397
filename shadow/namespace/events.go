package namespace

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/cache"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
)

// cacheDelay is how long a cache is given to catch up with the result of a live read.
const cacheDelay = time.Second

func (o *Offloading) watch() error {
	ofNamespace := func(ns *corev1.Namespace) []loop.Key { return []loop.Key{offloadingKey(ns.Name)} }
	if err := o.WatchAll(loop.From(o.cfg.Offloadings.Informer(), loop.Self), loop.From(o.cfg.Namespaces.Informer(), ofNamespace)); err != nil {
		return err
	}
	// Few changes of these kinds matter, and each affects many keys. Watch makes the loop
	// wait for the caches; the handlers choose the keys.
	for inf, handler := range map[cache.SharedIndexInformer]func(before, after any){
		o.cfg.Maps.Informer():         o.mapChanged,
		o.cfg.VirtualNodes.Informer(): o.virtualNodeChanged,
		o.cfg.Nodes.Informer():        o.nodeChanged,
	} {
		if err := o.WatchAll(loop.From(inf, loop.None)); err != nil {
			return err
		}
		if _, err := inf.AddEventHandler(onChange(handler)); err != nil {
			return err
		}
	}
	return nil
}

// onChange returns a handler that calls f with the object before and after an event. before
// is nil for a new object, and after for a deleted one.
func onChange(f func(before, after any)) store.Handler[any] {
	return store.Handler[any]{Set: f, Gone: func(last any, _ bool) { f(last, nil) }}
}

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
	for _, key := range o.cfg.Offloadings.Informer().GetStore().ListKeys() {
		name, err := cache.ParseObjectName(key)
		if err == nil {
			o.Wake(name)
		}
	}
}

func (o *Offloading) mapChanged(before, after any) {
	namespaces, freed := changedEntries(asMap(before), asMap(after))
	o.wakeAll(namespaces)
	if freed {
		o.everyone() // another offloading may wait for the name
	}
}

func asMap(obj any) *offloadingv1beta1.NamespaceMap {
	m, ok := obj.(*offloadingv1beta1.NamespaceMap)
	if !ok || !isHome(m) {
		return &offloadingv1beta1.NamespaceMap{}
	}
	return m
}

// changedEntries returns the namespaces whose entry, answer or trouble differs between two
// versions of a map, and whether a twin's name has become free.
func changedEntries(before, after *offloadingv1beta1.NamespaceMap) (namespaces []string, freed bool) {
	changed := map[string]bool{}
	for ns, name := range before.Spec.DesiredMapping {
		if now, ok := after.Spec.DesiredMapping[ns]; !ok || now != name {
			changed[ns], freed = true, true
		}
	}
	for ns := range after.Spec.DesiredMapping {
		if _, ok := before.Spec.DesiredMapping[ns]; !ok {
			changed[ns] = true
		}
	}
	for ns, answer := range before.Status.CurrentMapping {
		if now, ok := after.Status.CurrentMapping[ns]; !ok || now != answer {
			changed[ns] = true
		}
	}
	for ns := range after.Status.CurrentMapping {
		if _, ok := before.Status.CurrentMapping[ns]; !ok {
			changed[ns] = true
		}
	}
	if trouble(before) != trouble(after) {
		for ns := range after.Spec.DesiredMapping {
			changed[ns] = true
		}
	}
	for ns := range changed {
		namespaces = append(namespaces, ns)
	}
	return namespaces, freed
}

func (o *Offloading) virtualNodeChanged(before, after any) {
	b, _ := before.(*offloadingv1beta1.VirtualNode)
	a, _ := after.(*offloadingv1beta1.VirtualNode)
	if a != nil && b != nil && a.Spec.ClusterID == b.Spec.ClusterID && equality.Semantic.DeepEqual(a.Spec.Labels, b.Spec.Labels) {
		return
	}
	o.everyone()
}

func (o *Offloading) nodeChanged(before, after any) {
	b, _ := before.(*corev1.Node)
	a, _ := after.(*corev1.Node)
	virtual := (b != nil && offloadingv1beta1.IsVirtual(b)) || (a != nil && offloadingv1beta1.IsVirtual(a))
	if !virtual || (a != nil && b != nil && maps.Equal(a.Labels, b.Labels)) {
		return
	}
	o.everyone()
}
