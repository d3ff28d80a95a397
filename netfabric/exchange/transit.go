package exchange

import (
	"fmt"
	"slices"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/labels"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/netfabric/check"
)

// addTransit adds the ranges under which this cluster sees the pods of other peers that share a
// namespace with a peer. Ranges that the peer has already come first: where not all fit, those in
// use stay. have is the Configuration of the peer; it may be nil.
func (p *Publisher) addTransit(spec *networkingv1beta1.ConfigurationSpec, peer string, have *networkingv1beta1.Configuration) error {
	ranges, err := p.transit(peer)
	if err != nil {
		return err
	}
	var before []networkingv1beta1.CIDR
	if have != nil {
		before = have.Spec.Local.CIDR.Transit
	}
	slices.SortStableFunc(ranges, func(a, b networkingv1beta1.CIDR) int { return place(before, a) - place(before, b) })
	cidr := &spec.Local.CIDR
	var left []networkingv1beta1.CIDR
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
	return nil
}

// place returns where an element is in a list, and the end of the list for one that is not.
func place(list []networkingv1beta1.CIDR, one networkingv1beta1.CIDR) int {
	if i := slices.Index(list, one); i >= 0 {
		return i
	}
	return len(list)
}

// transit returns the ranges of the others, in order. Only their own pods count: what is behind
// them is theirs to give.
func (p *Publisher) transit(peer string) (out []networkingv1beta1.CIDR, err error) {
	offloadings, err := p.cfg.Offloadings.Lister().List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing NamespaceOffloadings: %w", err)
	}
	for _, other := range sharers(peer, offloadings) {
		c, err := store.OrNil(p.cfg.Connections.Lister().Connections(corev1beta1.TenantNamespace(other)).Get(other))
		if err != nil {
			return nil, fmt.Errorf("reading Connection %s: %w", other, err)
		}
		if c == nil || c.DeletionTimestamp != nil || !managed(c) {
			continue
		}
		for _, m := range c.Spec.Remote {
			if m.Use == networkingv1beta1.RangePod {
				out = append(out, m.View)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// sharers returns the other peers that a namespace is offloaded to which is offloaded to a peer.
func sharers(peer string, offloadings []*offloadingv1beta1.NamespaceOffloading) (out []string) {
	for _, o := range offloadings {
		providers := offloadingv1beta1.ProvidersOf(o)
		if !slices.Contains(providers, peer) {
			continue
		}
		out = append(out, slices.DeleteFunc(providers, func(id string) bool { return id == peer })...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// sameTransit reports whether two states of a Connection give other peers the same.
func sameTransit(a, b *networkingv1beta1.Connection) bool {
	return (a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil) && managed(a) == managed(b) && slices.Equal(a.Spec.Remote, b.Spec.Remote)
}
