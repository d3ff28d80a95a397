// Package kubelet serves the kubelet's HTTPS API of a virtual node: logs, exec,
// attach and port-forward of its pods, carried to the provider's API server, and what the
// pods use, from the provider's metrics API. Every request is authenticated and
// authorised as a kubelet does it, by the home API server.
package kubelet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// Pods knows the pods of the node. Its methods are safe for concurrent use; what they
// return is not changed.
type Pods interface {
	// Get returns a pod of this node and where it runs in the provider. Its error is a
	// NotFound of the API for a pod that is not on this node, and any other while it is
	// not known where (or whether) the pod runs there.
	Get(namespace, name string) (local *corev1.Pod, remoteNamespace, remoteName string, err error)
	// List returns every pod of this node.
	List() ([]*corev1.Pod, error)
	// Twin returns the provider's namespace for one of this cluster, and an error while
	// there is none. It asks nobody.
	Twin(namespace string) (string, error)
}

// Config configures a Server. Every field is needed.
type Config struct {
	// NodeName is the name of the virtual node: rights are asked for it.
	NodeName string
	// Address to listen at, as host:port.
	Address string
	// GetCertificate returns the serving certificate. While it fails, connections do.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Kube reaches the home API server: client CA, TokenReviews, SubjectAccessReviews.
	Kube kubernetes.Interface
	// Remote returns what reaches the provider's API server at this moment. The
	// configuration must have no Timeout, since it would end streams, and is not changed
	// afterwards: as long as the pointer is the same, so are the connections.
	Remote func() (*rest.Config, error)
	// Pods of this node.
	Pods Pods
	// Clock tells the time of measurements.
	Clock clock.PassiveClock
	// Log receives refused and failed requests.
	Log *zap.Logger
}

const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 90 * time.Second
	// shutdownGrace is for short requests; streams are cut when it ends.
	shutdownGrace = 2 * time.Second
)

// Server is the kubelet API of one virtual node.
type Server struct {
	cfg    Config
	guard  *guard
	routes http.Handler
	meter  *meter

	mu     sync.Mutex
	source *rest.Config // what remote was made from
	reach  reach
}

// New returns a Server. It starts nothing and asks nothing of any API server.
func New(cfg Config) (*Server, error) {
	g, err := newGuard(cfg)
	if err != nil {
		return nil, err
	}
	return newServer(cfg, g), nil
}

func newServer(cfg Config, g *guard) *Server {
	s := &Server{cfg: cfg, guard: g, meter: newMeter(cfg)}
	mux := http.NewServeMux()
	for _, r := range s.table() {
		for _, method := range r.methods {
			mux.HandleFunc(method+" "+r.path, r.serve)
		}
	}
	s.routes = mux
	return s
}

// route is one kind of request that is answered.
type route struct {
	methods []string
	path    string
	serve   http.HandlerFunc
}

// table lists every route. Which right each needs says the guard, by the path.
func (s *Server) table() []route {
	read := []string{http.MethodGet}
	// A WebSocket begins with a GET, SPDY with a POST.
	both := []string{http.MethodGet, http.MethodPost}
	return []route{
		{read, "/healthz", s.healthz},
		{read, "/pods", s.pods},
		{read, "/runningpods/{$}", s.runningPods},
		{read, "/stats/summary", s.statsSummary},
		{read, "/metrics/resource", s.resourceMetrics},
		{read, "/containerLogs/{namespace}/{pod}/{container}", s.logs},
		{both, "/exec/{namespace}/{pod}/{container}", s.exec},
		{both, "/exec/{namespace}/{pod}/{uid}/{container}", s.exec},
		{both, "/attach/{namespace}/{pod}/{container}", s.attach},
		{both, "/attach/{namespace}/{pod}/{uid}/{container}", s.attach},
		{both, "/portForward/{namespace}/{pod}", s.portForward},
		{both, "/portForward/{namespace}/{pod}/{uid}", s.portForward},
	}
}

// ServeHTTP authenticates and authorises the request before anything else looks at it.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.guard.admit(w, r) {
		s.routes.ServeHTTP(w, r)
	}
}

// Run listens and serves until ctx is done. It returns when every request has ended,
// streams included. It fails only when it cannot listen. It may be called once.
func (s *Server) Run(ctx context.Context) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", s.cfg.Address)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("listening at %s: %w", s.cfg.Address, err)
	}
	return s.serve(ctx, listener)
}

func (s *Server) serve(ctx context.Context, listener net.Listener) error {
	// Requests outlive ctx by the grace.
	requests, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	var running, background sync.WaitGroup
	server, err := s.httpServer(requests, &running)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	caCtx, stop := context.WithCancel(ctx)
	background.Go(func() { s.guard.run(caCtx) })
	defer background.Wait()
	defer stop()

	served := make(chan error, 1)
	go func() { served <- server.ServeTLS(listener, "", "") }()
	select {
	case err = <-served:
		err = fmt.Errorf("serving at %s: %w", listener.Addr(), err)
	case <-ctx.Done():
		stopping, cancel := context.WithTimeout(requests, shutdownGrace)
		_ = server.Shutdown(stopping) // what is left is cut below
		cancel()
		<-served
	}
	cut()
	_ = server.Close()
	running.Wait()
	return err
}

func (s *Server) httpServer(requests context.Context, running *sync.WaitGroup) (*http.Server, error) {
	errorLog, err := zap.NewStdLogAt(s.cfg.Log, zap.DebugLevel)
	if err != nil {
		return nil, fmt.Errorf("preparing the log: %w", err)
	}
	return &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			running.Add(1)
			defer running.Done()
			s.ServeHTTP(w, r)
		}),
		TLSConfig: &tls.Config{
			MinVersion:     tls.VersionTLS12,
			GetCertificate: s.cfg.GetCertificate,
			// Asked for, and verified by the guard, whose CA may come and change later.
			ClientAuth: tls.RequestClientCert,
			NextProtos: []string{"h2", "http/1.1"},
		},
		BaseContext:       func(net.Listener) context.Context { return requests },
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		ErrorLog:          errorLog,
	}, nil
}
