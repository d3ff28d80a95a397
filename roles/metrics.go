package roles

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"k8s.io/client-go/util/workqueue"

	"github.com/liqod/liqod/health"
	"github.com/liqod/liqod/kube/client"
	"github.com/liqod/liqod/kube/loop"
)

// metrics has the metrics of the process: loops, requests and leases.
type metrics struct {
	depth      *prometheus.GaugeVec
	adds       *prometheus.CounterVec
	retries    *prometheus.CounterVec
	wait       *prometheus.HistogramVec
	unfinished *prometheus.GaugeVec
	longest    *prometheus.GaugeVec
	syncs      *prometheus.HistogramVec
	lag        *prometheus.HistogramVec
	requests   *prometheus.CounterVec
	latency    *prometheus.HistogramVec
	leading    *prometheus.GaugeVec
	refused    *prometheus.CounterVec
	closed     *prometheus.CounterVec
	denied     *denials
	expiries   *expiries
	// loops bounds the names of loops: some have the id of a peer.
	loops bound
}

// registry registers metrics. The process does not start with one that was not registered.
type registry struct {
	prometheus.Registerer
	failed error
}

func (r *registry) add(all ...prometheus.Collector) {
	for _, c := range all {
		if err := r.Register(c); err != nil {
			r.failed = errors.Join(r.failed, fmt.Errorf("registering metrics: %w", err))
		}
	}
}

// seconds returns buckets from the duration of a cache read to several minutes.
func seconds() []float64 { return prometheus.ExponentialBuckets(0.001, 4, 10) }

func gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func histogram(name, help string, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: seconds()}, labels)
}

// newMetrics registers the metrics of the process, of the Go runtime and of the operating
// system, and the version. behind returns the lateness of each loop.
func newMetrics(to *registry, version string, behind func() map[string]time.Duration) *metrics {
	m := &metrics{
		depth:      gauge("liqod_loop_depth", "Keys that wait in a loop's queue.", "loop"),
		adds:       counter("liqod_loop_adds_total", "Keys added to a loop's queue.", "loop"),
		retries:    counter("liqod_loop_retries_total", "Keys added again after a delay.", "loop"),
		wait:       histogram("liqod_loop_wait_seconds", "How long a key waited in the queue.", "loop"),
		unfinished: gauge("liqod_loop_unfinished_seconds", "Sum of the ages of the syncs under way.", "loop"),
		longest:    gauge("liqod_loop_longest_running_seconds", "Age of the oldest sync under way.", "loop"),
		syncs:      histogram("liqod_loop_sync_seconds", "How long a sync took; result is ok or error.", "loop", "result"),
		lag:        histogram("liqod_loop_lag_seconds", "Time from the first event of a key until a sync of it succeeded, failed syncs included.", "loop"),
		requests:   counter("liqod_client_requests_total", "Requests answered by an API server.", "server", "verb", "code"),
		latency:    histogram("liqod_client_request_seconds", "Time until an API server answered.", "server", "verb"),
		leading:    gauge("liqod_lease_leading", "1 while this process leads.", "role"),
		refused:    counter("liqod_peer_refused_total", "What a peer sent and was refused or cut; the reasons are in docs/threat-model.md.", "peer", "reason"),
		closed:     counter("liqod_server_connections_closed_total", "Connections that a server closed because there were too many, or the relay to the API server of home as one was idle or did not read.", "server"),
		denied:     newDenials(),
		expiries:   newExpiries(),
	}
	build := gauge("liqod_build_info", "Always 1; the labels say what runs.", "version", "goversion")
	build.WithLabelValues(version, runtime.Version()).Set(1)
	to.add(m.depth, m.adds, m.retries, m.wait, m.unfinished, m.longest, m.syncs, m.requests, m.latency, m.leading, m.refused, m.closed, m.denied.total, m.lag, m.expiries, lateness(behind), build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// lateness collects how far loops are behind, at the time of the scrape.
type lateness func() map[string]time.Duration

func (lateness) desc() *prometheus.Desc {
	return describe("liqod_loop_behind_seconds", "Time for which a loop's oldest key has waited for a sync that succeeds; 0 if none waits.", "loop")
}

// Describe implements prometheus.Collector.
func (l lateness) Describe(out chan<- *prometheus.Desc) { out <- l.desc() }

// Collect implements prometheus.Collector.
func (l lateness) Collect(out chan<- prometheus.Metric) {
	all := l()
	for i, name := range slices.Sorted(maps.Keys(all)) {
		if i < mostValues {
			gauges(out).send(l.desc(), all[name].Seconds(), name)
		}
	}
}

// queues is the metrics provider of the work queues of loops. Queues of libraries, of which
// there are some below the clients and servers, have none.
type queues struct{ m *metrics }

var _ workqueue.MetricsProvider = queues{}

func (q queues) NewDepthMetric(name string) workqueue.GaugeMetric {
	return q.m.depth.WithLabelValues(q.m.loops.value(name))
}

func (q queues) NewAddsMetric(name string) workqueue.CounterMetric {
	return q.m.adds.WithLabelValues(q.m.loops.value(name))
}

func (q queues) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return q.m.wait.WithLabelValues(q.m.loops.value(name))
}

// NewWorkDurationMetric records nothing: the observer of the loops records the duration
// together with the result.
func (queues) NewWorkDurationMetric(string) workqueue.HistogramMetric { return nothing{} }

func (q queues) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return q.m.unfinished.WithLabelValues(q.m.loops.value(name))
}

func (q queues) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return q.m.longest.WithLabelValues(q.m.loops.value(name))
}

func (q queues) NewRetriesMetric(name string) workqueue.CounterMetric {
	return q.m.retries.WithLabelValues(q.m.loops.value(name))
}

type nothing struct{}

func (nothing) Observe(float64) {}

// loops is the observer of loops. It updates the metrics and the tracker.
type loops struct {
	queues

	tracker *health.Tracker
}

var _ loop.Observer = loops{}

func (l loops) Queued(name string, key loop.Key) { l.tracker.Queued(name, key) }

func (l loops) Synced(name string, key loop.Key, d time.Duration, err error) {
	l.tracker.Synced(name, key, d, err)
	l.m.syncs.WithLabelValues(l.m.loops.value(name), resultOf(err)).Observe(d.Seconds())
}

func resultOf(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}

// requests is the observer of the clients of one API server. It updates the metrics.
type requests struct {
	m      *metrics
	server string
}

var _ client.Observer = requests{}

func (r requests) Request(verb, code string, d time.Duration) {
	r.m.requests.WithLabelValues(r.server, verb, knownCode(code)).Inc()
	r.m.latency.WithLabelValues(r.server, verb).Observe(d.Seconds())
}

// knownCode replaces an HTTP status that is none of the registered ones: a peer's API server
// chooses it.
func knownCode(code string) string {
	if n, err := strconv.Atoi(code); err == nil && http.StatusText(n) == "" {
		return "other"
	}
	return code
}
