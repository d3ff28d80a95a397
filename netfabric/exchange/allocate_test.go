package exchange

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
)

func TestNetworks(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		before []string // ranges of other Networks
		ask    string
		exact  bool
		want   string
		reason string
		says   string
	}{
		"the same":            {ask: "10.42.0.0/16", want: "10.42.0.0/16", reason: "Allocated"},
		"our own":             {ask: "10.244.0.0/16", want: "10.80.0.0/16", reason: "Remapped", says: "10.80.0.0/16 stands for 10.244.0.0/16 in this cluster"},
		"our external":        {ask: "10.70.0.0/16", want: "10.80.0.0/16", reason: "Remapped"},
		"public":              {ask: "2001:db8::/48", want: "fd80::/48", reason: "Remapped"},
		"exactly, of another": {before: []string{"10.42.0.0/16"}, ask: "10.42.0.0/16", exact: true, reason: "Overlaps", says: "no other range is accepted"},
		"nothing is left":     {before: []string{"10.80.0.0/16", "10.81.0.0/16"}, ask: "10.244.0.0/16", reason: "Exhausted", says: "nothing more is given to milan, for 10.244.0.0/16: its claims get at most a half of what others leave of each range of ipam.pools: add a range to ipam.pools"},
		"too large":           {ask: "172.16.0.0/15", reason: "Exhausted", says: "172.16.0.0/15 is too large: a claim gets at most a quarter of a range of ipam.pools, so ranges of size /16 and smaller are accepted"},
		"loopback":            {ask: "127.0.0.0/16", reason: "Invalid", says: "loopback"},
		"past the API server": {ask: "nonsense", reason: "Invalid", says: "a range without host bits is"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			a := r.actor()
			for i, cidr := range tc.before {
				r.network("before-"+string(rune('a'+i)), cidr)
			}
			a.settle()
			var labels []string
			if tc.exact {
				labels = append(labels, ipamv1alpha1.NotRemappedLabel)
			}
			r.network("new", tc.ask, labels...)
			a.settle()
			have := r.getNetwork("new")
			require.Equal(t, tc.want, string(have.Status.CIDR))
			cond := ready(have.Status.Conditions)
			require.Equal(t, tc.reason, cond.Reason, cond.Message)
			require.Contains(t, cond.Message, tc.says)
			require.Equal(t, tc.want != "", cond.Status == metav1.ConditionTrue)
			require.Equal(t, have.Generation, cond.ObservedGeneration)
			require.True(t, cond.LastTransitionTime.Time.Equal(noon))
			require.Equal(t, tc.want != "", slices.Contains(r.given(), "new "+tc.want))

			r.deleteNetwork("new")
			a.settle()
			require.Nil(t, r.getNetwork("new"))
			require.Len(t, r.given(), len(tc.before))
		})
	}
}

// TestKeepNothing: a peer cannot choose under which range it is seen.
func TestKeepNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.actor(func(c *AllocateConfig) { c.Keep = func(string) []netip.Prefix { return nil } })
	r.network("company", "10.42.0.0/16")
	a.settle()
	r.network("pool", "10.83.7.0/24")
	r.network("admin", "10.43.0.0/16", ipamv1alpha1.NotRemappedLabel)
	a.settle()
	require.Equal(t, "10.80.0.0/16", string(r.getNetwork("company").Status.CIDR))
	require.Equal(t, "10.81.0.0/24", string(r.getNetwork("pool").Status.CIDR))
	require.Equal(t, "10.43.0.0/16", string(r.getNetwork("admin").Status.CIDR), "the label is an administrator's")
}

// TestKeptByTrust: another trust in a peer counts for what is given from then on.
func TestKeptByTrust(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	trusted := map[string]bool{}
	a := r.actor(func(c *AllocateConfig) {
		c.Keep = func(peer string) []netip.Prefix {
			if trusted[peer] {
				return kept
			}
			return nil
		}
	})
	r.network("pods", "10.42.0.0/16")
	a.settle()
	require.Equal(t, "10.80.0.0/16", string(r.getNetwork("pods").Status.CIDR))
	trusted["milan"] = true
	r.network("own", "10.244.0.0/16")
	r.network("v6", "fd42::/48")
	a.settle()
	require.Equal(t, "10.80.0.0/16", string(r.getNetwork("pods").Status.CIDR), "what is given stays")
	require.Equal(t, "10.81.0.0/16", string(r.getNetwork("own").Status.CIDR), "it is this cluster's")
	require.Equal(t, "fd42::/48", string(r.getNetwork("v6").Status.CIDR))
	r.deleteNetwork("pods")
	a.settle()
	r.network("pods", "10.42.0.0/16")
	a.settle()
	require.Equal(t, "10.42.0.0/16", string(r.getNetwork("pods").Status.CIDR))
	r.network("behind", "10.43.0.0/24", ipamv1alpha1.RemappedLabel)
	a.settle()
	require.Equal(t, "10.80.0.0/24", string(r.getNetwork("behind").Status.CIDR), "others choose a range behind the peer")
}

func TestIPs(t *testing.T) {
	r, a := allocated(t)
	r.ip("host", "192.0.2.1")
	a.settle()
	r.ip("host6", "2001:db8::1")
	r.ip("bad", "127.0.0.1")
	r.ip("worse", "10.70.0.3")
	r.ip("no", "nonsense")
	a.settle()
	host := r.getIP("host")
	require.Equal(t, "10.70.0.16", string(host.Status.IP), "the first are the gateways'")
	require.Equal(t, "10.70.0.0/27", string(host.Status.CIDR))
	require.Equal(t, "Allocated", ready(host.Status.Conditions).Reason)
	host = r.getIP("host6")
	require.Equal(t, "fd70::10", string(host.Status.IP))
	require.Equal(t, "fd70::/123", string(host.Status.CIDR))
	for name, says := range map[string]string{"bad": "loopback", "worse": "an external range of this cluster", "no": "not accepted"} {
		cond := ready(r.getIP(name).Status.Conditions)
		require.Equal(t, "Invalid", cond.Reason)
		require.Contains(t, cond.Message, says)
	}
	for i := 17; i <= 31; i++ { // the last address is no host's
		r.ip(fmt.Sprintf("ip-%d", i), "192.0.2.9")
		a.settle()
	}
	cond := ready(r.getIP("ip-31").Status.Conditions)
	require.Equal(t, "Exhausted", cond.Reason)
	require.Contains(t, cond.Message, "no address is free for 192.0.2.9 in 10.70.0.0/27: add a range to networking.externalCIDRs")
	require.NoError(t, r.user.IPAMV1alpha1().IPs(tenant).Delete(t.Context(), "ip-18", metav1.DeleteOptions{}))
	a.settle()
	require.Equal(t, "10.70.0.18", string(r.getIP("ip-31").Status.IP))
	require.Nil(t, r.getIP("ip-18"))

	// The external range changes.
	a = r.actor(func(c *AllocateConfig) { c.External = ranges("10.71.0.0/27") })
	a.settle()
	host = r.getIP("host")
	require.Equal(t, "10.70.0.16", string(host.Status.IP))
	require.Empty(t, host.Status.CIDR)
	require.Equal(t, "Overlaps", ready(host.Status.Conditions).Reason)
	require.Contains(t, ready(host.Status.Conditions).Message, "10.70.0.16 was given, but is in no range of networking.externalCIDRs now: delete the claim")
	require.Equal(t, "Overlaps", ready(r.pool(ipamv1alpha1.PoolIPs).Status.Conditions).Reason)
}

// TestWrites: what is recorded comes before what is said, and each once.
func TestWrites(t *testing.T) {
	r, a := allocated(t)
	r.network("first", "10.42.0.0/16")
	a.deliver()
	require.NoError(t, a.syncNetwork("first"))
	kubetest.RequireWrites(t, a.client,
		"patch networks "+tenant+"/first", "create addresspools networks", "update networks/status "+tenant+"/first")
	// A cache that is behind costs a conflict, and nothing more.
	require.True(t, apierrors.IsConflict(a.syncNetwork("first")))
	kubetest.RequireWrites(t, a.client, "patch networks "+tenant+"/first")
	a.deliver("networks")
	require.NoError(t, a.syncNetwork("first"))
	kubetest.RequireWrites(t, a.client)

	// The pool's cache is behind still; the process knows what it wrote.
	r.network("second", "10.43.0.0/16")
	a.deliver("networks")
	require.NoError(t, a.syncNetwork("second"))
	require.Empty(t, gets(a), "no request to find out")
	kubetest.RequireWrites(t, a.client,
		"patch networks "+tenant+"/second", "update addresspools networks", "update networks/status "+tenant+"/second")
	a.settle()
	require.Equal(t, []string{"first 10.42.0.0/16", "second 10.43.0.0/16"}, r.given())
	pool := r.pool(ipamv1alpha1.PoolNetworks)
	require.Equal(t, int32(2), pool.Status.Allocated)
	require.Equal(t, pool.Generation, pool.Status.ObservedGeneration)
	require.Equal(t, "Available", ready(pool.Status.Conditions).Reason)

	// A restart.
	b := r.actor()
	b.deliver()
	for _, k := range b.keys() {
		require.NoError(t, k.sync(t.Context()))
	}
	require.Empty(t, b.client.Actions(), "neither writes nor reads")
}

// gets are the requests that read, less those of informers.
func gets(a *actor) (out []string) {
	for _, action := range a.client.Actions() {
		if v := action.GetVerb(); v == "get" || v == "list" {
			out = append(out, v+" "+action.GetResource().Resource)
		}
	}
	return out
}

// TestConflictsWithoutEnd: who writes the pool all the time makes a claim wait, not fail.
func TestConflictsWithoutEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	busy := true
	a := r.actorWith(r.client(func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.Matches("create", "addresspools") && busy {
			return true, nil, apierrors.NewConflict(ipamv1alpha1.Resource("addresspools"), "networks", errors.New("busy"))
		}
		return r.server.React(action)
	}))
	r.network("first", "10.42.0.0/16")
	a.deliver()
	require.True(t, apierrors.IsConflict(a.syncNetwork("first")))
	require.Len(t, kubetest.TakeWrites(a.client), 1+changeAttempts)
	busy = false
	a.settle()
	require.Equal(t, []string{"first 10.42.0.0/16"}, r.given())
}

// TestSuccessor: another Network of the same name has nothing of the one before.
func TestSuccessor(t *testing.T) {
	r, a := allocated(t, "first", "10.42.0.0/16")
	old := r.getNetwork("first")
	r.unhold("first")
	r.deleteNetwork("first")
	r.network("first", "10.42.0.0/16")
	require.NotEqual(t, old.UID, r.getNetwork("first").UID)
	require.True(t, apierrors.IsConflict(a.syncNetwork("first")) || len(kubetest.TakeWrites(a.client)) == 0, "the cache has the one before")
	a.settle()
	require.Len(t, r.given(), 1)
	require.Equal(t, string(r.getNetwork("first").UID), r.pool(ipamv1alpha1.PoolNetworks).Spec.Allocations[0].UID)
	require.NotEmpty(t, r.getNetwork("first").Status.CIDR)
}

// TestHeldByOthers: where only the finalizer of another keeps a claim, what it had is free.
func TestHeldByOthers(t *testing.T) {
	r, a := allocated(t)
	n := r.network("first", "10.42.0.0/16")
	n.Finalizers = []string{"example.com/other"}
	kubetest.Update(t, r.user.IPAMV1alpha1().Networks(tenant), n)
	a.settle()
	r.deleteNetwork("first")
	a.settle()
	require.Equal(t, []string{"example.com/other"}, r.getNetwork("first").Finalizers)
	require.Empty(t, r.given())
}

// TestPoolIsDeleted: somebody deletes the record. What claims have stays theirs.
func TestPoolIsDeleted(t *testing.T) {
	r, a := allocated(t, "first", "10.244.0.0/16", "second", "10.244.0.0/16", "third", "10.42.0.0/16")
	before := r.given()
	require.Len(t, before, 3)
	require.NoError(t, r.user.IPAMV1alpha1().AddressPools().Delete(t.Context(), ipamv1alpha1.PoolNetworks, metav1.DeleteOptions{}))
	r.network("fourth", "10.42.0.0/16")
	b := r.actor()
	b.deliver()
	require.NoError(t, b.syncNetwork("fourth"))
	require.Equal(t, "Exhausted", ready(r.getNetwork("fourth").Status.Conditions).Reason, "both pools are full")
	b.settle()
	require.Equal(t, before, r.given())

	r.deleteNetwork("first")
	b.settle()
	a.settle()
	require.Equal(t, "10.80.0.0/16", string(r.getNetwork("fourth").Status.CIDR))
	require.Equal(t, "10.81.0.0/16", string(r.getNetwork("second").Status.CIDR))
}

// TestPoolIsDeletedAfterRelease: a claim that is released, and not gone yet, says still that
// it has what another has now.
func TestPoolIsDeletedAfterRelease(t *testing.T) {
	r, a := allocated(t, "first", "10.42.0.0/16")
	r.deleteNetwork("first")
	r.editPool(ipamv1alpha1.PoolNetworks, func(p *ipamv1alpha1.AddressPool) { p.Spec.Allocations = nil })
	r.network("second", "10.42.0.0/16")
	a.deliver("networks")
	require.NoError(t, a.syncNetwork("second"))
	require.Equal(t, []string{"second 10.42.0.0/16"}, r.given())
	require.NoError(t, r.user.IPAMV1alpha1().AddressPools().Delete(t.Context(), ipamv1alpha1.PoolNetworks, metav1.DeleteOptions{}))
	a.deliver()
	require.NoError(t, a.syncPool(t.Context(), loop.Key{Name: ipamv1alpha1.PoolNetworks}), "the record is made again at once")
	require.Equal(t, []string{"second 10.42.0.0/16"}, r.given())
	a.settle()
	require.Nil(t, r.getNetwork("first"))
	require.Equal(t, []string{"second 10.42.0.0/16"}, r.given())
}

// TestAllocationIsRemoved: somebody takes an entry out of the record.
func TestAllocationIsRemoved(t *testing.T) {
	r, a := allocated(t, "first", "10.244.0.0/16", "second", "10.244.0.0/16")
	before := r.given()
	r.editPool(ipamv1alpha1.PoolNetworks, func(p *ipamv1alpha1.AddressPool) { p.Spec.Allocations = p.Spec.Allocations[1:] })
	a.settle()
	require.Equal(t, before, r.given(), "it is recorded again: the status has it")
}

// TestPoolIsUnreadable: somebody writes nonsense into the record. What claims have is not
// touched, and goes when they go; new ones wait.
func TestPoolIsUnreadable(t *testing.T) {
	r, a := allocated(t, "first", "10.42.0.0/16", "second", "10.43.0.0/16")
	good := r.pool(ipamv1alpha1.PoolNetworks).Spec.Allocations
	for name, nonsense := range map[string]ipamv1alpha1.Allocation{
		"no range":         {CIDR: "10.44", For: "10.44.0.0/16", UID: string(r.getNetwork("second").UID), Namespace: tenant, Name: "second"},
		"for no range":     {CIDR: "10.44.0.0/16", For: "x", UID: string(r.getNetwork("second").UID), Namespace: tenant, Name: "second"},
		"an overlap":       {CIDR: "10.42.7.0/24", For: "10.42.7.0/24", UID: string(r.getNetwork("second").UID), Namespace: tenant, Name: "second"},
		"an owner of many": {CIDR: "10.44.0.0/16", For: "10.44.0.0/16", UID: string(r.getNetwork("first").UID), Namespace: tenant, Name: "first"},
	} {
		r.editPool(ipamv1alpha1.PoolNetworks, func(p *ipamv1alpha1.AddressPool) {
			p.Spec.Allocations = []ipamv1alpha1.Allocation{good[0], nonsense}
		})
		r.network("third", "10.45.0.0/16")
		a.settle()
		require.Equal(t, "10.42.0.0/16", string(r.getNetwork("first").Status.CIDR), name)
		require.Equal(t, metav1.ConditionTrue, ready(r.getNetwork("first").Status.Conditions).Status, name)
		cond := ready(r.getNetwork("third").Status.Conditions)
		require.Equal(t, "PoolInvalid", cond.Reason, name)
		require.Contains(t, cond.Message, "AddressPool networks cannot be read: ", name)
		require.Contains(t, cond.Message, "correct its spec.allocations", name)
		require.Equal(t, "Invalid", r.poolReason(), name)
		r.deleteNetwork("third")
		a.settle()
		require.Nil(t, r.getNetwork("third"), name)

		r.editPool(ipamv1alpha1.PoolNetworks, func(p *ipamv1alpha1.AddressPool) { p.Spec.Allocations = good })
		a.settle()
		require.Equal(t, "Available", r.poolReason(), name)
	}
	// An entry that names nothing is nobody's.
	r.editPool(ipamv1alpha1.PoolNetworks, func(p *ipamv1alpha1.AddressPool) {
		p.Spec.Allocations = append(p.Spec.Allocations, ipamv1alpha1.Allocation{CIDR: "10.99.0.0/16", For: "10.99.0.0/16", UID: "x"})
	})
	a.settle()
	require.Equal(t, good, r.pool(ipamv1alpha1.PoolNetworks).Spec.Allocations)
}

// TestReservedLater: a range that was given turns out to be one of the cluster's own.
func TestReservedLater(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.network("first", "10.42.0.0/16")
	r.actor().settle()
	a := r.actor(func(c *AllocateConfig) {
		c.Reserved = &fixedRanges{list: []ipamv1alpha1.NamedRange{{Prefix: netip.MustParsePrefix("10.42.7.0/24"), Name: "reserved by ipam.reservedSubnets"}}}
	})
	a.settle()
	n := r.getNetwork("first")
	require.Equal(t, "10.42.0.0/16", string(n.Status.CIDR))
	require.Equal(t, "Overlaps", ready(n.Status.Conditions).Reason)
	require.Contains(t, ready(n.Status.Conditions).Message, "overlaps 10.42.7.0/24, reserved by ipam.reservedSubnets, now: delete the claim and create another")
	require.Equal(t, "Overlaps", r.poolReason())
	r.deleteNetwork("first")
	r.network("again", "10.42.0.0/16")
	a.settle()
	require.Equal(t, "10.80.0.0/16", string(r.getNetwork("again").Status.CIDR))
	require.Equal(t, "Available", r.poolReason())
}

// TestRangesUnknown: nothing is given before the ranges of the cluster are known, what is given
// stays, and what was only asked for can be deleted.
func TestRangesUnknown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.network("old", "10.42.0.0/16")
	r.actor().settle()
	reserved := &fixedRanges{err: errors.New("set networking.serviceCIDRs")}
	a := r.actor(func(c *AllocateConfig) { c.Reserved = reserved })
	r.network("new", "10.43.0.0/16")
	r.ip("host", "192.0.2.1")
	a.settle()
	is := ready(r.getNetwork("new").Status.Conditions)
	require.Equal(t, "RangesUnknown", is.Reason)
	require.Equal(t, "nothing is given before the ranges of this cluster are known: set networking.serviceCIDRs", is.Message)
	require.Empty(t, r.getNetwork("new").Status.CIDR)
	require.Equal(t, "Allocated", ready(r.getNetwork("old").Status.Conditions).Reason)
	require.Equal(t, "Allocated", ready(r.getIP("host").Status.Conditions).Reason, "the external range is known")
	require.Equal(t, "RangesUnknown", r.poolReason())
	require.Equal(t, []string{"old 10.42.0.0/16"}, r.given())

	// Nor where the record is made again of the claims.
	require.NoError(t, r.user.IPAMV1alpha1().AddressPools().Delete(t.Context(), ipamv1alpha1.PoolNetworks, metav1.DeleteOptions{}))
	r.deleteNetwork("new")
	a.settle()
	require.Nil(t, r.getNetwork("new"))
	require.Equal(t, []string{"old 10.42.0.0/16"}, r.given())

	r.network("new", "10.43.0.0/16")
	reserved.set(nil, "10.43.0.0/24")
	a.settle()
	require.Equal(t, "10.80.0.0/16", string(r.getNetwork("new").Status.CIDR))
	require.Equal(t, "Available", r.poolReason())
}

// TestClaimsThatWait: they are tried again when the ranges change, and once the peer is trusted. What is given
// is judged again.
func TestClaimsThatWait(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	reserved, trusted := &fixedRanges{err: errors.New("not yet")}, atomic.Bool{}
	a := r.actor(func(c *AllocateConfig) {
		c.Pools, c.Reserved = nil, reserved
		c.Keep = func(string) []netip.Prefix {
			if trusted.Load() {
				return kept
			}
			return nil
		}
	})
	r.network("first", "10.42.0.0/16")
	a.run()
	says := func(reason string) func() bool {
		return func() bool { return ready(r.getNetwork("first").Status.Conditions).Reason == reason }
	}
	r.eventually("it waits", says("RangesUnknown"))
	reserved.set(nil, "10.244.0.0/16")
	r.eventually("there is no pool", says("Exhausted"))
	trusted.Store(true)
	kubetest.Create(t, r.user.CoreV1beta1().ForeignClusters(), &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "milan"}})
	r.eventually("it is kept", says("Allocated"))
	reserved.set(nil, "10.244.0.0/16", "10.42.0.5/32") // a Node comes
	r.eventually("it is judged", says("Overlaps"))
	r.eventually("so is the pool", func() bool { return r.poolReason() == "Overlaps" })
}

func TestBadConfigurations(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	group := r.actor().factory.IPAM().V1alpha1()
	for says, cfg := range map[string]AllocateConfig{
		"networking.externalCIDRs": {External: ranges("10.70.0.0/28")},
		"10.80.0.1/16":             {Pools: ranges("10.80.0.1/16")},
	} {
		cfg.Client, cfg.Networks, cfg.IPs, cfg.AddressPools = r.user, group.Networks(), group.IPs(), group.AddressPools()
		_, err := NewAllocator(cfg)
		require.ErrorContains(t, err, says)
	}
}

// TestRunning has the loops woken by what they watch.
func TestRunning(t *testing.T) {
	r, a := allocated(t)
	stop := a.run()
	r.network("first", "10.244.0.0/16")
	r.network("second", "10.244.0.0/16")
	r.ip("host", "192.0.2.1")
	r.eventually("all are given", func() bool {
		return r.getNetwork("first").Status.CIDR != "" && r.getNetwork("second").Status.CIDR != "" && r.getIP("host").Status.IP != ""
	})
	r.network("third", "10.244.0.0/16")
	r.eventually("nothing is left", func() bool { return ready(r.getNetwork("third").Status.Conditions).Reason == "Exhausted" })
	r.deleteNetwork("first")
	r.eventually("what was released is given", func() bool { return ready(r.getNetwork("third").Status.Conditions).Reason == "Remapped" })
	require.Nil(t, r.getNetwork("first"))
	r.editPool(ipamv1alpha1.PoolNetworks, func(p *ipamv1alpha1.AddressPool) { p.Spec.Allocations = nil })
	r.eventually("the record is made again", func() bool { return len(r.given()) == 2 })
	r.eventually("the pool is counted", func() bool { return r.pool(ipamv1alpha1.PoolNetworks).Status.Allocated == 2 })
	r.network("fourth", "10.43.0.0/16")
	r.eventually("given", func() bool { return len(r.given()) == 3 })
	r.unhold("fourth")
	r.deleteNetwork("fourth")
	r.eventually("swept", func() bool { return len(r.given()) == 2 })
	stop()

	// What was deleted while none ran, finalizer and all, is found by the next.
	r.unhold("second")
	r.deleteNetwork("second")
	require.Nil(t, r.getNetwork("second"))
	require.Len(t, r.given(), 2)
	r.actor().run()
	r.eventually("swept", func() bool { return len(r.given()) == 1 })
}
