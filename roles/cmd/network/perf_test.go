package network

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestStreams: bytes and packets pass in both directions, no more than allowed, and the server ends with its context.
func TestStreams(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	server := must(listenStreams(ctx, "127.0.0.1:0"))
	served := make(chan error, 1)
	go func() { served <- server.Run(ctx) }()
	at := netip.MustParseAddrPort(server.Addr().String())
	for _, method := range []string{http.MethodPost, http.MethodGet} {
		for _, n := range []int{one, several} {
			bytes := must(bulk(ctx, at, method, n, 50*time.Millisecond, 1<<40))
			require.Positive(t, bytes)
		}
		f := &flood{end: time.Now().Add(time.Minute)} // which it does not take
		f.left.Store(4 * chunk)
		require.NoError(t, f.stream(ctx, at, method))
		require.GreaterOrEqual(t, f.passed.Load(), int64(4*chunk), method)
		require.LessOrEqual(t, f.passed.Load(), int64(5*chunk), method)
	}

	answers := must(net.ListenUDP("udp", &net.UDPAddr{Port: echoPort}))
	defer answers.Close()
	go answer(answers)
	local := netip.MustParseAddr("127.0.0.1")
	r := measure(ctx, Target{kindPod, "host", local}, 20*time.Millisecond)
	require.Contains(t, r.Error, "opening a stream", "nobody answers at the port of pods")
	require.Positive(t, r.RTT)
	require.GreaterOrEqual(t, r.Late, r.RTT)

	cancel()
	require.NoError(t, <-served)
	require.ErrorContains(t, errOf(bulk(t.Context(), at, http.MethodPost, one, time.Second, mostBytes)), "opening a stream")
}

// TestAnswersAreNotAnswered: two pods that answer packets do not go on for ever once a third one has sent each a packet in
// the name of the other.
func TestAnswersAreNotAnswered(t *testing.T) {
	conn := must(net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))
	ended := make(chan error, 1)
	go func() { ended <- answer(conn) }()
	client := must(net.DialUDP("udp", nil, conn.LocalAddr().(*net.UDPAddr)))
	defer client.Close()
	packet, got := make([]byte, probeSize), make([]byte, 1<<10)
	for _, kind := range []byte{reply, 0, question} { // the first answer is that to the question
		packet[0], packet[8] = kind, kind
		_, err := client.Write(packet)
		require.NoError(t, err)
	}
	n := must(client.Read(got))
	require.Equal(t, probeSize, n)
	require.Equal(t, []byte{question, reply}, []byte{got[0], got[8]})
	require.NoError(t, conn.Close())
	require.Error(t, <-ended)
}

// TestPerf: a pod measures the way to a pod in the peer and to one here, by their addresses in this cluster.
func TestPerf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, core := clusterOf(t, metav1.ConditionTrue)
		cfg.Logs = func(_ context.Context, pod *corev1.Pod) ([]byte, error) {
			require.Equal(t, clientPod, pod.Name)
			text, err := json.Marshal(Report{Ways: []Way{
				{To: toPodIn("milan"), There: map[int]float64{1: 125e6, 8: 250e6}, Back: map[int]float64{1: 12500, 8: 1e6}, RTT: time.Millisecond, Late: 3 * time.Millisecond},
				{To: "the pod on rome-1", Error: "opening a stream: refused"},
			}})
			return append(text, '\n'), err
		}
		f := must(Perf(t.Context(), cfg, time.Second))
		require.False(t, namespaceLeft(t, core))
		have := arguments(core)
		require.Equal(t, "network probe --to pod,the pod in milan,10.80.0.9 --to ping,the gateway of milan,10.81.0.1 --to pod,the pod on rome-1,10.244.0.7 --for 1s", have[clientPod])
		require.Equal(t, "network probe --serve --streams", have[nearPod])
		require.Equal(t, "network probe --serve --streams", have[serverPod])
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
		require.ErrorContains(t, errOf(Perf(t.Context(), cfg, time.Second)), "the tunnel to cluster milan does not carry packets")
		require.False(t, namespaceLeft(t, core))
		require.Empty(t, arguments(core))
	})
}
