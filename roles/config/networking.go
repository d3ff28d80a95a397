package config

import (
	"fmt"
	"net/netip"

	"github.com/liqod/liqod/netfabric/plan"
)

// Values of Networking.Reach.
const (
	ReachShared = "Shared"
	ReachAll    = "All"
)

// mostPodRanges is how many pod ranges peers accept of a cluster.
const mostPodRanges = 8

// owned is a range with the setting that has it.
type owned struct {
	netip.Prefix
	setting string
}

// ranges returns the ranges of a setting.
func ranges(setting string, texts []string) (out []owned) {
	for _, p := range Prefixes(texts) {
		out = append(out, owned{p, "networking." + setting})
	}
	return out
}

// together checks that the ranges of this cluster do not overlap. In an overlap, an address
// would lead to two places.
func (n Networking) together() (errs []error) {
	pods, services, external := ranges("podCIDRs", n.PodCIDRs), ranges("serviceCIDRs", n.ServiceCIDRs), ranges("externalCIDRs", n.ExternalCIDRs)
	nodes, reserved := ranges("nodeCIDRs", n.NodeCIDRs), ranges("reservedSubnets", n.ReservedSubnets)
	for _, r := range pods {
		if err := plan.CheckRange(r.Prefix); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w: write ranges of ordinary addresses, as 10.42.0.0/16", r.setting, err))
		}
	}
	if len(pods) > mostPodRanges {
		errs = append(errs, fmt.Errorf("networking.podCIDRs: %d ranges are not accepted: write at most %d, such as one of IPv4 and one of IPv6 that hold all", len(pods), mostPodRanges))
	}
	errs = append(errs, checkExternal(external)...)
	errs = append(errs, overlaps(pods, services, external)...)
	// The ranges of pods may overlap those of nodes: in some networks, nodes and pods share one.
	errs = append(errs, overlaps(nodes, external)...)
	return append(errs, overlaps(reserved, external)...)
}

func checkExternal(external []owned) (errs []error) {
	families := map[bool]netip.Prefix{}
	for _, r := range external {
		if err := plan.CheckExternal(r.Prefix); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w: write a free range of at least 32 ordinary addresses, as 10.70.0.0/16", r.setting, err))
		}
		if first, ok := families[r.Addr().Is4()]; ok {
			errs = append(errs, fmt.Errorf("%s: %s and %s are not accepted beside each other: write at most one range of IPv4 and one of IPv6", r.setting, first, r.Prefix))
		}
		families[r.Addr().Is4()] = r.Prefix
	}
	return errs
}

// overlaps returns an error for each overlap between ranges of the lists. Only the ranges
// within networking.nodeCIDRs, or within networking.reservedSubnets, may overlap each other.
func overlaps(lists ...[]owned) (errs []error) {
	var before []owned
	for _, list := range lists {
		for _, r := range list {
			for _, other := range before {
				if r.Overlaps(other.Prefix) && (r.setting != other.setting || r.setting != "networking.nodeCIDRs" && r.setting != "networking.reservedSubnets") {
					errs = append(errs, fmt.Errorf("%s: %s is not accepted: it overlaps %s of %s; write ranges that share no address", r.setting, r.Prefix, other.Prefix, other.setting))
				}
			}
			before = append(before, r)
		}
	}
	return errs
}
