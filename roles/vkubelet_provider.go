package roles

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/netfabric/exchange"
	"github.com/liqod/liqod/peering/auth"
	"github.com/liqod/liqod/reflect/forge"
)

const (
	// rangesInterval is the time between two reads of this cluster's own ranges. Each is a
	// list of all nodes.
	rangesInterval = 10 * time.Minute
	// rangesRetry is the delay after a read that failed.
	rangesRetry = 2 * time.Second
)

// rangesHere are the addresses of this cluster's own, and those that its ForeignCluster allows
// to a provider. They are not changed.
type rangesHere struct {
	own   []netip.Prefix
	peers map[string][]netip.Prefix // by cluster id
}

// refusal returns the reason for which a pod of a provider cannot have an address here. It
// returns "" if it can. The ranges of the provider are those of its ForeignCluster, unless
// the network fabric has checked the address against others.
func (r *rangesHere) refusal(peer string, addr netip.Addr, fabric bool) string {
	theirs, named := r.peers[peer], false
	if !fabric && len(theirs) > 0 {
		named = slices.ContainsFunc(theirs, func(p netip.Prefix) bool { return p.Contains(addr) })
		if !named {
			return fmt.Sprintf("%s is not in spec.addressRanges of the provider's ForeignCluster (%s)", addr, ipamv1alpha1.RangesText(theirs))
		}
	}
	for _, p := range r.own {
		// People may name a part of this cluster's ranges in which it has no pods.
		if p.Contains(addr) && !(named && !p.IsSingleIP()) {
			return fmt.Sprintf("%s is an address of this cluster's own (%s); if this cluster has none there, name the provider's ranges in spec.addressRanges of its ForeignCluster", addr, p)
		}
	}
	return ""
}

// keepRanges reads the ranges of this cluster until ctx is done.
func (v *vkubelet) keepRanges(ctx context.Context) error {
	for ctx.Err() == nil {
		pause := rangesInterval
		if err := v.readRanges(ctx); err != nil {
			v.env.Log.Warn("reading the address ranges of this cluster failed; pods have no address before it succeeds once", zap.Error(err))
			pause = rangesRetry
		}
		_ = loop.Sleep(ctx, v.env.Clock, pause)
	}
	return nil
}

func (v *vkubelet) readRanges(ctx context.Context) error {
	cfg := auth.ClusterConfig{Namespace: v.namespace, Kube: v.home.plain.kube}
	if v.home.plain.config != nil {
		cfg.Host = v.home.plain.config.Host
	}
	own, err := auth.NewCluster(cfg).Own(ctx)
	if err != nil {
		return err
	}
	clusters, err := store.Find[*corev1beta1.ForeignCluster](ctx, "ForeignCluster", v.home.plain.liqo.CoreV1beta1().ForeignClusters(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	peers := map[string][]netip.Prefix{}
	for _, fc := range clusters {
		if theirs := ipamv1alpha1.Ranges(fc.Spec.AddressRanges); len(theirs) > 0 {
			peers[fc.Spec.ClusterID] = append(peers[fc.Spec.ClusterID], theirs...)
		}
	}
	slices.SortFunc(own, netip.Prefix.Compare)
	next := &rangesHere{slices.Compact(own), peers}
	if before := v.ranges.Swap(next); before == nil || !slices.Equal(before.own, next.own) || !maps.EqualFunc(before.peers, next.peers, slices.Equal[[]netip.Prefix]) {
		v.tellRemapped("")
	}
	return nil
}

// providerAddresses translates and checks the addresses of a provider's pods.
type providerAddresses struct {
	peer   string
	remap  *exchange.Remapper // nil without the network fabric
	ranges *loop.Value[*rangesHere]
}

var _ forge.Remapper = providerAddresses{}

// Remap implements forge.Remapper. The check is that of endpoints in the other direction.
func (p providerAddresses) Remap(addr netip.Addr) (here netip.Addr, refused string, ok bool) {
	if why := ipamv1alpha1.SpecialAddress(addr); why != "" {
		return netip.Addr{}, fmt.Sprintf("%s is in %s", addr, why), false
	}
	here = addr
	fabric := p.remap != nil && p.remap.Fabric(p.peer)
	if fabric {
		theirs, err := p.remap.Ranges(p.peer)
		if err != nil {
			return netip.Addr{}, "", false // not yet, or no more
		}
		if !slices.ContainsFunc(theirs, func(r netip.Prefix) bool { return r.Contains(addr) }) {
			return netip.Addr{}, fmt.Sprintf("%s is not in the ranges that cluster %s has in its Connection (%s)", addr, p.peer, ipamv1alpha1.RangesText(theirs)), false
		}
		if here, ok = p.remap.Remap(p.peer, addr); !ok {
			return netip.Addr{}, "", false
		}
		if why := ipamv1alpha1.SpecialAddress(here); why != "" {
			return netip.Addr{}, fmt.Sprintf("%s is here in %s", addr, why), false
		}
	}
	if why := p.ranges.Get().refusal(p.peer, here, fabric); why != "" {
		return netip.Addr{}, why, false
	}
	return here, "", true
}
