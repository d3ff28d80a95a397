package ipam

import (
	"math/bits"
	"net/netip"

	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	"github.com/liqod/liqod/netfabric/plan"
)

// External returns the Config by which single addresses are given out of a cluster's
// external ranges: all but the first plan.ReservedAddresses of each range, the gateways',
// and, in IPv4, the last. No request may name an address that leads back into these ranges,
// or to a metadata service. Messages name the setting that has the ranges. The error names a
// range that is too small.
func External(ranges []netip.Prefix, setting string) (Config, error) {
	cfg := Config{Pools: ranges, Setting: setting, Refused: ipamv1alpha1.MetadataServices()}
	for _, p := range ranges {
		if err := plan.CheckExternal(p); err != nil {
			return Config{}, err
		}
		// The number of reserved addresses is a power of two.
		gateways := netip.PrefixFrom(p.Addr(), p.Addr().BitLen()-bits.TrailingZeros(plan.ReservedAddresses))
		cfg.Reserved = append(cfg.Reserved, ipamv1alpha1.NamedRange{Prefix: gateways, Name: "the gateways' addresses of an external range"})
		if p.Addr().Is4() {
			cfg.Reserved = append(cfg.Reserved, ipamv1alpha1.NamedRange{Prefix: plan.Single(plan.Last(p)), Name: "the last address of an external range"})
		}
		cfg.Refused = append(cfg.Refused, ipamv1alpha1.NamedRange{Prefix: p, Name: "an external range of this cluster"})
	}
	return cfg, nil
}
