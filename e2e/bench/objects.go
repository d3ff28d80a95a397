package main

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// names are those of the objects of a list.
func names(list runtime.Object) map[string]bool {
	found := map[string]bool{}
	each(list, func(o metav1.Object) { found[o.GetName()] = true })
	return found
}

// uids are those of the objects of a list, by name.
func uids(list runtime.Object) map[string]string {
	found := map[string]string{}
	each(list, func(o metav1.Object) { found[o.GetName()] = string(o.GetUID()) })
	return found
}

func each(list runtime.Object, f func(metav1.Object)) {
	// Its error is about objects that are not lists, and f has none.
	_ = meta.EachListItem(list, func(item runtime.Object) error {
		if o, ok := item.(metav1.Object); ok {
			f(o)
		}
		return nil
	})
}

func resourceVersion(list runtime.Object) (string, error) {
	l, err := meta.ListAccessor(list)
	if err != nil {
		return "", fmt.Errorf("reading a list: %w", err)
	}
	return l.GetResourceVersion(), nil
}
