package store

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// Writer is the part of a typed client that creates and updates objects.
type Writer[T any] interface {
	Create(ctx context.Context, obj T, opts metav1.CreateOptions) (T, error)
	Update(ctx context.Context, obj T, opts metav1.UpdateOptions) (T, error)
}

// Write creates next if have is nil, and updates have to next if they differ. It returns the object
// after the write. kind names it in errors, by is the field manager or empty.
func Write[T Object](ctx context.Context, kind string, client Writer[T], by string, have, next T) (T, error) {
	var none T
	doing, written, err := "creating", have, error(nil)
	switch {
	case have == none:
		written, err = client.Create(ctx, next, metav1.CreateOptions{FieldManager: by})
	case !equality.Semantic.DeepEqual(have, next):
		doing = "updating"
		written, err = client.Update(ctx, next, metav1.UpdateOptions{FieldManager: by})
	}
	if err != nil {
		return none, fmt.Errorf("%s %s %s: %w", doing, kind, cache.MetaObjectToName(next), err)
	}
	return written, nil
}

// WriteStatus updates the status of next if have is nil or differs from next.
func WriteStatus[T Object](ctx context.Context, kind string, client interface {
	UpdateStatus(ctx context.Context, obj T, opts metav1.UpdateOptions) (T, error)
}, by string, have, next T,
) error {
	if equality.Semantic.DeepEqual(have, next) {
		return nil
	}
	if _, err := client.UpdateStatus(ctx, next, metav1.UpdateOptions{FieldManager: by}); err != nil {
		return fmt.Errorf("writing the status of %s %s: %w", kind, cache.MetaObjectToName(next), err)
	}
	return nil
}

// Merge sends a merge patch for an object with its UID as a precondition, and returns the object after
// the write.
func Merge[T any](ctx context.Context, kind string, client Patcher[T], by string, obj metav1.Object, patch Patch, subresources ...string) (written T, err error) {
	body, err := EncodePatch(patch, obj)
	if err != nil {
		return written, err
	}
	if written, err = client.Patch(ctx, obj.GetName(), types.MergePatchType, body, metav1.PatchOptions{FieldManager: by}, subresources...); err != nil {
		return written, fmt.Errorf("patching %s %s: %w", kind, cache.MetaObjectToName(obj), err)
	}
	return written, nil
}

// Applied is an Object that Apply changes.
type Applied[T any] interface {
	Object
	DeepCopy() T
}

// Kind describes how Apply writes objects of one kind.
type Kind[T Applied[T]] struct {
	// Name is that of the kind, in errors. By is the field manager of the writes, or empty.
	Name, By string
	// Client is that of the namespace of the object.
	Client interface {
		Writer[T]
		API[T]
	}
	// Ours returns an error for an object of another client. Apply returns this error and writes
	// nothing. nil: Apply may change all objects.
	Ours func(have T) error
	// Set copies the wanted fields from want to next, a copy of the existing object. It returns false if
	// the API server accepts no such change: then Apply deletes the object and creates it again.
	Set func(next, want T) bool
}

// Apply creates want, or updates have to it. have is the object in a cache, or nil. If the cache lacks an
// object that exists, Apply reads it live. If want is nil, Apply deletes have, unless it is another client's.
func (k Kind[T]) Apply(ctx context.Context, have, want T) error {
	var none T
	if want == none {
		if have == none || k.Ours != nil && k.Ours(have) != nil {
			return nil
		}
		return Delete(ctx, k.Name, k.Client, have)
	}
	if have == none {
		_, err := Write(ctx, k.Name, k.Client, k.By, none, want)
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		if have, err = k.Client.Get(ctx, want.GetName(), metav1.GetOptions{}); err != nil {
			return fmt.Errorf("reading %s %s: %w", k.Name, cache.MetaObjectToName(want), err)
		}
	}
	if k.Ours != nil {
		if err := k.Ours(have); err != nil {
			return err
		}
	}
	next := have.DeepCopy()
	if !k.Set(next, want) {
		if err := Delete(ctx, k.Name, k.Client, have); err != nil {
			return err
		}
		have, next = none, want
	}
	_, err := Write(ctx, k.Name, k.Client, k.By, have, next)
	return err
}
