package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

const (
	// usageTTL is how long an answer serves further readers. A provider measures each 15 s.
	usageTTL = 5 * time.Second
	// usageTimeout is shorter than what metrics-server waits for a kubelet, 10 s.
	usageTimeout = 8 * time.Second
	// listsAtOnce bounds the requests to the provider in flight.
	listsAtOnce = 8
	// longestList in bytes: some thousands of pods. A peer may send anything, and its client
	// takes no longer answer.
	longestList = 32 << 20
)

// measured is one reading of the provider's metrics API.
type measured struct {
	summary *statsv1alpha1.Summary
	// failed says that it is not, or not wholly, known what the pods use.
	failed bool
	at     time.Time
}

// meter reads, at the request of others only, what the pods use.
type meter struct {
	// turn is held by the request that reads; the others wait for what it finds.
	turn     chan struct{}
	counters *nodeCounters
	last     measured
	broken   bool // told already
}

// usage returns what the pods use, at most usageTTL old. It fails when this node's pods
// are not known; a provider that does not tell is no failure.
func (s *Server) usage(ctx context.Context) (measured, error) {
	select {
	case s.meter.turn <- struct{}{}:
		defer func() { <-s.meter.turn }()
	case <-ctx.Done():
		return measured{}, fmt.Errorf("waiting for another reader: %w", ctx.Err())
	}
	if last := s.meter.last; last.summary != nil && s.cfg.Clock.Since(last.at) < usageTTL {
		return last, nil
	}
	pods, err := s.cfg.Pods.List()
	if err != nil {
		return measured{}, httpError{http.StatusServiceUnavailable, fmt.Sprintf("listing the pods of node %s: %v", s.cfg.NodeName, err)}
	}
	bounded, cancel := context.WithTimeout(ctx, usageTimeout)
	defer cancel()
	samples, known, err := s.samples(bounded, pods)
	if ctx.Err() != nil {
		return measured{}, fmt.Errorf("reading the metrics of the provider: %w", ctx.Err()) // nobody waits for it
	}
	s.tellUsage(err)
	now := s.cfg.Clock.Now()
	s.meter.last = measured{s.meter.counters.summary(now, pods, samples, known), err != nil, now}
	return s.meter.last, nil
}

// samples asks for the metrics of the pods: one list for each of their namespaces. It
// returns what could be read, whether that says anything about the node, and the first
// error.
func (s *Server) samples(ctx context.Context, pods []*corev1.Pod) (map[types.UID]*metricsv1beta1.PodMetrics, bool, error) {
	twins := map[string]bool{}
	for _, pod := range pods {
		if pod.Status.Phase != corev1.PodRunning || twins[pod.Namespace] {
			continue
		}
		if twin, err := s.cfg.Pods.Twin(pod.Namespace); err == nil {
			twins[twin] = true
		}
	}
	var (
		mu   sync.Mutex
		out  = map[types.UID]*metricsv1beta1.PodMetrics{}
		read int
		all  errgroup.Group
	)
	all.SetLimit(listsAtOnce)
	for twin := range twins {
		all.Go(func() error {
			list, err := s.podMetrics(ctx, twin)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			read++
			for i := range list.Items {
				out[types.UID(list.Items[i].Labels[offloadingv1beta1.LocalPodUIDLabel])] = &list.Items[i]
			}
			return nil
		})
	}
	err := all.Wait()
	return out, read > 0 || len(twins) == 0, err
}

// podMetrics lists the metrics of this node's pods in a namespace of the provider.
func (s *Server) podMetrics(ctx context.Context, namespace string) (*metricsv1beta1.PodMetricsList, error) {
	remote, err := s.remote()
	if err != nil {
		return nil, err
	}
	stream, err := remote.client.Get().AbsPath("/apis/metrics.k8s.io/v1beta1/namespaces", namespace, "pods").
		Param("labelSelector", labels.Set{offloadingv1beta1.NodeNameLabel: s.cfg.NodeName}.String()).
		SetHeader("Accept", "application/json").Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing the metrics of pods in namespace %s: %w", namespace, err)
	}
	defer func() { _ = stream.Close() }() // it was only read
	list := &metricsv1beta1.PodMetricsList{}
	if err := json.NewDecoder(io.LimitReader(stream, longestList)).Decode(list); err != nil {
		return nil, fmt.Errorf("reading the metrics of pods in namespace %s: %w", namespace, err)
	}
	return list, nil
}

// tellUsage says once that the provider's metrics cannot be read, and once that they can
// again: many providers have none.
func (s *Server) tellUsage(err error) {
	switch {
	case err != nil && !s.meter.broken:
		s.cfg.Log.Warn("no metrics of pods from the provider", zap.Error(err))
	case err == nil && s.meter.broken:
		s.cfg.Log.Info("metrics of pods from the provider are back")
	}
	s.meter.broken = err != nil
}

func (s *Server) statsSummary(w http.ResponseWriter, r *http.Request) {
	got, err := s.usage(r.Context())
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.writeJSON(w, got.summary)
}

func (s *Server) resourceMetrics(w http.ResponseWriter, r *http.Request) {
	got, err := s.usage(r.Context())
	if err != nil {
		s.fail(w, r, err)
		return
	}
	registry := prometheus.NewRegistry()
	if err := registry.Register(resourceMetrics{Summary: got.summary, Failed: got.failed}); err != nil {
		s.fail(w, r, err)
		return
	}
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}).ServeHTTP(w, r)
}
