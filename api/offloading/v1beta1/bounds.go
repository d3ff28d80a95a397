package v1beta1

import "strings"

// ExplainBound returns the message of an API server that has refused an object. If the
// ResourceQuota of a twin is the reason, it adds the setting of the provider that has the
// number.
func ExplainBound(message string) string {
	if !strings.Contains(message, "exceeded quota: "+TwinBounds+",") {
		return message
	}
	return message + " (the provider bounds the objects in each namespace of a peer: sharing.twinLimits)"
}
