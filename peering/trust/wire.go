// Package trust holds what two clusters say to each other when one of them gives the other
// an identity, and the checks of it: tokens, certificate requests, grants. It is pure: it
// dials nothing and reads no clock.
package trust

import "time"

// Paths of the authentication endpoint that a cluster serves to its peers by HTTPS. Each
// takes a POST with a JSON body of at most MaxBody bytes, and answers with a Grant, or with
// a Refusal and a status that is not 200.
const (
	// EnrollPath takes an EnrollRequest: a token is exchanged for an identity.
	EnrollPath = "/v1/enroll"
	// RenewPath takes a RenewRequest of a client that proves its present identity: by its
	// certificate in the TLS handshake, or by its token as a bearer token.
	RenewPath = "/v1/renew"
	// LeavePath takes a LeaveRequest, with the same proof, and answers with an empty object:
	// the enrolment and its rights end, at once.
	LeavePath = "/v1/leave"

	// MaxBody is the size in bytes of the largest body that is read, of requests and answers.
	MaxBody = 64 << 10
)

// EnrollRequest asks for an identity. It may be sent again as it is, when the answer was
// lost: the same key gets the same identity for as long as the token lives.
type EnrollRequest struct {
	// Token is what the other cluster gave.
	Token string `json:"token"`
	// ClusterID of the cluster that asks, and the UID of its kube-system namespace: two
	// clusters with the same id are told apart by it.
	ClusterID  string `json:"clusterID"`
	ClusterUID string `json:"clusterUID"`
	// ClusterName is a name for people; may be empty.
	ClusterName string `json:"clusterName,omitempty"`
	// CSR is a PKCS#10 certificate request as PEM. Its subject is the common name that User
	// gives for its key, and nothing else.
	CSR string `json:"csr"`
	// AddressRanges are the ranges, as CIDRs, that the endpoints of the cluster that asks
	// may have; nil leaves what is granted.
	AddressRanges []string `json:"addressRanges,omitempty"`
	// Version of liqod that asks.
	Version string `json:"version,omitempty"`
	// Back is how the other cluster gets an identity in the one that asks, in return: where
	// that can be dialled, and offers itself. The other cluster is free to leave it.
	Back *Invitation `json:"back,omitempty"`
}

// Invitation leads to an authentication endpoint.
type Invitation struct {
	// Token holds everything that is needed: one of the cluster that asks, good once, and
	// for the other cluster alone.
	Token string `json:"token"`
}

// RenewRequest asks for new credentials of the same identity, for a fresh key.
type RenewRequest struct {
	ClusterID string `json:"clusterID"`
	// CSR is as in EnrollRequest, but its common name is that of the present identity.
	// Empty for an identity that is a token.
	CSR     string `json:"csr,omitempty"`
	Version string `json:"version,omitempty"`
}

// LeaveRequest ends the enrolment of who sends it.
type LeaveRequest struct {
	ClusterID string `json:"clusterID"`
}

// Grant is an identity in the cluster that answers.
type Grant struct {
	// ClusterID of the cluster that answers, and the UID of its kube-system namespace.
	ClusterID  string `json:"clusterID"`
	ClusterUID string `json:"clusterUID"`
	// ClusterName is a name for people; may be empty.
	ClusterName string `json:"clusterName,omitempty"`
	// User is the name that the credentials authenticate as.
	User string `json:"user"`
	// Certificate, with its chain, as PEM; or Token, where the cluster signs no client
	// certificates.
	Certificate string `json:"certificate,omitempty"`
	Token       string `json:"token,omitempty"`
	// NotAfter is when the credentials end.
	NotAfter time.Time `json:"notAfter"`
	// APIServerURL is where the API server is reached, and APIServerCA the certificates, as
	// PEM, that it is known by.
	APIServerURL string `json:"apiServerURL"`
	APIServerCA  string `json:"apiServerCA"`
	// AuthCA are the authorities, as PEM, that the certificate of this endpoint is issued by
	// from now on: also the next one, some time before it takes over.
	AuthCA string `json:"authCA,omitempty"`
	// Version of liqod that answers.
	Version string `json:"version,omitempty"`
}

// Refusal says why there is no Grant. It tells nothing that helps in guessing tokens.
type Refusal struct {
	// Reason is one word for machines: one of the Reason constants.
	Reason string `json:"reason"`
	// Message is a sentence for people.
	Message string `json:"message"`
	// NewKey says that the enrolment of the key that was shown has been ended: nothing is
	// given to it any more, by whichever token, and another one may be taken.
	NewKey bool `json:"newKey,omitempty"`
}

// Reasons of a Refusal.
const (
	// ReasonInvalid: the request cannot be read, or its parts do not fit each other.
	ReasonInvalid = "Invalid"
	// ReasonUnauthorized: the token or the identity is not known, used up, revoked or too old.
	ReasonUnauthorized = "Unauthorized"
	// ReasonRefused: this cluster does not take part in such a peering.
	ReasonRefused = "Refused"
	// ReasonConflict: another cluster of the same id is a peer, or both are the same cluster.
	ReasonConflict = "Conflict"
	// ReasonBusy: too many requests, or the cluster cannot answer now; try again.
	ReasonBusy = "Busy"
)
