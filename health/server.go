package health

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/liqod/liqod/kube/serve"
)

// ServerConfig configures a Server.
type ServerConfig struct {
	// Address to listen on, as host:port; port 0 takes a free one.
	Address string
	// Live returns nil while the process is alive; /livez answers 500 with its error.
	Live func() error
	// Ready holds the checks of /readyz, which answers 503 while one fails.
	Ready *Checks
	// Metrics are served at /metrics.
	Metrics prometheus.Gatherer
	// Closed is called for each connection that is closed because there are too many.
	Closed func()
	// Log receives the address and the errors of the server.
	Log *zap.Logger
}

// Server answers a process's health and metrics questions over HTTP: /livez, /readyz and
// /metrics. What is healthy is decided by the functions that it is given.
type Server struct {
	cfg ServerConfig
}

// Limits of the server. The kubelet and Prometheus use one or two connections each.
const (
	connections        = 128
	addressConnections = 16
	headers            = 8 << 10 // bytes
	requestTimeout     = 5 * time.Second
	answerTimeout      = 10 * time.Second
	grace              = 2 * time.Second
)

// NewServer returns a Server. It starts nothing.
func NewServer(cfg ServerConfig) *Server { return &Server{cfg: cfg} }

// Handler returns the server's routes.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", s.livez)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("GET /metrics", &pages{gatherer: s.cfg.Metrics})
	return mux
}

// Run listens and serves until ctx is done, then lets requests under way finish for at
// most two seconds. It returns an error when it cannot listen or serve.
func (s *Server) Run(ctx context.Context) error {
	// No request counts as in work: the kubelet, which has few connections, always gets an
	// answer, and clients that do not read theirs give way.
	server, err := serve.Listen(ctx, serve.Config{
		Address: s.cfg.Address, Handler: s.Handler(), Connections: connections, PerAddress: addressConnections, Headers: headers,
		Request: requestTimeout, Answer: answerTimeout, Grace: grace, Count: s.cfg.Closed, Log: s.cfg.Log,
	})
	if err == nil {
		s.cfg.Log.Info("serving health and metrics", zap.Stringer("address", server.Addr()))
		err = server.Run(ctx)
	}
	if err != nil {
		return fmt.Errorf("serving health and metrics: %w", err)
	}
	return nil
}

func (s *Server) livez(w http.ResponseWriter, _ *http.Request) {
	if err := s.cfg.Live(); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = fmt.Fprintln(w, "ok")
}

func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	report, err := s.cfg.Ready.Report()
	if err != nil {
		http.Error(w, report, http.StatusServiceUnavailable)
		return
	}
	_, _ = fmt.Fprint(w, report)
}
