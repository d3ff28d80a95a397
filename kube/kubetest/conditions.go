package kubetest

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Is returns a condition to wait for: an object exists, and is reports true for it.
func Is[T any](c Getter[T], name string, is func(T) bool) func(context.Context) error {
	return func(ctx context.Context) error {
		obj, err := c.Get(ctx, name, metav1.GetOptions{})
		if err == nil && !is(obj) {
			err = fmt.Errorf("%s is %+v", name, obj)
		}
		return err
	}
}

// Are returns a condition to wait for: are reports true for the objects that opts select.
func Are[T any](c Lister[T], opts metav1.ListOptions, are func(T) bool) func(context.Context) error {
	return func(ctx context.Context) error {
		list, err := c.List(ctx, opts)
		if err == nil && !are(list) {
			err = fmt.Errorf("the list is %+v", list)
		}
		return err
	}
}

// Exists returns a request for an object, to wait for or to try.
func Exists[T any](c Getter[T], name string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := c.Get(ctx, name, metav1.GetOptions{})
		return err
	}
}

// Lists returns a request for a list, to try.
func Lists[T any](c Lister[T]) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := c.List(ctx, metav1.ListOptions{})
		return err
	}
}

// Creates returns a request that creates an object, to try.
func Creates[T any](c Creator[T], obj T) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := c.Create(ctx, obj, metav1.CreateOptions{})
		return err
	}
}

// Updates returns a request that updates an object, to try.
func Updates[T any](c Updater[T], obj T) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := c.Update(ctx, obj, metav1.UpdateOptions{})
		return err
	}
}

// UpdatesStatus returns a request that updates the status of an object, to try.
func UpdatesStatus[T any](c StatusUpdater[T], obj T) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := c.UpdateStatus(ctx, obj, metav1.UpdateOptions{})
		return err
	}
}

// Patches returns a request that patches an object, to try.
func Patches[T any](c Patcher[T], name string, kind types.PatchType, body []byte, sub ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := c.Patch(ctx, name, kind, body, metav1.PatchOptions{}, sub...)
		return err
	}
}

// Deleter deletes objects of a kind.
type Deleter interface {
	// Delete deletes an object.
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

// Deletes returns a request that deletes an object, to try.
func Deletes(c Deleter, name string) func(context.Context) error {
	return func(ctx context.Context) error { return c.Delete(ctx, name, metav1.DeleteOptions{}) }
}
