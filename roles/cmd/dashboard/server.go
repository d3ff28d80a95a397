package dashboard

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"embed"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/liqod/liqod/kube/serve"
)

//go:embed page
var page embed.FS

// files are those of the page, each with its type.
var files = map[string]string{
	"index.html": "text/html; charset=utf-8",
	"page.css":   "text/css; charset=utf-8",
	"page.js":    "text/javascript; charset=utf-8",
	"icon.svg":   "image/svg+xml",
}

// statePath is the path of the state.
const statePath = "/state"

// policy lets the page load its own files and nothing else. Texts of a cluster cannot become
// markup: a script that tries to assign one to innerHTML fails.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// slowest is how long a browser may take to receive a state.
const slowest = 10 * time.Second

// connections is the number of connections that may wait; a browser uses a few.
const connections = 128

// Config configures a Server.
type Config struct {
	// Source reads the cluster.
	Source Source
	// Port to listen on; 0 takes a free one.
	Port uint16
	// Every is the pause between two reads of the cluster.
	Every time.Duration
	// Timeout is how long a read of the cluster may take.
	Timeout time.Duration
}

// Server serves the page to this machine.
type Server struct {
	feed  *feed
	token string
	port  *serve.Server
}

// Listen opens the port on the loopback address. Run serves it.
func Listen(ctx context.Context, cfg Config) (*Server, error) {
	s := &Server{feed: &feed{Config: cfg}, token: rand.Text()}
	var err error
	s.port, err = serve.Listen(ctx, serve.Config{
		Address: net.JoinHostPort("127.0.0.1", strconv.Itoa(int(cfg.Port))), Handler: s.guard(http.HandlerFunc(s.serve)),
		Connections: connections, PerAddress: connections, Headers: 16 << 10, Request: slowest, Answer: slowest, Count: func() {}, Log: zap.NewNop(),
	})
	return s, err
}

// URL is the address of the page with the token. Browsers do not send the part with the token:
// the page reads it.
func (s *Server) URL() string { return fmt.Sprintf("http://%s/#token=%s", s.port.Addr(), s.token) }

// Close closes the port of a server that does not run.
func (s *Server) Close() error { return s.port.Close() }

// Run serves until ctx is done. It closes the port, and returns after all requests have ended.
func (s *Server) Run(ctx context.Context) error { return s.port.Run(ctx) }

// guard refuses everything that the page does not ask for. A page of another site reaches this
// server only under the name of that site.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		switch {
		case !loopback(r.Host):
			http.Error(w, fmt.Sprintf("the host %q is refused: accepted are 127.0.0.1 and localhost", r.Host), http.StatusForbidden)
		case r.Method != http.MethodGet:
			h.Set("Allow", http.MethodGet)
			http.Error(w, "the page only reads: GET is accepted", http.StatusMethodNotAllowed)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// loopback reports whether a Host header names this machine. The port may be another one: that
// of a tunnel.
func loopback(host string) bool {
	name := host
	if n, _, err := net.SplitHostPort(host); err == nil {
		name = n
	}
	return name == "127.0.0.1" || strings.EqualFold(name, "localhost")
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == statePath {
		s.state(w, r)
		return
	}
	name := cmp.Or(strings.TrimPrefix(r.URL.Path, "/"), "index.html")
	kind, known := files[name]
	data, err := page.ReadFile("page/" + name)
	if !known || err != nil {
		http.Error(w, "there is no such page", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", kind)
	_, _ = w.Write(data) // the browser may be gone
}

// state answers with the state to a client that has the token.
func (s *Server) state(w http.ResponseWriter, r *http.Request) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || subtle.ConstantTimeCompare([]byte(token), []byte(s.token)) != 1 {
		http.Error(w, "the token is missing or wrong: open the address that the command printed", http.StatusUnauthorized)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	defer serve.Working(r.Context())()
	data := s.feed.current(r.Context())
	// The cluster may take longer than a browser.
	if http.NewResponseController(w).SetWriteDeadline(time.Now().Add(slowest)) == nil {
		_, _ = w.Write(data) // the browser may be gone
	}
}
