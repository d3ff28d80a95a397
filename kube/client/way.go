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

// errNoWay is returned by a placeholder transport that must never be used.
var errNoWay = errors.New("a request that has no credentials")

// Way is a connection to one API server as one user, whose credentials can be replaced at
// run time. Running requests and watches continue with the old credentials, and new
// requests use the new ones. Its methods are safe for concurrent use.
type Way struct{ current atomic.Pointer[rest.Config] }

// NewWay returns a Way with the credentials of cfg. It opens no connection. The caller
// must not change cfg afterwards.
func NewWay(cfg *rest.Config) *Way {
	w := &Way{}
	w.current.Store(cfg)
	return w
}

// Config returns a client configuration whose requests always use the current
// credentials. Each client made from it has its own connections. It supports requests,
// watches and followed logs. Connections that are upgraded (exec, attach, port-forward)
// need a configuration that holds the credentials itself.
func (w *Way) Config() *rest.Config {
	now := w.current.Load()
	out := &rest.Config{Host: now.Host, APIPath: now.APIPath, Transport: nowhere{}}
	out.Wrap(func(http.RoundTripper) http.RoundTripper { return &follower{way: w} })
	return out
}

// Renew replaces the credentials if cfg leads to the same server and identifies the same
// user. It returns false and changes nothing if cfg does not, or if its TLS settings are
// invalid.
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

// proxyOf returns the URL of the proxy for the server of cfg, or "" if there is none.
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

// User returns the user name that cfg authenticates as: the subject of its client
// certificate, or the subject of its token. It is empty if cfg has neither or they cannot
// be parsed. The certificate and the token are not verified.
func User(cfg *rest.Config) string {
	if len(cfg.CertData) == 0 {
		return TokenSubject(cfg.BearerToken)
	}
	if cert := certificateOf(cfg); cert != nil {
		return cert.Subject.String()
	}
	return ""
}

// certificateOf returns the client certificate of cfg, or nil.
func certificateOf(cfg *rest.Config) *x509.Certificate {
	block, _ := pem.Decode(cfg.CertData)
	if block == nil {
		return nil
	}
	cert, _ := x509.ParseCertificate(block.Bytes) // nil with an error
	return cert
}

// TokenSubject returns the claim "sub" of a JSON Web Token (RFC 7519), and "" for any
// other token. The signature is not verified.
func TokenSubject(token string) string {
	var claims struct {
		Subject string `json:"sub"`
	}
	if !readClaims(token, &claims) {
		return ""
	}
	return claims.Subject
}

// readClaims reads the claims of a JSON Web Token, and reports whether it is one.
func readClaims(token string, claims any) bool {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return false
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	return err == nil && json.Unmarshal(text, claims) == nil
}

// nowhere is the placeholder transport of Way.Config, which follower replaces.
type nowhere struct{}

// RoundTrip implements http.RoundTripper.
func (nowhere) RoundTrip(req *http.Request) (*http.Response, error) {
	closeBody(req)
	return nil, errNoWay
}

// follower sends each request with the current credentials. An API server checks the
// client certificate of a connection with each request, so a connection must not be
// reused after its certificate has expired. After a renewal follower opens new
// connections; requests on the old ones are left to finish.
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

// WrappedRoundTripper returns the transport of the current credentials, or nil before the
// first request.
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
	cfg.DisableCompression = true // of the server nothing is known but its certificate
	next, err := rest.TransportFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("preparing the credentials for %s: %w", now.Host, err)
	}
	if f.next != nil {
		utilnet.CloseIdleConnectionsFor(f.next) // connections in use close after they have become idle
	}
	f.of, f.next = now, next
	return next, nil
}
