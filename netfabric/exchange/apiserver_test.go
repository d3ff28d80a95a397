package exchange

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corefake "k8s.io/client-go/kubernetes/fake"

	"github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
)

// serverService is the Service of the API server.
func serverService(address string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}, Spec: corev1.ServiceSpec{ClusterIP: address}}
}

func milanNode() *offloadingv1beta1.VirtualNode {
	return &offloadingv1beta1.VirtualNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "milan-2", UID: "vn-1"}, Spec: offloadingv1beta1.VirtualNodeSpec{ClusterID: "milan"},
	}
}

// TestAPIServer runs the loop: the IP comes with the VirtualNode, stays when the Service has
// another address, and goes where there is no fabric.
func TestAPIServer(t *testing.T) {
	t.Parallel()
	liqo, core := fake.NewSimpleClientset(milanCluster(nil), milanNode()), corefake.NewClientset()
	kubetest.WatchFromList(liqo)
	a, own := apiServerRig(t, liqo, core)
	require.Zero(t, len(liqo.Actions())+len(core.Actions()), "NewAPIServer starts nothing")
	own.Start(t.Context().Done())
	done := make(chan error, 1)
	go func() { done <- a.Run(t.Context(), 2) }()

	ctx, ips := t.Context(), liqo.IPAMV1alpha1().IPs(tenant)
	becomes := func(want string) *ipamv1alpha1.IP {
		t.Helper()
		var ip *ipamv1alpha1.IP
		have := ""
		require.Eventually(t, func() bool {
			var err error
			ip, err = ips.Get(ctx, "milan-2-api-server", metav1.GetOptions{})
			switch {
			case apierrors.IsNotFound(err):
				have = "none"
			case err != nil:
				have = err.Error()
			default:
				have = fmt.Sprint(ip.Spec.IP, " ", ip.Spec.Ports)
			}
			return have == want
		}, time.Minute, 5*time.Millisecond, "want %s, have %s", want, have)
		return ip
	}
	services := core.CoreV1().Services(metav1.NamespaceDefault)
	kubetest.Create(t, services, serverService("192.0.2.1"))
	ip := becomes("192.0.2.1 [{TCP 443}]")
	require.True(t, metav1.IsControlledBy(ip, milanNode()))
	require.True(t, *ip.Spec.Masquerade)
	require.Equal(t, "milan", ip.Labels["liqo.io/remote-cluster-id"])

	kubetest.Update(t, services, serverService("192.0.2.2"))
	kubetest.Update(t, liqo.CoreV1beta1().ForeignClusters(), milanCluster(new(false)))
	becomes("none")
	kubetest.Update(t, liqo.CoreV1beta1().ForeignClusters(), milanCluster(new(true)))
	becomes("192.0.2.2 [{TCP 443}]")
}

// apiServerRig is an APIServer with caches that the test fills, or starts.
func apiServerRig(t *testing.T, liqo *fake.Clientset, core *corefake.Clientset) (*APIServer, externalversions.SharedInformerFactory) {
	t.Helper()
	own := externalversions.NewSharedInformerFactory(liqo, 0)
	a := NewAPIServer(IPConfig{
		Base: Base{Env: loop.Env{Log: zap.NewNop()}, Client: liqo, ForeignClusters: own.Core().V1beta1().ForeignClusters()},
		Kube: core, VirtualNodes: own.Offloading().V1beta1().VirtualNodes(), IPs: own.IPAM().V1alpha1().IPs(),
	})
	require.NoError(t, a.cfg.VirtualNodes.Informer().GetIndexer().Add(milanNode()))
	return a, own
}

// TestAPIServerStaleCaches: nothing is created while there is no Service, and a second creation does no harm.
func TestAPIServerStaleCaches(t *testing.T) {
	t.Parallel()
	liqo, core := fake.NewSimpleClientset(), corefake.NewClientset()
	a, _ := apiServerRig(t, liqo, core)
	key := loop.Key{Namespace: tenant, Name: "milan-2"}
	sync := func() ([]string, error) {
		liqo.ClearActions()
		err := a.sync(t.Context(), key)
		return kubetest.TakeWrites(liqo), err
	}
	writes, err := sync()
	require.ErrorContains(t, err, "reading Service kubernetes")
	require.Empty(t, writes)
	kubetest.Create(t, core.CoreV1().Services(metav1.NamespaceDefault), serverService("192.0.2.1"))
	writes, err = sync()
	require.NoError(t, err)
	require.Equal(t, []string{"create ips " + tenant + "/milan-2-api-server"}, writes)
	_, err = sync()
	require.Equal(t, loop.After(store.CatchUp), err, "the cache does not have it yet")

	have := kubetest.Get(t, liqo.IPAMV1alpha1().IPs(tenant), "milan-2-api-server")
	require.NoError(t, a.cfg.IPs.Informer().GetIndexer().Add(have))
	writes, err = sync()
	require.NoError(t, err)
	require.Empty(t, writes)

	// Where the fabric is switched off, what is there from before goes.
	a.cfg.Off = true
	writes, err = sync()
	require.NoError(t, err)
	require.Equal(t, []string{"delete ips " + tenant + "/milan-2-api-server"}, writes)
	a.cfg.Off = false

	foreign := have.DeepCopy()
	foreign.OwnerReferences = nil
	require.NoError(t, a.cfg.IPs.Informer().GetIndexer().Add(foreign))
	writes, err = sync()
	require.ErrorContains(t, err, "IP liqo-tenant-milan/milan-2-api-server is in the way")
	require.Empty(t, writes)
	a.cfg.Off = true
	writes, err = sync()
	require.NoError(t, err)
	require.Empty(t, writes, "somebody else's stays")
}

func TestHomeAPI(t *testing.T) {
	t.Parallel()
	good := func(mods ...func(*ipamv1alpha1.IP)) *ipamv1alpha1.IP {
		ip := &ipamv1alpha1.IP{
			ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "milan-2-api-server"},
			Spec:       ipamv1alpha1.IPSpec{IP: "192.0.2.1", Ports: []ipamv1alpha1.IPPort{{Protocol: corev1.ProtocolTCP, Port: 6443}}},
			Status: ipamv1alpha1.IPStatus{IP: "10.70.0.20", Conditions: []metav1.Condition{{
				Type: ipamv1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: ipamv1alpha1.ReasonAllocated}}},
		}
		for _, mod := range mods {
			mod(ip)
		}
		return ip
	}
	for name, tc := range map[string]struct {
		ip         *ipamv1alpha1.IP
		connection *networkingv1beta1.Connection
		want, err  string
	}{
		"ready":         {ip: good(), connection: toMilan(), want: "10.91.0.20:6443"},
		"no IP":         {connection: toMilan(), err: "there is no IP liqo-tenant-milan/milan-2-api-server of the API server yet"},
		"no Connection": {ip: good(), err: "the provider has no view of 10.70.0.20"},
		"nothing allocated": {ip: good(func(ip *ipamv1alpha1.IP) { ip.Status = ipamv1alpha1.IPStatus{} }), connection: toMilan(),
			err: "has no address yet"},
		"exhausted": {ip: good(func(ip *ipamv1alpha1.IP) {
			ip.Status.Conditions[0].Status, ip.Status.Conditions[0].Message = metav1.ConditionFalse, "no address is free"
		}), connection: toMilan(), err: "is not ready: no address is free"},
		"no port": {ip: good(func(ip *ipamv1alpha1.IP) { ip.Spec.Ports = nil }), connection: toMilan(), err: "has 0 ports: one TCP port from 1 to 65535 is accepted"},
		"a port of UDP": {ip: good(func(ip *ipamv1alpha1.IP) { ip.Spec.Ports[0].Protocol = corev1.ProtocolUDP }), connection: toMilan(),
			err: "one TCP port from 1 to 65535 is accepted"},
		"several ports": {ip: good(func(ip *ipamv1alpha1.IP) { ip.Spec.Ports = append(ip.Spec.Ports, ip.Spec.Ports[0]) }), connection: toMilan(),
			err: "has 2 ports"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRemapRig(t, fake.NewSimpleClientset())
			r.cluster(milanCluster(nil))
			r.connection(tc.connection)
			ips := r.factory.IPAM().V1alpha1().IPs()
			if tc.ip != nil {
				require.NoError(t, ips.Informer().GetIndexer().Add(tc.ip))
			}
			h := HomeAPI{IPs: ips, Remap: r.Peer("milan"), Namespace: tenant, VirtualNode: "milan-2"}
			require.True(t, h.Fabric())
			got, err := h.Address(false)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, netip.MustParseAddrPort(tc.want), got)
			got, err = h.Address(true)
			require.NoError(t, err)
			require.Equal(t, netip.MustParseAddrPort("192.0.2.1:6443"), got)
			r.cluster(milanCluster(new(false)))
			require.False(t, h.Fabric())
		})
	}
}

// TestAPIServerWithoutIPAM: where no role ipam runs, its finalizer does not keep an IP that is
// being deleted, also when the VirtualNode is gone.
func TestAPIServerWithoutIPAM(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		noIPAM, gone, foreign bool
		want                  []string
	}{
		"ipam runs":        {},
		"none runs":        {noIPAM: true, want: []string{"example.com/other"}},
		"VirtualNode gone": {noIPAM: true, gone: true, want: []string{"example.com/other"}},
		"made by somebody": {noIPAM: true, foreign: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := metav1.Now()
			ip := &ipamv1alpha1.IP{ObjectMeta: metav1.ObjectMeta{
				Namespace: tenant, Name: "milan-2-api-server", DeletionTimestamp: &now,
				Finalizers: []string{ipamv1alpha1.IPFinalizer, "example.com/other"},
				Labels:     map[string]string{offloadingv1beta1.ManagedByLabel: ipamv1alpha1.ManagedByAPIServer},
			}}
			if tc.foreign {
				ip.Labels = nil
			}
			liqo := fake.NewSimpleClientset(ip)
			a, _ := apiServerRig(t, liqo, corefake.NewClientset())
			a.cfg.Off, a.cfg.NoIPAM = true, tc.noIPAM
			require.NoError(t, a.cfg.IPs.Informer().GetIndexer().Add(ip))
			if tc.gone {
				require.NoError(t, a.cfg.VirtualNodes.Informer().GetIndexer().Delete(milanNode()))
			}
			require.NoError(t, a.sync(t.Context(), loop.Key{Namespace: tenant, Name: "milan-2"}))
			have := kubetest.Get(t, liqo.IPAMV1alpha1().IPs(tenant), ip.Name)
			if tc.want == nil {
				tc.want = ip.Finalizers
			}
			require.Equal(t, tc.want, have.Finalizers)
		})
	}
}
