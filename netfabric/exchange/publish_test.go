package exchange

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/netfabric/check"
)

// publishes syncs a peer's publication, and returns what was written.
func (r *replica) publishes(peer string) ([]string, error) {
	r.liqo.ClearActions()
	err := r.publish.sync(r.t.Context(), loop.Key{Name: peer})
	return kubetest.TakeWrites(r.liqo), err
}

// published syncs a peer's publication without an error, and returns what was written.
func (r *replica) published(peer string) []string {
	r.t.Helper()
	writes, err := r.publishes(peer)
	require.NoError(r.t, err)
	return writes
}

const ofMilan = "configurations liqo-tenant-milan/milan"

func TestPublish(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.replica()
	require.Empty(t, r.published("milan"))

	b.peer("milan")
	r.deliver()
	require.Equal(t, []string{"create " + ofMilan}, r.published("milan"))
	c := b.mine("milan")
	require.Equal(t, made("milan"), c.Labels)
	require.Equal(t, networkingv1beta1.ConfigurationSpec{
		Local: networkingv1beta1.ClusterNetwork{CIDR: networkingv1beta1.ClusterCIDR{
			Pod: []networkingv1beta1.CIDR{"10.244.0.0/16"}, External: []networkingv1beta1.CIDR{"10.70.0.0/16"}}},
		Gateways: r.gateways.list, MTU: 1400,
	}, c.Spec)

	// A cache that is behind, a duplicate, a restart.
	writes, err := r.publishes("milan")
	require.Equal(t, loop.After(store.CatchUp), err)
	require.Equal(t, []string{"create " + ofMilan}, writes)
	r.deliver()
	for _, one := range []*replica{r, b.replica()} {
		require.Empty(t, one.published("milan"))
	}

	// Gateways change, and are for a while not known.
	r.gateways.known = false
	r.gateways.list = nil
	require.Empty(t, r.published("milan"))
	r.gateways.known = true
	r.gateways.list = []networkingv1beta1.Gateway{{Name: "gw-2", Number: 2, PublicKey: gatewayKey(2)}}
	require.Equal(t, []string{"update " + ofMilan}, r.published("milan"))
	require.Equal(t, r.gateways.list, b.mine("milan").Spec.Gateways)
	require.Len(t, r.gateways.told, 1)
	_, err = r.publishes("milan")
	require.True(t, err == nil || apierrors.IsConflict(err))

	// Another writes there: it is put right.
	b.edit(b.mine("milan"), func(c *networkingv1beta1.Configuration) {
		c.Spec.Local.CIDR.Pod = []networkingv1beta1.CIDR{"10.96.0.0/12"}
	})
	r.settle("milan")
	require.Equal(t, []networkingv1beta1.CIDR{"10.244.0.0/16"}, b.mine("milan").Spec.Local.CIDR.Pod)
}

func TestWhenToPublish(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	for name, tc := range map[string]struct {
		phase   sharingv1alpha1.OfferPhase
		node    string
		enabled *bool
		gone    bool // no ForeignCluster
		want    bool
	}{
		"accepted":                {phase: sharingv1alpha1.OfferAccepted, want: true},
		"pending":                 {phase: sharingv1alpha1.OfferPending},
		"refused":                 {phase: sharingv1alpha1.OfferRefused},
		"refused, still draining": {phase: sharingv1alpha1.OfferRefused, node: "milan", want: true},
		"disabled":                {phase: sharingv1alpha1.OfferAccepted, enabled: &no},
		"enabled":                 {phase: sharingv1alpha1.OfferAccepted, enabled: &yes, want: true},
		"not known":               {phase: sharingv1alpha1.OfferAccepted, gone: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var fc *corev1beta1.ForeignCluster
			if !tc.gone {
				fc = &corev1beta1.ForeignCluster{Spec: corev1beta1.ForeignClusterSpec{NetworkingEnabled: tc.enabled}}
			}
			offer := &sharingv1alpha1.ResourceOffer{Status: sharingv1alpha1.ResourceOfferStatus{Phase: tc.phase, VirtualNode: tc.node}}
			require.Equal(t, tc.want, wanted(fc, []*sharingv1alpha1.ResourceOffer{{}, offer}))
		})
	}
}

func TestWithdraw(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.peer("milan")
	b.offer("milan", "milan", sharingv1alpha1.OfferAccepted) // the other direction
	r := b.replica()
	r.settle("milan")
	b.decideOffer(b.getOffer("milan"), sharingv1alpha1.OfferRefused, "")
	r.settle("milan")
	require.NotNil(t, b.mine("milan"), "one offer is left")

	// A cache without offers deletes nothing.
	r.replace("resourceoffers")
	writes, err := r.publishes("milan")
	require.Equal(t, loop.After(store.CatchUp), err)
	require.Empty(t, writes)

	require.NoError(t, b.others.SharingV1alpha1().ResourceOffers(corev1beta1.TenantNamespace("milan")).Delete(t.Context(), "milan", metav1.DeleteOptions{}))
	r.deliver()
	require.Equal(t, []string{"delete " + ofMilan}, r.published("milan"))
	require.Equal(t, []string{"delete " + ofMilan}, r.published("milan")) // its cache still has it
	r.settle("milan")
	require.Nil(t, b.mine("milan"))
}

// One that is held by others while it is deleted is made again when it is gone.
func TestPublishAfterDeletion(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.peer("milan")
	r := b.replica()
	r.settle("milan")
	b.edit(b.mine("milan"), func(c *networkingv1beta1.Configuration) { c.Finalizers = []string{"test/hold"} })
	old := b.mine("milan")
	require.NoError(t, b.others.NetworkingV1beta1().Configurations(old.Namespace).Delete(t.Context(), "milan", metav1.DeleteOptions{}))
	r.deliver()
	require.Empty(t, r.published("milan"))
	b.edit(b.mine("milan"), func(c *networkingv1beta1.Configuration) { c.Finalizers = nil })
	r.settle("milan")
	require.NotEqual(t, old.UID, b.mine("milan").UID)
}

func TestForeignConfigurationIsLeftAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.peer("milan")
	foreign := &networkingv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: corev1beta1.TenantNamespace("milan"), Name: "milan"}}
	kubetest.Create(t, b.others.NetworkingV1beta1().Configurations(foreign.Namespace), foreign)
	writes, err := b.replica().publishes("milan")
	require.ErrorContains(t, err, "Configuration liqo-tenant-milan/milan is in the way: it has no label liqo.io/managed-by=configuration, so liqod has not made it; delete it")
	require.Empty(t, writes)
}

func TestRangesFromNodes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.peer("milan")
	r := b.replica(func(o *check.Own) { o.Pods = nil })
	_, err := r.publishes("milan")
	require.ErrorIs(t, err, errNoPodRange)

	virtual := testNode("milan", "10.50.0.1", "10.50.0.0/24")
	virtual.Labels = map[string]string{offloadingv1beta1.TypeLabel: offloadingv1beta1.TypeVirtualNode}
	b.nodes = []*corev1.Node{testNode("n1", "192.168.0.11", "10.244.1.0/24", "fd00:10:244:1::/64"), virtual}
	r.settle("milan")
	require.Equal(t, []networkingv1beta1.CIDR{"10.244.0.0/16", "fd00:10:244::/56"}, b.mine("milan").Spec.Local.CIDR.Pod)

	// A cluster's ranges that cannot be published are an error that says why.
	for external, says := range map[string]string{
		"10.244.9.0/24":  "networking.externalCIDRs: 10.244.9.0/24 overlaps 10.244.0.0/16, a pod range of this cluster: set a range that is free",
		"10.96.0.0/16":   "networking.externalCIDRs: 10.96.0.0/16 overlaps 10.96.0.0/12, a range of Services",
		"192.168.0.0/24": "networking.externalCIDRs: 192.168.0.0/24 overlaps 192.168.0.11/32, a node",
	} {
		r = b.replica(func(o *check.Own) { o.External = ranges(external) })
		_, err = r.publishes("milan")
		require.ErrorContains(t, err, "the ranges of this cluster cannot be published: "+says)
	}
}

func TestCoverPods(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		nodes, avoid, before, want []string
	}{
		"none":                {nil, nil, nil, nil},
		"none, and told":      {nil, nil, []string{"10.244.0.0/16"}, nil},
		"as installers do":    {[]string{"10.244.0.0/24", "10.244.7.0/24"}, nil, nil, []string{"10.244.0.0/16"}},
		"both families":       {[]string{"fd00:1::/64", "10.42.1.0/24", "fd00:1:0:5::/64"}, nil, nil, []string{"10.42.0.0/16", "fd00:1::/56"}},
		"larger":              {[]string{"10.244.0.0/24", "10.247.0.0/24"}, nil, nil, []string{"10.244.0.0/14"}},
		"nodes beside":        {[]string{"10.0.128.0/24", "10.0.129.0/24"}, []string{"10.0.0.11/32"}, nil, []string{"10.0.128.0/23"}},
		"told":                {[]string{"10.244.1.0/24"}, nil, []string{"10.244.0.0/20"}, []string{"10.244.0.0/20"}},
		"told, and one more":  {[]string{"10.244.1.0/24", "10.244.16.0/24"}, nil, []string{"10.244.0.0/20"}, []string{"10.244.0.0/20", "10.244.16.0/20"}},
		"the next /16":        {[]string{"10.244.1.0/24", "10.245.0.0/24"}, nil, []string{"10.244.0.0/16"}, []string{"10.244.0.0/16", "10.245.0.0/16"}},
		"on both sides":       {[]string{"10.244.1.0/24", "10.243.0.0/24", "10.245.0.0/24"}, nil, []string{"10.244.0.0/16"}, []string{"10.240.0.0/13"}},
		"one more, IPv6":      {[]string{"10.244.1.0/24", "fd00:1::/64"}, nil, []string{"10.244.0.0/16"}, []string{"10.244.0.0/16", "fd00:1::/56"}},
		"told, and no longer": {[]string{"10.9.1.0/24"}, nil, []string{"10.244.0.0/20"}, []string{"10.9.0.0/16"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := coverPods(ranges(tc.nodes...), ranges(tc.avoid...), [][]netip.Prefix{ranges(tc.before...)})
			require.Equal(t, ranges(tc.want...), got)
		})
	}
}
