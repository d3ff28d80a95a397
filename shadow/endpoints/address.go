package endpoints

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/liqod/liqod/shadow/rules"
)

// Remapper translates addresses as the network fabric does. Its methods must be safe for
// concurrent use and must not block.
type Remapper interface {
	// Fabric reports whether the network fabric connects this cluster with the peer's. If
	// not, both reach each other's addresses as they are.
	Fabric(peer string) bool
	// Ranges returns the ranges that the peer's own addresses are in, as far as the fabric
	// leads there. The error is the reason for which none are known.
	Ranges(peer string) ([]netip.Prefix, error)
	// Remap returns the address at which this cluster reaches addr, an address of the
	// peer's own. It returns false if addr is not reachable.
	Remap(peer string, addr netip.Addr) (netip.Addr, bool)
	// Unmap returns the address in this cluster that the peer reaches at addr. It returns
	// false if there is none.
	Unmap(peer string, addr netip.Addr) (netip.Addr, bool)
	// Subscribe registers a function that is called with the id of each peer for which the
	// other methods may return something else than before. synced reports whether it has
	// been called for all that was there at the start.
	Subscribe(changed func(peer string)) (synced cache.InformerSynced, err error)
}

// metadata lists the addresses, other than link-local ones, of cloud metadata services.
// They return credentials to any client on the node's network, so no peer may direct this
// cluster's pods to them.
var metadata = []netip.Addr{
	netip.MustParseAddr("100.100.100.200"), // Alibaba Cloud
	netip.MustParseAddr("168.63.129.16"),   // Azure
	netip.MustParseAddr("192.0.0.192"),     // Oracle Cloud
	netip.MustParseAddr("fd00:ec2::254"),   // AWS
}

// addressRules decide which addresses of a peer's endpoints are accepted.
type addressRules struct {
	peer     string
	remap    Remapper
	metadata rules.Metadata
	// problem, if not empty, is the reason for which no address of the peer is accepted.
	problem string
	// ranges are those of the peer's own addresses, and source is the field that has them.
	source string
	ranges []netip.Prefix
	// node reports whether an address belongs to a node of this cluster.
	node func(netip.Addr) bool
	// pod returns the pod with an address that runs in this cluster for the peer.
	pod func(netip.Addr) (pod ownPod, ok bool)
}

// translate returns the local address of an endpoint in the peer's cluster, or the reason
// for which it is refused.
func (r addressRules) translate(text string, family discoveryv1.AddressType) (address, refused string) {
	addr, refused := r.parse(text, family)
	if refused != "" {
		return "", refused
	}
	if !slices.ContainsFunc(r.ranges, func(p netip.Prefix) bool { return p.Contains(addr) }) {
		return "", fmt.Sprintf("%s is not in %s (%s)", addr, r.source, join(r.ranges))
	}
	here, refused := r.here(addr, r.remap.Remap)
	if refused != "" {
		return "", refused
	}
	return here.String(), ""
}

// own returns the local address of a pod that runs in this cluster for the peer, and the
// pod. text is the address that the pod has in the peer's cluster. ok is false for any
// other address.
func (r addressRules) own(text string, family discoveryv1.AddressType) (address string, pod ownPod, ok bool) {
	addr, refused := r.parse(text, family)
	if refused != "" {
		return "", ownPod{}, false
	}
	here, refused := r.here(addr, r.remap.Unmap)
	if refused != "" {
		return "", ownPod{}, false
	}
	pod, ok = r.pod(here)
	return here.String(), pod, ok
}

// parse returns an address that a peer may use, or the reason for which it is refused.
func (r addressRules) parse(text string, family discoveryv1.AddressType) (addr netip.Addr, refused string) {
	if r.problem != "" {
		return netip.Addr{}, r.problem
	}
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" || addr.Is4In6() || addr.Is4() != (family == discoveryv1.AddressTypeIPv4) {
		return netip.Addr{}, fmt.Sprintf("%.64q is not an address of type %s", text, family)
	}
	if why := Special(addr); why != "" {
		return netip.Addr{}, fmt.Sprintf("%s is %s", addr, why)
	}
	return addr, ""
}

// here translates a peer's address to the local one with one of the methods of r.remap, or
// returns the reason for which it is refused.
func (r addressRules) here(addr netip.Addr, translate func(peer string, addr netip.Addr) (netip.Addr, bool)) (here netip.Addr, refused string) {
	here, ok := translate(r.peer, addr)
	if !ok {
		return netip.Addr{}, fmt.Sprintf("%s has no address in this cluster", addr)
	}
	if why := Special(here); why != "" {
		return netip.Addr{}, fmt.Sprintf("%s is %s here", addr, why)
	}
	if r.node(here) {
		return netip.Addr{}, fmt.Sprintf("%s is the address of a node of this cluster", addr)
	}
	return here, ""
}

// translators has the ranges of IPv6 addresses that stand for IPv4 addresses. A gateway
// (NAT64, 6to4) would lead to any IPv4 address, metadata services included.
var translators = []netip.Prefix{
	netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("2002::/16"),
}

// Special describes an address that no pod of a peer can have, whatever the address ranges
// are. It returns "" for an ordinary address.
func Special(addr netip.Addr) string {
	addr = addr.Unmap()
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
	case slices.ContainsFunc(translators, func(p netip.Prefix) bool { return p.Contains(addr) }):
		return "an address that stands for one of IPv4"
	case slices.Contains(metadata, addr):
		return "the address of the metadata service of clouds"
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

// parseRanges parses CIDRs. It skips an invalid one: the API server's validation leaves
// none.
func parseRanges(cidrs []string) []netip.Prefix {
	var ranges []netip.Prefix
	for _, text := range cidrs {
		if p, err := netip.ParsePrefix(text); err == nil {
			ranges = append(ranges, p)
		}
	}
	return ranges
}
