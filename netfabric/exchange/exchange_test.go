package exchange

import (
	"crypto/ecdh"
	"encoding/base64"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/netfabric/check"
)

const (
	milanPods     = "networks liqo-tenant-milan/rome-pod-10-244-0-0-16"
	milanExternal = "networks liqo-tenant-milan/rome-external-10-71-0-0-16"
)

func TestExchange(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.meets()
	r := b.replica()
	require.NoError(t, r.publish.sync(t.Context(), loop.Key{Name: "milan"}))
	r.deliver()

	writes, err := r.sync("milan")
	require.NoError(t, err)
	require.Len(t, writes, 4)
	require.Equal(t, []string{"create " + milanPods, "create " + milanExternal, "update configurations/status liqo-tenant-milan/rome"}, writes[1:])
	require.Equal(t, networkingv1beta1.ReasonAllocating, b.condition("milan").Reason)
	require.Equal(t, "no range is allocated yet for 10.244.0.0/16, 10.71.0.0/16", b.condition("milan").Message)
	claim := b.claims("milan")["10.244.0.0/16"]
	require.Equal(t, made("milan"), claim.Labels)
	require.True(t, metav1.IsControlledBy(claim, b.theirs("milan")))

	b.grant("milan", "10.244.0.0/16", "10.80.0.0/16")
	r.settle("milan")
	require.Equal(t, networkingv1beta1.ReasonAllocating, b.condition("milan").Reason)
	require.Equal(t, []networkingv1beta1.CIDR{"10.80.0.0/16"}, b.theirs("milan").Status.Remote.CIDR.Pod)
	require.Nil(t, b.connection("milan"), "milan has not answered")

	b.grant("milan", "10.71.0.0/16", "10.71.0.0/16")
	b.answers("milan", "10.90.0.0/16", "10.70.0.0/16")
	r.settle("milan")
	is := b.condition("milan")
	require.Equal(t, metav1.ConditionTrue, is.Status)
	require.Equal(t, networkingv1beta1.ReasonNetworksAllocated, is.Reason)
	require.Equal(t, b.theirs("milan").Generation, is.ObservedGeneration)
	c := b.connection("milan")
	require.Equal(t, networkingv1beta1.ConnectionSpec{
		ClusterID: "milan",
		Local: []networkingv1beta1.Mapping{
			{Own: "10.244.0.0/16", View: "10.90.0.0/16", Use: networkingv1beta1.RangePod}, {Own: "10.70.0.0/16", View: "10.70.0.0/16", Use: networkingv1beta1.RangeExternal}},
		Remote: []networkingv1beta1.Mapping{
			{Own: "10.244.0.0/16", View: "10.80.0.0/16", Use: networkingv1beta1.RangePod}, {Own: "10.71.0.0/16", View: "10.71.0.0/16", Use: networkingv1beta1.RangeExternal}},
		Gateways: b.theirs("milan").Spec.Gateways, MTU: 1370,
	}, c.Spec)
	require.Equal(t, made("milan"), c.Labels)

	// A restart, and a second replica, write nothing.
	require.Empty(t, b.replica().writes("milan"))
}

// TestOwnRangesUnknown: nothing of a peer is taken over before the own ranges are known, and
// what is in use stays.
func TestOwnRangesUnknown(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.meets()
	unknown := func(o *check.Own) { o.Services = nil }
	r := b.replica(unknown)
	_, err := r.publishes("milan")
	require.ErrorContains(t, err, "the ranges of this cluster cannot be published: the ranges of Services of this cluster are not known")
	r.writes("milan")
	require.Equal(t, networkingv1beta1.ReasonNotAllocated, b.condition("milan").Reason)
	require.Contains(t, b.condition("milan").Message, "cluster rome takes nothing of it over yet: the ranges of Services of this cluster are not known")
	require.Contains(t, b.condition("milan").Message, "set networking.serviceCIDRs")
	require.Empty(t, b.claims("milan"))

	r = b.replica()
	r.settle("milan")
	b.agrees()
	r.settle("milan")
	require.Equal(t, metav1.ConditionTrue, b.condition("milan").Status)

	require.Empty(t, b.replica(unknown).writes("milan"))
}

// What was agreed on stays in force when the peer says something that is not accepted.
func TestInvalidChangeLeavesWhatIs(t *testing.T) {
	b, r := connected(t)
	before := b.connection("milan")
	b.edit(b.theirs("milan"), func(c *networkingv1beta1.Configuration) {
		c.Spec.Local.CIDR.Pod = []networkingv1beta1.CIDR{"10.244.0.0/16", "127.0.0.0/8"}
		c.Spec.Gateways[0].PublicKey = gatewayKey(12)
	})
	r.settle("milan")
	require.Equal(t, networkingv1beta1.ReasonInvalid, b.condition("milan").Reason)
	require.Equal(t, before, b.connection("milan"))
	require.Equal(t, []networkingv1beta1.CIDR{"10.80.0.0/16"}, b.theirs("milan").Status.Remote.CIDR.Pod)
	require.Len(t, b.claims("milan"), 2)

	// But not when this cluster has no part in it any more.
	b.decideOffer(b.getOffer("milan"), sharingv1alpha1.OfferRefused, "")
	r.settle("milan")
	require.Nil(t, b.mine("milan"))
	require.Nil(t, b.connection("milan"))
}

// The Connection has the trust of the ForeignCluster, whatever the peer says, and whatever else is
// not known.
func TestTrustInThePeer(t *testing.T) {
	b, r := connected(t)
	require.Empty(t, b.connection("milan").Spec.Trust)
	clusters := b.others.CoreV1beta1().ForeignClusters()
	trusts := func(r *replica, trust corev1beta1.Trust) {
		t.Helper()
		fc := kubetest.Get(t, clusters, "milan")
		fc.Spec.Trust = trust
		kubetest.Update(t, clusters, fc)
		before := b.connection("milan").Spec
		r.deliver()
		writes, err := r.sync("milan")
		require.NoError(t, err)
		require.Equal(t, []string{"update connections liqo-tenant-milan/milan"}, writes)
		before.Trust = string(trust)
		require.Equal(t, before, b.connection("milan").Spec)
	}
	trusts(r, corev1beta1.TrustOrganisation)
	trusts(b.replica(func(o *check.Own) { o.Services = nil }), corev1beta1.TrustStrict)
	trusts(r, corev1beta1.TrustOrganisation)
	b.edit(b.theirs("milan"), func(c *networkingv1beta1.Configuration) { c.Spec.Gateways[0].PublicKey = "no key" })
	r.settle("milan")
	require.Equal(t, networkingv1beta1.ReasonInvalid, b.condition("milan").Reason)
	trusts(r, corev1beta1.TrustStrict)
	trusts(r, "")
}

func TestNothingIsClaimedBeforeAnOfferIsUsed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.says("milan", "10.244.0.0/16", "10.71.0.0/16", 11)
	r := b.replica()
	r.settle("milan")
	require.Empty(t, b.claims("milan"))
	require.Contains(t, b.condition("milan").Message, "cluster rome publishes no Configuration for milan")
	b.peer("milan")
	r.settle("milan")
	require.Len(t, b.claims("milan"), 2)
}

// TestRangeIsAdded: what both sides have agreed on stays in force while they negotiate about
// one range more.
func TestRangeIsAdded(t *testing.T) {
	b, r := connected(t)
	before := b.connection("milan").Spec
	b.edit(b.theirs("milan"), func(c *networkingv1beta1.Configuration) {
		c.Spec.Local.CIDR.Pod = append(c.Spec.Local.CIDR.Pod, "10.1.0.0/16")
	})
	r.settle("milan")
	require.Equal(t, before, b.connection("milan").Spec, "the new range has no view yet")
	b.grant("milan", "10.1.0.0/16", "10.82.0.0/16")
	b.edit(b.mine("milan"), func(c *networkingv1beta1.Configuration) {
		c.Spec.Local.CIDR.Pod = append(c.Spec.Local.CIDR.Pod, "10.245.0.0/16")
	})
	r.deliver()
	r.writes("milan")
	require.Equal(t, []networkingv1beta1.CIDR{"10.80.0.0/16", "10.82.0.0/16", "10.71.0.0/16"}, viewsOf(b.connection("milan")))
	require.Equal(t, before.Local, b.connection("milan").Spec.Local, "milan has not answered")
}

// Another range gets another Network; the old one is free when the Connection has let go.
func TestRangeIsReplaced(t *testing.T) {
	b, r := connected(t)
	b.edit(b.theirs("milan"), func(c *networkingv1beta1.Configuration) {
		c.Spec.Local.CIDR.Pod = []networkingv1beta1.CIDR{"10.1.0.0/16"}
	})
	r.settle("milan")
	require.Len(t, b.claims("milan"), 2, "the Connection had another view to go on with")
	require.Equal(t, []networkingv1beta1.CIDR{"10.71.0.0/16"}, viewsOf(b.connection("milan")))
	b.grant("milan", "10.1.0.0/16", "10.1.0.0/16")
	r.settle("milan")
	require.Equal(t, []networkingv1beta1.CIDR{"10.1.0.0/16", "10.71.0.0/16"}, viewsOf(b.connection("milan")))

	// While nothing else is there, the Connection keeps its views, and they are not free.
	b.edit(b.theirs("milan"), func(c *networkingv1beta1.Configuration) {
		c.Spec.Local.CIDR = networkingv1beta1.ClusterCIDR{Pod: []networkingv1beta1.CIDR{"10.2.0.0/16"}, External: []networkingv1beta1.CIDR{"10.3.0.0/16"}}
	})
	r.settle("milan")
	require.Equal(t, []networkingv1beta1.CIDR{"10.1.0.0/16", "10.71.0.0/16"}, viewsOf(b.connection("milan")))
	require.Len(t, b.claims("milan"), 4)
	b.grant("milan", "10.2.0.0/16", "10.2.0.0/16")
	b.grant("milan", "10.3.0.0/16", "10.3.0.0/16")
	r.settle("milan")
	require.Equal(t, []networkingv1beta1.CIDR{"10.2.0.0/16", "10.3.0.0/16"}, viewsOf(b.connection("milan")))
	require.Len(t, b.claims("milan"), 2)
}

func viewsOf(c *networkingv1beta1.Connection) (out []networkingv1beta1.CIDR) {
	for _, m := range c.Spec.Remote {
		out = append(out, m.View)
	}
	return out
}

// TestAPeerThatChangesItsNetworkAllTheTime: each version of a Configuration causes writes, also in third clusters, and a
// plan on each host.
func TestAPeerThatChangesItsNetworkAllTheTime(t *testing.T) {
	b, r := connected(t)
	written := 0
	for range 1000 {
		b.edit(b.theirs("milan"), func(c *networkingv1beta1.Configuration) { c.Spec.MTU = 2770 - c.Spec.MTU })
		r.deliver()
		writes, err := r.sync("milan")
		written += len(writes)
		if err != nil {
			require.Equal(t, loop.After(versionInterval), err)
			require.Empty(t, writes)
		}
	}
	require.LessOrEqual(t, written, 5*versionsAtOnce)
	b.clk.Step(versionInterval)
	r.writes("milan")
	require.Equal(t, min(b.theirs("milan").Spec.MTU, 1400), b.connection("milan").Spec.MTU, "the last one counts in the end")
}

func TestRefusedClaims(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		view networkingv1beta1.CIDR
		want string
	}{
		"no range is left":  {"", "10.244.0.0/16: no range of size /16 is free"},
		"own pods":          {"10.244.0.0/16", "10.244.0.0/16 has got a range that cannot be used: 10.244.0.0/16 overlaps 10.244.0.0/16, a pod range of rome; delete Network liqo-tenant-milan/rome-pod-10-244-0-0-16 in cluster rome for another"},
		"Services":          {"10.96.0.0/16", "a range of Services of rome"},
		"another size":      {"10.80.0.0/17", "different lengths"},
		"of a node":         {"192.168.0.0/16", "a node of rome"},
		"a podCIDR":         {"10.9.0.0/16", "a pod range of rome"},
		"of a virtual node": {"10.60.0.0/16", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			virtual := testNode("milan", "10.60.0.7")
			virtual.Labels = map[string]string{offloadingv1beta1.TypeLabel: offloadingv1beta1.TypeVirtualNode}
			b.nodes = append(b.nodes, testNode("n1", "192.168.0.11", "10.9.1.0/24"), virtual)
			b.meets()
			r := b.replica()
			r.settle("milan")
			b.grant("milan", "10.71.0.0/16", "10.71.0.0/16")
			b.answers("milan", "10.90.0.0/16", "10.70.0.0/16")
			b.grant("milan", "10.244.0.0/16", tc.view)
			r.settle("milan")
			is := b.condition("milan")
			if tc.want == "" {
				require.Equal(t, networkingv1beta1.ReasonNetworksAllocated, is.Reason)
				return
			}
			require.Equal(t, networkingv1beta1.ReasonNotAllocated, is.Reason)
			require.Contains(t, is.Message, tc.want)
			require.Equal(t, []networkingv1beta1.CIDR{"10.71.0.0/16"}, viewsOf(b.connection("milan")))
		})
	}
}

// A view that is no longer this cluster's to use leaves the Connection at once.
func TestViewIsLost(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(b *bench){
		"the Networks are deleted": func(b *bench) {
			for _, n := range b.claims("milan") {
				require.NoError(b.t, b.others.IPAMV1alpha1().Networks(n.Namespace).Delete(b.t.Context(), n.Name, metav1.DeleteOptions{}))
			}
		},
		"they get what cannot be used": func(b *bench) {
			b.grant("milan", "10.244.0.0/16", "")
			b.grant("milan", "10.71.0.0/16", "10.70.0.0/16")
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, r := connected(t)
			lose(b)
			r.settle("milan")
			require.Nil(t, b.connection("milan"))
		})
	}
}

func TestBadAnswersAreNamed(t *testing.T) {
	b, r := connected(t)
	before := b.connection("milan")
	b.answers("milan", "224.0.0.0/16", "10.70.0.0/16")
	r.settle("milan")
	require.Contains(t, b.condition("milan").Message, "but of the views that milan has answered, some cannot be used: 224.0.0.0/16 holds addresses that no host can have")
	require.Len(t, b.connection("milan").Spec.Local, 1)
	b.answers("milan", "224.0.0.0/16", "127.0.0.0/16")
	r.settle("milan")
	require.Equal(t, before.Spec.Remote, b.connection("milan").Spec.Remote)
}

// A peer gets no range and no key that the Connection of another peer has.
func TestPeersDoNotShare(t *testing.T) {
	b, _ := connected(t)
	b.peer("paris")
	b.says("paris", "10.244.0.0/16", "10.72.0.0/16", 11)
	r := b.replica()
	r.settle("paris")
	require.Contains(t, b.condition("paris").Message, "is the key of a gateway of another peer")
	require.Empty(t, b.claims("paris"))
	require.Equal(t, []loop.Key{{Name: "milan"}, {Name: "paris"}}, r.exchange.connectionKeys(b.connection("milan")), "paris waits for the key")

	b.edit(b.theirs("paris"), func(c *networkingv1beta1.Configuration) { c.Spec.Gateways[0].PublicKey = gatewayKey(21) })
	r.settle("paris")
	b.grant("paris", "10.244.0.0/16", "10.80.0.0/16")
	r.settle("paris")
	require.Contains(t, b.condition("paris").Message, "10.80.0.0/16 overlaps 10.80.0.0/16, a range under which another peer is seen")
}

// Two peers claim one key: the peer whose Connection has had the key for longer keeps it, also if both
// Connections are created at once. No peer gets the key of this cluster's own gateways.
func TestTheFirstPeerKeepsItsKey(t *testing.T) {
	t.Parallel()
	connection := func(peer string, age int, keys ...byte) *networkingv1beta1.Connection {
		c := &networkingv1beta1.Connection{ObjectMeta: metav1.ObjectMeta{
			Namespace: corev1beta1.TenantNamespace(peer), Name: peer, CreationTimestamp: metav1.NewTime(noon.Add(-time.Duration(age) * time.Hour))}}
		for _, k := range keys {
			c.Spec.Gateways = append(c.Spec.Gateways, networkingv1beta1.Gateway{PublicKey: gatewayKey(k)})
		}
		return c
	}
	for name, tc := range map[string]struct {
		mine, other *networkingv1beta1.Connection
		refused     bool
	}{
		"no Connection yet":         {nil, connection("oslo", 1, 11), true},
		"it is older":               {connection("milan", 2, 11), connection("oslo", 1, 11), false},
		"it is younger":             {connection("milan", 1, 11), connection("oslo", 2, 11), true},
		"of the same second":        {connection("milan", 1, 11), connection("oslo", 1, 11), false},
		"older, but of another key": {connection("milan", 2, 12), connection("oslo", 1, 11), true},
	} {
		f := facts{peer: "milan", connection: tc.mine, Surroundings: check.Surroundings{Keys: map[string]string{}}}
		f.conflicts(tc.other)
		require.Equal(t, tc.refused, f.CheckKey(gatewayKey(11)) != nil, name)
	}

	b := newBench(t)
	r := b.connected()
	own := b.mine("milan").Spec.Gateways[0].PublicKey
	b.edit(b.theirs("milan"), func(c *networkingv1beta1.Configuration) { c.Spec.Gateways[0].PublicKey = own })
	r.settle("milan")
	require.Contains(t, b.condition("milan").Message, "is the key of a gateway of rome")
}

// TestAClaimedKeyKeepsNobodyOut: a peer claims the key of another peer's gateway. The peer with a proof of the key gets
// it, also if its claim is the later one. The other peer keeps the rest of its Connection.
func TestAClaimedKeyKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	private := [32]byte{7: 9, 31: 64}
	key, err := ecdh.X25519().NewPrivateKey(private[:])
	require.NoError(t, err)
	public := base64.StdEncoding.EncodeToString(key.PublicKey().Bytes())
	for name, claim := range map[string]func(*networkingv1beta1.Configuration){
		"as its next key": func(c *networkingv1beta1.Configuration) { c.Spec.Gateways[0].NextPublicKey = public },
		"with the owner's proof": func(c *networkingv1beta1.Configuration) {
			c.Spec.Gateways[0].NextPublicKey, c.Spec.Gateways[0].Proofs = public, []string{check.Prove(private, "paris")}
		},
		"of one gateway more": func(c *networkingv1beta1.Configuration) {
			c.Spec.Gateways = append(c.Spec.Gateways, networkingv1beta1.Gateway{Name: "gw-2", Number: 2, PublicKey: public})
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, r := connected(t)
			b.edit(b.theirs("milan"), claim)
			r.settle("milan")
			require.NotNil(t, holder(b.connection("milan").Spec.Gateways, public), "nobody else has it")

			b.peer("paris")
			b.says("paris", "10.9.0.0/16", "10.72.0.0/16", 21)
			b.edit(b.theirs("paris"), func(c *networkingv1beta1.Configuration) { c.Spec.Gateways[0].PublicKey = public })
			r.settle("paris")
			require.Contains(t, b.condition("paris").Message, "is the key of a gateway of another peer", "of two that prove nothing, the first one has it")
			b.edit(b.theirs("paris"), func(c *networkingv1beta1.Configuration) {
				c.Spec.Gateways[0].Proofs = []string{check.Prove(private, "paris")}
			})
			r.settle("paris")
			b.grant("paris", "10.9.0.0/16", "10.9.0.0/16")
			b.grant("paris", "10.72.0.0/16", "10.72.0.0/16")
			b.answers("paris", "10.91.0.0/16", "10.70.0.0/16")
			r.settle("paris")
			require.NotNil(t, holder(b.connection("paris").Spec.Gateways, public))
			require.Contains(t, r.exchange.connectionKeys(b.connection("paris")), loop.Key{Name: "milan"})

			r.settle("milan")
			require.Equal(t, []string{gatewayKey(11)}, b.connection("milan").Spec.Gateways[0].Keys())
			require.Nil(t, holder(b.connection("milan").Spec.Gateways, public))
			require.Contains(t, b.condition("milan").Message, "is the key of a gateway of another peer")
			r.settle("paris")
			require.NotNil(t, holder(b.connection("paris").Spec.Gateways, public))
		})
	}
}

func TestForeignObjectsAreLeftAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.meets()
	r := b.replica()
	r.settle("milan")
	n := b.claims("milan")["10.244.0.0/16"]
	n.Labels = nil
	n = kubetest.Update(t, b.others.IPAMV1alpha1().Networks(n.Namespace), n)
	b.grant("milan", "10.71.0.0/16", "10.71.0.0/16")
	b.answers("milan", "10.90.0.0/16", "10.70.0.0/16")
	foreign := &networkingv1beta1.Connection{ObjectMeta: metav1.ObjectMeta{Namespace: n.Namespace, Name: "milan"}, Spec: networkingv1beta1.ConnectionSpec{ClusterID: "milan"}}
	kubetest.Create(t, b.others.NetworkingV1beta1().Connections(n.Namespace), foreign)
	r.deliver()
	_, err := r.sync("milan")
	require.ErrorContains(t, err, "keeping Connection liqo-tenant-milan/milan: it has no label liqo.io/managed-by=configuration, so liqod has not made it: delete it")
	require.Contains(t, b.condition("milan").Message, "Network liqo-tenant-milan/rome-pod-10-244-0-0-16 is in the way of a claim for 10.244.0.0/16: delete it")
	require.Equal(t, foreign.Spec, b.connection("milan").Spec)

	// Also when the peer is gone.
	b.leaves()
	r.settle("milan")
	require.Nil(t, b.theirs("milan"))
	require.Len(t, b.claims("milan"), 1)
	require.NotNil(t, b.connection("milan"))
}

// A Configuration that comes back with another UID, from a backup, takes its Networks over.
func TestRestoredConfiguration(t *testing.T) {
	b, r := connected(t)
	namespace := corev1beta1.TenantNamespace("milan")
	old := b.theirs("milan")
	gvr := networkingv1beta1.SchemeGroupVersion.WithResource("configurations")
	require.NoError(t, b.tracker.Delete(gvr, namespace, "rome"))
	b.says("milan", "10.244.0.0/16", "10.71.0.0/16", 11)
	r.settle("milan")
	require.NotEqual(t, old.UID, b.theirs("milan").UID)
	require.Equal(t, networkingv1beta1.ReasonNetworksAllocated, b.condition("milan").Reason)
	for _, n := range b.claims("milan") {
		require.True(t, metav1.IsControlledBy(n, b.theirs("milan")))
	}
	require.True(t, metav1.IsControlledBy(b.connection("milan"), b.theirs("milan")))
}

func TestRemoval(t *testing.T) {
	b, r := connected(t)
	b.leaves()
	require.NotNil(t, b.theirs("milan"), "the finalizer holds it")
	r.deliver()
	writes, err := r.sync("milan")
	require.NoError(t, err)
	require.Len(t, writes, 4)
	require.Equal(t, []string{"delete connections liqo-tenant-milan/milan", "delete " + milanExternal, "delete " + milanPods}, writes[:3])
	require.Nil(t, b.theirs("milan"))
	require.Nil(t, b.connection("milan"))
	require.Empty(t, b.claims("milan"))

	// The caches are behind: nothing is made again, and nothing is deleted twice.
	require.Empty(t, r.writes("milan"))
	r.settle("milan")
	require.Nil(t, b.connection("milan"))
}

// Views stay taken as long as the Connection is there.
func TestRemovalWaitsForTheConnection(t *testing.T) {
	b, r := connected(t)
	c := b.connection("milan")
	c.Finalizers = []string{"test/gateway"}
	kubetest.Update(t, b.others.NetworkingV1beta1().Connections(c.Namespace), c)
	b.leaves()
	r.settle("milan")
	require.Len(t, b.claims("milan"), 2)
	require.NotNil(t, b.theirs("milan"))

	c = b.connection("milan")
	c.Finalizers = nil
	kubetest.Update(t, b.others.NetworkingV1beta1().Connections(c.Namespace), c)
	r.settle("milan")
	require.Empty(t, b.claims("milan"))
	require.Nil(t, b.theirs("milan"))
}

// A replica that dies after any of its writes leaves the rest to the next.
func TestRemovalStopsHalfWay(t *testing.T) {
	t.Parallel()
	died := errors.New("died")
	for _, verb := range []string{"delete", "patch"} {
		for after := range 4 {
			b := newBench(t)
			r := b.connected()
			b.leaves()
			r.deliver()
			left := after
			r.liqo.PrependReactor(verb, "*", func(clienttesting.Action) (bool, runtime.Object, error) {
				left--
				return left < 0, nil, died
			})
			if _, err := r.sync("milan"); err != nil {
				require.ErrorIs(t, err, died)
			}
			b.replica().settle("milan")
			require.Nil(t, b.theirs("milan"))
			require.Nil(t, b.connection("milan"))
			require.Empty(t, b.claims("milan"))
		}
	}
}

// The finalizer was taken away by force: the rest goes all the same.
func TestRemovalWithoutFinalizer(t *testing.T) {
	b, r := connected(t)
	require.NoError(t, b.tracker.Delete(networkingv1beta1.SchemeGroupVersion.WithResource("configurations"), corev1beta1.TenantNamespace("milan"), "rome"))
	r.settle("milan")
	require.Nil(t, b.connection("milan"))
	require.Empty(t, b.claims("milan"))
}

func TestStaleCaches(t *testing.T) {
	b, r := connected(t)

	// Without the Configurations: nothing is deleted.
	again := b.replica()
	again.replace("configurations")
	writes, err := again.sync("milan")
	require.ErrorIs(t, err, loop.After(store.CatchUp))
	require.Empty(t, writes)

	// Without this cluster's own.
	again.replace("configurations", b.theirs("milan"))
	writes, err = again.sync("milan")
	require.ErrorIs(t, err, loop.After(store.CatchUp))
	require.Empty(t, writes)

	// Without the Networks and the Connection: they are there.
	again = b.replica()
	again.replace("networks")
	again.replace("connections")
	_, err = again.sync("milan")
	require.Error(t, err)
	require.Len(t, b.claims("milan"), 2)
	require.NotNil(t, b.connection("milan"))
	again.settle("milan")
	require.Equal(t, networkingv1beta1.ReasonNetworksAllocated, b.condition("milan").Reason)

	// With an older spec: what the newer one needs is not released.
	old := b.replica()
	b.edit(b.theirs("milan"), func(c *networkingv1beta1.Configuration) {
		c.Spec.Local.CIDR.Pod = []networkingv1beta1.CIDR{"10.244.0.0/16", "10.1.0.0/16"}
	})
	r.settle("milan")
	old.deliver("networks")
	writes, err = old.sync("milan")
	require.Error(t, err)
	require.NotContains(t, writes, "delete networks liqo-tenant-milan/rome-pod-10-1-0-0-16")
	require.Len(t, b.claims("milan"), 3)
}

func TestConflictsAreTriedAgain(t *testing.T) {
	b, r := connected(t)
	b.edit(b.theirs("milan"), func(c *networkingv1beta1.Configuration) { c.Spec.MTU = 1300 })
	r.deliver()
	c := b.connection("milan")
	c.Annotations = map[string]string{"by": "another"}
	kubetest.Update(t, b.others.NetworkingV1beta1().Connections(c.Namespace), c)
	_, err := r.sync("milan")
	require.True(t, apierrors.IsConflict(err), "%v", err)
	r.settle("milan")
	require.EqualValues(t, 1300, b.connection("milan").Spec.MTU)
	require.Equal(t, "another", b.connection("milan").Annotations["by"])
}

// A view is kept from being taken by a node that comes later.
func TestNodeComesIntoView(t *testing.T) {
	b, r := connected(t)
	b.nodes = append(b.nodes, testNode("n9", "10.80.3.4"))
	r.settle("milan")
	require.Contains(t, b.condition("milan").Message, "10.80.3.4/32, a node of rome")
	require.Equal(t, []networkingv1beta1.CIDR{"10.71.0.0/16"}, viewsOf(b.connection("milan")))
}

func TestNamesOfNetworks(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"10.42.0.0/16": "rome-pod-10-42-0-0-16", "fd00:42::/48": "rome-pod-fd00-42---48", "fd00::/16": "rome-pod-fd00---16",
	} {
		require.Equal(t, want, networkName("rome", check.OwnRange{Prefix: netip.MustParsePrefix(text), Use: networkingv1beta1.RangePod}))
	}
}

// Both loops at work: a peer comes, and goes.
func TestLoops(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.replica().run()
	eventually := func(what string, f func() bool) {
		t.Helper()
		require.Eventually(t, f, time.Minute, 5*time.Millisecond, what)
	}
	b.peer("milan")
	eventually("rome publishes", func() bool { return b.mine("milan") != nil })
	b.says("milan", "10.244.0.0/16", "10.71.0.0/16", 11)
	eventually("rome claims", func() bool { return len(b.claims("milan")) == 2 })
	b.agrees()
	eventually("both are joined", func() bool {
		c := b.connection("milan")
		return c != nil && len(c.Spec.Remote) == 2 && len(c.Spec.Local) == 2
	})
	b.decideOffer(b.getOffer("milan"), sharingv1alpha1.OfferRefused, "")
	eventually("rome leaves", func() bool { return b.mine("milan") == nil && b.connection("milan") == nil })
	b.leaves()
	eventually("nothing is left", func() bool { return b.theirs("milan") == nil && len(b.claims("milan")) == 0 })
}
