// Package client builds the configuration of Kubernetes API clients: the address of the
// API server, the credentials, and the behaviour of requests when the server is slow,
// unreachable or hostile. It has no liqod types.
//
// A hardened request passes these round trippers, outermost first: patience (retries the
// reads of informers), headed (ends watches after the state of the server went back), capped
// (bounds concurrent writes), gated (rejects writes without a valid lease), observed (metrics)
// and deadline (timeouts). Below them is distrusted, for an API server of another
// organisation: it pins the host and limits sizes.
package client

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// requestDeadline is how long a server may send nothing within one request.
const requestDeadline = 10 * time.Second

// Settings configure the behaviour of a client's requests. Only Log is needed.
type Settings struct {
	// UserAgent identifies this process in the server's audit log.
	UserAgent string
	// Observer receives the result of each attempt; it may be nil.
	Observer Observer
	// Gate is called before each write and may reject it; nil allows all writes.
	Gate Gate
	// MaxWrites is the maximum number of concurrent writes; 0 means no limit. All clients
	// made from one hardened configuration share the limit.
	MaxWrites int
	// WentBack may be nil. It is called when a watch shows that the state of the server went back,
	// as after the restore of a backup, and before an informer lists again for that reason.
	WentBack func()
	// Log receives that the state of the server went back and, at debug level, the failures that
	// informers retry.
	Log *zap.Logger
}

// UserAgent returns the user agent of one role of a program, in the form "program/version
// role".
func UserAgent(program, version, role string) string {
	return fmt.Sprintf("%s/%s %s", program, version, role)
}

// Harden returns a copy of cfg with these changes: the client does not limit the rate of
// requests; a request fails after 10 seconds without data from the server, except for
// watches, followed logs and upgraded connections; the list and watch requests of
// informers are repeated about every second while the server is unreachable; and informers
// list again after the state of the server went back. The result encodes objects as JSON,
// which custom resources require. For built-in kinds pass the result to Core.
func Harden(cfg *rest.Config, s Settings) *rest.Config {
	out := rest.CopyConfig(cfg)
	out.QPS = -1
	out.RateLimiter = nil
	out.Timeout = 0 // a timeout would end watches
	if s.UserAgent != "" {
		out.UserAgent = s.UserAgent
	}
	if out.Dial == nil && out.Transport == nil {
		out.Dial = (&dialer{firstByte: firstByteTimeout}).dial
	}
	// All clients of this configuration share these.
	slots, heads := newSlots(s.MaxWrites), newHeads(s.Log, s.WentBack)
	out.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		rt = &deadline{wrapped: wrapped{rt}, limit: requestDeadline}
		if s.Observer != nil {
			rt = &observed{wrapped: wrapped{rt}, observer: s.Observer}
		}
		if s.Gate != nil {
			rt = &gated{wrapped: wrapped{rt}, gate: s.Gate}
		}
		if slots != nil {
			rt = &capped{wrapped: wrapped{rt}, slots: slots}
		}
		return &patience{wrapped: wrapped{&headed{wrapped: wrapped{rt}, heads: heads}}, log: s.Log}
	})
	return out
}

// Core returns a copy of cfg that encodes objects as protobuf. Only the built-in kinds of
// Kubernetes support it.
func Core(cfg *rest.Config) *rest.Config {
	out := rest.CopyConfig(cfg)
	out.ContentType = runtime.ContentTypeProtobuf
	out.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return out
}

// SetHTTP2Pings sets client-go's HTTP/2 health check so that a dead connection is
// detected within 8 seconds instead of 45. Environment variables that are set already are
// kept. client-go reads these variables when it creates a client and has no other setting
// for them, so call SetHTTP2Pings before creating the first client. It changes the
// environment of the process.
func SetHTTP2Pings() error {
	for _, name := range []string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS", "HTTP2_PING_TIMEOUT_SECONDS"} {
		if os.Getenv(name) != "" {
			continue
		}
		if err := os.Setenv(name, "4"); err != nil {
			return fmt.Errorf("setting %s: %w", name, err)
		}
	}
	return nil
}

// wrapped is embedded in every round tripper of this package. client-go unwraps it to
// find the underlying transport.
type wrapped struct{ next http.RoundTripper }

// WrappedRoundTripper returns the next round tripper.
func (w wrapped) WrappedRoundTripper() http.RoundTripper { return w.next }

// Observer receives the result of every attempt of a request, for metrics. Its method is
// called from many goroutines.
type Observer interface {
	// Request reports that an attempt of verb (get, list, watch, create, update, patch,
	// delete, connect) ended after d. code is the HTTP status, "timeout", "canceled" or
	// "error". The body of the response may not have arrived yet.
	Request(verb, code string, d time.Duration)
}

type observed struct {
	wrapped

	observer Observer
}

// RoundTrip implements http.RoundTripper.
func (o *observed) RoundTrip(req *http.Request) (*http.Response, error) {
	start := time.Now()
	resp, err := o.next.RoundTrip(req)
	o.observer.Request(verbOf(req), codeOf(resp, err), time.Since(start))
	return resp, err
}

func codeOf(resp *http.Response, err error) string {
	switch {
	case err == nil:
		return strconv.Itoa(resp.StatusCode)
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "canceled"
	}
	return "error"
}

// Life is the time in which a certificate or a token is valid. The zero value is without an
// end.
type Life struct{ From, Until time.Time }

// CertificateLife returns the life of a certificate.
func CertificateLife(cert *x509.Certificate) Life {
	return Life{From: cert.NotBefore, Until: cert.NotAfter}
}

// LifeOf returns the life of the credentials of cfg: of its client certificate, or else of
// its token if that is a JSON Web Token with an end. It does not verify them. Other
// credentials have the zero Life.
func LifeOf(cfg *rest.Config) Life {
	if cert := certificateOf(cfg); cert != nil {
		return CertificateLife(cert)
	}
	var claims struct {
		IssuedAt  int64 `json:"iat"`
		ExpiresAt int64 `json:"exp"`
	}
	if !readClaims(cfg.BearerToken, &claims) || claims.ExpiresAt <= 0 || claims.IssuedAt < 0 {
		return Life{}
	}
	return Life{From: time.Unix(claims.IssuedAt, 0), Until: time.Unix(claims.ExpiresAt, 0)}
}

// Gate decides whether this process may write now. Its method is called from many
// goroutines.
type Gate interface {
	// Allow returns nil, or the reason why a write must not be sent.
	Allow() error
}

// gated rejects writes that its gate does not allow. Reads and upgraded connections pass.
type gated struct {
	wrapped

	gate Gate
}

// RoundTrip implements http.RoundTripper.
func (g *gated) RoundTrip(req *http.Request) (*http.Response, error) {
	if isWrite(req) {
		if err := g.gate.Allow(); err != nil {
			closeBody(req)
			return nil, fmt.Errorf("refusing to %s: %w", verbOf(req), err)
		}
	}
	return g.next.RoundTrip(req)
}

// capped bounds the number of concurrent writes.
type capped struct {
	wrapped

	slots chan struct{}
}

func newSlots(n int) chan struct{} {
	if n <= 0 {
		return nil
	}
	return make(chan struct{}, n)
}

// RoundTrip implements http.RoundTripper.
func (c *capped) RoundTrip(req *http.Request) (*http.Response, error) {
	if !isWrite(req) {
		return c.next.RoundTrip(req)
	}
	select {
	case c.slots <- struct{}{}:
	case <-req.Context().Done():
		closeBody(req)
		return nil, req.Context().Err()
	}
	// The server has finished the write when its response begins, so the slot is free
	// before the body is read.
	defer func() { <-c.slots }()
	return c.next.RoundTrip(req)
}

// closeBody fulfils a duty of http.RoundTripper: it must close the body of a request,
// even of one that it does not send.
func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}
