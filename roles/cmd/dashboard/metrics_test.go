package dashboard

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/roles/cmd/report"
)

const metricsOfAGateway = `# TYPE liqod_tunnel_sent_bytes_total counter
liqod_tunnel_sent_bytes_total{gateway="a",peer="milan"} 100
liqod_tunnel_sent_bytes_total{gateway="b",peer="milan"} 20
# TYPE liqod_tunnel_received_bytes_total counter
liqod_tunnel_received_bytes_total{gateway="a",peer="milan"} 7
# TYPE liqod_tunnel_probe_sent_total counter
liqod_tunnel_probe_sent_total{gateway="a",kind="answer",peer="milan"} 99
liqod_tunnel_probe_sent_total{gateway="a",kind="request",peer="milan"} 10
# TYPE liqod_tunnel_probe_lost_total counter
liqod_tunnel_probe_lost_total{gateway="a",peer="milan"} 1
# TYPE liqod_tunnel_probe_rtt_seconds histogram
liqod_tunnel_probe_rtt_seconds_bucket{gateway="a",peer="milan",le="+Inf"} 9
liqod_tunnel_probe_rtt_seconds_sum{gateway="a",peer="milan"} 0.018
liqod_tunnel_probe_rtt_seconds_count{gateway="a",peer="milan"} 9
# TYPE liqod_peer_refused_total counter
liqod_peer_refused_total{peer="turin",reason="size"} 2
# TYPE liqod_consumer_refused_total counter
liqod_consumer_refused_total{consumer="turin",reason="Quota"} 3
`

func TestCountersInMetrics(t *testing.T) {
	have := must(countersIn([]byte(metricsOfAGateway)))
	require.Equal(t, map[string]counters{
		"milan": {sentBytes: 120, receivedBytes: 7, probesSent: 10, probesLost: 1, probesAnswered: 9, probeSeconds: 0.018},
		"turin": {requestsRefused: 5},
	}, have)
	_, err := countersIn([]byte("{"))
	require.Error(t, err)
}

// A process that has started again counts from 0; one that is new counts from the next reading on.
func TestSince(t *testing.T) {
	of := func(sent float64) map[string]counters { return map[string]counters{"milan": {sentBytes: sent}} }
	before := &reading{at: now, pods: map[string]map[string]counters{"a": of(100), "b": of(1000), "gone": of(5)}}
	r := &reading{at: now.Add(10 * time.Second), pods: map[string]map[string]counters{"a": of(150), "b": of(30), "new": of(900)}}
	sum, seconds := r.since(before, "milan")
	require.Equal(t, counters{sentBytes: 80}, sum)
	require.InDelta(t, 10, seconds, 0)
	require.Equal(t, counters{sentBytes: 1080}, r.total("milan"))
	for _, pair := range [][2]*reading{{r, nil}, {nil, before}, {nil, nil}} {
		_, seconds = pair[0].since(pair[1], "milan")
		require.Zero(t, seconds)
	}
}

func TestTraffic(t *testing.T) {
	p := shop()
	p.Connections = []networkingv1beta1.Connection{{ObjectMeta: metav1.ObjectMeta{Namespace: corev1beta1.TenantNamespace("milan"), Name: "milan"},
		Status: networkingv1beta1.ConnectionStatus{Latency: &networkingv1beta1.Latency{Value: "40ms", Timestamp: metav1.NewTime(now)}}}}
	p.ForeignClusters = append(p.ForeignClusters, corev1beta1.ForeignCluster{Spec: corev1beta1.ForeignClusterSpec{ClusterID: "turin"}}, corev1beta1.ForeignCluster{Spec: corev1beta1.ForeignClusterSpec{ClusterID: "paris"}})
	require.Equal(t, []Traffic{{Peer: "milan", Latency: "40ms", Measured: now}}, view(p).Traffic, "without metrics")
	p.before = &reading{at: now, pods: map[string]map[string]counters{"a": {}}}
	of := must(countersIn([]byte(metricsOfAGateway)))
	p.counted = &reading{at: now.Add(10 * time.Second), pods: map[string]map[string]counters{"a": of}}
	require.Equal(t, []Traffic{
		{Peer: "milan", Sent: "12 B/s", Received: "0.7 B/s", Latency: "2ms", Lost: "10 %"},
		{Peer: "turin", Sent: "0 B/s", Received: "0 B/s", Requests: "5"},
	}, view(p).Traffic)
	for bytes, want := range map[float64]string{0: "0 B/s", 999.4: "999 B/s", 999.6: "1 kB/s", 1234: "1.23 kB/s", 45_600_000: "45.6 MB/s", 2e12: "2e+03 GB/s"} {
		require.Equal(t, want, speed(bytes))
	}
}

// Metrics that cannot be read change no health: the section of them says so.
func TestMeasure(t *testing.T) {
	pod := func(labels map[string]string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "liqod", Name: "p", Labels: labels}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	}
	p := shop()
	p.measure(t.Context(), &still{err: errors.New("forbidden")})
	require.Empty(t, p.unread, "without pods of liqod there is nothing to read")
	p.RolePods = []corev1.Pod{pod(map[string]string{report.ComponentLabel: report.Gateway}), pod(map[string]string{report.ComponentLabel: "route"}), pod(map[string]string{offloadingv1beta1.VirtualNodeLabel: "milan"})}
	require.Len(t, p.measured(), 2)
	p.measure(t.Context(), &still{err: errors.New("forbidden")})
	require.Equal(t, []Unread{{Section: sectionTraffic, What: "Metrics of 2 of 2 pods of liqod", Why: "forbidden"}}, p.unread)
	require.NotContains(t, string(view(p).Headline), "not readable")
	p.measure(t.Context(), &still{metrics: metricsOfAGateway})
	require.InDelta(t, 120, p.counted.total("milan")[sentBytes], 0)
}

func TestHosted(t *testing.T) {
	p := shop()
	p.Maps = []offloadingv1beta1.NamespaceMap{{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{offloadingv1beta1.OriginIDLabel: "paris", offloadingv1beta1.ReplicatedLabel: "true"}},
		Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{"a": {RemoteNamespace: "a-paris", Phase: offloadingv1beta1.MappingAccepted}}}}}
	add := func(name, origin string, status corev1.PodStatus) {
		p.Pods = append(p.Pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a-paris", Name: name, CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)),
			Labels: map[string]string{offloadingv1beta1.OriginLabel: origin, offloadingv1beta1.ManagedByLabel: offloadingv1beta1.ManagedByShadowPod}}, Spec: corev1.PodSpec{NodeName: "rome-1"}, Status: status})
	}
	ready := corev1.PodStatus{Phase: corev1.PodRunning, Conditions: condition(corev1.PodReady, corev1.ConditionTrue, "", "")}
	add("well", "paris", ready)
	add("bad", "paris", corev1.PodStatus{Phase: corev1.PodRunning})
	add("over", "paris", corev1.PodStatus{Phase: corev1.PodFailed})
	add("own", "", ready)
	v := view(p)
	require.Equal(t, []Hosted{{Twin: report.Twin{Peer: "paris", Namespace: "a-paris", Original: "a"}, Pods: 2, Ready: 1, Broken: 1, Troubled: []Pod{
		{report.Pod{Level: report.Problem, Name: "bad", Node: "rome-1", State: "NotReady", Why: "it has not become ready", Origin: "paris"}, "rome"}}}}, v.Hosted)
	require.Len(t, v.Peers, 1, "no peer is known but milan")
}
