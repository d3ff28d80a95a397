package health

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
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
	// Profiles turns /debug/pprof on.
	Profiles bool
	// Log receives the address and the errors of the server.
	Log *zap.Logger
}

// Server answers a process's health and metrics questions over HTTP: /livez, /readyz,
// /metrics and, if wanted, /debug/pprof. What is healthy is decided by the functions that
// it is given.
type Server struct {
	cfg ServerConfig
}

const (
	readHeaderTimeout = 5 * time.Second
	stopTimeout       = 2 * time.Second
)

// NewServer returns a Server. It starts nothing.
func NewServer(cfg ServerConfig) *Server { return &Server{cfg: cfg} }

// Handler returns the server's routes.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", s.livez)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.cfg.Metrics, promhttp.HandlerOpts{}))
	if s.cfg.Profiles {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// Run listens and serves until ctx is done, then lets requests under way finish for at
// most two seconds. It returns an error when it cannot listen or serve.
func (s *Server) Run(ctx context.Context) error {
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", s.cfg.Address)
	if err != nil {
		return fmt.Errorf("serving health and metrics: %w", err)
	}
	s.cfg.Log.Info("serving health and metrics", zap.Stringer("address", listener.Addr()))
	server := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: readHeaderTimeout,
		ErrorLog:          zap.NewStdLog(s.cfg.Log),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err = <-served:
		return fmt.Errorf("serving health and metrics: %w", err)
	case <-ctx.Done():
	}
	// A new context: the one that has ended is why we stop.
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		err = errors.Join(err, server.Close())
		s.cfg.Log.Warn("health server closed with requests under way", zap.Error(err))
	}
	<-served
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
