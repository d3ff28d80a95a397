package kinds

import (
	"context"
	"maps"
	"slices"

	"k8s.io/client-go/tools/cache"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// mapHandler keeps the twins as the NamespaceMap says, and looks again at the pods of
// each namespace of which it says something else: also of those whose twin is not open.
func (p *Pods) mapHandler(ctx context.Context) cache.ResourceEventHandler {
	ours := func(obj any) *offloadingv1beta1.NamespaceMap {
		if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = d.Obj
		}
		if m, ok := obj.(*offloadingv1beta1.NamespaceMap); ok && m.Name == p.cfg.Destination {
			return m
		}
		return nil
	}
	all := func(obj any) {
		if ours(obj) != nil {
			p.openTwins(ctx)
			p.enqueueAll() // what a map that was away no longer names is looked at too
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

// changedEntries returns the namespaces of which two states of a map differ.
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
