package link

import (
	"fmt"

	"k8s.io/apimachinery/pkg/labels"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
)

// A PolicyMode says which ForeignClusters whose setting is Auto are peered with.
type PolicyMode string

// Modes of a Policy.
const (
	// PolicyNever: none of them.
	PolicyNever PolicyMode = "Never"
	// PolicyDiscovered: those that discovery made.
	PolicyDiscovered PolicyMode = "Discovered"
	// PolicyLabelled: those whose labels the selector matches.
	PolicyLabelled PolicyMode = "Labelled"
	// PolicyAlways: all of them.
	PolicyAlways PolicyMode = "Always"
)

// Policy decides one direction of the peerings with ForeignClusters that leave it open.
type Policy struct {
	Mode PolicyMode
	// Selector is used with PolicyLabelled; nil matches nothing.
	Selector labels.Selector
}

// NewPolicy returns a policy; the selector is written as kubectl takes it, and needed with
// PolicyLabelled. An empty one would match every cluster, and is refused.
func NewPolicy(mode, selector string) (Policy, error) {
	parsed, err := labels.Parse(selector)
	switch {
	case err != nil:
		return Policy{}, fmt.Errorf("label selector %q: %w", selector, err)
	case PolicyMode(mode) == PolicyLabelled && parsed.Empty():
		return Policy{}, fmt.Errorf("policy %s needs a label selector, as tier=partner", mode)
	}
	return Policy{Mode: PolicyMode(mode), Selector: parsed}, nil
}

// OutgoingWanted tells whether this cluster is to use capacity of the peer: as the
// ForeignCluster says (outgoingPeeringEnabled), else as the policy does. A ForeignCluster
// that is being deleted wants nothing.
func OutgoingWanted(fc *corev1beta1.ForeignCluster, p Policy) bool {
	return wanted(fc, fc.Spec.OutgoingPeeringEnabled, p)
}

// IncomingWanted tells whether the peer may use capacity of this cluster, as
// OutgoingWanted does for incomingPeeringEnabled.
func IncomingWanted(fc *corev1beta1.ForeignCluster, p Policy) bool {
	return wanted(fc, fc.Spec.IncomingPeeringEnabled, p)
}

// IncomingOffered tells whether this cluster offers its capacity to the peer by itself: as
// IncomingWanted, but that PolicyAlways lets in whom people gave an identity here, and
// gives nobody one.
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
