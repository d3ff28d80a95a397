package exchange

import (
	"net/netip"
	"slices"

	"github.com/liqod/liqod/netfabric/check"
	"github.com/liqod/liqod/netfabric/ipam"
)

// Bits of the ranges that are taken for a cluster's, where only those of its Nodes are known:
// the defaults of the usual installers. A new Node then changes nothing.
const (
	clusterBits4 = 16
	clusterBits6 = 56
)

// coverPods returns ranges that hold the podCIDRs of all Nodes. A range that peers have been
// told before stays as long as it does; while it holds some of them, a range for the others is
// added. For a range that replaces another one cuts all peers until they have a view of it. A
// range is not made wider than it has to be where that would take in some of avoid.
func coverPods(nodes, avoid []netip.Prefix, before [][]netip.Prefix) []netip.Prefix {
	outside := func(told []netip.Prefix) []netip.Prefix {
		return slices.DeleteFunc(slices.Clone(nodes), func(p netip.Prefix) bool { return ipam.Within(told, p) })
	}
	for _, told := range before {
		if len(nodes) > 0 && len(told) > 0 && len(outside(told)) == 0 {
			return told
		}
	}
	for _, told := range before {
		rest := outside(told)
		if len(rest) == len(nodes) {
			continue // it holds none
		}
		more := coverEach(rest, avoid, told)
		apart := !slices.ContainsFunc(more, func(p netip.Prefix) bool { return slices.ContainsFunc(told, p.Overlaps) })
		if apart && len(told)+len(more) <= check.MaxPodRanges {
			return slices.Concat(told, more)
		}
	}
	return coverEach(nodes, avoid, nil)
}

// coverEach returns one range of each family that holds all of nodes. It is as wide as it can
// be beside told, up to the default of installers.
func coverEach(nodes, avoid, told []netip.Prefix) (out []netip.Prefix) {
	for _, family := range []struct {
		is   func(netip.Addr) bool
		bits int
	}{{netip.Addr.Is4, clusterBits4}, {netip.Addr.Is6, clusterBits6}} {
		mine := slices.DeleteFunc(slices.Clone(nodes), func(p netip.Prefix) bool { return !family.is(p.Addr()) })
		if len(mine) == 0 {
			continue
		}
		least := smallestCover(mine)
		wide := netip.PrefixFrom(least.Addr(), min(least.Bits(), family.bits)).Masked()
		if slices.ContainsFunc(avoid, wide.Overlaps) {
			wide = least
		}
		for wide.Bits() < least.Bits() && slices.ContainsFunc(told, wide.Overlaps) {
			wide = netip.PrefixFrom(least.Addr(), wide.Bits()+1).Masked()
		}
		out = append(out, wide)
	}
	return out
}

// smallestCover is the smallest range that holds all, which are of one family.
func smallestCover(all []netip.Prefix) netip.Prefix {
	cover := all[0]
	for _, p := range all[1:] {
		for !ipam.Within([]netip.Prefix{cover}, p) {
			cover = netip.PrefixFrom(cover.Addr(), cover.Bits()-1).Masked()
		}
	}
	return cover
}
