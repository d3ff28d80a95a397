package plan

import (
	"net/netip"
	"slices"
)

// Named is a range with a name for people.
type Named struct {
	Prefix netip.Prefix
	Name   string
}

// special are ranges that are no host's in any network, or that lead elsewhere than they
// say (RFC 6890).
var special = []Named{
	{netip.MustParsePrefix("0.0.0.0/8"), "addresses of this host"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback addresses"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local addresses"},
	{netip.MustParsePrefix("192.0.0.0/24"), "addresses of IETF protocols"},
	{netip.MustParsePrefix("192.88.99.0/24"), "addresses of 6to4 relays"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast addresses"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved and broadcast addresses"},
	{netip.MustParsePrefix("64:ff9b::/96"), "IPv4 addresses behind a NAT64"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "IPv4 addresses behind a NAT64"},
	{netip.MustParsePrefix("::/8"), "loopback and IPv4-mapped addresses"},
	{netip.MustParsePrefix("100::/64"), "addresses that discard packets"},
	{netip.MustParsePrefix("2001::/32"), "IPv4 addresses behind Teredo"},
	{netip.MustParsePrefix("2002::/16"), "IPv4 addresses behind 6to4"},
	{netip.MustParsePrefix("fe80::/10"), "link-local addresses"},
	{netip.MustParsePrefix("ff00::/8"), "multicast addresses"},
}

// metadata are the addresses, beside those of special ranges, at which clouds hand
// credentials to their machines.
var metadata = []Named{
	{netip.MustParsePrefix("100.100.100.200/32"), "a metadata service of a cloud"},
	{netip.MustParsePrefix("168.63.129.16/32"), "a metadata service of a cloud"},
	{netip.MustParsePrefix("fd00:42::42/128"), "a metadata service of a cloud"},
	{netip.MustParsePrefix("fd00:ec2::/64"), "a metadata service of a cloud"},
	{netip.MustParsePrefix("fd20:ce::254/128"), "a metadata service of a cloud"},
}

// Special returns the ranges that no network has, and that no range here may overlap.
func Special() []Named { return slices.Clone(special) }

// Metadata returns the addresses, beside those of Special, at which clouds hand credentials
// to their machines. They lie in ranges that a cluster may have of its own; no view and no
// endpoint of a peer may have them.
func Metadata() []Named { return slices.Clone(metadata) }

// CheckRange returns an error if p is not a range that a cluster may have of its own.
func CheckRange(p netip.Prefix) error { return checkRange(p) }

// CheckExternal returns an error if p is not a range that a cluster may have for what is no
// pod: one of its own, with room beside the addresses of gateways.
func CheckExternal(p netip.Prefix) error {
	if err := checkRange(p); err != nil {
		return err
	}
	return checkExternal(p)
}
