package kinds

import (
	"context"
	"maps"
	"slices"

	"k8s.io/client-go/tools/cache"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
)

// mapHandler opens and closes twin namespaces when the NamespaceMap changes. It enqueues
// the pods of each namespace whose entry has changed, even if its twin is not open.
func (p *Pods) mapHandler(ctx context.Context) cache.ResourceEventHandler {
	ours := func(obj any) *offloadingv1beta1.NamespaceMap {
		if m, ok := loop.Object[*offloadingv1beta1.NamespaceMap](obj); ok && m.Name == p.cfg.Destination {
			return m
		}
		return nil
	}
	all := func(obj any) {
		if ours(obj) != nil {
			p.openTwins(ctx)
			p.enqueueAll() // also the pods of namespaces that a new NamespaceMap no longer contains
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    all,
		DeleteFunc: all,
		UpdateFunc: func(before, after any) {
			b, a := ours(before), ours(after)
			if b == nil || a == nil {
				return
			}
			p.openTwins(ctx)
			for _, namespace := range changedEntries(b, a) {
				p.enqueueNamespace(namespace)
			}
		},
	}
}

// changedEntries returns the namespaces whose entries differ between two states of a
// NamespaceMap.
func changedEntries(before, after *offloadingv1beta1.NamespaceMap) []string {
	namespaces := map[string]bool{}
	for _, m := range []*offloadingv1beta1.NamespaceMap{before, after} {
		for ns := range m.Spec.DesiredMapping {
			namespaces[ns] = true
		}
		for ns := range m.Status.CurrentMapping {
			namespaces[ns] = true
		}
	}
	maps.DeleteFunc(namespaces, func(ns string, _ bool) bool {
		return before.Spec.DesiredMapping[ns] == after.Spec.DesiredMapping[ns] && before.Status.CurrentMapping[ns] == after.Status.CurrentMapping[ns]
	})
	return slices.Collect(maps.Keys(namespaces))
}
