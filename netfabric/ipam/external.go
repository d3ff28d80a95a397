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
		cfg.Reserved = append(cfg.Reserved, ipamv1alpha1.NamedRange{Prefix: gateways(p), Name: "the gateways' addresses of an external range"})
		if p.Addr().Is4() {
			cfg.Reserved = append(cfg.Reserved, ipamv1alpha1.NamedRange{Prefix: netip.PrefixFrom(plan.Last(p), p.Addr().BitLen()), Name: "the last address of an external range"})
		}
		cfg.Refused = append(cfg.Refused, ipamv1alpha1.NamedRange{Prefix: p, Name: "an external range of this cluster"})
	}
	return cfg, nil
}

// gateways are the first addresses of an external range, as many as are reserved for
// gateways. Their number is a power of two.
func gateways(external netip.Prefix) netip.Prefix {
	return netip.PrefixFrom(external.Addr(), external.Addr().BitLen()-bits.TrailingZeros(plan.ReservedAddresses))
}

// Address returns the request of an owner for an address that stands for addr.
func Address(owner string, addr netip.Addr) Request {
	return Request{Owner: owner, For: netip.PrefixFrom(addr, addr.BitLen())}
}
