package v1alpha1

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// NamedRange is a range of addresses with a name for people, as in "a pod range of this cluster".
//
// +k8s:deepcopy-gen=false
type NamedRange struct {
	Prefix netip.Prefix
	Name   string
}

// special are ranges that are no host's in any network, or that lead elsewhere than they
// say (RFC 6890).
var special = named(
	"0.0.0.0/8", "addresses of this host",
	"127.0.0.0/8", "loopback addresses",
	"169.254.0.0/16", "link-local addresses",
	"192.0.0.0/24", "addresses of IETF protocols",
	"192.88.99.0/24", "addresses of 6to4 relays",
	"224.0.0.0/4", "multicast addresses",
	"240.0.0.0/4", "reserved and broadcast addresses",
	"64:ff9b::/96", "IPv4 addresses behind a NAT64",
	"64:ff9b:1::/48", "IPv4 addresses behind a NAT64",
	"::/8", "loopback and IPv4-mapped addresses",
	"100::/64", "addresses that discard packets",
	"2001::/32", "IPv4 addresses behind Teredo",
	"2002::/16", "IPv4 addresses behind 6to4",
	"fe80::/10", "link-local addresses",
	"ff00::/8", "multicast addresses",
)

// metadata are the addresses, beside those of special ranges, at which clouds hand
// credentials to their machines.
var metadata = named(
	"100.100.100.200/32", "a metadata service of a cloud",
	"168.63.129.16/32", "a metadata service of a cloud",
	"fd00:42::42/128", "a metadata service of a cloud",
	"fd00:ec2::/64", "a metadata service of a cloud",
	"fd20:ce::254/128", "a metadata service of a cloud",
)

// named makes ranges of pairs of a prefix and a name.
func named(pairs ...string) (out []NamedRange) {
	for pair := range slices.Chunk(pairs, 2) {
		out = append(out, NamedRange{netip.MustParsePrefix(pair[0]), pair[1]})
	}
	return out
}

// SpecialRanges returns the ranges that no network has, and that no range here may overlap.
func SpecialRanges() []NamedRange { return slices.Clone(special) }

// MetadataServices returns the addresses, beside those of SpecialRanges, at which clouds hand
// credentials to their machines. They lie in ranges that a cluster may have of its own; no view
// and no endpoint of a peer may have them.
func MetadataServices() []NamedRange { return slices.Clone(metadata) }

// NeverReached returns the prefixes of SpecialRanges and MetadataServices.
func NeverReached() (out []netip.Prefix) {
	for _, r := range slices.Concat(special, metadata) {
		out = append(out, r.Prefix)
	}
	return out
}

// Ranges reads CIDRs. It leaves out texts that are none.
func Ranges(texts []string) (out []netip.Prefix) {
	for _, text := range texts {
		if p, err := netip.ParsePrefix(text); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// RangesText lists ranges for people; "none" if there are none.
func RangesText(ranges []netip.Prefix) string {
	if len(ranges) == 0 {
		return "none"
	}
	texts := make([]string, 0, len(ranges))
	for _, r := range ranges {
		texts = append(texts, r.String())
	}
	return strings.Join(texts, ", ")
}

// SpecialAddress returns the range of SpecialRanges or MetadataServices that an address is in, as
// "127.0.0.0/8: loopback addresses", and "" for an ordinary address.
func SpecialAddress(addr netip.Addr) string {
	addr = addr.Unmap()
	for _, r := range slices.Concat(special, metadata) {
		if r.Prefix.Contains(addr) {
			return fmt.Sprintf("%s: %s", r.Prefix, r.Name)
		}
	}
	return ""
}

// HostName returns the reason why a text is not the name of a host outside of clusters. Some resolvers take
// names that end in a number for IPv4 addresses. The address that a name resolves to is
// still to be checked.
func HostName(name string) error {
	labels := strings.Split(name, ".")
	last := labels[len(labels)-1]
	if len(validation.IsDNS1123Subdomain(name)) > 0 || len(labels) < 2 || strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x") {
		return fmt.Errorf("%.64q is not accepted: an IP address or a full DNS name is", name)
	}
	if last == "svc" || last == "localhost" || strings.HasSuffix(name, ".cluster.local") {
		return fmt.Errorf("%.64q is a name inside of a cluster: one outside is accepted", name)
	}
	return nil
}

// CheckServer returns the reason why a peer may not name a host as that of a server of its own, to
// which this cluster connects. own are the ranges and addresses of this cluster. Special addresses
// within accepted pass: administrators list them on purpose.
func CheckServer(host string, own, accepted []netip.Prefix) error {
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return HostName(host)
	}
	addr = addr.Unmap().WithZone("")
	within := func(p netip.Prefix) bool { return p.Contains(addr) }
	switch special := SpecialAddress(addr); {
	case special != "" && !slices.ContainsFunc(accepted, within):
		return fmt.Errorf("%s: a peer cannot have a server at this address (%s)", addr, special)
	case special == "" && slices.ContainsFunc(own, within):
		return fmt.Errorf("%s: a peer cannot have a server at this address, which is one of this cluster", addr)
	}
	return nil
}
