package lab

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Front is a way to an API server that fails on demand. It ends the TLS of its clients,
// and forwards their requests, watches and upgraded connections: with their bearer
// tokens, and for those who present a certificate of the cluster's authority with the
// user and the groups that it names, as an authenticating proxy does. One of another
// authority, or too old, is refused in the handshake. The zero mode is to pass everything on.
type Front struct {
	// URL of the front.
	URL string

	listener *gatedListener
	server   *http.Server
	proxy    *httputil.ReverseProxy
	failing  atomic.Bool
	every    atomic.Int64
	turns    sync.Map // what is counted to n, by client
	requests atomic.Int64
	failed   atomic.Int64
	decide   atomic.Pointer[func(Request) Fate]
	hold     atomic.Pointer[hold]
	choose   atomic.Pointer[func(Request) http.Handler]
}

func newFront(c *Cluster) (*Front, error) {
	ports, err := c.lab.ports.take(1)
	if err != nil {
		return nil, err
	}
	address := net.JoinHostPort(c.Options.ProxyAddress, strconv.Itoa(ports[0]))
	// Of the API server itself as well: who is led here from there notices nothing.
	hosts := append([]string{c.Options.ProxyAddress, "127.0.0.1", "localhost", c.Options.Address}, c.Options.ExtraAddresses...)
	certPEM, key, err := c.authority.Issue(CertificateRequest{CommonName: "front", Hosts: hosts})
	if err != nil {
		return nil, err
	}
	certificate, err := tls.X509KeyPair(certPEM, key)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate of the front: %w", err)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening as the front of cluster %s: %w", c.Name, err)
	}
	f := &Front{URL: "https://" + address, listener: newGatedListener(listener)}
	if f.proxy, err = newReverseProxy(c); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	silent := stdlog.New(io.Discard, "", 0)
	f.proxy.ErrorLog = silent
	f.server = &http.Server{
		Handler: f, ErrorLog: silent, ReadHeaderTimeout: time.Minute,
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12,
			ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: c.roots(),
		},
	}
	go func() { _ = f.server.ServeTLS(f.listener, "", "") }()
	return f, nil
}

func newReverseProxy(c *Cluster) (*httputil.ReverseProxy, error) {
	target, err := url.Parse(c.APIServer)
	if err != nil {
		return nil, fmt.Errorf("reading the API server's URL: %w", err)
	}
	transport, err := newFrontTransport(c)
	if err != nil {
		return nil, err
	}
	return &httputil.ReverseProxy{
		Rewrite: func(request *httputil.ProxyRequest) {
			request.SetURL(target)
			vouch(request.Out.Header, certificateOf(request.In))
		},
		Transport:     transport,
		FlushInterval: -1,
		// A dead API server looks dead, not like a gateway with an error page.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}, nil
}

// The headers by which the API server is told who a client is: apiServerArgs names them.
const (
	remoteUser        = "X-Remote-User"
	remoteGroup       = "X-Remote-Group"
	remoteExtraPrefix = "X-Remote-Extra-"
)

// frontProxy is the name by which the API server knows who may tell it so.
const frontProxy = "front-proxy-client"

// certificateOf returns what a client has presented, which has been verified; nil if nothing.
func certificateOf(request *http.Request) *x509.Certificate {
	if request.TLS == nil || len(request.TLS.VerifiedChains) == 0 {
		return nil
	}
	return request.TLS.VerifiedChains[0][0]
}

// vouch tells the API server who the client is. What that says of itself is not passed on.
func vouch(header http.Header, certificate *x509.Certificate) {
	maps.DeleteFunc(header, func(name string, _ []string) bool {
		return name == remoteUser || name == remoteGroup || strings.HasPrefix(name, remoteExtraPrefix)
	})
	if certificate == nil {
		return
	}
	header.Set(remoteUser, certificate.Subject.CommonName)
	header[remoteGroup] = slices.Clone(certificate.Subject.Organization)
}

// frontTransport sends upgrades (exec, attach, port-forward) on connections of their
// own: HTTP/2 has no such thing. So it does with those who have a certificate: to the API
// server the front's own one goes before their tokens.
type frontTransport struct{ normal, upgrade, vouched, vouchedUpgrade *http.Transport }

func newFrontTransport(c *Cluster) (*frontTransport, error) {
	certPEM, key, err := c.authority.Issue(CertificateRequest{CommonName: frontProxy})
	if err != nil {
		return nil, err
	}
	own, err := tls.X509KeyPair(certPEM, key)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate by which the front vouches: %w", err)
	}
	roots := c.roots()
	return &frontTransport{
		normal: normalTransport(roots), upgrade: upgradeTransport(roots),
		vouched: normalTransport(roots, own), vouchedUpgrade: upgradeTransport(roots, own),
	}, nil
}

func normalTransport(roots *x509.CertPool, own ...tls.Certificate) *http.Transport {
	return &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots, Certificates: own, MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2: true, DisableCompression: true, MaxIdleConnsPerHost: 100,
	}
}

func upgradeTransport(roots *x509.CertPool, own ...tls.Certificate) *http.Transport {
	return &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots, Certificates: own, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}},
		DisableKeepAlives: true, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
	}
}

// RoundTrip forwards one request.
func (t *frontTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	normal, upgrade := t.normal, t.upgrade
	if request.Header.Get(remoteUser) != "" {
		normal, upgrade = t.vouched, t.vouchedUpgrade
	}
	if request.Header.Get("Upgrade") != "" {
		return upgrade.RoundTrip(request)
	}
	return normal.RoundTrip(request)
}

// ServeHTTP forwards a request or fails it, as the mode says.
func (f *Front) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	f.requests.Add(1)
	if f.failing.Load() || f.nth(request) {
		f.failed.Add(1)
		refuse(w)
		return
	}
	if other := f.other(request); other != nil {
		other.ServeHTTP(w, request)
		return
	}
	decide := f.decide.Load()
	switch {
	case isWatch(request):
		f.watch(w, request)
	case decide != nil && *decide != nil && isWrite(request):
		f.intercept(w, request, *decide)
	default:
		f.proxy.ServeHTTP(w, request)
	}
}

// nth says whether it is a request's turn to fail. The turns of a client's probes are
// counted apart: who asks every n-th time in step with others would always be hit.
func (f *Front) nth(request *http.Request) bool {
	every := f.every.Load()
	if every <= 0 {
		return false
	}
	client := fmt.Sprint(request.UserAgent(), request.URL.Path == "/readyz")
	count, _ := f.turns.LoadOrStore(client, new(atomic.Int64))
	return count.(*atomic.Int64).Add(1)%every == 0
}

func refuse(w http.ResponseWriter) {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Message: "the lab lets this request fail", Reason: metav1.StatusReasonInternalError, Code: http.StatusInternalServerError,
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusInternalServerError)
	_ = json.NewEncoder(w).Encode(status)
}

// Pass forwards everything again; what Drop held back goes on its way.
func (f *Front) Pass() {
	f.failing.Store(false)
	f.every.Store(0)
	f.listener.open()
}

// Drop swallows all packets: connections, old ones too, stay open and nothing moves on them.
func (f *Front) Drop() { f.listener.shut() }

// Fail answers every new request with 500. Running watches go on; Cut ends them.
func (f *Front) Fail() { f.failing.Store(true) }

// FailEvery answers every n-th request of each client with 500, and every n-th of its
// probes of /readyz; none with n = 0.
func (f *Front) FailEvery(n int) { f.every.Store(int64(n)) }

// Cut closes all connections at once; new ones are taken.
func (f *Front) Cut() { f.listener.cut() }

// Requests is how many requests have arrived, and how many of them were failed.
func (f *Front) Requests() (all, failed int64) { return f.requests.Load(), f.failed.Load() }

func (f *Front) close() error {
	f.listener.open()
	f.listener.cut()
	if err := f.server.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("closing the front: %w", err)
	}
	return nil
}
