package serve

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

func newLimited(most, perAddress int) *limited {
	return &limited{most: most, perAddress: perAddress, count: func() {}, each: map[netip.Prefix][]*connection{}}
}

// pipe is a listener's connection that does nothing.
type pipe struct{ net.Conn }

func (pipe) Close() error { return nil }

// dial returns a connection of an address that is not admitted yet.
func (l *limited) dial(from string) *connection {
	address := netip.MustParseAddr(from)
	return &connection{Conn: pipe{}, all: l, from: address, near: Neighbourhood(address)}
}

func TestConnections(t *testing.T) {
	t.Parallel()
	admit := func(t *testing.T, l *limited, from string, want ...*connection) *connection {
		t.Helper()
		one := l.dial(from)
		require.Equal(t, want, l.admit(one))
		return one
	}
	for name, tc := range map[string]struct {
		most, perAddress int
		story            func(*testing.T, *limited)
	}{
		"the heaviest address gives way, its oldest first": {3, 3, func(t *testing.T, l *limited) {
			admit(t, l, "192.0.2.1")
			one := admit(t, l, "192.0.2.2")
			admit(t, l, "192.0.2.2")
			admit(t, l, "192.0.2.3", one)
			require.Equal(t, 3, l.waiting)
		}},
		"the oldest of all addresses with one connection": {3, 3, func(t *testing.T, l *limited) {
			one, two := admit(t, l, "192.0.2.1"), admit(t, l, "192.0.2.2")
			admit(t, l, "192.0.2.3")
			admit(t, l, "192.0.2.4", one)
			admit(t, l, "192.0.2.5", two)
		}},
		"idle ones first": {9, 3, func(t *testing.T, l *limited) {
			admit(t, l, "192.0.2.2")
			two := admit(t, l, "192.0.2.2")
			admit(t, l, "192.0.2.2")
			Working(withConnection(t.Context(), two))()
			admit(t, l, "192.0.2.2", two)
		}},
		"a request in work keeps its connection, and takes no place": {2, 2, func(t *testing.T, l *limited) {
			one, two := admit(t, l, "192.0.2.1"), admit(t, l, "192.0.2.1")
			doneOne, doneTwo := Working(withConnection(t.Context(), one)), Working(withConnection(t.Context(), two))
			three := admit(t, l, "192.0.2.1")
			admit(t, l, "192.0.2.1")
			doneOne()
			doneTwo()
			require.Equal(t, 4, l.waiting, "the next new one makes room")
			admit(t, l, "192.0.2.1", one, two, three)
			require.NoError(t, two.Close())
			require.Equal(t, 2, l.waiting)
		}},
		"a connection that is closed while it works": {2, 2, func(t *testing.T, l *limited) {
			one := admit(t, l, "192.0.2.1")
			done := Working(withConnection(t.Context(), one))
			require.NoError(t, one.Close())
			done()
			require.NoError(t, one.Close())
			require.Zero(t, l.waiting)
			require.Empty(t, l.each)
		}},
		"a neighbour with few keeps them": {100, 3, func(t *testing.T, l *limited) {
			probe := admit(t, l, "2001:db8::1")
			Working(withConnection(t.Context(), probe))() // also after an answer
			last := []*connection{admit(t, l, "2001:db8::2"), admit(t, l, "2001:db8::2")}
			for range 100 {
				last = append(last[1:], admit(t, l, "2001:db8::2", last[0]))
			}
			require.Contains(t, l.each[probe.near], probe)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.story(t, newLimited(tc.most, tc.perAddress))
		})
	}
}

// TestEveryAddressGetsAPlace: a flood from more addresses than there are places closes no
// connection before its turn.
func TestEveryAddressGetsAPlace(t *testing.T) {
	t.Parallel()
	const most = 50
	l := newLimited(most, 5)
	var all []*connection
	for i := range 500 {
		one := l.dial(fmt.Sprintf("10.0.%d.%d", i/250, i%250))
		dropped := l.admit(one)
		all = append(all, one)
		if len(all) <= most {
			require.Empty(t, dropped)
			continue
		}
		require.Equal(t, []*connection{all[len(all)-most-1]}, dropped)
	}
}

func guarded(t *testing.T, h http.Handler, from, body string) *httptest.ResponseRecorder {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mutate", strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	req.RemoteAddr = from + ":1000"
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w
}

// TestGuardLimitsAFlood: a source that posts reviews without end is refused, and others are
// served.
func TestGuardLimitsAFlood(t *testing.T) {
	t.Parallel()
	clk := clocktesting.NewFakeClock(time.Now())
	refused := 0
	h := Guard(GuardConfig{PerSecond: 5, Bytes: LargestReview, SourceBytes: LargestReview, Wait: time.Minute, Count: func() { refused++ }, Clock: clk},
		Reviews(zap.NewNop(), fixed(Allow())))
	codes := map[int]int{}
	for range 100 {
		w := guarded(t, h, "10.1.2.3", goodReview)
		codes[w.Code]++
		if w.Code != http.StatusOK {
			require.Equal(t, "the webhook has too much to do: more than 5 reviews per second of one client\n", w.Body.String())
			require.Equal(t, "1", w.Header().Get("Retry-After"))
		}
	}
	require.Equal(t, map[int]int{http.StatusOK: 20, http.StatusTooManyRequests: 80}, codes)
	require.Equal(t, 80, refused)
	require.Equal(t, http.StatusOK, guarded(t, h, "10.1.2.4", goodReview).Code)
	clk.Step(time.Second)
	require.Equal(t, http.StatusOK, guarded(t, h, "10.1.2.3", goodReview).Code)
}

// TestGuardBoundsMemory: a source that fills its share leaves that of others free, and its
// further reviews are not read.
func TestGuardBoundsMemory(t *testing.T) {
	t.Parallel()
	hold, held := make(chan struct{}), make(chan struct{}, 10)
	slow := func(_ context.Context, req *admissionv1.AdmissionRequest) Decision {
		if req.Namespace == "slow" {
			held <- struct{}{}
			<-hold
		}
		return Allow()
	}
	h := Guard(GuardConfig{PerSecond: 1000, Bytes: 4 * smallest, SourceBytes: 2 * smallest, Wait: time.Millisecond, Count: func() {}, Clock: clocktesting.NewFakeClock(time.Now())},
		Reviews(zap.NewNop(), slow))
	review := strings.Replace(goodReview, `"namespace":"n"`, `"namespace":"slow"`, 1)
	done := make(chan int, 2)
	for range 2 {
		go func() { done <- guarded(t, h, "10.1.2.3", review).Code }()
	}
	for range 2 {
		<-held
	}
	third, other := guarded(t, h, "10.1.2.3", goodReview), guarded(t, h, "10.1.2.4", goodReview)
	close(hold)
	require.Equal(t, http.StatusServiceUnavailable, third.Code)
	require.Contains(t, third.Body.String(), "reviews of one client with more than 131072 bytes in work")
	require.Equal(t, http.StatusOK, other.Code)
	for range 2 {
		require.Equal(t, http.StatusOK, <-done)
	}
	require.Equal(t, http.StatusOK, guarded(t, h, "10.1.2.3", goodReview).Code)
}

// TestSlowBodies: a client may take its time for a body, but not while half of the bytes are in
// work.
func TestSlowBodies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := Guard(GuardConfig{PerSecond: 1000, Bytes: 2 * LargestReview, SourceBytes: LargestReview, Wait: 2 * time.Second, Count: func() {}, Clock: clock.RealClock{}},
			Reviews(zap.NewNop(), fixed(Allow())))
		begin := time.Now()
		send := func(from string) <-chan *httptest.ResponseRecorder {
			client, server := net.Pipe()
			t.Cleanup(func() { _ = client.Close() })
			answer := make(chan *httptest.ResponseRecorder, 1)
			go func() {
				req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mutate", server)
				req.ContentLength, req.RemoteAddr = LargestReview, from+":1000"
				req.Header.Set("Content-Type", "application/json")
				w := httptest.NewRecorder()
				h.ServeHTTP(connWriter{w, server}, req)
				answer <- w
			}()
			time.AfterFunc(3*time.Second, func() {
				_, _ = client.Write([]byte(goodReview))
				_ = client.Close()
			})
			synctest.Wait()
			return answer
		}
		first, second := send("10.1.2.3"), send("10.1.2.4")
		require.Equal(t, http.StatusOK, guarded(t, h, "10.1.2.5", goodReview).Code)
		w := <-second
		require.Equal(t, hurry, time.Since(begin))
		require.Equal(t, http.StatusServiceUnavailable, w.Code)
		require.Equal(t, "the webhook has too much to do: the review came too slowly\n", w.Body.String())
		require.Equal(t, "1", w.Header().Get("Retry-After"))
		require.Equal(t, http.StatusOK, (<-first).Code)
		require.Equal(t, 3*time.Second, time.Since(begin))
	})
}

// connWriter is the answer to a request whose body comes by the connection.
type connWriter struct {
	http.ResponseWriter
	net.Conn
}

func (w connWriter) Write(p []byte) (int, error) { return w.ResponseWriter.Write(p) }

// TestGuardForgetsSources: the addresses of many sources do not add up.
func TestGuardForgetsSources(t *testing.T) {
	t.Parallel()
	g := &guard{cfg: GuardConfig{PerSecond: 1, Bytes: LargestReview, SourceBytes: LargestReview}, each: map[netip.Prefix]*source{}}
	busy := netip.MustParsePrefix("192.0.2.1/32")
	_, leave := g.source(busy)
	for i := range 3 * mostSources {
		_, done := g.source(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32))
		done()
		require.LessOrEqual(t, len(g.each), mostSources)
	}
	require.Contains(t, g.each, busy)
	leave()
}

// TestGuardBoundsWaiters: the requests of a source that wait are limited, too.
func TestGuardBoundsWaiters(t *testing.T) {
	t.Parallel()
	g := &guard{cfg: GuardConfig{PerSecond: 1, Bytes: LargestReview, SourceBytes: LargestReview}, each: map[netip.Prefix]*source{}}
	from := netip.MustParsePrefix("192.0.2.1/32")
	var leave func()
	for range mostWaiting {
		var one *source
		one, leave = g.source(from)
		require.NotNil(t, one)
	}
	one, _ := g.source(from)
	require.Nil(t, one)
	leave()
	one, _ = g.source(from)
	require.NotNil(t, one)
}
