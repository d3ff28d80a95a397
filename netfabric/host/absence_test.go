package host

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
)

// A Connection that is absent from the cache stays until the API server says that it is gone.
func TestAbsenceIsConfirmed(t *testing.T) {
	t.Parallel()
	keys := publicKeys(t, 2)
	milan, oslo := linked("milan", 1, keys[0]), linked("oslo", 2, keys[1])
	client := fake.NewSimpleClientset(milan, oslo)
	away := false
	client.PrependReactor("list", "connections", func(clienttesting.Action) (bool, runtime.Object, error) {
		return away, nil, errors.New("away")
	})
	p := &presence{client: client.NetworkingV1beta1()}
	list := func(cached ...*networkingv1beta1.Connection) (names []string, again bool) {
		t.Helper()
		out, again, err := p.confirm(t.Context(), cached)
		require.NoError(t, err)
		for _, c := range out {
			names = append(names, c.Name)
		}
		return names, again
	}
	away = true
	_, _, err := p.confirm(t.Context(), nil)
	require.ErrorContains(t, err, "away", "it is not known what an earlier process has applied")
	away = false
	names, again := list(milan)
	require.Equal(t, []string{"milan", "oslo"}, names, "a first list may be an old one")
	require.True(t, again)
	names, again = list(milan, oslo)
	require.Equal(t, []string{"milan", "oslo"}, names)
	require.False(t, again)
	client.ClearActions()
	_, _ = list(milan, oslo)
	require.Empty(t, client.Actions(), "nobody is asked while nothing is absent")

	away = true
	for range 2 {
		names, again = list(oslo)
		require.Equal(t, []string{"oslo", "milan"}, names)
		require.True(t, again)
	}
	away = false
	require.NoError(t, client.NetworkingV1beta1().Connections(milan.Namespace).Delete(t.Context(), "milan", metav1.DeleteOptions{}))
	names, again = list(oslo)
	require.Equal(t, []string{"oslo"}, names)
	require.False(t, again)
}
