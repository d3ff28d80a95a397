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

// Write creates next where have is nil, and updates have to it where they differ. It returns the
// object as it is then. kind names it in errors, by is the field manager or empty.
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

// WriteStatus writes the status of next where have differs from it.
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

// Merge sends a merge patch for an object with its UID as a precondition, and returns the object as it
// is then.
func Merge[T any](ctx context.Context, kind string, client Patcher[T], by string, obj metav1.Object, patch Patch) (written T, err error) {
	body, err := EncodePatch(patch, obj)
	if err != nil {
		return written, err
	}
	if written, err = client.Patch(ctx, obj.GetName(), types.MergePatchType, body, metav1.PatchOptions{FieldManager: by}); err != nil {
		return written, fmt.Errorf("patching %s %s: %w", kind, cache.MetaObjectToName(obj), err)
	}
	return written, nil
}

// Applied is an Object that Apply changes.
type Applied[T any] interface {
	Object
	DeepCopy() T
}

// Kind says how Apply makes objects of one kind as they are wanted.
type Kind[T Applied[T]] struct {
	// Name is that of the kind, in errors. By is the field manager of the writes, or empty.
	Name, By string
	// Client is that of the namespace of the object.
	Client interface {
		Writer[T]
		API[T]
	}
	// Ours returns an error for an object that somebody else has made. It stays as it is, and Apply
	// returns the error. nil: all objects may be changed.
	Ours func(have T) error
	// Set changes next, which is a copy of what is there, to what is wanted. It returns false if the
	// API server accepts no such change: the object is deleted then, and created again.
	Set func(next, want T) bool
}

// Apply makes an object as it is wanted. have is that of a cache, or nil. An object that the cache
// lacks and that exists is read live.
func (k Kind[T]) Apply(ctx context.Context, have, want T) error {
	var none T
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
