// Package kubelet serves the kubelet's HTTPS API of a virtual node: logs, exec,
// attach and port-forward of its pods, carried to the provider's API server, and what the
// pods use, from the provider's metrics API. Every request is authenticated and
// authorised as a kubelet does it, by the home API server.
package kubelet

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/serve"
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
	// Closed is called for each connection that is closed because there are too many.
	Closed func()
	// Log receives refused and failed requests.
	Log *zap.Logger
}

// Limits of the server. An API server may begin hundreds of streams at once. Once the caller is
// authorised, a stream does not count. The headers have the command of an exec.
const (
	connections        = 1024
	addressConnections = 512
	headers            = 128 << 10 // bytes
	requestTimeout     = 10 * time.Second
	answerTimeout      = time.Minute
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
	s := &Server{cfg: cfg, guard: g, meter: &meter{turn: make(chan struct{}, 1), counters: newNodeCounters(cfg.NodeName, cfg.Clock.Now())}}
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
		{read, "/pods", s.pods(func(pod *corev1.Pod) (corev1.Pod, bool) { return *pod, true })},
		{read, "/runningpods/{$}", s.pods(runningOf)},
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
		defer serve.Working(r.Context())()
		s.routes.ServeHTTP(w, r)
	}
}

// Run listens and serves until ctx is done. It returns when every request has ended,
// streams included. It fails only when it cannot listen. It may be called once.
func (s *Server) Run(ctx context.Context) error {
	server, err := s.listen(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("serving the kubelet API: %w", err)
	}
	return s.serve(ctx, server)
}

func (s *Server) listen(ctx context.Context) (*serve.Server, error) {
	return serve.Listen(ctx, serve.Config{
		Address: s.cfg.Address, Handler: s, Connections: connections, PerAddress: addressConnections, Headers: headers,
		TLS: &tls.Config{
			MinVersion:     tls.VersionTLS12,
			GetCertificate: s.cfg.GetCertificate,
			// Asked for, and verified by the guard, whose CA may come and change later.
			ClientAuth: tls.RequestClientCert,
		},
		Request: requestTimeout, Answer: answerTimeout, Grace: shutdownGrace, Count: s.cfg.Closed, Log: s.cfg.Log,
	})
}

func (s *Server) serve(ctx context.Context, server *serve.Server) error {
	defer loop.Start(ctx, s.guard.run)()
	return server.Run(ctx)
}
