package network

import (
	"context"
	"encoding/json"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestStreams: bytes and messages pass in both directions, no more than allowed, and the server ends with its context.
func TestStreams(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	server, err := listenStreams(ctx, "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- server.Run(ctx) }()
	s := streamer{at: netip.MustParseAddrPort(server.Addr().String()), lasts: 50 * time.Millisecond, most: 1 << 40}
	r := s.rate(ctx, "pod")
	require.Empty(t, r.Error)
	for _, n := range streams() {
		require.Positive(t, r.There[n])
		require.Positive(t, r.Back[n])
	}
	require.Positive(t, r.Median)
	require.GreaterOrEqual(t, r.Late, r.Median)

	s.lasts = time.Minute // which it does not take
	for mode, one := range map[string]func(*net.TCPConn, time.Time, *atomic.Int64) (int64, error){modeTake: send, modeGive: receive} {
		conn, err := s.dial(ctx, mode)
		require.NoError(t, err)
		defer conn.Close()
		left := &atomic.Int64{}
		left.Store(4 * chunk)
		n, err := one(conn.(*net.TCPConn), time.Now().Add(s.lasts), left)
		require.NoError(t, err)
		require.GreaterOrEqual(t, n, int64(4*chunk), mode)
		require.LessOrEqual(t, n, int64(5*chunk), mode)
	}

	answers, err := net.ListenUDP("udp", &net.UDPAddr{Port: echoPort})
	require.NoError(t, err)
	defer answers.Close()
	go answer(answers)
	ping := pings(ctx, Target{kindPod, "host", netip.MustParseAddr("127.0.0.1")}, 20*time.Millisecond)
	require.Empty(t, ping.Error)
	require.Positive(t, ping.Median)

	cancel()
	require.NoError(t, <-served)
	require.Contains(t, s.rate(t.Context(), "pod").Error, "opening a stream")
}

// TestPerf: a pod measures the way to a pod in the peer and to one here, by their addresses in this cluster.
func TestPerf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, core := clusterOf(t, metav1.ConditionTrue)
		cfg.Logs = func(_ context.Context, pod *corev1.Pod) ([]byte, error) {
			require.Equal(t, clientPod, pod.Name)
			text, err := json.Marshal(Report{Rates: []Rate{
				{To: toPodIn("milan"), There: map[int]float64{1: 125e6, 8: 250e6}, Back: map[int]float64{1: 12500, 8: 1e6}, Median: time.Millisecond, Late: 3 * time.Millisecond},
				{To: "the pod on rome-1", Error: "opening a stream: refused"},
			}})
			return append(text, '\n'), err
		}
		f, err := Perf(t.Context(), cfg, time.Second)
		require.NoError(t, err)
		require.False(t, namespaceLeft(t, core))
		have := arguments(core)
		require.Equal(t, "network stream --for 1s --to pod,the pod in milan,10.80.0.9 --to ping,the gateway of milan,10.81.0.1 --to pod,the pod on rome-1,10.244.0.7", have[clientPod])
		require.Equal(t, "network stream --serve", have[nearPod])
		require.Equal(t, "network stream --serve", have[serverPod])
		require.True(t, f.Failed())
		require.Equal(t, []string{
			"POD ON rome-1 >     THERE, 1 STREAM   8 STREAMS     BACK, 1 STREAM   8 STREAMS   ROUND TRIP   99 %",
			"the pod in milan    1.00 Gbit/s       2.00 Gbit/s   100 kbit/s       8 Mbit/s    1ms          3ms",
			"the pod on rome-1   –                 –             –                –           –            –",
			"✘ the pod on rome-1: opening a stream: refused",
			"",
		}, strings.Split(f.Text(), "\n"))
	})
	synctest.Test(t, func(t *testing.T) {
		cfg, core := clusterOf(t, metav1.ConditionFalse)
		_, err := Perf(t.Context(), cfg, time.Second)
		require.ErrorContains(t, err, "the tunnel to cluster milan does not carry packets")
		require.False(t, namespaceLeft(t, core))
		require.Empty(t, arguments(core))
	})
}
