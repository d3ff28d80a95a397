package trust

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
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
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:serialLength]), nil
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
	only, err := onlyPeer(req.RawSubject)
	switch {
	case err != nil || !only || !InPeersGroup(req.Subject) || req.Subject.CommonName == "":
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
func onlyPeer(subject []byte) (bool, error) {
	var names pkix.RDNSequence
	rest, err := asn1.Unmarshal(subject, &names)
	if err != nil {
		return false, fmt.Errorf("parsing the subject: %w", err)
	}
	organization, commonName := asn1.ObjectIdentifier{2, 5, 4, 10}, asn1.ObjectIdentifier{2, 5, 4, 3}
	return len(rest) == 0 && len(names) == 2 && len(names[0]) == 1 && len(names[1]) == 1 &&
		names[0][0].Type.Equal(organization) && names[1][0].Type.Equal(commonName), nil
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
