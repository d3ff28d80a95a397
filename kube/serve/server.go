// Package serve is the server of every role that clients reach. It limits their connections,
// the time that each of them may take, and the size of headers. It also creates and renews
// serving certificates: those of a webhook come from an authority in a Secret, and those of a
// kubelet's server from the cluster's signer. For a webhook, it decodes reviews, calls a pure
// function, and encodes its answer. The package has no liqod types.
package serve

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
)

// idleTimeout is longer than API servers and Prometheus keep connections without a request:
// the side that sends the next request closes them.
const idleTimeout = 2 * time.Minute

// Config is the input of Listen. All fields but TLS, Control and Grace are required.
type Config struct {
	// Address to listen at, as host:port; port 0 takes a free one.
	Address string
	// Handler answers the requests. It must be safe for concurrent use.
	Handler http.Handler
	// TLS is nil for a server without encryption.
	TLS *tls.Config
	// Connections limits the connections that wait for their clients, PerAddress those of
	// a single Neighbourhood. Both are positive.
	Connections, PerAddress int
	// Headers is the size of a request's headers, in bytes.
	Headers int
	// Request is how long a client may take for the handshake of TLS, and for a request with
	// its body. Answer is how long the answer may take, from the end of the headers until the
	// client has received it. Unbounded lifts it. A connection that the handler takes over has
	// no limit.
	Request, Answer time.Duration
	// Grace is how long requests in work may take after the end. They are then cut.
	Grace time.Duration
	// Control, unless it is nil, sets options of the socket, which those of connections inherit.
	Control func(network, address string, raw syscall.RawConn) error
	// Count is called for each connection that is closed for a limit.
	Count func()
	// Log receives the errors of connections, at level debug: clients cause them.
	Log *zap.Logger
}

// Server is an open port. Run or Close must be called once.
type Server struct {
	cfg      Config
	listener *limited
}

// Listen opens the port.
func Listen(ctx context.Context, cfg Config) (*Server, error) {
	inner, err := (&net.ListenConfig{Control: cfg.Control}).Listen(ctx, "tcp", cfg.Address)
	if err != nil {
		return nil, err
	}
	return &Server{cfg, &limited{
		Listener: inner, most: cfg.Connections, perAddress: cfg.PerAddress, count: cfg.Count, each: map[netip.Prefix][]*connection{},
	}}, nil
}

// Addr returns the address of the port.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Close closes the port of a server that does not run.
func (s *Server) Close() error { return s.listener.Close() }

// Run serves until ctx is done. It returns after all requests have ended, and fails only if the
// server does earlier.
func (s *Server) Run(ctx context.Context) error {
	// Requests outlive ctx by the grace.
	requests, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	var running sync.WaitGroup
	server, err := s.httpServer(requests, &running)
	if err != nil {
		_ = s.Close() // the error that matters is the other
		return err
	}
	served := make(chan error, 1)
	go func() {
		if s.cfg.TLS == nil {
			served <- server.Serve(s.listener)
			return
		}
		served <- server.ServeTLS(s.listener, "", "")
	}()
	select {
	case err = <-served:
		err = fmt.Errorf("serving at %s: %w", s.Addr(), err)
	case <-ctx.Done():
		stopping, cancel := context.WithTimeout(requests, s.cfg.Grace)
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
	// On HTTP/2, a single connection has hundreds of requests in work. API servers use
	// HTTP/1.1 for webhooks and kubelets.
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			running.Add(1)
			defer running.Done()
			s.cfg.Handler.ServeHTTP(w, r)
		}),
		TLSConfig: s.cfg.TLS, Protocols: &protocols, MaxHeaderBytes: s.cfg.Headers,
		ReadHeaderTimeout: s.cfg.Request, ReadTimeout: s.cfg.Request, WriteTimeout: s.cfg.Answer, IdleTimeout: idleTimeout,
		BaseContext: func(net.Listener) context.Context { return requests }, ConnContext: withConnection,
		ErrorLog: errorLog,
	}, nil
}

// Unbounded lets the answer to a request last as long as its client reads.
func Unbounded(w http.ResponseWriter) error {
	return http.NewResponseController(w).SetWriteDeadline(time.Time{})
}
