package link

import (
	"k8s.io/apimachinery/pkg/labels"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
)

// A PolicyMode says which ForeignClusters with the setting Auto are peered with.
type PolicyMode string

// Values of PolicyMode.
const (
	// PolicyNever selects none.
	PolicyNever PolicyMode = "Never"
	// PolicyDiscovered selects those that discovery created.
	PolicyDiscovered PolicyMode = "Discovered"
	// PolicyLabelled selects those that match the selector.
	PolicyLabelled PolicyMode = "Labelled"
	// PolicyAlways selects all.
	PolicyAlways PolicyMode = "Always"
)

// Policy decides one direction of the peerings for ForeignClusters with the setting Auto.
type Policy struct {
	Mode PolicyMode
	// Selector is used with PolicyLabelled. Nil matches nothing.
	Selector labels.Selector
}

// NewPolicy returns a Policy. selector has the syntax of kubectl's --selector. An empty one
// matches nothing, and not every cluster, as does one that is not valid.
func NewPolicy(mode, selector string) Policy {
	p := Policy{Mode: PolicyMode(mode)}
	if parsed, err := labels.Parse(selector); err == nil && !parsed.Empty() {
		p.Selector = parsed
	}
	return p
}

// OutgoingWanted reports whether this cluster is going to use capacity of the peer, by the
// ForeignCluster's outgoingPeeringEnabled, or by the policy if that is Auto. It returns
// false for a ForeignCluster that is being deleted.
func OutgoingWanted(fc *corev1beta1.ForeignCluster, p Policy) bool {
	return wanted(fc, fc.Spec.OutgoingPeeringEnabled, p)
}

// IncomingWanted reports whether the peer may use capacity of this cluster, by the
// ForeignCluster's incomingPeeringEnabled, or by the policy if that is Auto. It returns
// false for a ForeignCluster that is being deleted.
func IncomingWanted(fc *corev1beta1.ForeignCluster, p Policy) bool {
	return wanted(fc, fc.Spec.IncomingPeeringEnabled, p)
}

// IncomingOffered reports whether this cluster offers the peer an identity by itself. It
// differs from IncomingWanted for PolicyAlways, which admits every peer with an identity
// given by a person, but gives no identity to anyone.
func IncomingOffered(fc *corev1beta1.ForeignCluster, p Policy) bool {
	if p.Mode == PolicyAlways {
		p.Mode = PolicyNever
	}
	return IncomingWanted(fc, p)
}

func wanted(fc *corev1beta1.ForeignCluster, say corev1beta1.PeeringEnabled, p Policy) bool {
	switch {
	case fc.DeletionTimestamp != nil, say == corev1beta1.PeeringNo:
		return false
	case say == corev1beta1.PeeringYes:
		return true
	}
	switch p.Mode {
	case PolicyAlways:
		return true
	case PolicyDiscovered:
		return fc.Labels[corev1beta1.DiscoveredLabel] != ""
	case PolicyLabelled:
		return p.Selector != nil && p.Selector.Matches(labels.Set(fc.Labels))
	}
	return false
}
