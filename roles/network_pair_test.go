package roles

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	corefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/health"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/netfabric/exchange"
	"github.com/liqod/liqod/reflect/replication"
	"github.com/liqod/liqod/roles/config"
)

// side is one of two clusters whose networks have the same ranges.
type side struct {
	t        *testing.T
	id, peer string
	liqo     *fake.Clientset
	kube     *corefake.Clientset
	factory  externalversions.SharedInformerFactory
	standing *exchange.NetworkStatus
	publish  *exchange.Publisher
	runs     []func(context.Context) error
}

// oneGateway is a cluster's only gateway.
type oneGateway struct{ gateway networkingv1beta1.Gateway }

func (g oneGateway) Gateways() ([]networkingv1beta1.Gateway, bool) {
	return []networkingv1beta1.Gateway{g.gateway}, true
}
func (oneGateway) Alive() bool      { return true }
func (oneGateway) MTU() int32       { return 0 }
func (oneGateway) Subscribe(func()) {}

func newSide(t *testing.T, id, peer, user, key string) *side {
	s := &side{t: t, id: id, peer: peer, liqo: fake.NewSimpleClientset(), kube: corefake.NewClientset(
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Spec: corev1.NodeSpec{PodCIDRs: []string{"10.244.1.0/24"}},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.11"}}}},
		&networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/16"}}},
	)}
	s.liqo.PrependReactor("*", "*", kubetest.NewServer(s.liqo.Tracker(), clock.RealClock{}).React)
	kubetest.WatchFromList(s.liqo)
	kubetest.Create(t, s.kube.CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: corev1beta1.TenantNamespace(peer)}})
	kubetest.Create(t, s.liqo.CoreV1beta1().ForeignClusters(), &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: peer},
		Spec: corev1beta1.ForeignClusterSpec{ClusterID: peer, UserName: user}})
	offers := s.liqo.SharingV1alpha1().ResourceOffers(corev1beta1.TenantNamespace(peer))
	offer := kubetest.Create(t, offers, &sharingv1alpha1.ResourceOffer{ObjectMeta: metav1.ObjectMeta{Name: "milan", Namespace: corev1beta1.TenantNamespace(peer)}})
	offer.Status.Phase = sharingv1alpha1.OfferAccepted
	kubetest.UpdateStatus(t, offers, offer)
	s.wire(key)
	return s
}

// wire makes the loops of roles controller and ipam.
func (s *side) wire(key string) {
	s.factory = externalversions.NewSharedInformerFactory(s.liqo, 0)
	nodes := informers.NewSharedInformerFactory(s.kube, 0)
	networking, claims := s.factory.Networking().V1beta1(), s.factory.IPAM().V1alpha1()
	cfg := config.Networking{ExternalCIDRs: []string{"10.70.0.0/16"}} // the others are found
	own, err := newRanges(cfg, nodes, nodes.Discovery().V1().EndpointSlices(), zap.NewNop())
	require.NoError(s.t, err)
	gateways := oneGateway{networkingv1beta1.Gateway{Name: "gw", Number: 1, PublicKey: key}}
	base := exchange.Base{Env: loop.Env{Clock: clock.RealClock{}, Log: zap.NewNop()}, Client: s.liqo, ForeignClusters: s.factory.Core().V1beta1().ForeignClusters()}
	network := exchange.NegotiationConfig{
		Base: base, ClusterID: s.id, Own: own, Gateways: gateways,
		Offers: s.factory.Sharing().V1alpha1().ResourceOffers(), Configurations: networking.Configurations(), Networks: claims.Networks(),
		Connections: networking.Connections(), Offloadings: s.factory.Offloading().V1beta1().NamespaceOffloadings(),
	}
	s.publish = exchange.NewPublisher(network)
	answers := exchange.NewExchange(network)
	ipam, err := exchange.NewAllocator(exchange.AllocateConfig{
		Pools: []netip.Prefix{netip.MustParsePrefix("10.80.0.0/12")}, Keep: func(string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} },
		External: config.Prefixes(cfg.ExternalCIDRs),
		Base:     base, Reserved: own, Networks: claims.Networks(), IPs: claims.IPs(), AddressPools: claims.AddressPools(),
	})
	require.NoError(s.t, err)
	s.standing = exchange.NewNetworkStatus(network)
	for _, r := range []runner{s.publish, answers, ipam} {
		s.runs = append(s.runs, func(ctx context.Context) error { return r.Run(ctx, 2) })
	}
	s.runs = append(s.runs, runFactories(s.factory, nodes))
}

// dials lets a side replicate with the other.
func (s *side) dials(other *side) {
	way := replication.Peer{Revision: "1", Liqo: other.liqo, PullNetwork: true, Identity: func(context.Context) error { return nil }}
	r := replication.New(replication.Config{
		ClusterID: s.id, Kube: s.kube, Liqo: s.liqo, Maps: s.factory.Offloading().V1beta1().NamespaceMaps(),
		Configurations: s.factory.Networking().V1beta1().Configurations(), NetworkPublished: s.publish.Wanted,
		Requests: s.factory.Sharing().V1alpha1().ResourceRequests(), Offers: s.factory.Sharing().V1alpha1().ResourceOffers(),
		CapacityWanted: func(context.Context, string) (bool, error) { return false, nil },
		Peers:          onePeer{other.id, way}, Env: loop.Env{Clock: clock.RealClock{}, Log: zap.NewNop(), Observer: health.NewTracker(time.Hour, clock.RealClock{})},
		Forget: func(string) {}, HomeLost: func() time.Time { return time.Time{} }, Delayed: func(string) {},
	})
	s.factory.Offloading().V1beta1().NamespaceMaps().Informer()
	s.factory.Sharing().V1alpha1().ResourceRequests().Informer()
	s.factory.Sharing().V1alpha1().ResourceOffers().Informer()
	r.Changed(other.id)
	s.runs = append(s.runs, r.Run)
}

type onePeer struct {
	id  string
	way replication.Peer
}

func (p onePeer) Peer(id string) (replication.Peer, bool) { return p.way, id == p.id }

func (s *side) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, len(s.runs))
	for _, run := range s.runs {
		go func() { done <- run(ctx) }()
	}
	s.t.Cleanup(func() {
		cancel()
		for range s.runs {
			require.NoError(s.t, <-done)
		}
	})
}

func (s *side) connection() *networkingv1beta1.Connection {
	c, err := s.liqo.NetworkingV1beta1().Connections(corev1beta1.TenantNamespace(s.peer)).Get(context.Background(), s.peer, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return c
}

func (s *side) told() metav1.Condition {
	c := s.standing.Condition(&corev1beta1.ForeignCluster{Spec: corev1beta1.ForeignClusterSpec{ClusterID: s.peer}})
	if c == nil {
		return metav1.Condition{}
	}
	return *c
}

// empty reports whether nothing is left of the network of the peer.
func (s *side) empty() bool {
	configurations := kubetest.List(s.t, s.liqo.NetworkingV1beta1().Configurations(""))
	networks := kubetest.List(s.t, s.liqo.IPAMV1alpha1().Networks(""))
	pool := kubetest.Get(s.t, s.liqo.IPAMV1alpha1().AddressPools(), "networks")
	return s.connection() == nil && len(configurations.Items)+len(networks.Items)+len(pool.Spec.Allocations) == 0
}

// TestTwoClusters has rome use milan, which cannot dial it. Both have the same ranges: each
// sees the other under another range, and both say the same of it. With the last offer all
// of it goes.
func TestTwoClusters(t *testing.T) {
	t.Parallel()
	rome := newSide(t, "rome", "milan", "", "AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAc=")
	milan := newSide(t, "milan", "rome", "liqo.io:peer:rome:1", "AgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAc=")
	rome.dials(milan)
	rome.run()
	milan.run()
	eventually := func(what string, f func() bool) {
		t.Helper()
		require.Eventually(t, f, time.Minute, 10*time.Millisecond, what)
	}
	// A Connection grows with each range that has got a view.
	complete := func(s *side) bool {
		c := s.connection()
		return c != nil && len(c.Spec.Local) == 2 && len(c.Spec.Remote) == 2
	}
	eventually("both are connected", func() bool { return complete(rome) && complete(milan) })
	here, there := rome.connection().Spec, milan.connection().Spec
	require.Equal(t, here.Local, there.Remote, "what milan sees rome's ranges as")
	require.Equal(t, here.Remote, there.Local)
	for _, m := range here.Remote {
		require.NotEqual(t, m.Own, m.View, "it is rome's own range, too")
	}
	published := kubetest.Get(t, milan.liqo.NetworkingV1beta1().Configurations(corev1beta1.TenantNamespace("rome")), "rome")
	require.Equal(t, published.Spec.Gateways[0].PublicKey, here.Gateways[0].PublicKey)
	eventually("rome waits for its gateway", func() bool { return rome.told().Reason == corev1beta1.ReasonConnecting })

	c := rome.connection()
	c.Status.ObservedGeneration = c.Generation
	store.SetCondition(&c.Status.Conditions, metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Connected", Message: "milan answers"})
	kubetest.UpdateStatus(t, rome.liqo.NetworkingV1beta1().Connections(c.Namespace), c)
	eventually("packets pass", func() bool { return rome.told().Status == metav1.ConditionTrue })

	for _, s := range []*side{rome, milan} {
		require.NoError(t, s.liqo.SharingV1alpha1().ResourceOffers(corev1beta1.TenantNamespace(s.peer)).Delete(t.Context(), "milan", metav1.DeleteOptions{}))
	}
	eventually("nothing is left in rome", rome.empty)
	eventually("nothing is left in milan", milan.empty)
	require.Empty(t, rome.told().Type)
}
