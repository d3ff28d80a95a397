package host

import "github.com/prometheus/client_golang/prometheus"

// ProbeMetrics count probes through tunnels. They may be shared by several Echo.
type ProbeMetrics struct {
	rtt      *prometheus.HistogramVec
	sent     *prometheus.CounterVec
	received *prometheus.CounterVec
	lost     *prometheus.CounterVec
	garbage  *prometheus.CounterVec
}

// NewProbeMetrics registers the metrics by add. peer is the id of a cluster, gateway the name of
// one of its gateways.
func NewProbeMetrics(add func(...prometheus.Collector)) *ProbeMetrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &ProbeMetrics{
		rtt: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "liqod_tunnel_probe_rtt_seconds", Help: "Round trip times of probes through tunnels.",
			Buckets: prometheus.ExponentialBuckets(0.00025, 2, 14),
		}, []string{"peer", "gateway"}),
		sent:     counter("liqod_tunnel_probe_sent_total", "Probes sent; kind is request or answer.", "peer", "gateway", "kind"),
		received: counter("liqod_tunnel_probe_received_total", "Authentic probes received; kind is request or answer.", "peer", "gateway", "kind"),
		lost:     counter("liqod_tunnel_probe_lost_total", "Requests that were not answered before 64 more were sent.", "peer", "gateway"),
		garbage:  counter("liqod_tunnel_probe_garbage_total", "Packets to the port of probes that were dropped.", "reason"),
	}
	add(m.rtt, m.sent, m.received, m.lost, m.garbage)
	return m
}

func (m *ProbeMetrics) addProbe(what *prometheus.CounterVec, p EchoPeer, kind ProbeKind) {
	what.WithLabelValues(p.Cluster, p.Gateway, kind.String()).Inc()
}

// forget drops the series of a gateway that is no longer probed.
func (m *ProbeMetrics) forget(p EchoPeer) {
	labels := prometheus.Labels{"peer": p.Cluster, "gateway": p.Gateway}
	m.rtt.DeletePartialMatch(labels)
	m.sent.DeletePartialMatch(labels)
	m.received.DeletePartialMatch(labels)
	m.lost.DeletePartialMatch(labels)
}
