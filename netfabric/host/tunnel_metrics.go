package host

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/liqod/liqod/netfabric/kernel"
)

// tunnelMetrics reads the counters of a host when they are asked for.
type tunnelMetrics struct {
	host Counted
	of   *fabric
	who  func(key string) (EchoPeer, bool) // nil: the host has no tunnels

	received, sent, handshake, dropped, refused *prometheus.Desc
}

// Metrics are the counters of the gateway's tunnels and of its guards.
func (g *GatewayHost) Metrics(host Counted) prometheus.Collector {
	return describedTunnels(tunnelMetrics{host: host, of: g.fabric, who: g.echoes.probed})
}

// Metrics are the counters of the node's guards.
func (n *NodeHost) Metrics(host Counted) prometheus.Collector {
	return describedTunnels(tunnelMetrics{host: host, of: n.fabric})
}

func describedTunnels(m tunnelMetrics) prometheus.Collector {
	peer := []string{"peer", "gateway"}
	m.received = prometheus.NewDesc("liqod_tunnel_received_bytes_total", "Bytes that came out of the tunnel from a gateway of a peer.", peer, nil)
	m.sent = prometheus.NewDesc("liqod_tunnel_sent_bytes_total", "Bytes that went into the tunnel to a gateway of a peer.", peer, nil)
	m.handshake = prometheus.NewDesc("liqod_tunnel_handshake_age_seconds", "Time since the latest handshake with a gateway of a peer; none without a handshake.", peer, nil)
	m.dropped = prometheus.NewDesc("liqod_guard_dropped_packets_total", "Packets that the nftables table and the tunnel of liqod have dropped, by name (docs/internals/packet-path.md), since they were made.", []string{"reason"}, nil)
	m.refused = prometheus.NewDesc("liqod_guard_refused_packets_total", "Packets of a peer that the nftables table of liqod has dropped, since it has the ranges of the peer.", []string{"peer"}, nil)
	return &m
}

// Describe implements prometheus.Collector.
func (m *tunnelMetrics) Describe(out chan<- *prometheus.Desc) {
	out <- m.dropped
	out <- m.refused
	if m.who != nil {
		out <- m.received
		out <- m.sent
		out <- m.handshake
	}
}

// Collect implements prometheus.Collector. What cannot be read is left out.
func (m *tunnelMetrics) Collect(out chan<- prometheus.Metric) {
	drops, err := m.host.Counters(context.Background())
	if err == nil {
		for reason, n := range drops {
			out <- prometheus.MustNewConstMetric(m.dropped, prometheus.CounterValue, float64(n), reason)
		}
	}
	refused, err := m.of.refusedOf(m.host)
	if err == nil {
		for peer, n := range refused {
			out <- prometheus.MustNewConstMetric(m.refused, prometheus.CounterValue, float64(n), peer)
		}
	}
	if m.who == nil {
		return
	}
	_, peers, err := m.host.Tunnel()
	if err != nil {
		return
	}
	sums := map[EchoPeer]kernel.Peer{} // a gateway that replaces its key has two tunnels
	for key, p := range peers {
		who, ok := m.who(key)
		if !ok {
			continue
		}
		sum := sums[who]
		sum.Received, sum.Sent = sum.Received+p.Received, sum.Sent+p.Sent
		if p.Handshake.After(sum.Handshake) {
			sum.Handshake = p.Handshake
		}
		sums[who] = sum
	}
	for who, p := range sums {
		out <- prometheus.MustNewConstMetric(m.received, prometheus.CounterValue, float64(p.Received), who.Cluster, who.Gateway)
		out <- prometheus.MustNewConstMetric(m.sent, prometheus.CounterValue, float64(p.Sent), who.Cluster, who.Gateway)
		if !p.Handshake.IsZero() {
			out <- prometheus.MustNewConstMetric(m.handshake, prometheus.GaugeValue, time.Since(p.Handshake).Seconds(), who.Cluster, who.Gateway)
		}
	}
}
