package store

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// CatchUp is how long a cache is given to show what a live read has shown.
const CatchUp = 500 * time.Millisecond

// Exists reports whether the API server has an object that a cache lacks. A decision that
// takes something away does not follow from the cache alone. list reads live, is selects the
// object, and what names it in the error.
func Exists[L runtime.Object, T any](ctx context.Context, what string, list func(context.Context, metav1.ListOptions) (L, error), is func(T) bool) (bool, error) {
	live, err := list(ctx, metav1.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("confirming that %s is gone: %w", what, err)
	}
	found := false
	err = meta.EachListItem(live, func(obj runtime.Object) error {
		o, ok := obj.(T)
		found = found || (ok && is(o))
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("confirming that %s is gone: %w", what, err)
	}
	return found, nil
}

// sweeper sends the requests of Sweep.
type sweeper[L runtime.Object] interface {
	Deleter
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
}

// Sweep lists objects, and deletes those for which goes returns true, or all if it is nil. It returns
// these, also such that are being deleted already. T is a pointer to an item of the list L.
func Sweep[T metav1.Object, L runtime.Object](ctx context.Context, kind string, client sweeper[L], options metav1.ListOptions, goes func(T) bool) (left []T, err error) {
	list, err := client.List(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("listing the %ss to delete: %w", kind, err)
	}
	err = meta.EachListItem(list, func(obj runtime.Object) error {
		o, ok := obj.(T)
		if !ok || goes != nil && !goes(o) {
			return nil
		}
		left = append(left, o)
		if o.GetDeletionTimestamp() != nil {
			return nil
		}
		return Delete(ctx, kind, client, o)
	})
	return left, err
}

// Pointers returns pointers to the items of a list, as a lister returns objects.
func Pointers[T any](items []T) []*T {
	out := make([]*T, len(items))
	for i := range items {
		out[i] = &items[i]
	}
	return out
}
