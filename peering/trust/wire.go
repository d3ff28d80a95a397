// Package trust has the messages by which one cluster gives another an identity, and the
// checks of them: tokens, certificate requests and grants. It sends no requests and reads
// no clock. docs/peering.md describes the protocol.
package trust

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
)

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

// Error implements error.
func (r *Refusal) Error() string { return r.Reason + ": " + r.Message }

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

const (
	keyBlock     = "PRIVATE KEY"
	requestBlock = "CERTIFICATE REQUEST"

	serialLength = 16 // bytes of a key's hash in a user name
	shortestRSA  = 2048
	longestRSA   = 8192 // limits the cost of a verification
	longestCSR   = 16 << 10
)

// NewKey returns a new private key (ECDSA P-256) as PEM (PKCS #8).
func NewKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: der}), nil
}

// ParseKey parses a key from NewKey.
func ParseKey(keyPEM []byte) (crypto.Signer, error) {
	block, rest := pem.Decode(keyPEM)
	if block == nil || block.Type != keyBlock || len(bytes.TrimSpace(rest)) > 0 {
		return nil, fmt.Errorf("not one %s as PEM", keyBlock)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parsing a key: %w", err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, errors.New("the key cannot sign")
	}
	return signer, nil
}

// Serial returns a short hash of a public key for user names: 32 hexadecimal digits.
func Serial(key crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", fmt.Errorf("encoding a public key: %w", err)
	}
	return Hash(string(der))[:2*serialLength], nil
}

// User returns the user name for the enrolment of a cluster with a public key. A new
// enrolment has a new key, and so a new user name.
func User(clusterID string, key crypto.PublicKey) (string, error) {
	serial, err := Serial(key)
	if err != nil {
		return "", err
	}
	return corev1beta1.PeerUserPrefix + clusterID + ":" + serial, nil
}

// MakeCSR returns a certificate request as PEM, for a user in the group of peers. user is the
// result of User for an enrolment, and the existing user for a renewal.
func MakeCSR(key crypto.Signer, user string) (string, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: user, Organization: []string{corev1beta1.PeersGroup}}}, key)
	if err != nil {
		return "", fmt.Errorf("making a certificate request: %w", err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: requestBlock, Bytes: der})), nil
}

// CSR is a certificate request that CheckCSR has accepted.
type CSR struct {
	// User is its common name. Beside it, its subject has only the group of peers.
	User string
	// Serial is the Serial of its key.
	Serial string
	// PEM is the request alone, in canonical PEM encoding.
	PEM []byte
}

// CheckCSR accepts a certificate request whose subject is a common name and the group of
// peers, without extensions or attributes, and that is signed by its own key. The key must be Ed25519,
// ECDSA P-256 or P-384, or RSA with 2048 to 8192 bits. The caller decides whether the
// client may have the user name.
func CheckCSR(csr string) (CSR, error) {
	if len(csr) > longestCSR {
		return CSR{}, fmt.Errorf("a certificate request of %d bytes: at most %d are accepted", len(csr), longestCSR)
	}
	block, rest := pem.Decode([]byte(csr))
	if block == nil || block.Type != requestBlock || len(block.Headers) > 0 || len(bytes.TrimSpace(rest)) > 0 {
		return CSR{}, fmt.Errorf("not one %s as PEM", requestBlock)
	}
	req, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return CSR{}, fmt.Errorf("parsing a certificate request: %w", err)
	}
	if err := checkKey(req.PublicKey); err != nil {
		return CSR{}, err
	}
	if err := req.CheckSignature(); err != nil {
		return CSR{}, errors.New("the certificate request is not signed by its own key")
	}
	if err := checkSubject(req); err != nil {
		return CSR{}, err
	}
	serial, err := Serial(req.PublicKey)
	if err != nil {
		return CSR{}, err
	}
	return CSR{User: req.Subject.CommonName, Serial: serial, PEM: pem.EncodeToMemory(&pem.Block{Type: requestBlock, Bytes: block.Bytes})}, nil
}

func checkKey(key any) error {
	switch k := key.(type) {
	case ed25519.PublicKey:
		return nil
	case *ecdsa.PublicKey:
		if k.Curve == elliptic.P256() || k.Curve == elliptic.P384() {
			return nil
		}
	case *rsa.PublicKey:
		if bits := k.N.BitLen(); bits >= shortestRSA && bits <= longestRSA {
			return nil
		}
	}
	return fmt.Errorf("the key of a certificate request: Ed25519, ECDSA P-256 and P-384, and RSA from %d to %d bits are accepted", shortestRSA, longestRSA)
}

// checkSubject checks the encoded subject, because a subject with a repeated attribute is
// parsed to its last value only.
func checkSubject(req *x509.CertificateRequest) error {
	switch {
	case !onlyPeer(req.RawSubject) || !InPeersGroup(req.Subject) || req.Subject.CommonName == "":
		return fmt.Errorf("the subject of a certificate request: one common name, and the organization %s, are accepted", corev1beta1.PeersGroup)
	case len(req.DNSNames)+len(req.EmailAddresses)+len(req.IPAddresses)+len(req.URIs)+len(req.Extensions) > 0:
		return errors.New("a certificate request with alternative names or extensions: none are accepted")
	}
	return noAttributes(req.RawTBSCertificateRequest)
}

// InPeersGroup reports whether a certificate of this subject is in the group of peers, and in
// no other.
func InPeersGroup(subject pkix.Name) bool {
	return slices.Equal(subject.Organization, []string{corev1beta1.PeersGroup})
}

// onlyPeer reports whether an encoded subject is an organization and a common name.
func onlyPeer(subject []byte) bool {
	var names pkix.RDNSequence
	rest, err := asn1.Unmarshal(subject, &names)
	organization, commonName := asn1.ObjectIdentifier{2, 5, 4, 10}, asn1.ObjectIdentifier{2, 5, 4, 3}
	return err == nil && len(rest) == 0 && len(names) == 2 && len(names[0]) == 1 && len(names[1]) == 1 &&
		names[0][0].Type.Equal(organization) && names[1][0].Type.Equal(commonName)
}

// noAttributes returns an error for a request with attributes, such as a challenge
// password.
func noAttributes(info []byte) error {
	var parts struct {
		Raw        asn1.RawContent
		Version    int
		Subject    asn1.RawValue
		PublicKey  asn1.RawValue
		Attributes []asn1.RawValue `asn1:"tag:0"`
	}
	if _, err := asn1.Unmarshal(info, &parts); err != nil {
		return fmt.Errorf("parsing a certificate request: %w", err)
	}
	if len(parts.Attributes) > 0 {
		return errors.New("a certificate request with attributes: none are accepted")
	}
	return nil
}
