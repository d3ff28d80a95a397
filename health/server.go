package health

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
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

// Checks is a list of named conditions for traffic to be sent here. With none, the
// process is ready. Its zero value is usable, and safe for concurrent use.
type Checks struct {
	mu     sync.Mutex
	checks []check
}

type check struct {
	name string
	run  func() error
}

// Add appends a check. run must return soon: nil when traffic is welcome, otherwise an
// error that says why not.
func (c *Checks) Add(name string, run func() error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checks = append(c.checks, check{name, run})
}

// Report runs all checks, and returns one line for each and the errors of those that fail.
func (c *Checks) Report() (string, error) {
	c.mu.Lock()
	checks := append([]check(nil), c.checks...)
	c.mu.Unlock()
	var lines strings.Builder
	var errs []error
	for _, one := range checks {
		err := one.run()
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", one.name, err))
			fmt.Fprintf(&lines, "[-] %s: %v\n", one.name, err)
			continue
		}
		fmt.Fprintf(&lines, "[+] %s\n", one.name)
	}
	if len(errs) == 0 {
		lines.WriteString("ok\n")
	}
	return lines.String(), errors.Join(errs...)
}

// mostPages bounds the pages of metrics in memory.
const mostPages = 4

// pages serves metrics. A page stays in memory until its readers have it, and slow ones take
// long. Beyond mostPages such pages, a further reader gets the newest one, which is then as old
// as an answer may last.
type pages struct {
	gatherer prometheus.Gatherer

	mu     sync.Mutex
	newest *page
	being  int // pages with readers
}

// page has metrics as text.
type page struct {
	text    []byte
	readers int
}

// ServeHTTP implements http.Handler.
func (p *pages) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	one, err := p.open()
	if err != nil {
		http.Error(w, "gathering metrics: "+err.Error(), http.StatusInternalServerError)
		return
	}
	defer p.close(one)
	w.Header().Set("Content-Type", string(expfmt.NewFormat(expfmt.TypeTextPlain)))
	_, _ = w.Write(one.text) // the reader is gone
}

// open returns a page for a reader.
func (p *pages) open() (*page, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.being < mostPages {
		text, err := p.gather()
		if err != nil {
			return nil, err
		}
		p.newest = &page{text: text}
		p.being++
	}
	p.newest.readers++
	return p.newest, nil
}

func (p *pages) close(one *page) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one.readers--; one.readers == 0 {
		p.being--
	}
}

func (p *pages) gather() ([]byte, error) {
	families, err := p.gatherer.Gather()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	encoder := expfmt.NewEncoder(&out, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, family := range families {
		if err := encoder.Encode(family); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}
