package lab

import (
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// etcdFront is a way to etcd that delays writes on demand, as a slow disk does.
// Reads, watches and the keeping of leases pass at once.
type etcdFront struct {
	url    string
	server *http.Server
	delay  atomic.Int64
	slowed atomic.Int64
}

// SlowWrites delays each write of the API server to etcd by a duration, from now on; 0 ends it.
// Simultaneous writes are delayed simultaneously. The cluster must have been started with
// EtcdFront.
func (c *Cluster) SlowWrites(by time.Duration) { c.etcdFront.delay.Store(int64(by)) }

// SlowedWrites is the number of writes that have been delayed so far.
func (c *Cluster) SlowedWrites() int { return int(c.etcdFront.slowed.Load()) }

func newEtcdFront(c *Cluster, port int) (*etcdFront, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening as the front of etcd of cluster %s: %w", c.Name, err)
	}
	// gRPC is HTTP/2; client and server agree on it without TLS.
	plain := &http.Protocols{}
	plain.SetUnencryptedHTTP2(true)
	silent := stdlog.New(io.Discard, "", 0)
	target := &url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", port)}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(request *httputil.ProxyRequest) { request.SetURL(target) },
		Transport:     &http.Transport{Protocols: plain, DisableCompression: true},
		FlushInterval: -1, ErrorLog: silent,
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	f := &etcdFront{url: "http://" + listener.Addr().String()}
	f.server = &http.Server{
		Handler: f.slow(proxy), Protocols: plain, ErrorLog: silent, ReadHeaderTimeout: time.Minute,
		// The API server has a stream for each watch, all on a few connections.
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 10000},
	}
	go func() { _ = f.server.Serve(listener) }()
	return f, nil
}

// slow delays writes.
func (f *etcdFront) slow(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if delay := time.Duration(f.delay.Load()); delay > 0 && isEtcdWrite(request.URL.Path) {
			f.slowed.Add(1)
			timer := time.NewTimer(delay)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-request.Context().Done():
				panic(http.ErrAbortHandler)
			}
		}
		next.ServeHTTP(w, request)
	})
}

// isEtcdWrite says whether a call writes: the API server writes by transactions.
func isEtcdWrite(path string) bool {
	method, found := strings.CutPrefix(path, "/etcdserverpb.KV/")
	return found && method != "Range" && method != "Compact"
}

func (f *etcdFront) close() error {
	if err := f.server.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("closing the front of etcd: %w", err)
	}
	return nil
}
