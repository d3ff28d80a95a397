package serve

import (
	"bytes"
	"crypto/x509"
	"maps"
	"slices"
	"time"
)

// Keys of the Secret of EnsureCertificates.
const (
	// BundleKey holds the authorities that clients must trust, as in the caBundle of a
	// webhook configuration. The signing authority is the first one.
	BundleKey = "ca.crt"
	// CertKey and KeyKey hold the serving certificate and its key.
	CertKey = "tls.crt"
	KeyKey  = "tls.key"

	caKeyKey   = "ca.key"
	nextKey    = "next-ca.crt"
	nextKeyKey = "next-ca.key"
)

const (
	caLifetime      = 10 * 365 * 24 * time.Hour
	servingLifetime = 365 * 24 * time.Hour
	// caOverlap is how long a new authority is trusted before it signs.
	caOverlap = 24 * time.Hour
	caName    = "serving-ca"
)

// EnsureCertificates returns the wanted data of a Secret for its current data, and whether they differ.
// The data has an authority (10 years) and a serving certificate for hosts (1 year). EnsureCertificates
// renews each after two thirds of its life. A new authority is in the bundle for a day
// before it signs. An old one stays in the bundle until the certificates that it signed
// have expired. EnsureCertificates replaces values that it cannot decode, and keeps other keys of the
// data. Callers call it at least daily. It does no I/O.
func EnsureCertificates(have map[string][]byte, hosts []string, now time.Time) (map[string][]byte, bool, error) {
	s := parseState(have, now)
	if err := s.advance(hosts, now); err != nil {
		return nil, false, err
	}
	want := maps.Clone(have)
	if want == nil {
		want = map[string][]byte{}
	}
	if err := s.encode(want); err != nil {
		return nil, false, err
	}
	return want, !maps.EqualFunc(have, want, bytes.Equal), nil
}

type state struct {
	ca, next *Pair
	serving  *Pair
	bundle   []*x509.Certificate
}

// parseState decodes the certificates that are still valid.
func parseState(data map[string][]byte, now time.Time) *state {
	s := &state{bundle: parseBundle(data[BundleKey])}
	s.bundle = slices.DeleteFunc(s.bundle, func(c *x509.Certificate) bool { return !c.NotAfter.After(now) })
	s.ca = parseCA(data[BundleKey], data[caKeyKey], now)
	s.next = parseCA(data[nextKey], data[nextKeyKey], now)
	if serving, err := ParsePair(data[CertKey], data[KeyKey]); err == nil {
		s.serving = serving
	}
	return s
}

func parseCA(cert, key []byte, now time.Time) *Pair {
	pair, err := ParsePair(cert, key)
	if err != nil || !pair.Cert.IsCA || !pair.Cert.NotAfter.After(now) {
		return nil
	}
	return pair
}

func (s *state) advance(hosts []string, now time.Time) error {
	var err error
	if s.ca == nil {
		s.next = nil
		if s.ca, err = NewCA(caName, now, caLifetime); err != nil {
			return err
		}
	}
	if s.next == nil && now.After(renewAt(s.ca.Cert)) {
		if s.next, err = NewCA(caName, now, caLifetime); err != nil {
			return err
		}
	}
	if s.next != nil && !now.Before(signsFrom(s.next.Cert)) {
		s.ca, s.next = s.next, nil
	}
	s.bundle = s.trusted(now)
	if s.servingIsGood(hosts, now) {
		return nil
	}
	s.serving, err = NewCertificate(s.ca, hosts, now, servingLifetime)
	return err
}

// signsFrom returns when a new authority begins to sign.
func signsFrom(ca *x509.Certificate) time.Time { return ca.NotBefore.Add(backdate + caOverlap) }

func (s *state) trusted(now time.Time) []*x509.Certificate {
	trusted := []*x509.Certificate{s.ca.Cert}
	if s.next != nil {
		trusted = append(trusted, s.next.Cert)
	}
	// All certificates of the previous authorities have expired.
	if now.After(signsFrom(s.ca.Cert).Add(servingLifetime)) {
		return trusted
	}
	for _, old := range s.bundle {
		if !slices.ContainsFunc(trusted, old.Equal) {
			trusted = append(trusted, old)
		}
	}
	return trusted
}

func (s *state) servingIsGood(hosts []string, now time.Time) bool {
	if s.serving == nil {
		return false
	}
	cert := s.serving.Cert
	return cert.CheckSignatureFrom(s.ca.Cert) == nil && now.Before(renewAt(cert)) &&
		slices.Equal(slices.Sorted(slices.Values(hostsOf(cert))), slices.Sorted(slices.Values(hosts)))
}

func (s *state) encode(data map[string][]byte) error {
	data[BundleKey] = encodeBundle(s.bundle)
	delete(data, nextKey)
	delete(data, nextKeyKey)
	if s.next != nil {
		data[nextKey] = s.next.CertPEM()
	}
	data[CertKey] = s.serving.CertPEM()
	for key, pair := range map[string]*Pair{caKeyKey: s.ca, nextKeyKey: s.next, KeyKey: s.serving} {
		if pair == nil {
			continue
		}
		pem, err := pair.KeyPEM()
		if err != nil {
			return err
		}
		data[key] = pem
	}
	return nil
}
