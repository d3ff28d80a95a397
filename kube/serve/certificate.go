package serve

import (
	"crypto/tls"
	"errors"
	"sync/atomic"
)

// ErrNoCertificate means that a server has no certificate yet.
var ErrNoCertificate = errors.New("no certificate yet")

// Certificate has the latest certificate of a Secret, for a server. The zero value is ready to
// use. Its methods are safe for concurrent use.
type Certificate struct {
	current atomic.Pointer[served]
}

type served struct {
	cert   *tls.Certificate
	bundle []byte
}

// Set uses the certificate in the data of a Secret of EnsureCertificates. The server sends the authority
// with it, because some clients trust an authority by its fingerprint. After an error the
// former certificate stays in use.
func (s *Certificate) Set(data map[string][]byte) error {
	pair, err := ParsePair(data[CertKey], data[KeyKey])
	if err != nil {
		return err
	}
	cert := pair.TLS()
	for _, ca := range parseBundle(data[BundleKey]) {
		if pair.Cert.CheckSignatureFrom(ca) == nil {
			cert.Certificate = append(cert.Certificate, ca.Raw)
			break
		}
	}
	s.current.Store(&served{cert: cert, bundle: data[BundleKey]})
	return nil
}

// Bundle returns the authorities that clients must trust, as PEM. The next authority is
// among them before it begins to sign. Bundle returns nil before the first Set.
func (s *Certificate) Bundle() []byte {
	if now := s.current.Load(); now != nil {
		return now.bundle
	}
	return nil
}

// Ready reports whether there is a certificate.
func (s *Certificate) Ready() bool { return s.current.Load() != nil }

// GetCertificate returns the certificate, for tls.Config. Before the first Set it returns
// ErrNoCertificate.
func (s *Certificate) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if now := s.current.Load(); now != nil {
		return now.cert, nil
	}
	return nil, ErrNoCertificate
}
