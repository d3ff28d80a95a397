package kubetest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Getter reads objects of a kind. Each client of a kind is one.
type Getter[T any] interface {
	// Get reads an object.
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
}

// Get reads an object, and fails the test if it cannot.
func Get[T any](t testing.TB, c Getter[T], name string) T {
	t.Helper()
	obj, err := c.Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return obj
}

// Lister lists objects of a kind.
type Lister[T any] interface {
	// List lists objects.
	List(ctx context.Context, opts metav1.ListOptions) (T, error)
}

// List lists all objects, or those that the first of opts selects, and fails the test if it cannot.
func List[T any](t testing.TB, c Lister[T], opts ...metav1.ListOptions) T {
	t.Helper()
	list, err := c.List(t.Context(), append(opts, metav1.ListOptions{})[0])
	require.NoError(t, err)
	return list
}

// Creator creates objects of a kind.
type Creator[T any] interface {
	// Create creates an object.
	Create(ctx context.Context, obj T, opts metav1.CreateOptions) (T, error)
}

// Create creates an object, and fails the test if it cannot.
func Create[T any](t testing.TB, c Creator[T], obj T) T {
	t.Helper()
	have, err := c.Create(t.Context(), obj, metav1.CreateOptions{})
	require.NoError(t, err)
	return have
}

// Updater updates objects of a kind.
type Updater[T any] interface {
	// Update writes all of an object but its status.
	Update(ctx context.Context, obj T, opts metav1.UpdateOptions) (T, error)
}

// Update updates an object, and fails the test if it cannot.
func Update[T any](t testing.TB, c Updater[T], obj T) T {
	t.Helper()
	have, err := c.Update(t.Context(), obj, metav1.UpdateOptions{})
	require.NoError(t, err)
	return have
}

// StatusUpdater updates the status of objects of a kind.
type StatusUpdater[T any] interface {
	// UpdateStatus writes the status of an object.
	UpdateStatus(ctx context.Context, obj T, opts metav1.UpdateOptions) (T, error)
}

// UpdateStatus updates the status of an object, and fails the test if it cannot.
func UpdateStatus[T any](t testing.TB, c StatusUpdater[T], obj T) T {
	t.Helper()
	have, err := c.UpdateStatus(t.Context(), obj, metav1.UpdateOptions{})
	require.NoError(t, err)
	return have
}

// Patcher patches objects of a kind.
type Patcher[T any] interface {
	// Patch patches an object, or a subresource of it.
	Patch(ctx context.Context, name string, kind types.PatchType, body []byte, opts metav1.PatchOptions, sub ...string) (T, error)
}

// Patch patches an object, and fails the test if it cannot.
func Patch[T any](t testing.TB, c Patcher[T], name string, kind types.PatchType, body []byte, sub ...string) T {
	t.Helper()
	have, err := c.Patch(t.Context(), name, kind, body, metav1.PatchOptions{}, sub...)
	require.NoError(t, err)
	return have
}

// Find reads an object. It returns nil if there is none, and fails the test for any other error.
func Find[T any](t testing.TB, c Getter[*T], name string) *T {
	t.Helper()
	obj, err := c.Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	return obj
}
