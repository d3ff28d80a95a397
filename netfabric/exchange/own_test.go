package exchange

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	coreinformers "k8s.io/client-go/informers"
	corefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/netfabric/check"
)

var serviceCIDRs = schema.GroupResource{Group: "networking.k8s.io", Resource: "servicecidrs"}

// serverSlice is the EndpointSlice of an API server at the addresses.
func serverSlice(port int32, addresses ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}},
		Ports:      []discoveryv1.EndpointPort{{Name: new("https"), Port: new(port)}},
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	return s
}

func serviceCIDR(name string, cidrs ...string) *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: cidrs}}
}

// finder is Ranges of a cluster whose API server answers requests for ServiceCIDRs with an
// error, while there is one.
type finder struct {
	*Ranges
	core *corefake.Clientset
	fail atomic.Pointer[error]
	told atomic.Int32
}

func newFinder(t *testing.T, given check.Own, fail error, objects ...runtime.Object) *finder {
	t.Helper()
	f := &finder{core: corefake.NewClientset(objects...)}
	kubetest.WatchFromList(f.core)
	f.failWith(fail)
	f.core.PrependReactor("list", "servicecidrs", func(clienttesting.Action) (bool, runtime.Object, error) {
		err := *f.fail.Load()
		return err != nil, nil, err
	})
	f.core.PrependWatchReactor("servicecidrs", func(clienttesting.Action) (bool, watch.Interface, error) {
		err := *f.fail.Load()
		return err != nil, nil, err
	})
	factory := coreinformers.NewSharedInformerFactoryWithOptions(f.core, 0, coreinformers.WithTransform(check.TrimNode))
	var err error
	f.Ranges, err = NewRanges(RangesConfig{Given: given, Nodes: factory.Core().V1().Nodes(), ServiceCIDRs: factory.Networking().V1().ServiceCIDRs(), APIServer: factory.Discovery().V1().EndpointSlices(), Log: zap.NewNop()})
	require.NoError(t, err)
	f.Subscribe(func() { f.told.Add(1) })
	kubetest.Run(t, func(ctx context.Context) error {
		factory.Start(ctx.Done())
		defer factory.Shutdown()
		return f.Run(ctx)
	})
	require.True(t, cache.WaitForCacheSync(t.Context().Done(), f.HasSynced))
	return f
}

func (f *finder) failWith(err error) { f.fail.Store(&err) }

func TestOwnRanges(t *testing.T) {
	t.Parallel()
	virtual := testNode("milan", "10.50.0.1", "10.51.0.0/24")
	virtual.Labels = map[string]string{offloadingv1beta1.TypeLabel: offloadingv1beta1.TypeVirtualNode}
	nodes := []runtime.Object{testNode("b", "192.168.0.12", "10.244.2.0/24"), testNode("a", "192.168.0.11", "10.244.1.0/24", "fd00:10:244:1::/64"), virtual}
	cidrs := []runtime.Object{serviceCIDR("more", "10.112.0.0/16"), serviceCIDR("kubernetes", "10.96.0.0/16", "fd00:10:96::/112")}
	bare := []runtime.Object{testNode("a", "192.168.0.11")}
	given := check.Own{Pods: ranges("10.42.0.0/16"), Services: ranges("10.43.0.0/16"), Reserved: ranges("172.16.0.0/12")}
	absent := apierrors.NewNotFound(serviceCIDRs, "")
	forbidden := apierrors.NewForbidden(serviceCIDRs, "", nil)
	for name, tc := range map[string]struct {
		given   check.Own
		fail    error
		objects [][]runtime.Object
		want    string // pods, Services, nodes
		says    []string
	}{
		"found": {objects: [][]runtime.Object{nodes, cidrs},
			want: "[10.244.1.0/24 fd00:10:244:1::/64 10.244.2.0/24] [10.96.0.0/16 10.112.0.0/16 fd00:10:96::/112] [192.168.0.11 192.168.0.12]"},
		"found and given": {given: given, objects: [][]runtime.Object{nodes, cidrs},
			want: "[10.42.0.0/16 10.244.1.0/24 fd00:10:244:1::/64 10.244.2.0/24] [10.43.0.0/16 10.96.0.0/16 10.112.0.0/16 fd00:10:96::/112] [192.168.0.11 192.168.0.12]"},
		"only given":         {given: given, objects: [][]runtime.Object{bare}, want: "[10.42.0.0/16] [10.43.0.0/16] [192.168.0.11]"},
		"no podCIDRs":        {objects: [][]runtime.Object{bare, cidrs}, says: []string{"no Node has a podCIDR: set networking.podCIDRs"}},
		"no ServiceCIDR":     {objects: [][]runtime.Object{nodes}, says: []string{"no ServiceCIDR: set networking.serviceCIDRs"}},
		"no API":             {fail: absent, objects: [][]runtime.Object{nodes}, says: []string{"has no ServiceCIDRs (Kubernetes has them from 1.33 on): set networking.serviceCIDRs"}},
		"no API, given":      {given: given, fail: absent, objects: [][]runtime.Object{bare}, want: "[10.42.0.0/16] [10.43.0.0/16] [192.168.0.11]"},
		"no right":           {fail: forbidden, objects: [][]runtime.Object{nodes}, says: []string{"set networking.serviceCIDRs, or give the right to list and watch ServiceCIDRs", "forbidden"}},
		"no right, given":    {given: given, fail: forbidden, objects: [][]runtime.Object{bare}, want: "[10.42.0.0/16] [10.43.0.0/16] [192.168.0.11]"},
		"no answer":          {fail: apierrors.NewInternalError(fmt.Errorf("etcd")), objects: [][]runtime.Object{nodes}, says: []string{"not known, and are asked for again", "etcd"}},
		"no answer, given":   {given: given, fail: apierrors.NewInternalError(fmt.Errorf("etcd")), objects: [][]runtime.Object{nodes}, says: []string{"not known, and are asked for again"}},
		"neither":            {fail: absent, says: []string{"set networking.podCIDRs", "set networking.serviceCIDRs"}},
		"external, Services": {given: check.Own{External: ranges("10.96.0.0/20")}, objects: [][]runtime.Object{nodes, cidrs}, says: []string{"networking.externalCIDRs: 10.96.0.0/20 overlaps 10.96.0.0/16, a range of Services"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var objects []runtime.Object
			for _, list := range tc.objects {
				objects = append(objects, list...)
			}
			f := newFinder(t, tc.given, tc.fail, objects...)
			own, err := f.Own()
			_, reservedErr := f.Reserved()
			if tc.want == "" {
				require.Error(t, err)
				require.Equal(t, err, reservedErr)
				for _, word := range tc.says {
					require.ErrorContains(t, err, word)
				}
				return
			}
			require.NoError(t, err)
			require.NoError(t, reservedErr)
			require.Equal(t, tc.want, fmt.Sprint(own.Pods, own.Services, own.Nodes))
		})
	}
}

// TestReservedRanges: there is room for the pods of the next Nodes.
func TestReservedRanges(t *testing.T) {
	t.Parallel()
	objects := []runtime.Object{testNode("a", "192.168.0.11", "10.244.1.0/24"), serviceCIDR("kubernetes", "10.96.0.0/16"), serverSlice(6443, "10.50.0.7")}
	for name, tc := range map[string]struct {
		given check.Own
		want  string
	}{
		"found": {check.Own{}, "[{10.244.0.0/16 a pod range of this cluster} {10.96.0.0/16 a range of Services of this cluster} {192.168.0.11/32 a node of this cluster} {10.50.0.7/32 an API server of this cluster}]"},
		"given": {check.Own{Pods: ranges("10.42.0.0/16"), Reserved: ranges("172.16.0.0/12")},
			"[{10.42.0.0/16 a pod range of this cluster} {10.244.1.0/24 a pod range of this cluster} {10.96.0.0/16 a range of Services of this cluster} " +
				"{192.168.0.11/32 a node of this cluster} {10.50.0.7/32 an API server of this cluster} {172.16.0.0/12 a reserved range of this cluster}]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reserved, err := newFinder(t, tc.given, nil, objects...).Reserved()
			require.NoError(t, err)
			require.Equal(t, tc.want, fmt.Sprint(reserved))
		})
	}
}

// TestOwnRangesAppear: the API comes with an upgrade, ranges and Nodes come and go; subscribers
// are told of each.
func TestOwnRangesAppear(t *testing.T) {
	t.Parallel()
	f := newFinder(t, check.Own{}, apierrors.NewNotFound(serviceCIDRs, ""), testNode("a", "192.168.0.11"), serviceCIDR("kubernetes", "10.96.0.0/16"))
	_, err := f.Own()
	require.ErrorContains(t, err, "set networking.serviceCIDRs")
	f.failWith(nil)
	until := func(what string, is func() bool) {
		t.Helper()
		require.Eventually(t, func() bool { return is() && f.told.Load() > 0 }, time.Minute, 5*time.Millisecond, what)
		f.told.Store(0)
	}
	until("ServiceCIDRs are read", func() bool { own, _ := f.Own(); return len(own.Services) == 1 })

	node := kubetest.Get(t, f.core.CoreV1().Nodes(), "a")
	node.Spec.PodCIDRs = []string{"10.244.1.0/24"}
	kubetest.Update(t, f.core.CoreV1().Nodes(), node)
	until("the Node has a podCIDR", func() bool { _, err := f.Own(); return err == nil })

	kubetest.Create(t, f.core.NetworkingV1().ServiceCIDRs(), serviceCIDR("more", "10.97.0.0/16"))
	until("there are more", func() bool { own, _ := f.Own(); return len(own.Services) == 2 })
	kubetest.Create(t, f.core.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault), serverSlice(6443, "10.50.0.7"))
	until("the API server has an address", func() bool { own, _ := f.Own(); return len(own.APIServer) == 1 })
	require.NoError(t, f.core.CoreV1().Nodes().Delete(t.Context(), "a", metav1.DeleteOptions{}))
	until("the Node is gone", func() bool { own, err := f.Own(); return err != nil && len(own.Nodes) == 0 })
}
