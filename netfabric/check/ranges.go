package check

import (
	"net/netip"

	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
)

// Own holds the ranges and addresses of this cluster. Ranges have no host bits.
type Own struct {
	// Pods and External are what it publishes.
	Pods, External []netip.Prefix
	// Services are those of its Services.
	Services []netip.Prefix
	// Reserved are others that its nodes reach, and that no peer may be seen under.
	Reserved []netip.Prefix
	// Nodes are the addresses of its Nodes.
	Nodes []netip.Addr
	// APIServer are the addresses of its API server.
	APIServer []netip.Addr
}

// OwnRange is a range of the cluster that writes a Configuration.
type OwnRange struct {
	CIDR   networkingv1beta1.CIDR
	Prefix netip.Prefix
	Use    networkingv1beta1.RangeUse
}

// OwnRanges returns the ranges of a Configuration in its order, pods' first.
func OwnRanges(c *networkingv1beta1.Configuration) (out []OwnRange) {
	for _, list := range []struct {
		use   networkingv1beta1.RangeUse
		cidrs []networkingv1beta1.CIDR
	}{{networkingv1beta1.RangePod, c.Spec.Local.CIDR.Pod}, {networkingv1beta1.RangeExternal, c.Spec.Local.CIDR.External}} {
		for _, cidr := range list.cidrs {
			if p, ok := cidr.Prefix(); ok {
				out = append(out, OwnRange{cidr, p, list.use})
			}
		}
	}
	return out
}
