package kubetest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// getter reads objects, as each client of a kind does.
type getter[T any] interface {
	Get(context.Context, string, metav1.GetOptions) (T, error)
}

// must returns the answer to a request, and fails the test for an error.
func must[T any](t testing.TB) func(T, error) T {
	return func(answer T, err error) T {
		t.Helper()
		require.NoError(t, err)
		return answer
	}
}

// Get reads an object, and fails the test if it cannot.
func Get[T any](t testing.TB, c getter[T], name string) T {
	return must[T](t)(c.Get(t.Context(), name, metav1.GetOptions{}))
}

// Find reads an object. It returns nil if there is none, and fails the test for any other error.
func Find[T any](t testing.TB, c getter[*T], name string) *T {
	obj, err := c.Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return must[*T](t)(obj, err)
}

// List lists all objects, or those that the first of opts selects, and fails the test if it cannot.
func List[T any](t testing.TB, c interface {
	List(context.Context, metav1.ListOptions) (T, error)
}, opts ...metav1.ListOptions) T {
	return must[T](t)(c.List(t.Context(), append(opts, metav1.ListOptions{})[0]))
}

// Create creates an object, and fails the test if it cannot.
func Create[T any](t testing.TB, c interface {
	Create(context.Context, T, metav1.CreateOptions) (T, error)
}, obj T) T {
	return must[T](t)(c.Create(t.Context(), obj, metav1.CreateOptions{}))
}

// Update updates all of an object but its status, and fails the test if it cannot.
func Update[T any](t testing.TB, c interface {
	Update(context.Context, T, metav1.UpdateOptions) (T, error)
}, obj T) T {
	return must[T](t)(c.Update(t.Context(), obj, metav1.UpdateOptions{}))
}

// UpdateStatus updates the status of an object, and fails the test if it cannot.
func UpdateStatus[T any](t testing.TB, c interface {
	UpdateStatus(context.Context, T, metav1.UpdateOptions) (T, error)
}, obj T) T {
	return must[T](t)(c.UpdateStatus(t.Context(), obj, metav1.UpdateOptions{}))
}

// Patch patches an object, or a subresource of it, and fails the test if it cannot.
func Patch[T any](t testing.TB, c interface {
	Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (T, error)
}, name string, kind types.PatchType, body []byte, sub ...string) T {
	return must[T](t)(c.Patch(t.Context(), name, kind, body, metav1.PatchOptions{}, sub...))
}
