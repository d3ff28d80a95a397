package kubelet

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	offloadinglisters "github.com/liqod/liqod/api/generated/listers/offloading/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// In an outage of the provider the answer is a 502 with the side that is away. kubectl replaces the
// text of a 503 by one about the consumer's API server.
func TestAnOutageNamesTheProvider(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err  error
		says string
	}{
		"no connection": {errors.New("dial tcp 203.0.113.7:6443: i/o timeout"),
			"the API server of the provider does not answer; this cluster works, and pods that run in the provider go on running: dial tcp"},
		"unavailable": {apierrors.NewServiceUnavailable("etcd is away"), "the provider is not available; this cluster works: etcd is away"},
		"no answer":   {apierrors.NewTimeoutError("etcd is slow", 1), "the provider is not available; this cluster works: Timeout: etcd is slow"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var answer httpError
			require.ErrorAs(t, remoteError(tc.err), &answer)
			require.Equal(t, http.StatusBadGateway, answer.code)
			require.ErrorContains(t, answer, tc.says)
		})
	}
}

// The first request to the provider is the one for the pod: while the provider is silent, this
// request has the answer that names the side.
func TestAnOutageEndsTheLookup(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err  error
		says string
		code int
	}{
		"silent":      {context.DeadlineExceeded, "pod shop/web: the API server of the provider does not answer; this cluster works, and pods that run in the provider go on running: context deadline exceeded", http.StatusBadGateway},
		"unavailable": {apierrors.NewServiceUnavailable("etcd is away"), "pod shop/web: the provider is not available; this cluster works: etcd is away", http.StatusBadGateway},
		"not there":   {apierrors.NewNotFound(corev1.Resource("pods"), "web"), `pod shop/web cannot be reached in the provider: looking for the pod in the provider: pods "web" not found`, http.StatusBadGateway},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			provider := fake.NewClientset()
			provider.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, tc.err })
			s := &Server{cfg: Config{NodeName: "milan", Pods: offloaded(t, provider)}}
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/containerLogs/shop/web/app", nil)
			require.NoError(t, err)
			request.SetPathValue("namespace", "shop")
			request.SetPathValue("pod", "web")
			_, err = s.target(request)
			require.EqualError(t, err, tc.says)
			var answer httpError
			require.ErrorAs(t, err, &answer)
			require.Equal(t, tc.code, answer.code)
		})
	}
}

// offloaded finds the pod shop/web, which is on the virtual node milan.
func offloaded(t *testing.T, provider kubernetes.Interface) Lookup {
	t.Helper()
	nodes, maps := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil), cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	require.NoError(t, nodes.Add(&offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"}, Spec: offloadingv1beta1.VirtualNodeSpec{ClusterID: "milan"}}))
	require.NoError(t, maps.Add(&offloadingv1beta1.NamespaceMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"},
		Spec:       offloadingv1beta1.NamespaceMapSpec{DesiredMapping: map[string]string{"shop": "shop-rome"}},
		Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{
			"shop": {RemoteNamespace: "shop-rome", Phase: offloadingv1beta1.MappingAccepted}}},
	}))
	return Lookup{
		Namespace: "liqo-tenant-milan", Name: "milan",
		Kube:         fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.PodSpec{NodeName: "milan"}}),
		VirtualNodes: offloadinglisters.NewVirtualNodeLister(nodes), NamespaceMaps: offloadinglisters.NewNamespaceMapLister(maps),
		Provider: func() (kubernetes.Interface, error) { return provider, nil },
	}
}
