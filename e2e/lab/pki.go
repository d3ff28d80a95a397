package lab

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"
)

// Authority is the certificate authority of a cluster. It may be used concurrently.
type Authority struct {
	cert    *x509.Certificate
	key     *ecdsa.PrivateKey
	certPEM []byte
}

// CertificateRequest says what a certificate states.
type CertificateRequest struct {
	// CommonName is the user's name to the API server.
	CommonName string
	// Organizations are the user's groups to the API server.
	Organizations []string
	// Hosts are IP addresses and DNS names. With hosts the certificate is a server's
	// too; without, a client's only.
	Hosts []string
}

func newAuthority(name string) (*Authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	template, err := newTemplate()
	if err != nil {
		return nil, err
	}
	template.Subject = pkix.Name{CommonName: name}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("signing the authority's certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading the authority's certificate: %w", err)
	}
	return &Authority{cert: cert, key: key, certPEM: certificatePEM(der)}, nil
}

// Issue makes a key and a certificate for it, both in PEM.
func (a *Authority) Issue(request CertificateRequest) (cert, key []byte, err error) {
	private, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	template, err := newTemplate()
	if err != nil {
		return nil, nil, err
	}
	template.Subject = pkix.Name{CommonName: request.CommonName, Organization: request.Organizations}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if len(request.Hosts) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	for _, host := range request.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, private.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("signing the certificate of %s: %w", request.CommonName, err)
	}
	key, err = keyPEM(private)
	return certificatePEM(der), key, err
}

// IssueFiles writes a certificate and its key to PATH.crt and PATH.key.
func (a *Authority) IssueFiles(path string, request CertificateRequest) error {
	cert, key, err := a.Issue(request)
	if err != nil {
		return err
	}
	return writeFiles(map[string][]byte{path + ".crt": cert, path + ".key": key})
}

func newTemplate() (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("choosing a serial number: %w", err)
	}
	now := time.Now()
	return &x509.Certificate{SerialNumber: serial, NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0)}, nil
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	return key, nil
}

func certificatePEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func keyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

func writeFiles(files map[string][]byte) error {
	for path, data := range files {
		if err := WriteFile(path, data); err != nil {
			return fmt.Errorf("writing a file of the cluster: %w", err)
		}
	}
	return nil
}

// WriteFile replaces a file as a whole: a process that starts meanwhile reads the old content
// or the new one.
func WriteFile(path string, data []byte) error {
	next := path + ".next"
	if err := os.WriteFile(next, data, 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}
