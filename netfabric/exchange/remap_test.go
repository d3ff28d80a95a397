package exchange

import (
	"errors"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
)

// toMilan is rome's Connection to milan: both clusters have the same pod ranges.
func toMilan(mods ...func(*networkingv1beta1.ConnectionSpec)) *networkingv1beta1.Connection {
	c := &networkingv1beta1.Connection{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "milan"},
		Spec: networkingv1beta1.ConnectionSpec{
			ClusterID: "milan",
			Local: []networkingv1beta1.Mapping{
				{Own: "10.244.0.0/16", View: "10.90.0.0/16", Use: networkingv1beta1.RangePod},
				{Own: "fd00:10:244::/56", View: "fd90::/56", Use: networkingv1beta1.RangePod},
				{Own: "10.70.0.0/16", View: "10.91.0.0/16", Use: networkingv1beta1.RangeExternal},
			},
			Remote: []networkingv1beta1.Mapping{
				{Own: "10.244.0.0/16", View: "10.80.0.0/16", Use: networkingv1beta1.RangePod},
				{Own: "fd00:10:244::/56", View: "fd80::/56", Use: networkingv1beta1.RangePod},
				{Own: "10.70.0.0/16", View: "10.71.0.0/16", Use: networkingv1beta1.RangeExternal},
			},
		},
	}
	for _, mod := range mods {
		mod(&c.Spec)
	}
	return c
}

func milanCluster(networking *bool) *corev1beta1.ForeignCluster {
	return &corev1beta1.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "milan"},
		Spec:       corev1beta1.ForeignClusterSpec{ClusterID: "milan", NetworkingEnabled: networking},
	}
}

// remapRig is a Remapper with caches that the test fills.
type remapRig struct {
	*Remapper
	t       *testing.T
	factory externalversions.SharedInformerFactory
	clk     *clocktesting.FakeClock
}

func newRemapRig(t *testing.T, client *fake.Clientset) remapRig {
	t.Helper()
	factory := externalversions.NewSharedInformerFactory(client, 0)
	clk := clocktesting.NewFakeClock(noon)
	r := NewRemapper(RemapConfig{
		Connections: factory.Networking().V1beta1().Connections(),
		Base:        Base{Env: loop.Env{Clock: clk, Log: zap.NewNop()}, Client: client, ForeignClusters: factory.Core().V1beta1().ForeignClusters()},
	})
	return remapRig{r, t, factory, clk}
}

func (r remapRig) connection(c *networkingv1beta1.Connection) {
	var all []any
	if c != nil {
		all = append(all, c)
	}
	require.NoError(r.t, r.cfg.Connections.Informer().GetIndexer().Replace(all, ""))
}

func (r remapRig) cluster(fc *corev1beta1.ForeignCluster) {
	require.NoError(r.t, r.cfg.ForeignClusters.Informer().GetIndexer().Replace([]any{fc}, ""))
}

// gives is the text of an address, or "none".
func gives(addr netip.Addr, ok bool) string {
	if !ok {
		return "none"
	}
	return addr.String()
}

func TestRemapper(t *testing.T) {
	t.Parallel()
	r := newRemapRig(t, fake.NewSimpleClientset())
	r.cluster(milanCluster(nil))
	r.connection(toMilan())
	for text, want := range map[string][3]string{ // Remap, Unmap, View
		"10.244.3.4":     {"10.80.3.4", "none", "10.90.3.4"},
		"10.70.0.20":     {"10.71.0.20", "none", "10.91.0.20"},
		"10.90.3.4":      {"none", "10.244.3.4", "none"},
		"10.80.3.4":      {"none", "none", "none"},
		"192.0.2.1":      {"none", "none", "none"},
		"fd00:10:244::7": {"fd80::7", "none", "fd90::7"},
		"fd90:0:0:11::7": {"none", "fd00:10:244:11::7", "none"},
		"fd00:10:245::1": {"none", "none", "none"},
	} {
		addr := netip.MustParseAddr(text)
		got := [3]string{gives(r.Remap("milan", addr)), gives(r.Unmap("milan", addr)), gives(r.View("milan", addr))}
		require.Equal(t, want, got, text)
		require.Equal(t, want[0], gives(r.Peer("milan").Remap(addr)))
		if view, ok := r.View("milan", addr); ok {
			require.Equal(t, text, gives(r.Unmap("milan", view)), "and back")
		}
	}
	own, err := r.Ranges("milan")
	require.NoError(t, err)
	require.Equal(t, ranges("10.244.0.0/16", "fd00:10:244::/56", "10.70.0.0/16"), own)
	require.Equal(t, "none", gives(r.Remap("oslo", netip.MustParseAddr("10.244.3.4"))), "of another peer")
}

// TestRemapperWithoutFabric: the ForeignCluster decides, now and later.
func TestRemapperWithoutFabric(t *testing.T) {
	t.Parallel()
	r := newRemapRig(t, fake.NewSimpleClientset())
	addr := netip.MustParseAddr("10.244.3.4")
	_, err := r.Ranges("milan")
	require.EqualError(t, err, "there is no Connection liqo-tenant-milan/milan yet")
	for _, step := range []struct {
		networking *bool
		connection *networkingv1beta1.Connection
		fabric     bool
		want       string
	}{
		{nil, nil, true, "none"}, {nil, toMilan(), true, "10.80.3.4"}, {new(false), toMilan(), false, "10.244.3.4"},
		{new(false), nil, false, "10.244.3.4"}, {new(true), nil, true, "10.80.3.4"}, {new(true), toMilan(), true, "10.80.3.4"},
	} {
		r.cluster(milanCluster(step.networking))
		r.connection(step.connection)
		require.Equal(t, step.fabric, r.Fabric("milan"))
		require.Equal(t, step.want, gives(r.Remap("milan", addr)))
	}
}

// TestBadConnection: nothing of a Connection counts if something in it is wrong, and what
// it was before counts no more.
func TestBadConnection(t *testing.T) {
	t.Parallel()
	type spec = networkingv1beta1.ConnectionSpec
	for name, tc := range map[string]struct {
		mod  func(*spec)
		want string
	}{
		"another cluster":                  {func(s *spec) { s.ClusterID = "oslo" }, `spec.clusterID is "oslo": "milan" is accepted`},
		"no range":                         {func(s *spec) { s.Remote[0].View = "10.80.0.0" }, `spec.remote: "10.244.0.0/16" and "10.80.0.0": two ranges`},
		"host bits":                        {func(s *spec) { s.Local[0].Own = "10.244.0.1/16" }, `spec.local: "10.244.0.1/16" and`},
		"different sizes":                  {func(s *spec) { s.Remote[0].View = "10.80.0.0/17" }, "10.244.0.0/16 and 10.80.0.0/17 are of different lengths"},
		"different families":               {func(s *spec) { s.Remote[0].View = "fd99::/16" }, "different IP versions"},
		"link-local":                       {func(s *spec) { s.Remote[0].View = "169.254.0.0/16" }, "addresses that no host can have"},
		"own ranges of the peer overlap":   {func(s *spec) { s.Remote[2].Own = "10.244.0.0/16" }, "10.244.0.0/16 and 10.244.0.0/16 overlap"},
		"views of the peer overlap":        {func(s *spec) { s.Remote[2].View = "10.80.0.0/16" }, "10.80.0.0/16 and 10.80.0.0/16 overlap"},
		"views in the peer overlap":        {func(s *spec) { s.Local[2].View = "10.90.0.0/16" }, "10.90.0.0/16 and 10.90.0.0/16 overlap"},
		"a view is an own range here":      {func(s *spec) { s.Remote[0].View = "10.70.0.0/16" }, "in this cluster 10.70.0.0/16 and 10.70.0.0/16 overlap"},
		"a view is an own range of theirs": {func(s *spec) { s.Local[0].View = "10.70.0.0/16" }, "in cluster milan 10.70.0.0/16 and 10.70.0.0/16 overlap"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRemapRig(t, fake.NewSimpleClientset())
			r.cluster(milanCluster(nil))
			r.connection(toMilan())
			addr := netip.MustParseAddr("10.244.3.4")
			require.Equal(t, "10.80.3.4", gives(r.Remap("milan", addr)))
			r.connection(toMilan(tc.mod))
			require.Equal(t, "none", gives(r.Remap("milan", addr)))
			require.Equal(t, "none", gives(r.Unmap("milan", netip.MustParseAddr("10.90.3.4"))))
			_, err := r.Ranges("milan")
			require.ErrorContains(t, err, "Connection liqo-tenant-milan/milan is not used: ")
			require.ErrorContains(t, err, tc.want)
			r.connection(toMilan())
			require.Equal(t, "10.80.3.4", gives(r.Remap("milan", addr)))
		})
	}
}

// TestRemapperIsCheap: a Connection is read once for all calls.
func TestRemapperIsCheap(t *testing.T) {
	r := newRemapRig(t, fake.NewSimpleClientset())
	r.cluster(milanCluster(nil))
	r.connection(toMilan())
	first := r.translation("milan")
	require.Same(t, first, r.translation("milan"))
	r.connection(toMilan())
	require.NotSame(t, first, r.translation("milan"))
	last := r.translation("milan")
	r.connection(nil)
	require.Same(t, last, r.translation("milan"), "it may be in the API server")
}

// What a Connection and a ForeignCluster said counts when the caches have them no more, until
// the API server has said for a while that they are gone, or another peer has the addresses.
func TestRemapperHolds(t *testing.T) {
	t.Parallel()
	client := fake.NewSimpleClientset(toMilan(), milanCluster(nil))
	away := false
	client.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return away, nil, errors.New("away") })
	r := newRemapRig(t, client)
	var told []string
	r.Subscribe(func(peer string) { told = append(told, peer) })
	ctx, addr, key := t.Context(), netip.MustParseAddr("10.244.3.4"), loop.Key{Name: "milan"}
	r.cluster(milanCluster(nil))
	r.connection(toMilan())
	gives := func() string { return gives(r.Remap("milan", addr)) }
	require.Equal(t, "10.80.3.4", gives())
	require.NoError(t, r.confirm(ctx, key))

	r.connection(nil)
	require.Equal(t, "10.80.3.4", gives())
	require.Equal(t, loop.After(store.CatchUp), r.confirm(ctx, key), "the cache is behind")
	require.NoError(t, client.NetworkingV1beta1().Connections(tenant).Delete(ctx, "milan", metav1.DeleteOptions{}))
	away = true
	r.clk.Step(time.Hour)
	require.ErrorContains(t, r.confirm(ctx, key), "confirming that the Connection to milan is gone: away")
	away = false
	require.Equal(t, loop.After(vanishedHold), r.confirm(ctx, key))
	r.clk.Step(vanishedHold - time.Second)
	require.Equal(t, loop.After(time.Second), r.confirm(ctx, key))
	require.Equal(t, "10.80.3.4", gives())
	oslo := toMilan(func(s *networkingv1beta1.ConnectionSpec) { s.ClusterID = "oslo" })
	oslo.Namespace, oslo.Name = corev1beta1.TenantNamespace("oslo"), "oslo"
	r.connection(oslo)
	require.Equal(t, "none", gives(), "another peer is seen there")
	r.connection(nil)
	require.Equal(t, "10.80.3.4", gives())
	require.Empty(t, told)
	r.clk.Step(time.Second)
	require.NoError(t, r.confirm(ctx, key))
	require.Equal(t, []string{"milan"}, told)
	require.Equal(t, "none", gives())
	require.Empty(t, r.known)

	r.cluster(milanCluster(new(false)))
	require.Equal(t, "10.244.3.4", gives())
	require.NoError(t, r.cfg.ForeignClusters.Informer().GetIndexer().Replace(nil, ""))
	require.Equal(t, "10.244.3.4", gives())
	require.Equal(t, loop.After(store.CatchUp), r.confirm(ctx, key))
	require.NoError(t, client.CoreV1beta1().ForeignClusters().Delete(ctx, "milan", metav1.DeleteOptions{}))
	require.Equal(t, []loop.Key{key}, r.peers())
	require.Equal(t, loop.After(vanishedHold), r.confirm(ctx, key))
	r.clk.Step(vanishedHold)
	require.NoError(t, r.confirm(ctx, key))
	require.True(t, r.Fabric("milan"))
	require.Empty(t, r.peers())
}

// TestRemapperTells: subscribers hear of the peer whose translation changed, and find it
// changed; what changes nothing is not told. Calls from several goroutines do no harm.
func TestRemapperTells(t *testing.T) {
	t.Parallel()
	client := fake.NewSimpleClientset(milanCluster(nil))
	r := newRemapRig(t, client)
	var mu sync.Mutex
	var seen []string
	addr := netip.MustParseAddr("10.244.3.4")
	synced := r.Subscribe(func(peer string) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, peer+" "+gives(r.Remap(peer, addr)))
	})
	require.False(t, synced())
	r.factory.Start(t.Context().Done())
	tells := func(want string) {
		t.Helper()
		require.Eventually(t, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return slices.Contains(seen, want)
		}, time.Minute, 5*time.Millisecond, want)
		mu.Lock()
		defer mu.Unlock()
		seen = nil
	}
	tells("milan none")
	require.Eventually(t, func() bool { return synced() && r.HasSynced() }, time.Minute, 5*time.Millisecond)

	ctx, connections := t.Context(), client.NetworkingV1beta1().Connections(tenant)
	kubetest.Create(t, connections, toMilan())
	tells("milan 10.80.3.4")
	noted := toMilan()
	noted.Status.Value = networkingv1beta1.Connected
	kubetest.Update(t, connections, noted)
	kubetest.Update(t, connections, toMilan(func(s *networkingv1beta1.ConnectionSpec) { s.Remote[0].View = "10.81.0.0/16" }))
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.Equal(seen, []string{"milan 10.81.3.4"})
	}, time.Minute, 5*time.Millisecond, "a change of the status is not told")
	require.NoError(t, connections.Delete(ctx, "milan", metav1.DeleteOptions{}))
	tells("milan 10.81.3.4")
	kubetest.Update(t, client.CoreV1beta1().ForeignClusters(), milanCluster(new(false)))
	tells("milan 10.244.3.4")
}
