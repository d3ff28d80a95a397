package exchange

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/api/equality"

	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/netfabric/check"
	"github.com/liqod/liqod/netfabric/plan"
)

// addTransit adds the ranges under which this cluster sees the pods of other peers that share a
// namespace with a peer, and the clusters that they stand for. Ranges that the peer has already come
// first: where not all fit, those in use stay. have is the Configuration of the peer; it may be nil.
func (p *Publisher) addTransit(spec *networkingv1beta1.ConfigurationSpec, peer string, have *networkingv1beta1.Configuration) {
	thirds := p.thirds(peer)
	var before, ranges, left []networkingv1beta1.CIDR
	if have != nil {
		before = have.Spec.Local.CIDR.Transit
	}
	for _, t := range thirds {
		for _, m := range t.Ranges {
			ranges = append(ranges, m.View)
		}
	}
	slices.Sort(ranges)
	slices.SortStableFunc(ranges, func(a, b networkingv1beta1.CIDR) int { return place(before, a) - place(before, b) })
	cidr := &spec.Local.CIDR
	for _, r := range ranges {
		next := *cidr
		next.Transit = append(slices.Clone(cidr.Transit), r)
		var wrong check.Problems
		if check.Ranges(next, &wrong); len(wrong) > 0 {
			left = append(left, r)
			continue
		}
		cidr.Transit = next.Transit
	}
	if len(left) > 0 {
		p.cfg.Log.Warn("a peer is not led to all others that share a namespace with it: there are too many ranges",
			zap.String("peer", peer), zap.Any("left out", left), zap.Int("most", check.MaxTransitRanges))
	}
	// A cluster that is not named is reached through this one alone.
	spec.Behind = slices.DeleteFunc(thirds, func(t networkingv1beta1.Third) bool {
		return len(t.Namespaces) > check.MaxSharedNamespaces || slices.ContainsFunc(t.Ranges, func(m networkingv1beta1.Mapping) bool { return !slices.Contains(cidr.Transit, m.View) })
	})
}

// addServices adds the ranges of this cluster's Services while a peer runs pods that use them.
func (p *Publisher) addServices(spec *networkingv1beta1.ConfigurationSpec, peer string) {
	if !slices.ContainsFunc(store.All[*offloadingv1beta1.NamespaceOffloading](p.cfg.Offloadings.Informer().GetStore()), func(o *offloadingv1beta1.NamespaceOffloading) bool {
		return o.Spec.Services == offloadingv1beta1.ServicesHome && slices.Contains(offloadingv1beta1.ProvidersOf(o), peer)
	}) {
		return
	}
	own, err := p.cfg.Own.Own()
	var ranges []netip.Prefix // found ones may be configured, too
	for _, s := range slices.SortedFunc(slices.Values(own.Services), func(a, b netip.Prefix) int { return a.Bits() - b.Bits() }) {
		if !plan.Within(s, ranges) {
			ranges = append(ranges, s)
		}
	}
	next := spec.Local.CIDR
	next.Service = texts(ranges)
	var wrong check.Problems
	if check.Ranges(next, &wrong); err != nil || len(wrong) > 0 {
		p.cfg.Log.Warn("a peer is not given the ranges of Services", zap.String("peer", peer), zap.Stringer("problems", wrong), zap.Error(err))
		return
	}
	spec.Local.CIDR = next
}

// place returns where an element is in a list, and the end of the list for one that is not.
func place(list []networkingv1beta1.CIDR, one networkingv1beta1.CIDR) int {
	if i := slices.Index(list, one); i >= 0 {
		return i
	}
	return len(list)
}

// thirds returns the others that share a namespace with a peer, in order. Only their own pods count:
// what is behind them is theirs to give.
func (p *Publisher) thirds(peer string) (out []networkingv1beta1.Third) {
	shared := sharers(peer, store.All[*offloadingv1beta1.NamespaceOffloading](p.cfg.Offloadings.Informer().GetStore()))
	for _, other := range slices.Sorted(maps.Keys(shared)) {
		c := connectionOf(p.cfg.Connections, other)
		if c == nil || !leads(c) {
			continue
		}
		pods := slices.DeleteFunc(slices.Clone(c.Spec.Remote), func(m networkingv1beta1.Mapping) bool { return m.Use != networkingv1beta1.RangePod })
		if len(pods) > 0 {
			out = append(out, networkingv1beta1.Third{ClusterID: other, Namespaces: slices.Sorted(slices.Values(shared[other])), Ranges: pods})
		}
	}
	return out
}

// leads reports whether a Connection counts for other peers.
func leads(c *networkingv1beta1.Connection) bool { return c.DeletionTimestamp == nil && managed(c) }

// sharers returns the namespaces that are offloaded to a peer, by each other peer that they are
// offloaded to as well.
func sharers(peer string, offloadings []*offloadingv1beta1.NamespaceOffloading) map[string][]string {
	out := map[string][]string{}
	for _, o := range offloadings {
		providers := offloadingv1beta1.ProvidersOf(o)
		if !slices.Contains(providers, peer) {
			continue
		}
		for _, other := range providers {
			if other != peer {
				out[other] = append(out[other], o.Namespace)
			}
		}
	}
	return out
}

// admits returns what other peers that run pods here let a peer reach of them: the namespaces that
// they offload to it, too. The pods are theirs, and they lead the peer there anyway; that both sides of
// a tunnel agree to it is what this cluster adds.
func (p *Publisher) admits(peer string) (out []networkingv1beta1.Third) {
	for _, c := range store.All[*networkingv1beta1.Connection](p.cfg.Connections.Informer().GetStore()) {
		for _, t := range c.Spec.Behind {
			if t.ClusterID == peer && c.Spec.ClusterID != peer && leads(c) {
				out = append(out, networkingv1beta1.Third{ClusterID: c.Spec.ClusterID, Namespaces: t.Namespaces})
			}
		}
	}
	slices.SortFunc(out, func(a, b networkingv1beta1.Third) int { return strings.Compare(a.ClusterID, b.ClusterID) })
	return out[:min(len(out), check.MaxThirds)]
}

// sameTransit reports whether two states of a Connection give other peers the same.
func sameTransit(a, b *networkingv1beta1.Connection) bool {
	return leads(a) == leads(b) && slices.Equal(a.Spec.Remote, b.Spec.Remote) && equality.Semantic.DeepEqual(a.Spec.Behind, b.Spec.Behind)
}
