package ipam

import (
	"fmt"
	"net/netip"
)

// Gateway returns the address of a cluster's gateways in one of its external ranges: the
// first one that a host can have. The range has at least four addresses.
func Gateway(external netip.Prefix) netip.Addr { return external.Masked().Addr().Next() }

// External returns the Config by which single addresses are given out of a cluster's
// external ranges: all but the first of each range, the gateways', and, in IPv4, the last.
// No request may name an address that leads back into these ranges, or to a metadata
// service. Its error names a range that is too small.
func External(ranges []netip.Prefix) (Config, error) {
	cfg := Config{Pools: ranges, Refused: metadata()}
	for _, p := range ranges {
		if !wellFormed(p) || p.Bits() > p.Addr().BitLen()-2 {
			return Config{}, fmt.Errorf("%q is not an external range: it has to be without host bits, and to have at least 4 addresses", p)
		}
		cfg.Reserved = append(cfg.Reserved,
			Range{single(p.Addr()), "the first address of an external range"}, Range{single(Gateway(p)), "the address of the gateways"})
		if p.Addr().Is4() {
			cfg.Reserved = append(cfg.Reserved, Range{single(last(p)), "the last address of an external range"})
		}
		cfg.Refused = append(cfg.Refused, Range{p, "an external range of this cluster"})
	}
	return cfg, nil
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// Address returns the request of an owner for an address that stands for addr.
func Address(owner string, addr netip.Addr) Request { return Request{Owner: owner, For: single(addr)} }
