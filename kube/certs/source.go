package certs

import (
	"crypto/tls"
	"errors"
	"sync/atomic"
)

// ErrNoCertificate says that a server has no certificate yet.
var ErrNoCertificate = errors.New("no certificate yet")

// Source hands the latest certificate of a Secret to a server. The zero value is ready
// to use; its methods are safe for concurrent use.
type Source struct {
	current atomic.Pointer[served]
}

type served struct {
	cert   *tls.Certificate
	bundle []byte
}

// Set takes the certificate from the data of a Secret that Ensure keeps. It is served with
// its authority, for clients that know that by its fingerprint. After an error the former
// certificate stays in use.
func (s *Source) Set(data map[string][]byte) error {
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

// Bundle returns, as PEM, the authorities of the certificates from now on: also the next
// one, some time before it takes over. It is nil before the first Set.
func (s *Source) Bundle() []byte {
	if now := s.current.Load(); now != nil {
		return now.bundle
	}
	return nil
}

// Ready reports whether there is a certificate.
func (s *Source) Ready() bool { return s.current.Load() != nil }

// GetCertificate is for tls.Config. Before the first Set it fails with
// ErrNoCertificate.
func (s *Source) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if now := s.current.Load(); now != nil {
		return now.cert, nil
	}
	return nil, ErrNoCertificate
}
