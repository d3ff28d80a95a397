package store

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	ktesting "k8s.io/client-go/testing"
)

func TestExists(t *testing.T) {
	t.Parallel()
	away := errors.New("the API server is away")
	for name, tc := range map[string]struct {
		live []string
		err  error
		want bool
	}{
		"there":        {live: []string{"a", "web"}, want: true},
		"gone":         {live: []string{"a", "b"}},
		"none at all":  {},
		"not answered": {live: []string{"web"}, err: away},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Exists(t.Context(), "pod web", func(context.Context, metav1.ListOptions) (*corev1.PodList, error) {
				list := &corev1.PodList{}
				for _, name := range tc.live {
					list.Items = append(list.Items, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}})
				}
				return list, tc.err
			}, func(p *corev1.Pod) bool { return p.Name == "web" })
			require.ErrorIs(t, err, tc.err)
			require.Equal(t, tc.want, got)
			if tc.err != nil {
				require.ErrorContains(t, err, "confirming that pod web is gone")
			}
		})
	}
}

// TestMissingKind: an API server that does not serve a kind says nothing about the objects.
func TestMissingKind(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	kube, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	pods := kube.CoreV1().Pods("shop")
	_, err = OrNil(pods.Get(t.Context(), "web", metav1.GetOptions{}))
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	_, err = Live(t.Context(), "pod", pods, "web")
	require.ErrorContains(t, err, "reading pod web")
	require.ErrorContains(t, ConfirmGone(t.Context(), "pod", pods, "web"), "confirming that pod web is gone")
}

func TestSweep(t *testing.T) {
	t.Parallel()
	ending := metav1.Now()
	kube := fake.NewClientset()
	for name, deleted := range map[string]*metav1.Time{"web": nil, "db": nil, "old": &ending} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, DeletionTimestamp: deleted}}
		require.NoError(t, kube.Tracker().Add(pod))
	}
	goes := func(p *corev1.Pod) bool { return p.Name != "db" }
	left, err := Sweep(t.Context(), "pod", kube.CoreV1().Pods("shop"), metav1.ListOptions{}, goes)
	require.NoError(t, err)
	require.Len(t, left, 2)
	var sent []string
	for _, action := range kube.Actions() {
		if deletion, ok := action.(ktesting.DeleteAction); ok {
			sent = append(sent, deletion.GetName())
		}
	}
	require.Equal(t, []string{"web"}, sent, "what is being deleted is not deleted again")
	left, err = Sweep[*corev1.Pod](t.Context(), "pod", kube.CoreV1().Pods("shop"), metav1.ListOptions{}, nil)
	require.NoError(t, err)
	require.Len(t, left, 2)
	away := errors.New("the API server is away")
	kube.PrependReactor("list", "pods", func(ktesting.Action) (bool, runtime.Object, error) { return true, &corev1.PodList{}, away })
	_, err = Sweep[*corev1.Pod](t.Context(), "pod", kube.CoreV1().Pods("shop"), metav1.ListOptions{}, nil)
	require.ErrorIs(t, err, away)
}
