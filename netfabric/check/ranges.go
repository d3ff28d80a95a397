package check

import (
	"fmt"
	"net/netip"

	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/netfabric/plan"
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

// OwnRange is a range of the cluster that writes a Configuration, or one behind it.
type OwnRange struct {
	CIDR   networkingv1beta1.CIDR
	Prefix netip.Prefix
	Use    networkingv1beta1.RangeUse
}

// OwnRanges returns the ranges of a Configuration in its order: of pods, external, of transit.
func OwnRanges(c *networkingv1beta1.Configuration) (out []OwnRange) {
	all := networkingv1beta1.MappedCIDR(c.Spec.Local.CIDR)
	for _, use := range networkingv1beta1.RangeUses() {
		for _, cidr := range *all.Of(use) {
			if p, ok := cidr.Prefix(); ok {
				out = append(out, OwnRange{cidr, p, use})
			}
		}
	}
	return out
}

// ReadMapping returns a mapping as the planner takes it. field names it in the error.
func ReadMapping(field string, m networkingv1beta1.Mapping) (plan.Map, error) {
	own, ok := m.Own.Prefix()
	view, valid := m.View.Prefix()
	if !ok || !valid {
		return plan.Map{}, fmt.Errorf("%s: %.64q and %.64q: two ranges without host bits are accepted", field, m.Own, m.View)
	}
	out := plan.Map{Own: own, View: view}
	if err := out.Check(); err != nil {
		return plan.Map{}, fmt.Errorf("%s: %w", field, err)
	}
	return out, nil
}
