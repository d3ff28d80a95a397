package lab

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Front is a way to an API server that fails on demand. Clients are known by bearer
// tokens only: it ends their TLS, and forwards their requests, watches and upgraded
// connections. The zero mode is to pass everything on.
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
}

func newFront(c *Cluster) (*Front, error) {
	ports, err := c.lab.ports.take(1)
	if err != nil {
		return nil, err
	}
	address := net.JoinHostPort(c.Options.ProxyAddress, strconv.Itoa(ports[0]))
	hosts := append([]string{c.Options.ProxyAddress, "127.0.0.1", "localhost"}, c.Options.ExtraAddresses...)
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
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
	}
	go func() { _ = f.server.ServeTLS(f.listener, "", "") }()
	return f, nil
}

func newReverseProxy(c *Cluster) (*httputil.ReverseProxy, error) {
	target, err := url.Parse(c.APIServer)
	if err != nil {
		return nil, fmt.Errorf("reading the API server's URL: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.CA)
	return &httputil.ReverseProxy{
		Rewrite:       func(request *httputil.ProxyRequest) { request.SetURL(target) },
		Transport:     newFrontTransport(roots),
		FlushInterval: -1,
		// A dead API server looks dead, not like a gateway with an error page.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}, nil
}

// frontTransport sends upgrades (exec, attach, port-forward) on connections of their
// own: HTTP/2 has no such thing.
type frontTransport struct{ normal, upgrade *http.Transport }

func newFrontTransport(roots *x509.CertPool) *frontTransport {
	upgrade := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}},
		DisableKeepAlives: true, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
	}
	return &frontTransport{upgrade: upgrade, normal: &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2: true, DisableCompression: true, MaxIdleConnsPerHost: 100,
	}}
}

// RoundTrip forwards one request.
func (t *frontTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Header.Get("Upgrade") != "" {
		return t.upgrade.RoundTrip(request)
	}
	return t.normal.RoundTrip(request)
}

// ServeHTTP forwards a request or fails it, as the mode says.
func (f *Front) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	f.requests.Add(1)
	if f.failing.Load() || f.nth(request) {
		f.failed.Add(1)
		refuse(w)
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
