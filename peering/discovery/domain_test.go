package discovery

import (
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/liqod/liqod/kube/kubetest"
)

// zone is a name server with records that a test can change.
type zone struct {
	mu      sync.Mutex
	records []dns.RR
	rcode   int
	large   bool // truncates answers by UDP
	asked   int
	address string
}

func newZone(t *testing.T, lines ...string) *zone {
	t.Helper()
	z := &zone{}
	z.set(t, lines...)
	packets, streams := listenBoth(t)
	z.address = packets.LocalAddr().String()
	for _, s := range []*dns.Server{{PacketConn: packets, Handler: z}, {Listener: streams, Handler: z}} {
		started := make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		go func() { _ = s.ActivateAndServe() }()
		<-started
		t.Cleanup(func() { _ = s.Shutdown() })
	}
	return z
}

// listenBoth listens at a port that is free for UDP and for TCP.
func listenBoth(t *testing.T) (net.PacketConn, net.Listener) {
	t.Helper()
	for range 100 {
		packets, err := net.ListenPacket("udp", "127.0.0.1:0")
		require.NoError(t, err)
		streams, err := net.Listen("tcp", packets.LocalAddr().String())
		if err == nil {
			return packets, streams
		}
		require.NoError(t, packets.Close())
	}
	t.Fatal("no port is free for UDP and for TCP")
	return nil, nil
}

func (z *zone) set(t *testing.T, lines ...string) {
	t.Helper()
	z.mu.Lock()
	defer z.mu.Unlock()
	z.records = nil
	for _, line := range lines {
		z.records = append(z.records, parse(t, line))
	}
}

func (z *zone) fail(rcode int) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.rcode = rcode
}

// ServeDNS implements dns.Handler.
func (z *zone) ServeDNS(w dns.ResponseWriter, question *dns.Msg) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.asked++
	answer := new(dns.Msg).SetRcode(question, z.rcode)
	if _, datagram := w.RemoteAddr().(*net.UDPAddr); datagram && z.large {
		answer.Truncated = true
		_ = w.WriteMsg(answer)
		return
	}
	for _, rr := range z.records {
		if z.rcode == dns.RcodeSuccess && rr.Header().Rrtype == question.Question[0].Qtype && equalNames(rr.Header().Name, question.Question[0].Name) {
			answer.Answer = append(answer.Answer, rr)
		}
	}
	if len(answer.Answer) == 0 {
		for _, rr := range z.records {
			if rr.Header().Rrtype == dns.TypeSOA {
				answer.Ns = append(answer.Ns, rr)
			}
		}
	}
	_ = w.WriteMsg(answer)
}

func cluster(id string) []string {
	return []string{
		`_liqod._tcp.clusters.example. 120 IN PTR ` + id + `._liqod._tcp.clusters.example.`,
		id + `._liqod._tcp.clusters.example. 300 IN SRV 0 0 8443 ` + id + `.example.`,
		id + `._liqod._tcp.clusters.example. 300 IN TXT "id=` + id + `" "name=` + strings.ToUpper(id) + `"`,
	}
}

func TestAsk(t *testing.T) {
	t.Parallel()
	lines := append(cluster("milan"), cluster("turin")...)
	lines = append(lines, `_liqod._tcp.clusters.example. 120 IN PTR empty._liqod._tcp.clusters.example.`)
	z := newZone(t, lines...)
	got, err := Ask(t.Context(), Servers([]string{z.address}), "clusters.example")
	require.NoError(t, err)
	require.Equal(t, Answer{
		Clusters: []Record{
			{ClusterID: "milan", Name: "MILAN", URL: "https://milan.example:8443", Instance: "milan._liqod._tcp.clusters.example."},
			{ClusterID: "turin", Name: "TURIN", URL: "https://turin.example:8443", Instance: "turin._liqod._tcp.clusters.example."},
		},
		Ignored: map[string]int{IgnoredMalformed: 1}, TTL: 2 * time.Minute,
	}, got)

	z.large = true
	again, err := Ask(t.Context(), Servers([]string{"127.0.0.1:1", z.address}), "clusters.example.")
	require.NoError(t, err, "the second server, by TCP")
	require.Equal(t, got, again)

	z.set(t, `clusters.example. 900 IN SOA ns.example. admin.example. 1 2 3 4 60`)
	none, err := Ask(t.Context(), Servers([]string{z.address}), "clusters.example")
	require.NoError(t, err)
	require.Equal(t, Answer{TTL: time.Minute}, none)
	z.fail(dns.RcodeNameError)
	none, err = Ask(t.Context(), Servers([]string{z.address}), "clusters.example")
	require.NoError(t, err)
	require.Empty(t, none.Clusters)
	z.fail(dns.RcodeServerFailure)
	_, err = Ask(t.Context(), Servers([]string{z.address}), "clusters.example")
	require.ErrorContains(t, err, "SERVFAIL")
	_, err = Ask(t.Context(), Servers([]string{"127.0.0.1:1"}), "clusters.example")
	require.Error(t, err)
}

// TestDomain: a domain is queried again when the TTL ends, and a failure changes nothing.
func TestDomain(t *testing.T) {
	t.Parallel()
	z := newZone(t, cluster("milan")...)
	clock := clocktesting.NewFakeClock(time.Now())
	answers := make(chan Answer, 10)
	d := Domain{Name: "clusters.example", Ask: Servers([]string{z.address}), Found: func(a Answer) { answers <- a }, Clock: clock, Log: zaptest.NewLogger(t)}
	stop := kubetest.Run(t, d.Run)
	waits := func() {
		t.Helper()
		require.Eventually(t, clock.HasWaiters, time.Minute, time.Millisecond)
	}
	require.Len(t, (<-answers).Clusters, 1)
	waits()
	z.fail(dns.RcodeServerFailure)
	clock.Step(2 * time.Minute)
	waits()
	z.fail(dns.RcodeSuccess)
	z.set(t)
	clock.Step(minTTL)
	require.Empty(t, (<-answers).Clusters)
	waits()
	require.Empty(t, answers)
	stop()
}
