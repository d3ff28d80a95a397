package health

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
)

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
