package exchange

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
)

type cidrs = []networkingv1beta1.CIDR

// offloads makes rome offload a namespace to some peers, and to no others.
func (b *bench) offloads(namespace string, peers ...string) {
	b.t.Helper()
	client := b.others.OffloadingV1beta1().NamespaceOffloadings(namespace)
	o, err := client.Get(b.t.Context(), offloadingv1beta1.NamespaceOffloadingName, metav1.GetOptions{})
	if err != nil {
		o = kubetest.Create(b.t, client, &offloadingv1beta1.NamespaceOffloading{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: offloadingv1beta1.NamespaceOffloadingName}})
	}
	o.Status.RemoteNamespaceName = namespace + "-rome"
	o.Status.RemoteNamespacesConditions = map[string][]metav1.Condition{}
	for _, peer := range peers {
		o.Status.RemoteNamespacesConditions[peer] = []metav1.Condition{{Type: offloadingv1beta1.RemoteNamespaceOffloadingRequired, Status: metav1.ConditionTrue}}
	}
	kubetest.UpdateStatus(b.t, client, o)
}

// joins connects another peer, with pods under the view.
func (r *replica) joins(peer string, key byte, view networkingv1beta1.CIDR) {
	r.t.Helper()
	external := networkingv1beta1.CIDR(fmt.Sprintf("10.%d.0.0/24", key))
	r.peer(peer)
	r.says(peer, "10.244.0.0/16", external, key)
	r.settle(peer)
	r.grant(peer, "10.244.0.0/16", view)
	r.grant(peer, external, external)
	r.answers(peer, "10.90.0.0/16", "10.70.0.0/16")
	r.settle(peer)
}

// A peer is given the pods of each other peer that shares a namespace with it, as long as that is so.
func TestTransitIsPublished(t *testing.T) {
	b, r := connected(t)
	r.joins("paris", 12, "10.82.0.0/16")
	r.joins("oslo", 13, "10.83.0.0/16")
	given := func(peer string) cidrs {
		r.settle(peer)
		return b.mine(peer).Spec.Local.CIDR.Transit
	}
	b.offloads("apps", "milan")
	b.offloads("more", "paris")
	require.Empty(t, given("milan"), "they share no namespace")

	b.offloads("apps", "milan", "paris")
	require.Equal(t, cidrs{"10.82.0.0/16"}, given("milan"))
	require.Equal(t, cidrs{"10.80.0.0/16"}, given("paris"))
	require.Empty(t, given("oslo"))
	require.Equal(t, cidrs{"10.244.0.0/16"}, b.mine("milan").Spec.Local.CIDR.Pod, "own ranges stay as they are")

	b.offloads("more", "milan", "oslo")
	require.Equal(t, cidrs{"10.82.0.0/16", "10.83.0.0/16"}, given("milan"))
	require.Equal(t, cidrs{"10.80.0.0/16"}, given("paris"))

	// A peer that is not connected any more is no longer led to.
	require.NoError(t, b.others.NetworkingV1beta1().Connections("liqo-tenant-oslo").Delete(t.Context(), "oslo", metav1.DeleteOptions{}))
	r.deliver()
	r.published("milan")
	require.Equal(t, cidrs{"10.82.0.0/16"}, b.mine("milan").Spec.Local.CIDR.Transit)
	b.offloads("apps", "paris")
	require.Empty(t, given("paris"))
}

// What a peer has behind it is not led on: packets pass one hub.
func TestTransitIsNotLedOn(t *testing.T) {
	b, r := connected(t)
	r.joins("paris", 12, "10.82.0.0/16")
	b.offloads("apps", "milan", "paris")
	b.edit(b.theirs("paris"), func(c *networkingv1beta1.Configuration) { c.Spec.Local.CIDR.Transit = cidrs{"10.99.0.0/16"} })
	r.settle("paris")
	b.grant("paris", "10.99.0.0/16", "10.84.0.0/16")
	r.settle("paris")
	require.Contains(t, b.connection("paris").Spec.Remote, networkingv1beta1.Mapping{Own: "10.99.0.0/16", View: "10.84.0.0/16", Use: networkingv1beta1.RangeTransit})
	r.settle("milan")
	require.Equal(t, cidrs{"10.82.0.0/16"}, b.mine("milan").Spec.Local.CIDR.Transit)
}

// Where not all ranges fit, those that the peer has already stay.
func TestTransitIsBounded(t *testing.T) {
	b, r := connected(t)
	peers := []string{"milan"}
	join := func(n int) {
		peer := fmt.Sprintf("peer-%02d", 50-n)
		r.joins(peer, byte(100+n), networkingv1beta1.CIDR(fmt.Sprintf("10.%d.0.0/16", 50-n)))
		peers = append(peers, peer)
		b.offloads("apps", peers...)
		r.settle("milan")
	}
	for n := range 16 {
		join(n)
	}
	full := b.mine("milan").Spec.Local.CIDR.Transit
	require.Len(t, full, 16)
	join(16)
	require.Equal(t, full, b.mine("milan").Spec.Local.CIDR.Transit)
	b.offloads("apps", peers[1:]...)
	b.offloads("apps", append([]string{"milan"}, peers[2:]...)...)
	r.settle("milan")
	require.Len(t, b.mine("milan").Spec.Local.CIDR.Transit, 16)
	require.NotContains(t, b.mine("milan").Spec.Local.CIDR.Transit, networkingv1beta1.CIDR("10.50.0.0/16"))
}

// A peer's ranges of transit get views as its pods do, and lose them with the range.
func TestTransitOfAPeer(t *testing.T) {
	b, r := connected(t)
	before := b.connection("milan").Spec
	b.edit(b.theirs("milan"), func(c *networkingv1beta1.Configuration) { c.Spec.Local.CIDR.Transit = cidrs{"10.96.0.0/16"} })
	r.settle("milan")
	require.Equal(t, before, b.connection("milan").Spec, "what is there stays until the range has a view")
	for cidr, n := range b.claims("milan") {
		require.Equal(t, cidr == "10.96.0.0/16", n.Labels[ipamv1alpha1.RemappedLabel] == "true", "the third cluster chooses no addresses here: %s", cidr)
	}
	b.grant("milan", "10.96.0.0/16", "10.85.0.0/16")
	r.settle("milan")
	transit := networkingv1beta1.Mapping{Own: "10.96.0.0/16", View: "10.85.0.0/16", Use: networkingv1beta1.RangeTransit}
	require.Equal(t, append(before.Remote, transit), b.connection("milan").Spec.Remote)
	require.Equal(t, cidrs{"10.85.0.0/16"}, b.theirs("milan").Status.Remote.CIDR.Transit)
	require.Equal(t, cidrs{"10.96.0.0/16"}, b.theirs("milan").Status.Local.CIDR.Transit)

	b.edit(b.theirs("milan"), func(c *networkingv1beta1.Configuration) { c.Spec.Local.CIDR.Transit = nil })
	r.settle("milan")
	require.Equal(t, before, b.connection("milan").Spec)
	require.NotContains(t, b.claims("milan"), networkingv1beta1.CIDR("10.96.0.0/16"))
}

// The peer's view of a third cluster is in the Connection, and translates addresses of its pods.
func TestTransitAnswered(t *testing.T) {
	b, r := connected(t)
	r.joins("paris", 12, "10.82.0.0/16")
	b.offloads("apps", "milan", "paris")
	r.settle("milan")
	c := b.mine("milan")
	c.Status.Local.CIDR.Transit, c.Status.Remote.CIDR.Transit = cidrs{"10.82.0.0/16"}, cidrs{"10.99.0.0/16"}
	kubetest.UpdateStatus(t, b.others.NetworkingV1beta1().Configurations(c.Namespace), c)
	r.settle("milan")
	require.Contains(t, b.connection("milan").Spec.Local, networkingv1beta1.Mapping{Own: "10.82.0.0/16", View: "10.99.0.0/16", Use: networkingv1beta1.RangeTransit})
}

// A change for one peer is one for the others, once the loops run.
func TestTransitFollows(t *testing.T) {
	b, r := connected(t)
	r.joins("paris", 12, "10.82.0.0/16")
	r.run()
	b.offloads("apps", "milan", "paris")
	require.Eventually(t, func() bool {
		return len(b.mine("milan").Spec.Local.CIDR.Transit) == 1 && len(b.mine("paris").Spec.Local.CIDR.Transit) == 1
	}, time.Minute, 5*time.Millisecond)
	b.offloads("apps", "milan")
	require.Eventually(t, func() bool {
		return len(b.mine("milan").Spec.Local.CIDR.Transit) == 0 && len(b.mine("paris").Spec.Local.CIDR.Transit) == 0
	}, time.Minute, 5*time.Millisecond)
}

// What a transit range stands for is named with the namespaces that both share, unless there are too
// many of these, and for as long as the range is given.
func TestTransitNamesItsCluster(t *testing.T) {
	b, r := connected(t)
	r.joins("paris", 12, "10.82.0.0/16")
	b.offloads("more", "milan", "paris")
	b.offloads("apps", "milan", "paris")
	r.settle("milan")
	require.Equal(t, []networkingv1beta1.Third{{ClusterID: "paris", Namespaces: []string{"apps", "more"},
		Ranges: []networkingv1beta1.Mapping{{Own: "10.244.0.0/16", View: "10.82.0.0/16", Use: networkingv1beta1.RangePod}}}}, b.mine("milan").Spec.Behind)
	for n := range 63 {
		b.offloads(fmt.Sprintf("many-%02d", n), "milan", "paris")
	}
	r.settle("milan")
	require.Empty(t, b.mine("milan").Spec.Behind)
	require.Equal(t, cidrs{"10.82.0.0/16"}, b.mine("milan").Spec.Local.CIDR.Transit, "the way through the hub stays")
}

// A peer is let to the pods of another peer here, in the namespaces that this one says it shares with it,
// as long as it does and is connected; mistakes of the peer delay the end of that by nothing.
func TestAPeerIsAdmitted(t *testing.T) {
	b, r := connected(t)
	r.joins("paris", 12, "10.82.0.0/16")
	require.Empty(t, b.mine("milan").Spec.Admits)
	shares := func(with ...string) {
		b.edit(b.theirs("paris"), func(c *networkingv1beta1.Configuration) {
			c.Spec.Behind = nil
			for _, id := range with {
				c.Spec.Behind = append(c.Spec.Behind, networkingv1beta1.Third{ClusterID: id, Namespaces: []string{"shop"}})
			}
		})
		r.settle("paris")
		r.settle("milan")
	}
	shares("milan", "oslo", "paris")
	require.Equal(t, b.theirs("paris").Spec.Behind, b.connection("paris").Spec.Behind)
	admitted := []networkingv1beta1.Third{{ClusterID: "paris", Namespaces: []string{"shop"}}}
	require.Equal(t, admitted, b.mine("milan").Spec.Admits)
	require.Equal(t, admitted, b.connection("milan").Spec.Admits)
	require.Empty(t, b.mine("paris").Spec.Admits)

	b.edit(b.theirs("milan"), func(c *networkingv1beta1.Configuration) { c.Spec.Admits = admitted })
	r.settle("milan")
	require.Equal(t, admitted, b.connection("milan").Spec.Admitted)
	b.edit(b.theirs("milan"), func(c *networkingv1beta1.Configuration) { c.Spec.MTU = 1 })
	r.settle("milan")
	shares("oslo")
	require.Empty(t, b.mine("milan").Spec.Admits)
	require.Empty(t, b.connection("milan").Spec.Admits)
	require.NotEmpty(t, b.connection("milan").Spec.Admitted, "the rest stays as it was")
	shares("milan")
	require.Equal(t, admitted, b.mine("milan").Spec.Admits)
	require.NoError(t, b.others.NetworkingV1beta1().Connections("liqo-tenant-paris").Delete(t.Context(), "paris", metav1.DeleteOptions{}))
	r.deliver()
	r.published("milan")
	require.Empty(t, b.mine("milan").Spec.Admits)
}

// A peer is given the ranges of Services while it runs pods of a namespace with services Home, and not for
// another namespace.
func TestServicesArePublished(t *testing.T) {
	b, r := connected(t)
	given := func() cidrs {
		r.settle("milan")
		return b.mine("milan").Spec.Local.CIDR.Service
	}
	b.offloads("tools", "milan")
	require.Empty(t, given())
	client := b.others.OffloadingV1beta1().NamespaceOffloadings("shop")
	_, err := client.Create(t.Context(), &offloadingv1beta1.NamespaceOffloading{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: offloadingv1beta1.NamespaceOffloadingName},
		Spec:       offloadingv1beta1.NamespaceOffloadingSpec{Services: offloadingv1beta1.ServicesHome},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	b.offloads("shop", "milan")
	require.NotEmpty(t, given())
	b.offloads("shop")
	require.Empty(t, given())
}
