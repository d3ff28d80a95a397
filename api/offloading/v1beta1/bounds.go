package v1beta1

import "strings"

// ExplainBound returns the message of an API server that has refused an object. If the
// ResourceQuota of a twin is the reason, it adds the setting of the provider that has the
// number.
func ExplainBound(message string) string {
	if !strings.Contains(message, "exceeded quota: "+TwinBounds+",") {
		return message
	}
	if strings.Contains(message, "requests.storage") {
		return message + " (the provider bounds the size of the claims in each namespace of a peer, and of all its claims: sharing.twinLimits, sharing.storagePerPeer)"
	}
	return message + " (the provider bounds the objects in each namespace of a peer: sharing.twinLimits)"
}
