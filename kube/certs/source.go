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
	current atomic.Pointer[tls.Certificate]
}

// Set takes the certificate from the data of a Secret that Ensure keeps. After an error
// the former certificate stays in use.
func (s *Source) Set(data map[string][]byte) error {
	pair, err := ParsePair(data[CertKey], data[KeyKey])
	if err != nil {
		return err
	}
	s.current.Store(pair.TLS())
	return nil
}

// Ready reports whether there is a certificate.
func (s *Source) Ready() bool { return s.current.Load() != nil }

// GetCertificate is for tls.Config. Before the first Set it fails with
// ErrNoCertificate.
func (s *Source) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if cert := s.current.Load(); cert != nil {
		return cert, nil
	}
	return nil, ErrNoCertificate
}
