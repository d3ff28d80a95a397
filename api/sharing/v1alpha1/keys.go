package v1alpha1

import (
	"strconv"
	"strings"
)

const (
	// AcceptedAnnotation, "true" on the consumer's copy of a ResourceOffer, says that
	// somebody accepts it, where the consumer accepts none by itself.
	AcceptedAnnotation = "sharing.liqo.io/accepted"
	// ManagedByOffer is the value of liqo.io/managed-by on what is made for a ResourceOffer:
	// VirtualNodes of the consumer, Quotas of the provider. Each has the offer's name.
	ManagedByOffer = "resourceoffer"
	// MaxVirtualNodes is how many offers one consumer gets at most.
	MaxVirtualNodes = 16

	// ReasonReplicationFailed is the reason of a ResourceRequest, in the consumer, while the
	// provider refuses its copy or may not be written to.
	ReasonReplicationFailed = "ReplicationFailed"
	// ReasonInvalidOffer is the reason of an offer that the consumer cannot use as it is.
	ReasonInvalidOffer = "InvalidOffer"
	// ReasonNotAsked is the reason of a ForeignCluster's condition OutgoingPeering
	// while no request could be sent to the provider yet.
	ReasonNotAsked = "NotAsked"
	// ReasonNotAllowed is the reason of a ResourceRequest of a consumer that the provider does not
	// let use it.
	ReasonNotAllowed = "NotAllowed"
	// ReasonNoCapacity is the reason of a ResourceRequest for which the provider has no capacity left.
	ReasonNoCapacity = "NoCapacity"
	// ReasonApprovalRequired is the reason of a ResourceRequest with an offer that a person in
	// the provider has to approve.
	ReasonApprovalRequired = "ApprovalRequired"
	// ReasonAcceptanceRequired is the reason of a ResourceOffer that a person in the consumer
	// has to accept.
	ReasonAcceptanceRequired = "AcceptanceRequired"
)

// OfferName returns the name of the n-th offer of a provider to one consumer, from 1: the
// provider's id, and from the second on a number behind it.
func OfferName(provider string, n int) string {
	if n <= 1 {
		return provider
	}
	return provider + "-" + strconv.Itoa(n)
}

// ValidOfferName reports whether a provider's offer may have a name: it becomes the name of
// a virtual node, and must not be that of another provider's.
func ValidOfferName(provider, name string) bool {
	if name == provider {
		return provider != ""
	}
	text, ok := strings.CutPrefix(name, provider+"-")
	n, err := strconv.Atoi(text)
	return ok && err == nil && n >= 2 && n <= MaxVirtualNodes && strconv.Itoa(n) == text
}
