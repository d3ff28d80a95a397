package health

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/liqod/liqod/kube/kubetest"
)

func ok() error { return nil }

func newConfig(t *testing.T) ServerConfig {
	registry := prometheus.NewRegistry()
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "liqod_test_total", Help: "Test."})
	require.NoError(t, registry.Register(counter))
	return ServerConfig{Address: "127.0.0.1:0", Live: ok, Ready: &Checks{}, Metrics: registry, Closed: func() {}, Log: zap.NewNop()}
}

func TestRoutes(t *testing.T) {
	wedged := func() error { return errors.New("loop pods: key ns/a has waited 6m0s") }
	for name, tc := range map[string]struct {
		path  string
		setup func(*ServerConfig)
		code  int
		body  string
	}{
		"alive":     {"/livez", func(*ServerConfig) {}, 200, "ok\n"},
		"not alive": {"/livez", func(c *ServerConfig) { c.Live = wedged }, 500, "loop pods: key ns/a has waited 6m0s\n"},
		"ready without checks": {
			"/readyz", func(*ServerConfig) {}, 200, "ok\n",
		},
		"ready": {"/readyz", func(c *ServerConfig) { c.Ready.Add("caches", ok) }, 200, "[+] caches\nok\n"},
		"not ready": {"/readyz", func(c *ServerConfig) {
			c.Ready.Add("caches", ok)
			c.Ready.Add("certificate", func() error { return errors.New("none yet") })
		}, 503, "[+] caches\n[-] certificate: none yet\n\n"},
		"metrics":      {"/metrics", func(*ServerConfig) {}, 200, "# HELP liqod_test_total Test.\n# TYPE liqod_test_total counter\nliqod_test_total 0\n"},
		"no profiles":  {"/debug/pprof/cmdline", func(*ServerConfig) {}, 404, "404 page not found\n"},
		"nothing else": {"/", func(*ServerConfig) {}, 404, "404 page not found\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := newConfig(t)
			tc.setup(&cfg)
			w := httptest.NewRecorder()
			NewServer(cfg).Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, tc.path, nil))
			require.Equal(t, tc.code, w.Code)
			if tc.body != "" {
				require.Equal(t, tc.body, w.Body.String())
			}
		})
	}
}

func TestRunServesAndStops(t *testing.T) {
	core, logs := observer.New(zapcore.InfoLevel)
	cfg := newConfig(t)
	cfg.Log = zap.New(core)
	stop := kubetest.Run(t, func(ctx context.Context) error { return NewServer(cfg).Run(ctx) })

	var address string
	require.Eventually(t, func() bool {
		for _, entry := range logs.FilterMessage("serving health and metrics").All() {
			address = entry.ContextMap()["address"].(string)
		}
		return address != ""
	}, time.Minute, 5*time.Millisecond)
	response, err := http.Get("http://" + address + "/livez")
	require.NoError(t, err)
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, "ok\n", string(body))

	stop()
	_, err = net.DialTimeout("tcp", address, time.Second)
	require.Error(t, err)
}

func TestRunSaysWhyItCannotListen(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, listener.Close()) }()
	cfg := newConfig(t)
	cfg.Address = listener.Addr().String()
	require.ErrorContains(t, NewServer(cfg).Run(t.Context()), "serving health and metrics: listen tcp "+cfg.Address)
}

// stalled is a reader that takes nothing until it is released.
type stalled struct {
	*httptest.ResponseRecorder
	reads, release chan struct{}
}

func (s stalled) Write(p []byte) (int, error) {
	s.reads <- struct{}{}
	<-s.release
	return s.ResponseRecorder.Write(p)
}

// TestPagesAreBounded: readers that take nothing hold few pages, and others still get one.
func TestPagesAreBounded(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	now := prometheus.NewCounter(prometheus.CounterOpts{Name: "liqod_test_total", Help: "Test."})
	require.NoError(t, registry.Register(now))
	gathered := 0
	p := &pages{gatherer: prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		gathered++
		now.Inc()
		return registry.Gather()
	})}
	read := func() string {
		w := httptest.NewRecorder()
		p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		require.Equal(t, http.StatusOK, w.Code)
		return w.Body.String()
	}
	reads, release := make(chan struct{}), make(chan struct{})
	var slow sync.WaitGroup
	for range 20 {
		slow.Go(func() {
			p.ServeHTTP(stalled{httptest.NewRecorder(), reads, release}, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		})
		<-reads
	}
	require.Equal(t, mostPages, gathered)
	require.Contains(t, read(), "liqod_test_total 4\n")
	close(release)
	slow.Wait()
	require.Zero(t, p.being)
	require.Contains(t, read(), "liqod_test_total 5\n")
}

func TestPagesSayWhatFailed(t *testing.T) {
	t.Parallel()
	p := &pages{gatherer: prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return nil, errors.New("twice the same") })}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusInternalServerError, w.Code)
	require.Contains(t, w.Body.String(), "twice the same")
	require.Zero(t, p.being)
}
