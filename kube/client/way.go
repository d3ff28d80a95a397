package client

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// errNoWay is what a transport says that nobody may use.
var errNoWay = errors.New("a request that has no credentials")

// Way leads to one API server as one user. The credentials of that user may be renewed
// while it is in use: what runs goes on, new requests use the new ones. Its methods are
// safe for concurrent use.
type Way struct{ current atomic.Pointer[rest.Config] }

// NewWay returns the way that cfg describes. It does not dial. cfg is not changed
// afterwards.
func NewWay(cfg *rest.Config) *Way {
	w := &Way{}
	w.current.Store(cfg)
	return w
}

// Config returns a configuration that always has the credentials of the time. Each client
// that is made of it has a connection of its own. It suits requests, watches and followed
// logs; what upgrades its connection needs the credentials themselves.
func (w *Way) Config() *rest.Config {
	now := w.current.Load()
	out := &rest.Config{Host: now.Host, APIPath: now.APIPath, Transport: nowhere{}}
	out.Wrap(func(http.RoundTripper) http.RoundTripper { return &follower{way: w} })
	return out
}

// Renew takes other credentials into use, if they are of the same user and lead to the same
// server. It reports whether they are: if not, nothing has changed.
func (w *Way) Renew(cfg *rest.Config) bool {
	for {
		have := w.current.Load()
		if !sameServer(have, cfg) || !sameUser(have, cfg) {
			return false
		}
		if _, err := rest.TLSConfigFor(cfg); err != nil {
			return false
		}
		if w.current.CompareAndSwap(have, cfg) {
			return true
		}
	}
}

func sameServer(a, b *rest.Config) bool {
	return a.Host == b.Host && a.APIPath == b.APIPath && a.Insecure == b.Insecure && a.ServerName == b.ServerName &&
		slices.Equal(a.CAData, b.CAData) && a.CAFile == b.CAFile && proxyOf(a) == proxyOf(b)
}

// proxyOf returns the proxy that leads to the server of a configuration.
func proxyOf(cfg *rest.Config) string {
	if cfg.Proxy == nil {
		return ""
	}
	req, err := http.NewRequest(http.MethodGet, cfg.Host, http.NoBody) //nolint:noctx // it is not sent
	if err != nil {
		return ""
	}
	proxy, err := cfg.Proxy(req)
	if err != nil || proxy == nil {
		return ""
	}
	return proxy.String()
}

func sameUser(a, b *rest.Config) bool {
	if a.Username != b.Username || a.Password != b.Password {
		return false
	}
	if string(a.CertData) == string(b.CertData) && string(a.KeyData) == string(b.KeyData) && a.BearerToken == b.BearerToken {
		return true
	}
	user := User(a)
	return user != "" && user == User(b)
}

// User returns who a configuration authenticates as: the subject of its certificate, or
// that of its token. It is empty if that does not show. Nothing is verified.
func User(cfg *rest.Config) string {
	if len(cfg.CertData) > 0 {
		block, _ := pem.Decode(cfg.CertData)
		if block == nil {
			return ""
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return ""
		}
		return cert.Subject.String()
	}
	return TokenSubject(cfg.BearerToken)
}

// TokenSubject returns the subject of a JSON web token; empty for other tokens. Nothing is
// verified.
func TokenSubject(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct {
		Subject string `json:"sub"`
	}
	if json.Unmarshal(text, &claims) != nil {
		return ""
	}
	return claims.Subject
}

// nowhere stands where a transport is needed, and none may be used.
type nowhere struct{}

// RoundTrip implements http.RoundTripper.
func (nowhere) RoundTrip(req *http.Request) (*http.Response, error) {
	closeBody(req)
	return nil, errNoWay
}

// follower sends with the credentials of the time. An API server looks at a certificate
// with each request: a connection that shows an old one must not be used until it is too
// old. What is under way on it is left to end by itself.
type follower struct {
	way *Way

	mu   sync.Mutex
	of   *rest.Config
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (f *follower) RoundTrip(req *http.Request) (*http.Response, error) {
	next, err := f.transport()
	if err != nil {
		closeBody(req)
		return nil, err
	}
	return next.RoundTrip(req)
}

// WrappedRoundTripper returns what is sent with now; nil before the first request.
func (f *follower) WrappedRoundTripper() http.RoundTripper {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.next
}

func (f *follower) transport() (http.RoundTripper, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.way.current.Load()
	if f.of == now {
		return f.next, nil
	}
	cfg := rest.CopyConfig(now)
	cfg.Dial = (&dialer{firstByte: firstByteTimeout}).dial
	next, err := rest.TransportFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("preparing the credentials for %s: %w", now.Host, err)
	}
	if f.next != nil {
		utilnet.CloseIdleConnectionsFor(f.next) // the others close when they have been idle for a while
	}
	f.of, f.next = now, next
	return next, nil
}
