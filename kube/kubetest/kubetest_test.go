package kubetest

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
)

func TestTakeWrites(t *testing.T) {
	c := fake.NewClientset()
	ctx := t.Context()
	pods := c.CoreV1().Pods("n")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n"}}
	_, err := pods.Create(ctx, pod, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	require.NoError(t, err)
	_, err = pods.Patch(ctx, "p", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	_, err = pods.List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	_, err = c.CoreV1().Events("n").Create(ctx, &corev1.Event{}, metav1.CreateOptions{})
	require.NoError(t, err)
	// The fake does not know tokens, but has recorded.
	_, _ = c.CoreV1().ServiceAccounts("n").CreateToken(ctx, "sa", nil, metav1.CreateOptions{})
	require.NoError(t, pods.Delete(ctx, "p", metav1.DeleteOptions{}))
	require.NoError(t, pods.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	_, err = c.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "node-"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, []string{
		"create pods n/p",
		"update pods/status n/p",
		`patch pods/status n/p {"metadata":{"labels":{"a":"b"}}}`,
		"create serviceaccounts/token n/sa",
		"delete pods n/p",
		"delete-collection pods n/*",
		"create nodes node-",
	}, TakeWrites(c))
	require.Empty(t, TakeWrites(c))
	RequireWrites(t, c)

	_, err = pods.Create(ctx, pod, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = pods.Patch(ctx, "p", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
	require.NoError(t, err)
	RequireWrites(t, c, "create pods n/p", "patch pods n/p")
}

// TestWatchFromList: a deletion between the list and the watch of an informer reaches it.
func TestWatchFromList(t *testing.T) {
	client := fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}})
	WatchFromList(client)
	pods := client.CoreV1().Pods("shop")
	_, err := pods.List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	require.NoError(t, err)
	require.NoError(t, pods.Delete(t.Context(), "web", metav1.DeleteOptions{}))
	w, err := pods.Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	event := <-w.ResultChan()
	require.Equal(t, watch.Deleted, event.Type)
	require.Equal(t, "web", event.Object.(*corev1.Pod).Name)
}
