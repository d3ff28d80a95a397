package dashboard

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/roles/cmd/report"
)

// Traffic is what passes the tunnels with a peer, and what was refused of the peer. A figure that is
// not known is empty.
type Traffic struct {
	Peer string `json:"peer"`
	// Sent and Received are bytes per second since the state before.
	Sent     string `json:"sent"`
	Received string `json:"received"`
	// Latency is the mean of the round trip times since the state before, or the one that the
	// Connection has, which was measured at Measured.
	Latency  string    `json:"latency"`
	Measured time.Time `json:"measured,omitzero"`
	// Lost is the share of the probes that were lost since the state before.
	Lost string `json:"lost"`
	// Packets and Requests of the peer that were refused.
	Packets  string `json:"packets"`
	Requests string `json:"requests"`
}

// traffic has the peers with a tunnel, and those of which something was refused.
func traffic(p *picture, peers []report.Peer) (out []Traffic) {
	for i := range peers {
		id := peers[i].ClusterID
		row := Traffic{Peer: id, Packets: peers[i].Refused.String()}
		if n := p.counted.total(id)[requestsRefused]; n > 0 {
			row.Requests = strconv.FormatFloat(n, 'f', 0, 64)
		}
		c := p.Connection(id)
		if c == nil && row.Packets == "" && row.Requests == "" {
			continue
		}
		if c != nil && c.Status.Latency != nil {
			row.Latency, row.Measured = c.Status.Latency.Value, c.Status.Latency.Timestamp.UTC()
		}
		row.figures(p.counted.since(p.before, id))
		out = append(out, row)
	}
	return out
}

// figures fills in what was counted in some seconds.
func (t *Traffic) figures(n counters, seconds float64) {
	if seconds <= 0 {
		return
	}
	t.Sent, t.Received = speed(n[sentBytes]/seconds), speed(n[receivedBytes]/seconds)
	if n[probesAnswered] > 0 {
		mean := time.Duration(n[probeSeconds] / n[probesAnswered] * float64(time.Second))
		t.Latency, t.Measured = mean.Round(10*time.Microsecond).String(), time.Time{}
	}
	if n[probesSent] > 0 {
		t.Lost = fmt.Sprintf("%.0f %%", min(n[probesLost]/n[probesSent], 1)*100)
	}
}

// speed writes bytes per second with three digits.
func speed(bytes float64) string {
	units := []string{"B/s", "kB/s", "MB/s", "GB/s"}
	i := 0
	for ; bytes >= 999.5 && i < len(units)-1; i++ {
		bytes /= 1000
	}
	return fmt.Sprintf("%.3g %s", bytes, units[i])
}

// mostMeasured limits the pods of liqod whose metrics are read.
const mostMeasured = 24

// What a process of liqod has counted about a peer since it started.
const (
	sentBytes = iota
	receivedBytes
	probesSent
	probesLost
	probesAnswered
	probeSeconds
	requestsRefused
	kindsOfCounters
)

// counters are what one process has counted about one peer.
type counters [kindsOfCounters]float64

// series are the metrics of which the counters consist. label has the peer.
var series = []struct {
	counter             int
	metric, label, kind string
	value               func(*dto.Metric) float64
}{
	{sentBytes, "liqod_tunnel_sent_bytes_total", "peer", "", ofCounter},
	{receivedBytes, "liqod_tunnel_received_bytes_total", "peer", "", ofCounter},
	{probesSent, "liqod_tunnel_probe_sent_total", "peer", "request", ofCounter},
	{probesLost, "liqod_tunnel_probe_lost_total", "peer", "", ofCounter},
	{probesAnswered, "liqod_tunnel_probe_rtt_seconds", "peer", "", func(m *dto.Metric) float64 { return float64(m.GetHistogram().GetSampleCount()) }},
	{probeSeconds, "liqod_tunnel_probe_rtt_seconds", "peer", "", func(m *dto.Metric) float64 { return m.GetHistogram().GetSampleSum() }},
	{requestsRefused, "liqod_peer_refused_total", "peer", "", ofCounter},
	{requestsRefused, "liqod_consumer_refused_total", "consumer", "", ofCounter},
}

func ofCounter(m *dto.Metric) float64 { return m.GetCounter().GetValue() }

// reading is what the processes of liqod have counted up to a time.
type reading struct {
	at time.Time
	// pods has the counters by pod and peer.
	pods map[string]map[string]counters
}

// measured are the pods whose metrics have figures of peers.
func (p *picture) measured() (pods []*corev1.Pod) {
	for _, pod := range p.RolePods {
		has := slices.Contains([]string{report.Gateway, report.Controller, report.Webhook}, pod.Labels[report.ComponentLabel]) || pod.Labels[offloadingv1beta1.VirtualNodeLabel] != ""
		if has && pod.Status.Phase == corev1.PodRunning && len(pods) < mostMeasured {
			pods = append(pods, &pod)
		}
	}
	return pods
}

// measure reads the metrics of liqod's pods.
func (p *picture) measure(ctx context.Context, source Source) {
	pods := p.measured()
	if len(pods) == 0 {
		return
	}
	p.counted = &reading{at: time.Now(), pods: map[string]map[string]counters{}}
	var mu sync.Mutex
	failed := 0
	var first error
	report.Each(pods, readers, func(pod *corev1.Pod) {
		text, err := source.Metrics(ctx, pod)
		var of map[string]counters
		if err == nil {
			of, err = countersIn(text)
		}
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			p.counted.pods[pod.Namespace+"/"+pod.Name] = of
			return
		}
		failed++
		first = err
	})
	if failed > 0 {
		p.unread = append(p.unread, Unread{Section: sectionTraffic, What: fmt.Sprintf("Metrics of %d of %s of liqod", failed, report.Count(len(pods), "pod")), Why: first.Error()})
	}
}

// countersIn returns the counters in a page of metrics, by peer.
func countersIn(text []byte) (map[string]counters, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	out := map[string]counters{}
	for _, s := range series {
		for _, m := range families[s.metric].GetMetric() {
			if s.kind != "" && labelOf(m, "kind") != s.kind {
				continue
			}
			peer := labelOf(m, s.label)
			c := out[peer]
			c[s.counter] += s.value(m)
			out[peer] = c
		}
	}
	return out, nil
}

func labelOf(m *dto.Metric, name string) string {
	for _, label := range m.GetLabel() {
		if label.GetName() == name {
			return label.GetValue()
		}
	}
	return ""
}

// total is what all processes together have counted about a peer.
func (r *reading) total(peer string) (sum counters) {
	if r == nil {
		return sum
	}
	for _, of := range r.pods {
		for i, value := range of[peer] {
			sum[i] += value
		}
	}
	return sum
}

// since is what was counted about a peer after an earlier reading, and in how many seconds. A process
// that has started again counts from 0, and one that the earlier reading lacks is left out. It is 0
// seconds without an earlier reading.
func (r *reading) since(before *reading, peer string) (sum counters, seconds float64) {
	if r == nil || before == nil {
		return sum, 0
	}
	for pod, of := range r.pods {
		earlier, known := before.pods[pod]
		for i, value := range of[peer] {
			switch was := earlier[peer][i]; {
			case !known:
			case value >= was:
				sum[i] += value - was
			default:
				sum[i] += value
			}
		}
	}
	return sum, r.at.Sub(before.at).Seconds()
}
