package exchange

import (
	"context"
	"encoding/base64"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers"
	corefake "k8s.io/client-go/kubernetes/fake"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/netfabric/check"
)

// bench is the API server of cluster rome, and people and peers who write there.
type bench struct {
	*rig
	others *fake.Clientset
	nodes  []*corev1.Node
}

// gatewayKey returns the public key number n.
func gatewayKey(n byte) string {
	raw := [32]byte{n, 9, 9}
	return base64.StdEncoding.EncodeToString(raw[:])
}

func newBench(t *testing.T) *bench {
	t.Helper()
	r := newRig(t)
	return &bench{rig: r, others: r.user}
}

// replica is one replica of rome's controller, with caches that are filled by hand.
type replica struct {
	*bench
	caches
	liqo     *fake.Clientset
	core     coreinformers.SharedInformerFactory
	exchange *Exchange
	publish  *Publisher
	gateways *fixedGateways
}

// replica starts one: its caches are as the API server is.
func (b *bench) replica(change ...func(*check.Own)) *replica {
	b.t.Helper()
	r := &replica{bench: b, liqo: b.client(b.server.React), gateways: &fixedGateways{list: []networkingv1beta1.Gateway{
		{Name: "gw-1", Number: 1, PublicKey: gatewayKey(1), Endpoints: []networkingv1beta1.Endpoint{{Address: "203.0.113.10", Port: 51840}}}}, known: true}}
	r.caches = caches{b.rig, externalversions.NewSharedInformerFactory(r.liqo, 0), slices.Concat(
		kindsOf(networkingv1beta1.SchemeGroupVersion, "Configuration", "Connection"), kindsOf(ipamv1alpha1.SchemeGroupVersion, "Network"),
		kindsOf(corev1beta1.SchemeGroupVersion, "ForeignCluster"), kindsOf(sharingv1alpha1.SchemeGroupVersion, "ResourceOffer"),
		kindsOf(offloadingv1beta1.SchemeGroupVersion, "NamespaceOffloading"))}
	r.core = coreinformers.NewSharedInformerFactory(corefake.NewClientset(), 0)
	own := check.Own{Pods: ranges("10.244.0.0/16"), External: ranges("10.70.0.0/16"), Services: ranges("10.96.0.0/12")}
	for _, c := range change {
		c(&own)
	}
	networking := r.factory.Networking().V1beta1()
	ranges, err := NewRanges(RangesConfig{Given: own, Nodes: r.core.Core().V1().Nodes(), Log: zap.NewNop()})
	require.NoError(b.t, err)
	cfg := NegotiationConfig{
		ClusterID: "rome", Own: ranges, Gateways: r.gateways,
		Base: Base{Env: loop.Env{Clock: b.clk, Log: zap.NewNop()}, Client: r.liqo, ForeignClusters: r.factory.Core().V1beta1().ForeignClusters()}, Offers: r.factory.Sharing().V1alpha1().ResourceOffers(),
		Configurations: networking.Configurations(), Connections: networking.Connections(), Networks: r.factory.IPAM().V1alpha1().Networks(),
		Offloadings: r.factory.Offloading().V1beta1().NamespaceOffloadings(),
	}
	r.exchange = NewExchange(cfg)
	r.publish = NewPublisher(cfg)
	r.deliver()
	return r
}

// fixedGateways are gateways that a test chooses.
type fixedGateways struct {
	list  []networkingv1beta1.Gateway
	known bool
	told  []func()
}

func (g *fixedGateways) Gateways() ([]networkingv1beta1.Gateway, bool) { return g.list, g.known }
func (g *fixedGateways) Alive() bool                                   { return !g.known || len(g.list) > 0 }
func (g *fixedGateways) MTU() int32                                    { return 1400 }
func (g *fixedGateways) Subscribe(f func())                            { g.told = append(g.told, f) }

// deliver makes caches as the API server is now, all unless some are named. Those of Nodes are always.
func (r *replica) deliver(names ...string) {
	r.t.Helper()
	r.caches.deliver(names...)
	var nodes []any
	for _, n := range r.bench.nodes {
		nodes = append(nodes, n)
	}
	require.NoError(r.t, r.core.Core().V1().Nodes().Informer().GetStore().Replace(nodes, ""))
}

// settle delivers and syncs a peer until nothing is written any more.
func (r *replica) settle(peer string) {
	r.t.Helper()
	for range 20 {
		r.deliver()
		r.liqo.ClearActions()
		require.NoError(r.t, r.publish.sync(r.t.Context(), loop.Key{Name: peer}))
		r.deliver()
		require.NoError(r.t, r.exchange.sync(r.t.Context(), loop.Key{Name: peer}))
		if len(kubetest.TakeWrites(r.liqo)) == 0 {
			return
		}
	}
	r.t.Fatal("writes do not end")
}

// writes syncs a peer's exchange without an error, and returns what was written.
func (r *replica) writes(peer string) []string {
	r.t.Helper()
	writes, err := r.sync(peer)
	require.NoError(r.t, err)
	return writes
}

// sync syncs a peer's exchange, and returns what was written.
func (r *replica) sync(peer string) ([]string, error) {
	r.liqo.ClearActions()
	err := r.exchange.sync(r.t.Context(), loop.Key{Name: peer})
	return kubetest.TakeWrites(r.liqo), err
}

// milan has an offer of rome that it uses, and a record here.
func (b *bench) peer(id string) {
	b.t.Helper()
	kubetest.Create(b.t, b.others.CoreV1beta1().ForeignClusters(), &corev1beta1.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{Name: id}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: id}})
	b.offer(id, "rome", sharingv1alpha1.OfferAccepted)
}

// offer makes an offer between rome and a peer.
func (b *bench) offer(peer, name string, phase sharingv1alpha1.OfferPhase) {
	b.t.Helper()
	offers := b.others.SharingV1alpha1().ResourceOffers(corev1beta1.TenantNamespace(peer))
	o := kubetest.Create(b.t, offers, &sharingv1alpha1.ResourceOffer{ObjectMeta: metav1.ObjectMeta{Namespace: corev1beta1.TenantNamespace(peer), Name: name}})
	b.decideOffer(o, phase, "")
}

func (b *bench) decideOffer(o *sharingv1alpha1.ResourceOffer, phase sharingv1alpha1.OfferPhase, node string) {
	b.t.Helper()
	o.Status.Phase, o.Status.VirtualNode = phase, node
	kubetest.UpdateStatus(b.t, b.others.SharingV1alpha1().ResourceOffers(o.Namespace), o)
}

func (b *bench) getOffer(peer string) *sharingv1alpha1.ResourceOffer {
	return kubetest.Get(b.t, b.others.SharingV1alpha1().ResourceOffers(corev1beta1.TenantNamespace(peer)), "rome")
}

// says writes the copy of a peer's Configuration.
func (b *bench) says(peer string, pods, external networkingv1beta1.CIDR, key byte) {
	b.t.Helper()
	c := &networkingv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: corev1beta1.TenantNamespace(peer), Name: "rome",
		Labels: map[string]string{offloadingv1beta1.ReplicatedLabel: "true", offloadingv1beta1.OriginIDLabel: peer}}}
	c.Spec.Local.CIDR = networkingv1beta1.ClusterCIDR{Pod: []networkingv1beta1.CIDR{pods}, External: []networkingv1beta1.CIDR{external}}
	c.Spec.Gateways = []networkingv1beta1.Gateway{{Name: "gw-1", Number: 1, PublicKey: gatewayKey(key),
		Endpoints: []networkingv1beta1.Endpoint{{Address: "203.0.113.20", Port: 51840}, {Address: "gw.milan.example", Port: 51840}}}}
	c.Spec.MTU = 1370
	kubetest.Create(b.t, b.others.NetworkingV1beta1().Configurations(c.Namespace), c)
}

// theirs is a peer's Configuration; nil if there is none. mine is rome's own for the peer.
func (b *bench) theirs(peer string) *networkingv1beta1.Configuration {
	return b.configuration(peer, "rome")
}
func (b *bench) mine(peer string) *networkingv1beta1.Configuration {
	return b.configuration(peer, peer)
}

func (b *bench) configuration(peer, name string) *networkingv1beta1.Configuration {
	b.t.Helper()
	return kubetest.Find(b.t, b.others.NetworkingV1beta1().Configurations(corev1beta1.TenantNamespace(peer)), name)
}

// edit changes a Configuration as its writer does.
func (b *bench) edit(c *networkingv1beta1.Configuration, change func(*networkingv1beta1.Configuration)) {
	b.t.Helper()
	change(c)
	kubetest.Update(b.t, b.others.NetworkingV1beta1().Configurations(c.Namespace), c)
}

// answers has the peer answer rome's Configuration.
func (b *bench) answers(peer string, pods, external networkingv1beta1.CIDR) {
	b.t.Helper()
	c := b.mine(peer)
	c.Status.Local = &networkingv1beta1.MappedNetwork{CIDR: networkingv1beta1.MappedCIDR{Pod: c.Spec.Local.CIDR.Pod, External: c.Spec.Local.CIDR.External}}
	c.Status.Remote = &networkingv1beta1.MappedNetwork{CIDR: networkingv1beta1.MappedCIDR{Pod: []networkingv1beta1.CIDR{pods}, External: []networkingv1beta1.CIDR{external}}}
	kubetest.UpdateStatus(b.t, b.others.NetworkingV1beta1().Configurations(c.Namespace), c)
}

// claims are the Networks of a peer, by what they ask for.
func (b *bench) claims(peer string) map[networkingv1beta1.CIDR]*ipamv1alpha1.Network {
	b.t.Helper()
	list := kubetest.List(b.t, b.others.IPAMV1alpha1().Networks(corev1beta1.TenantNamespace(peer)))
	out := map[networkingv1beta1.CIDR]*ipamv1alpha1.Network{}
	for i := range list.Items {
		out[list.Items[i].Spec.CIDR] = &list.Items[i]
	}
	return out
}

// grant has the allocator answer a claim.
func (b *bench) grant(peer string, cidr, view networkingv1beta1.CIDR) {
	b.t.Helper()
	n := b.claims(peer)[cidr]
	require.NotNil(b.t, n, cidr)
	n.Status.CIDR = view
	n.Status.Conditions = []metav1.Condition{{Type: ipamv1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: ipamv1alpha1.ReasonAllocated}}
	if view == "" {
		n.Status.Conditions[0] = metav1.Condition{Type: ipamv1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: ipamv1alpha1.ReasonExhausted, Message: "no range of size /16 is free"}
	}
	kubetest.UpdateStatus(b.t, b.others.IPAMV1alpha1().Networks(n.Namespace), n)
}

func (b *bench) connection(peer string) *networkingv1beta1.Connection {
	b.t.Helper()
	return kubetest.Find(b.t, b.others.NetworkingV1beta1().Connections(corev1beta1.TenantNamespace(peer)), peer)
}

// meets has milan, with pods as rome's, say its ranges.
func (b *bench) meets() {
	b.t.Helper()
	b.peer("milan")
	b.says("milan", "10.244.0.0/16", "10.71.0.0/16", 11)
}

// agrees has the allocator, and milan, answer each other's ranges. What is equal in both is remapped.
func (b *bench) agrees() {
	b.t.Helper()
	b.grant("milan", "10.244.0.0/16", "10.80.0.0/16")
	b.grant("milan", "10.71.0.0/16", "10.71.0.0/16")
	b.answers("milan", "10.90.0.0/16", "10.70.0.0/16")
}

// leaves deletes milan's Configuration.
func (b *bench) leaves() {
	b.t.Helper()
	require.NoError(b.t, b.others.NetworkingV1beta1().Configurations(tenant).Delete(b.t.Context(), "rome", metav1.DeleteOptions{}))
}

// connected brings rome and milan together.
func (b *bench) connected() *replica {
	b.t.Helper()
	b.meets()
	r := b.replica()
	r.settle("milan")
	b.agrees()
	r.settle("milan")
	return r
}

// connected is a test of rome and milan, which are together. It runs beside others.
func connected(t *testing.T) (*bench, *replica) {
	t.Helper()
	t.Parallel()
	b := newBench(t)
	return b, b.connected()
}

func (b *bench) condition(peer string) metav1.Condition {
	b.t.Helper()
	c := meta.FindStatusCondition(b.theirs(peer).Status.Conditions, networkingv1beta1.ConditionReady)
	require.NotNil(b.t, c)
	return *c
}

// run starts the informers and both loops until the test ends.
func (r *replica) run() {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r.factory.Start(ctx.Done())
	r.core.Start(ctx.Done())
	// A fake's watch misses what happens between its list and its start.
	r.factory.WaitForCacheSync(ctx.Done())
	r.core.WaitForCacheSync(ctx.Done())
	done := make(chan error, 2)
	go func() { done <- r.exchange.Run(ctx, 2) }()
	go func() { done <- r.publish.Run(ctx, 2) }()
	r.t.Cleanup(func() {
		cancel()
		require.NoError(r.t, <-done)
		require.NoError(r.t, <-done)
		r.factory.Shutdown()
	})
}

func testNode(name, addr string, pods ...string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDRs: pods},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: addr}, {Type: corev1.NodeHostName, Address: name}}}}
}
