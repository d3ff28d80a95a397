package serve

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"
)

// backdate allows for clients with clocks that are behind the clock of this process.
const backdate = 5 * time.Minute

// Pair is a certificate and its key. It must not be logged.
type Pair struct {
	// Cert is the parsed certificate.
	Cert *x509.Certificate
	// Key is the private key of Cert.
	Key crypto.Signer
}

// NewCA returns a self-signed certificate authority, valid for lifetime from now on.
func NewCA(name string, now time.Time, lifetime time.Duration) (*Pair, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: fmt.Sprintf("%s@%d", name, now.Unix())},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(lifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	return Sign(template, nil)
}

// NewCertificate returns a serving certificate for hosts (DNS names and IP addresses), signed by
// ca. It is valid for lifetime from now on, but not longer than ca. If ca is nil, the
// certificate is self-signed.
func NewCertificate(ca *Pair, hosts []string, now time.Time, lifetime time.Duration) (*Pair, error) {
	if len(hosts) == 0 {
		return nil, errors.New("a serving certificate needs a name")
	}
	names, addresses := splitHosts(hosts)
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: hosts[0]},
		DNSNames:    names,
		IPAddresses: addresses,
		NotBefore:   now.Add(-backdate),
		NotAfter:    now.Add(lifetime),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if ca != nil && template.NotAfter.After(ca.Cert.NotAfter) {
		template.NotAfter = ca.Cert.NotAfter
	}
	return Sign(template, ca)
}

// splitHosts separates addresses from names, which have different fields in a certificate.
func splitHosts(hosts []string) (names []string, addresses []net.IP) {
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			addresses = append(addresses, ip)
		} else {
			names = append(names, host)
		}
	}
	return names, addresses
}

// hostsOf returns the names and addresses of a certificate.
func hostsOf(cert *x509.Certificate) []string {
	hosts := slices.Clone(cert.DNSNames)
	for _, ip := range cert.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	return hosts
}

// Sign makes a key, and signs a certificate of it by ca; if ca is nil, by the key itself.
func Sign(template *x509.Certificate, ca *Pair) (*Pair, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("drawing a serial number: %w", err)
	}
	parent, signer := template, crypto.Signer(key)
	if ca != nil {
		parent, signer = ca.Cert, ca.Key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, fmt.Errorf("signing the certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parsing the certificate: %w", err)
	}
	return &Pair{Cert: cert, Key: key}, nil
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating a key: %w", err)
	}
	return key, nil
}

// CertPEM returns the certificate in PEM.
func (p *Pair) CertPEM() []byte { return encodeCert(p.Cert) }

// KeyPEM returns the private key in PEM (PKCS #8).
func (p *Pair) KeyPEM() ([]byte, error) { return encodeKey(p.Key) }

func encodeKey(key crypto.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding the key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// TLS returns the pair for the use by a server.
func (p *Pair) TLS() *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{p.Cert.Raw}, PrivateKey: p.Key, Leaf: p.Cert}
}

// ParsePair decodes PEM. It returns an error if the key does not match the certificate.
func ParsePair(certPEM, keyPEM []byte) (*Pair, error) {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("decoding a certificate and its key: %w", err)
	}
	key, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, errors.New("the key cannot sign")
	}
	return &Pair{Cert: pair.Leaf, Key: key}, nil
}

// renewAt returns when two thirds of the certificate's life are over.
func renewAt(cert *x509.Certificate) time.Time {
	return cert.NotAfter.Add(-cert.NotAfter.Sub(cert.NotBefore) / 3)
}

func encodeCert(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
}

// parseBundle returns the certificates that can be decoded.
func parseBundle(data []byte) []*x509.Certificate {
	var certs []*x509.Certificate
	for {
		var block *pem.Block
		block, data = pem.Decode(data)
		if block == nil {
			return certs
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			certs = append(certs, cert)
		}
	}
}

func encodeBundle(certs []*x509.Certificate) []byte {
	var buf bytes.Buffer
	for _, cert := range certs {
		buf.Write(encodeCert(cert))
	}
	return buf.Bytes()
}
