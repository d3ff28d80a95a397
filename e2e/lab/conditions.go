package lab

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Getter reads objects of a kind, as each client of a kind does.
type Getter[T any] interface {
	// Get reads an object.
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
}

// Lister lists objects of a kind.
type Lister[T any] interface {
	// List lists objects.
	List(ctx context.Context, opts metav1.ListOptions) (T, error)
}

// Creator creates objects of a kind.
type Creator[T any] interface {
	// Create creates an object.
	Create(ctx context.Context, obj T, opts metav1.CreateOptions) (T, error)
}

// Updater updates objects of a kind.
type Updater[T any] interface {
	// Update writes all of an object but its status.
	Update(ctx context.Context, obj T, opts metav1.UpdateOptions) (T, error)
}

// Patcher patches objects of a kind.
type Patcher[T any] interface {
	// Patch patches an object, or a subresource of it.
	Patch(ctx context.Context, name string, kind types.PatchType, body []byte, opts metav1.PatchOptions, sub ...string) (T, error)
}

// Is returns a condition to wait for: an object exists, and is reports true for it.
func Is[T any](c Getter[T], name string, is func(T) bool) func(context.Context) error {
	return That(c, name, func(obj T) error { return Wrong(nil, !is(obj), "%s is %+v", name, obj) })
}

// That returns a condition to wait for: an object exists, and check finds nothing wrong with it.
func That[T any](c Getter[T], name string, check func(T) error) func(context.Context) error {
	return func(ctx context.Context) error {
		obj, err := c.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return check(obj)
	}
}

// Are returns a condition to wait for: are reports true for the objects that opts select.
func Are[T any](c Lister[T], opts metav1.ListOptions, are func(T) bool) func(context.Context) error {
	return Those(c, opts, func(list T) error { return Wrong(nil, !are(list), "the list is %+v", list) })
}

// Number returns a condition to wait for: opts select as many objects as wanted.
func Number[L runtime.Object](c Lister[L], opts metav1.ListOptions, want int) func(context.Context) error {
	return Those(c, opts, func(list L) error { return Wrong(nil, meta.LenList(list) != want, "there are not %d: %+v", want, list) })
}

// Those returns a condition to wait for: check finds nothing wrong with the objects that opts select.
func Those[T any](c Lister[T], opts metav1.ListOptions, check func(T) error) func(context.Context) error {
	return func(ctx context.Context) error {
		list, err := c.List(ctx, opts)
		if err != nil {
			return err
		}
		return check(list)
	}
}

// Some returns a condition to wait for: is reports true for one of the objects that opts select. It is called for no object
// after that one.
func Some[L runtime.Object, T any](c Lister[L], opts metav1.ListOptions, is func(*T) bool) func(context.Context) error {
	found := errors.New("found")
	return Those(c, opts, func(list L) error {
		err := meta.EachListItem(list, func(obj runtime.Object) error {
			if is(any(obj).(*T)) {
				return found
			}
			return nil
		})
		if errors.Is(err, found) {
			return nil
		}
		return errors.Join(err, fmt.Errorf("none of %d fits: %+v", meta.LenList(list), list))
	})
}

// All returns a condition to wait for: is reports true for each of the objects that opts select.
func All[L runtime.Object, T any](c Lister[L], opts metav1.ListOptions, is func(*T) bool) func(context.Context) error {
	return Those(c, opts, func(list L) error {
		return meta.EachListItem(list, func(obj runtime.Object) error {
			return Wrong(nil, !is(any(obj).(*T)), "this one does not fit: %+v", obj)
		})
	})
}

// Together returns a condition to wait for: all conditions hold, in one round.
func Together(all ...func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, cond := range all {
			if err := cond(ctx); err != nil {
				return err
			}
		}
		return nil
	}
}

// Changes returns a request that reads an object, changes it and updates it, to try again after a conflict.
func Changes[T any](c interface {
	Getter[T]
	Updater[T]
}, name string, change func(T)) func(context.Context) error {
	return func(ctx context.Context) error {
		obj, err := c.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(obj)
		_, err = c.Update(ctx, obj, metav1.UpdateOptions{})
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

// Absent turns the answer to a Get into the wish that there be no such object.
func Absent[T metav1.Object](obj T, err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("%s is still there, deletion %v, finalizers %v", obj.GetName(), obj.GetDeletionTimestamp(), obj.GetFinalizers())
}

// Gone returns a condition to wait for: an object does not exist.
func Gone[T metav1.Object](c Getter[T], name string) func(context.Context) error {
	return func(ctx context.Context) error { return Absent(c.Get(ctx, name, metav1.GetOptions{})) }
}

// Lists returns a request for a list, to try.
func Lists[T any](c Lister[T]) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := c.List(ctx, metav1.ListOptions{})
		return err
	}
}

// Creates returns a request that creates an object, to try. Options are the first of opts, or none.
func Creates[T any](c Creator[T], obj T, opts ...metav1.CreateOptions) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := c.Create(ctx, obj, append(opts, metav1.CreateOptions{})[0])
		return err
	}
}

// Updates returns a request that updates an object, to try. Options are the first of opts, or none.
func Updates[T any](c Updater[T], obj T, opts ...metav1.UpdateOptions) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := c.Update(ctx, obj, append(opts, metav1.UpdateOptions{})[0])
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

// Deletes returns a request that deletes an object, to try. Options are the first of opts, or none.
func Deletes(c Deleter, name string, opts ...metav1.DeleteOptions) func(context.Context) error {
	return func(ctx context.Context) error {
		return c.Delete(ctx, name, append(opts, metav1.DeleteOptions{})[0])
	}
}

// Wrong returns err or, if that is nil and wrong is true, an error with that text: what a condition ends with.
func Wrong(err error, wrong bool, format string, args ...any) error {
	if err == nil && wrong {
		return fmt.Errorf(format, args...)
	}
	return err
}
