package endpoints

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// Remapper translates addresses as the network fabric does. Its method may be called
// concurrently, and answers at once.
type Remapper interface {
	// Remap returns the address under which this cluster reaches what a peer knows by addr,
	// or false if it does not reach it.
	Remap(peer string, addr netip.Addr) (netip.Addr, bool)
}

// metadata are addresses, beside the link-local ones, at which clouds hand credentials to
// whoever asks from the right place. No peer may send our pods there.
var metadata = []netip.Addr{
	netip.MustParseAddr("100.100.100.200"), // Alibaba Cloud
	netip.MustParseAddr("168.63.129.16"),   // Azure
	netip.MustParseAddr("192.0.0.192"),     // Oracle Cloud
	netip.MustParseAddr("fd00:ec2::254"),   // AWS
}

// addressRules say which addresses of a peer's endpoints are accepted.
type addressRules struct {
	peer  string
	remap Remapper
	// problem, if any, is why nothing is accepted from the peer.
	problem string
	// cluster is the name of the ForeignCluster that has the ranges.
	cluster string
	ranges  []netip.Prefix
	// node reports whether an address is one of this cluster's nodes'.
	node func(netip.Addr) bool
	// pod returns the pod with an address that runs here for the peer.
	pod func(netip.Addr) (pod ownPod, ok bool)
}

// translate returns the address to use here of what is in the peer's cluster, or why there
// is none.
func (r addressRules) translate(text string, family discoveryv1.AddressType) (address, refused string) {
	addr, refused := r.parse(text, family)
	if refused != "" {
		return "", refused
	}
	if !slices.ContainsFunc(r.ranges, func(p netip.Prefix) bool { return p.Contains(addr) }) {
		return "", fmt.Sprintf("%s is not in spec.addressRanges of ForeignCluster %s (%s)", addr, r.cluster, join(r.ranges))
	}
	here, refused := r.here(addr)
	if refused != "" {
		return "", refused
	}
	return here.String(), ""
}

// own returns the address of a pod that runs here for the peer, and the pod, by the address
// that it has in the peer's cluster. It is false for any other.
func (r addressRules) own(text string, family discoveryv1.AddressType) (address string, pod ownPod, ok bool) {
	addr, refused := r.parse(text, family)
	if refused != "" {
		return "", ownPod{}, false
	}
	here, refused := r.here(addr)
	if refused != "" {
		return "", ownPod{}, false
	}
	pod, ok = r.pod(here)
	return here.String(), pod, ok
}

// parse returns an address that a peer may name, or why it may not.
func (r addressRules) parse(text string, family discoveryv1.AddressType) (addr netip.Addr, refused string) {
	if r.problem != "" {
		return netip.Addr{}, r.problem
	}
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" || addr.Is4In6() || addr.Is4() != (family == discoveryv1.AddressTypeIPv4) {
		return netip.Addr{}, fmt.Sprintf("%.64q is not an address of type %s", text, family)
	}
	if why := special(addr); why != "" {
		return netip.Addr{}, fmt.Sprintf("%s is %s", addr, why)
	}
	return addr, ""
}

// here returns what a peer's address is in this cluster, or why that is refused.
func (r addressRules) here(addr netip.Addr) (here netip.Addr, refused string) {
	here, ok := r.remap.Remap(r.peer, addr)
	if !ok {
		return netip.Addr{}, fmt.Sprintf("%s has no address in this cluster", addr)
	}
	if why := special(here); why != "" {
		return netip.Addr{}, fmt.Sprintf("%s is %s here", addr, why)
	}
	if r.node(here) {
		return netip.Addr{}, fmt.Sprintf("%s is the address of a node of this cluster", addr)
	}
	return here, ""
}

// special says what an address is that no pod of a peer can have, whatever the ranges say.
func special(addr netip.Addr) string {
	switch {
	case addr.IsUnspecified():
		return "the unspecified address"
	case addr.IsLoopback():
		return "a loopback address"
	case addr.IsLinkLocalUnicast():
		return "a link-local address"
	case addr.IsMulticast():
		return "a multicast address"
	case !addr.IsGlobalUnicast():
		return "a broadcast address"
	case slices.Contains(metadata, addr):
		return "where clouds serve their metadata"
	}
	return ""
}

func join(prefixes []netip.Prefix) string {
	if len(prefixes) == 0 {
		return "none"
	}
	texts := make([]string, 0, len(prefixes))
	for _, p := range prefixes {
		texts = append(texts, p.String())
	}
	return strings.Join(texts, ", ")
}

// parseRanges returns the ranges that are given as CIDRs. The API server has checked
// them; one that is none after all contains nothing.
func parseRanges(cidrs []string) []netip.Prefix {
	var ranges []netip.Prefix
	for _, text := range cidrs {
		if p, err := netip.ParsePrefix(text); err == nil {
			ranges = append(ranges, p)
		}
	}
	return ranges
}
