package v1beta1

const (
	// EnrolledLabel is "true" on a Secret with credentials that liqod's controller has got
	// from the peer by itself. It writes no other, and not those that people wrote.
	EnrolledLabel = "liqo.io/enrolled"
	// TokenSecretKey is the key, in the Secret that spec.tokenSecretRef of a ForeignCluster
	// names, of the token that the peer gave. AddressRangesSecretKey may stand beside it:
	// what the peer is told of this cluster's addresses, as CIDRs with commas between them.
	TokenSecretKey         = "token"
	AddressRangesSecretKey = "addressRanges"
	// TokenIDAnnotation on a ForeignCluster names the token that was put there last. It is
	// for nothing but to make liqod's controller look at once.
	TokenIDAnnotation = "liqo.io/token-id"
)

// Reasons of ConditionAuthenticated.
const (
	// ReasonEnrolled: the peer has given an identity. ReasonCredentialsGiven: people have
	// given credentials. ReasonRenewalFails: the identity could not be renewed in time.
	ReasonEnrolled         = "Enrolled"
	ReasonCredentialsGiven = "CredentialsGiven"
	ReasonRenewalFails     = "RenewalFails"
	// ReasonTokenMissing and ReasonTokenInvalid: there is no token, or none that can be used.
	// ReasonTokenRefused: the peer does not take it.
	ReasonTokenMissing = "TokenMissing"
	ReasonTokenInvalid = "TokenInvalid"
	ReasonTokenRefused = "TokenRefused"
	// ReasonTenantAwaited: the tenant namespace of the peer in this cluster is missing or is
	// being deleted. The controller creates it.
	ReasonTenantAwaited = "TenantNamespaceAwaited"
	// ReasonPeerUnreachable: the peer does not answer, or is not who it should be.
	// ReasonPeerRefuses: it does not want this peering. ReasonConflict: it says that another
	// cluster has this one's id. ReasonGrantInvalid: what it gave cannot be used.
	ReasonPeerUnreachable = "PeerUnreachable"
	ReasonPeerRefuses     = "PeerRefuses"
	ReasonConflict        = "Conflict"
	ReasonGrantInvalid    = "GrantInvalid"
)

// Reasons of events about enrolments.
const (
	// ReasonAddressRangesLeftOut: address ranges that a peer has named contain addresses of this cluster.
	ReasonAddressRangesLeftOut = "AddressRangesLeftOut"
	// ReasonEnrolmentRefused: a cluster is not enrolled. ReasonTokenNotTaken: a token that a peer has sent in
	// return is not used.
	ReasonEnrolmentRefused = "EnrolmentRefused"
	ReasonTokenNotTaken    = "TokenNotTaken"
)

// NeedsPeople reports whether a reason of the condition Authenticated says that the identity in a
// peer is missing, and that only people can resolve it.
func NeedsPeople(reason string) bool {
	switch reason {
	case ReasonTokenInvalid, ReasonTokenRefused, ReasonPeerRefuses, ReasonConflict, ReasonGrantInvalid, ReasonClusterReplaced:
		return true
	}
	return false
}
