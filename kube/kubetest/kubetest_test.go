package kubetest

import (
	"testing"
	"testing/synctest"
	"time"

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
	Create(t, pods, pod)
	UpdateStatus(t, pods, pod)
	Patch(t, pods, "p", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), "status")
	List(t, pods)
	Create(t, c.CoreV1().Events("n"), &corev1.Event{})
	// The fake does not know tokens, but has recorded.
	_, _ = c.CoreV1().ServiceAccounts("n").CreateToken(ctx, "sa", nil, metav1.CreateOptions{})
	require.NoError(t, pods.Delete(ctx, "p", metav1.DeleteOptions{}))
	require.NoError(t, pods.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	Create(t, c.CoreV1().Nodes(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "node-"}})
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

	Create(t, pods, pod)
	Patch(t, pods, "p", types.MergePatchType, []byte(`{}`))
	RequireWrites(t, c, "create pods n/p", "patch pods n/p")
}

// TestWatchFromList: a deletion between the list and the watch of an informer reaches it.
func TestWatchFromList(t *testing.T) {
	client := fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}})
	WatchFromList(client)
	pods := client.CoreV1().Pods("shop")
	List(t, pods, metav1.ListOptions{ResourceVersion: "0"})
	require.NoError(t, pods.Delete(t.Context(), "web", metav1.DeleteOptions{}))
	w, err := pods.Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	event := <-w.ResultChan()
	require.Equal(t, watch.Deleted, event.Type)
	require.Equal(t, "web", event.Object.(*corev1.Pod).Name)
}

// TestSettled: writes count that are in work, and those that are due before the end.
func TestSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := fake.NewClientset(), fake.NewClientset()
		create := func(c *fake.Clientset, after time.Duration) {
			time.Sleep(after)
			_, _ = c.CoreV1().Pods("n").Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}, metav1.CreateOptions{})
			_, _ = c.CoreV1().Pods("n").List(t.Context(), metav1.ListOptions{})
		}
		require.Zero(t, Settled(0, a, b))
		go create(a, 0)
		go create(b, time.Minute)
		require.Equal(t, 1, Settled(0, a, b))
		require.Equal(t, 1, Settled(time.Minute-1, a, b))
		require.Equal(t, 2, Settled(1, a, b))
		go create(a, 0)
		require.Equal(t, 2, Settled(0, a), "a refused one counts")
	})
}
