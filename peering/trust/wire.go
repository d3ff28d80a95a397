// Package trust has the messages by which one cluster gives another an identity, and the
// checks of them: tokens, certificate requests and grants. It sends no requests and reads
// no clock. docs/peering.md describes the protocol.
package trust

import "time"

// Paths of the authentication endpoint, which a cluster serves to its peers by HTTPS. Each
// accepts a POST with a JSON body of at most MaxBody bytes, and answers with a Grant, or
// with a Refusal and a status other than 200.
const (
	// EnrollPath accepts an EnrollRequest, which exchanges a token for an identity.
	EnrollPath = "/v1/enroll"
	// RenewPath accepts a RenewRequest. The client proves its existing identity by its
	// certificate in the TLS handshake, or by its token as a bearer token.
	RenewPath = "/v1/renew"
	// LeavePath accepts a LeaveRequest with the same proof, and answers with an empty
	// object. The enrolment and its rights end at once.
	LeavePath = "/v1/leave"

	// MaxBody is the maximum size of a request or an answer, in bytes.
	MaxBody = 64 << 10
)

// EnrollRequest requests an identity. The client may repeat it if the answer was lost:
// while the token is valid, the same key gets the same identity.
type EnrollRequest struct {
	// Token is a token of the cluster that receives the request.
	Token string `json:"token"`
	// ClusterID is the id of the requesting cluster. ClusterUID is the UID of its
	// kube-system namespace, which distinguishes clusters with the same id.
	ClusterID  string `json:"clusterID"`
	ClusterUID string `json:"clusterUID"`
	// ClusterName is a display name; it may be empty.
	ClusterName string `json:"clusterName,omitempty"`
	// CSR is a PKCS#10 certificate request as PEM. Its subject is the common name that User
	// returns for the key, and nothing else.
	CSR string `json:"csr"`
	// AddressRanges are the CIDRs of the requesting cluster's endpoints; nil keeps the
	// existing ones.
	AddressRanges []string `json:"addressRanges,omitempty"`
	// Version is the version of liqod in the requesting cluster.
	Version string `json:"version,omitempty"`
	// Back allows the receiving cluster to enrol in the requesting one in return. It is nil
	// if the requesting cluster cannot be reached or does not offer its capacity. The
	// receiving cluster may ignore it.
	Back *Invitation `json:"back,omitempty"`
}

// Invitation is the access to an authentication endpoint.
type Invitation struct {
	// Token is a token of the requesting cluster, for a single use by the receiving cluster
	// only.
	Token string `json:"token"`
}

// RenewRequest requests new credentials of the same identity, for a new key.
type RenewRequest struct {
	ClusterID string `json:"clusterID"`
	// CSR is as in EnrollRequest, but with the common name of the existing identity. It is
	// empty if that identity is a token.
	CSR     string `json:"csr,omitempty"`
	Version string `json:"version,omitempty"`
	// Back is as in EnrollRequest: it is sent again while the receiving cluster has no identity
	// in the requesting one.
	Back *Invitation `json:"back,omitempty"`
}

// LeaveRequest ends the enrolment of its sender.
type LeaveRequest struct {
	ClusterID string `json:"clusterID"`
}

// Grant is an identity in the cluster that answers.
type Grant struct {
	// ClusterID is the id of the answering cluster. ClusterUID is the UID of its
	// kube-system namespace.
	ClusterID  string `json:"clusterID"`
	ClusterUID string `json:"clusterUID"`
	// ClusterName is a display name; it may be empty.
	ClusterName string `json:"clusterName,omitempty"`
	// User is the user name of the credentials.
	User string `json:"user"`
	// Certificate is a client certificate with its chain as PEM. Token is a ServiceAccount
	// token, in place of a certificate, if the cluster signs no client certificates.
	Certificate string `json:"certificate,omitempty"`
	Token       string `json:"token,omitempty"`
	// NotAfter is the expiry of the credentials.
	NotAfter time.Time `json:"notAfter"`
	// APIServerURL is the URL of the API server. APIServerCA has its authorities as PEM.
	APIServerURL string `json:"apiServerURL"`
	APIServerCA  string `json:"apiServerCA"`
	// AuthCA has the authorities of this endpoint's certificate as PEM. It includes the
	// next authority some time before that is used.
	AuthCA string `json:"authCA,omitempty"`
	// Version is the version of liqod in the answering cluster.
	Version string `json:"version,omitempty"`
}

// Refusal says why there is no Grant. It has no details that would help to guess tokens.
type Refusal struct {
	// Reason is one of the Reason constants.
	Reason string `json:"reason"`
	// Message is a sentence for people.
	Message string `json:"message"`
	// NewKey means that the enrolment of this key was ended. No token can revive it; the
	// client has to use a new key.
	NewKey bool `json:"newKey,omitempty"`
}

// Values of Refusal.Reason.
const (
	// ReasonInvalid means that the request cannot be parsed or is inconsistent.
	ReasonInvalid = "Invalid"
	// ReasonUnauthorized means that the token or the identity is unknown, used up, revoked
	// or expired.
	ReasonUnauthorized = "Unauthorized"
	// ReasonRefused means that this cluster does not accept the peering.
	ReasonRefused = "Refused"
	// ReasonConflict means that another cluster with the same id is a peer, or that both
	// clusters are the same.
	ReasonConflict = "Conflict"
	// ReasonBusy means that there are too many requests, or that the cluster cannot answer
	// now. The client may retry.
	ReasonBusy = "Busy"
)
