package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/liqod/liqod/health"
	"github.com/liqod/liqod/netfabric/kernel"
	"github.com/liqod/liqod/netfabric/plan"
	"github.com/liqod/liqod/reasons"
)

const testPort = 6092

var (
	romeAddr  = netip.MustParseAddr("10.70.0.2")
	milanAddr = netip.MustParseAddr("10.71.0.2")
	alienAddr = netip.MustParseAddr("10.72.0.2")
)

// datagram is a packet under way.
type datagram struct {
	from netip.Addr
	data []byte
}

// wire is a network of sockets, one for each address. pass decides on each packet.
type wire struct {
	mu      sync.Mutex
	sockets map[netip.Addr]*socket
	pass    func(from, to netip.Addr, packet []byte) bool
	delay   time.Duration
}

func newWire() *wire {
	return &wire{sockets: map[netip.Addr]*socket{}, pass: func(netip.Addr, netip.Addr, []byte) bool { return true }, delay: time.Millisecond}
}

func (w *wire) setPass(pass func(from, to netip.Addr, packet []byte) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pass = pass
}

func (w *wire) socket(addr netip.Addr) *socket {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &socket{wire: w, addr: addr, in: make(chan datagram, 1000), over: make(chan struct{})}
	w.sockets[addr] = s
	return s
}

// send delivers a packet, after a while.
func (w *wire) send(from, to netip.Addr, data []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.sockets[to]
	if s == nil || !w.pass(from, to, data) {
		return
	}
	d := datagram{from, append([]byte(nil), data...)}
	time.AfterFunc(w.delay, func() {
		select {
		case s.in <- d:
		default: // a full queue drops
		}
	})
}

// socket is a ProbeSocket.
type socket struct {
	wire *wire
	addr netip.Addr
	in   chan datagram
	over chan struct{}
	once sync.Once

	mu      sync.Mutex
	refuse  error         // what a write returns
	stall   time.Duration // how long the next write of a request takes
	readErr error
}

func (s *socket) ReadFromUDPAddrPort(b []byte) (int, netip.AddrPort, error) {
	select {
	case <-s.over:
		s.mu.Lock()
		defer s.mu.Unlock()
		return 0, netip.AddrPort{}, errors.Join(s.readErr, os.ErrDeadlineExceeded)
	case d := <-s.in:
		return copy(b, d.data), netip.AddrPortFrom(netip.AddrFrom16(d.from.As16()), testPort), nil
	}
}

func (s *socket) WriteToUDPAddrPort(b []byte, to netip.AddrPort) (int, error) {
	s.mu.Lock()
	refuse, stall := s.refuse, s.stall
	s.mu.Unlock()
	if stall > 0 && b[4] == byte(ProbeRequest) {
		s.set(func(s *socket) { s.stall = 0 })
		time.Sleep(stall) // the bubble's clock
	}
	if refuse != nil {
		return 0, refuse
	}
	s.wire.send(s.addr, to.Addr().Unmap(), b)
	return len(b), nil
}

func (s *socket) Close() error { return nil }

func (s *socket) SetReadDeadline(time.Time) error {
	s.once.Do(func() { close(s.over) })
	return nil
}

func (s *socket) set(change func(*socket)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// gateway is an Echo that runs, and what came of it.
type gateway struct {
	*Echo
	conn     *socket
	peer     EchoPeer // the one that it probes
	registry *prometheus.Registry
	stop     func() error

	mu      sync.Mutex
	server  health.Verdict
	bytes   func() uint64
	changes []EchoState
	turns   int
	at      []time.Duration
}

func (g *gateway) setServer(v health.Verdict) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.server = v
}

// verdicts is what was reported: verdict, reason, the peer's API server.
func (g *gateway) verdicts() (out []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.changes {
		out = append(out, fmt.Sprintf("%s %s %s", s.Verdict, s.Reason, s.APIServer))
	}
	return out
}

func (g *gateway) last() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.at[len(g.at)-1]
}

// garbage is the count of what was dropped for a reason.
func (g *gateway) garbage(reason ProbeGarbage) float64 {
	return testutil.ToFloat64(g.cfg.Metrics.garbage.WithLabelValues(string(reason)))
}

func (g *gateway) counted(what *prometheus.CounterVec, kind ProbeKind) float64 {
	return testutil.ToFloat64(what.WithLabelValues(g.peer.Cluster, g.peer.Gateway, kind.String()))
}

// person is a gateway's identity: cluster id, address, byte of which its key is made.
type person struct {
	id   string
	addr netip.Addr
	key  byte
}

var (
	rome  = person{"rome", romeAddr, 1}
	milan = person{"milan", milanAddr, 2}
)

// gateway makes the gateway of one that probes another. It has to be started.
func (w *wire) gateway(t *testing.T, one, other person) *gateway {
	t.Helper()
	private, _ := privateKey(t, one.key)
	_, public := privateKey(t, other.key)
	g := &gateway{
		conn:     w.socket(one.addr),
		peer:     EchoPeer{Cluster: other.id, Gateway: "gw-a", Address: other.addr, Key: public},
		registry: prometheus.NewRegistry(), server: health.Up,
	}
	metrics := NewProbeMetrics(g.registry.MustRegister)
	began := time.Now()
	g.Echo = NewEcho(EchoConfig{
		ClusterID: one.id, Conn: g.conn, Port: testPort, Timing: testTiming, Metrics: metrics, Clock: clock.RealClock{}, Nodes: NewNodeAnswers(clock.RealClock{}),
		Keys: func(public string) (ProbeKeys, error) { return NewProbeKeys(private, public) },
		APIServer: func() health.Verdict {
			g.mu.Lock()
			defer g.mu.Unlock()
			return g.server
		},
		Tunnels: func() map[string]kernel.Peer {
			g.mu.Lock()
			defer g.mu.Unlock()
			if g.bytes == nil {
				return nil
			}
			return map[string]kernel.Peer{public: {Received: g.bytes()}}
		},
		OnTurn: func() { g.turns++ },
		OnChange: func(p EchoPeer, s EchoState) {
			g.mu.Lock()
			defer g.mu.Unlock()
			require.Equal(t, g.peer, p)
			if n := len(g.changes); n > 0 && g.changes[n-1].Away != s.Away && g.changes[n-1].Verdict == s.Verdict && g.changes[n-1].APIServer == s.APIServer {
				g.changes[n-1].Away = s.Away // TestLeaving looks at it
				return
			}
			g.changes, g.at = append(g.changes, s), append(g.at, time.Since(began))
		},
	})
	require.NoError(t, g.Set([]EchoPeer{g.peer}))
	return g
}

// start runs a gateway until stop, or the end of the test.
func (g *gateway) start(t *testing.T) *gateway {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	g.stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() { _ = g.stop() })
	return g
}

// paired runs a test in a bubble, with two gateways that run and probe each other.
func paired(t *testing.T, test func(t *testing.T, w *wire, a, b *gateway)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		test(t, w, w.gateway(t, rome, milan).start(t), w.gateway(t, milan, rome).start(t))
	})
}

// later lets time pass in the bubble, and everything that is due happen.
func later(d time.Duration) {
	time.Sleep(d) // the bubble's clock
	synctest.Wait()
}

func cut(from ...netip.Addr) func(netip.Addr, netip.Addr, []byte) bool {
	return func(source, _ netip.Addr, _ []byte) bool {
		for _, a := range from {
			if a == source {
				return false
			}
		}
		return true
	}
}

func TestEcho(t *testing.T) {
	paired(t, func(t *testing.T, w *wire, a, b *gateway) {
		state, ok := a.StateOf(a.peer)
		require.True(t, ok)
		require.Equal(t, health.Unknown, state.Verdict)
		const calm = 5 * time.Minute
		later(calm)
		for _, g := range []*gateway{a, b} {
			require.Equal(t, []string{"Up ProbesAnswered Up"}, g.verdicts(), "one report in all that time")
			require.LessOrEqual(t, g.last(), 210*time.Millisecond)
			state, _ := g.StateOf(g.peer)
			require.Equal(t, 2*time.Millisecond, state.RTT)
			require.Equal(t, g.peer.String()+" answers probes", state.Message)
		}
		require.InDelta(t, 5*300, a.counted(a.cfg.Metrics.sent, ProbeRequest), 2)
		require.InDelta(t, 5*300, a.counted(a.cfg.Metrics.received, ProbeAnswer), 2)
		require.InDelta(t, 5*300, a.counted(a.cfg.Metrics.received, ProbeRequest), 2)
		require.InDelta(t, 5*300, a.counted(a.cfg.Metrics.sent, ProbeAnswer), 2)
		require.Zero(t, sum(t, a.registry, "liqod_tunnel_probe_lost_total"))
		require.Equal(t, 1, testutil.CollectAndCount(a.cfg.Metrics.lost), "there is a series before the first loss")

		died := calm
		w.setPass(cut(romeAddr, milanAddr))
		later(time.Minute)
		for _, g := range []*gateway{a, b} {
			require.Equal(t, []string{"Up ProbesAnswered Up", "Down TunnelSilent Unknown"}, g.verdicts())
			require.LessOrEqual(t, g.last()-died, 1200*time.Millisecond)
			require.GreaterOrEqual(t, g.last()-died, 800*time.Millisecond)
		}
		require.InDelta(t, 5*60-64, sum(t, a.registry, "liqod_tunnel_probe_lost_total"), 3)

		healed := died + time.Minute
		w.setPass(cut())
		later(time.Minute)
		for _, g := range []*gateway{a, b} {
			require.Equal(t, []string{"Up ProbesAnswered Up", "Down TunnelSilent Unknown", "Up ProbesAnswered Up"}, g.verdicts())
			require.LessOrEqual(t, g.last()-healed, 800*time.Millisecond)
		}
	})
}

func TestPeersSayHowTheirAPIServerIs(t *testing.T) {
	paired(t, func(t *testing.T, w *wire, a, b *gateway) {
		later(time.Second)
		for _, v := range []health.Verdict{health.Down, health.Unknown, health.Up} {
			before := time.Since(a.begun)
			b.setServer(v)
			later(time.Second)
			require.Less(t, a.last()-before, 210*time.Millisecond)
		}
		require.Equal(t, []string{"Up ProbesAnswered Up", "Up ProbesAnswered Down", "Up ProbesAnswered Unknown", "Up ProbesAnswered Up"}, a.verdicts())
		require.Len(t, b.verdicts(), 1)
	})
}

// TestAPeerThatTurnsItsVerdict: 50 probes a second, each with another verdict than the one before it,
// change what is reported once in a minute at most. Each report costs a line of the log and a write of
// the Connection.
func TestAPeerThatTurnsItsVerdict(t *testing.T) {
	t.Parallel()
	for name, verdicts := range map[string][]health.Verdict{
		"up and down": {health.Up, health.Down}, "up and none": {health.Up, health.Unknown}, "all": {health.Down, health.Unknown, health.Up},
	} {
		t.Run(name, func(t *testing.T) {
			paired(t, func(t *testing.T, w *wire, a, b *gateway) {
				later(time.Second)
				there := b.targets[romeAddr]
				for i := range 50 * 60 {
					v := verdicts[i%len(verdicts)]
					b.setServer(v)
					w.send(milanAddr, romeAddr, EncodeProbe(there.keys.Send, Probe{
						Kind: ProbeRequest, Sender: HashCluster("milan"), Run: there.run, Sequence: 1e6 + uint64(i), APIServer: v, Hears: true,
					}))
					later(20 * time.Millisecond)
				}
				require.LessOrEqual(t, len(a.verdicts()), 1+1, "in a minute")
				b.setServer(health.Up)
				w.send(milanAddr, romeAddr, EncodeProbe(there.keys.Send, Probe{Kind: ProbeRequest, Sender: HashCluster("milan"), Run: there.run, Sequence: 2e6, APIServer: health.Up, Hears: true}))
				later(time.Minute)
				require.Equal(t, "Up ProbesAnswered Up", a.verdicts()[len(a.verdicts())-1], "it counts again when it no longer turns")
			})
		})
	}
}

// TestATunnelThatFlaps: a peer that answers for some seconds and is silent for some costs few reports.
func TestATunnelThatFlaps(t *testing.T) {
	paired(t, func(t *testing.T, w *wire, a, b *gateway) {
		later(time.Second)
		for range 100 {
			w.setPass(cut(milanAddr))
			later(1500 * time.Millisecond)
			w.setPass(cut())
			later(1500 * time.Millisecond)
		}
		require.LessOrEqual(t, len(a.verdicts()), 1+3+5*60/10)
		later(time.Minute)
		require.Equal(t, "Up ProbesAnswered Up", a.verdicts()[len(a.verdicts())-1])
	})
}

// Congestion drops probes, while data still comes through.
func TestReceivedBytesAreLife(t *testing.T) {
	paired(t, func(t *testing.T, w *wire, a, b *gateway) {
		calls, bytes := 0, uint64(0)
		a.bytes = func() uint64 { calls++; bytes += 1000; return bytes }
		later(10 * time.Second)
		require.Zero(t, calls, "a tunnel that answers costs no look at the device")
		w.setPass(cut(milanAddr))
		later(10 * time.Second)
		require.Equal(t, []string{"Up ProbesAnswered Up", "Up ProbesAnswered Unknown"}, a.verdicts())
		require.NotZero(t, calls)
		a.mu.Lock()
		a.bytes = func() uint64 { return bytes }
		a.mu.Unlock()
		later(2 * time.Second)
		require.Equal(t, "Down TunnelSilent Unknown", a.verdicts()[2])
	})
}

func TestAProcessThatStoodStill(t *testing.T) {
	paired(t, func(t *testing.T, w *wire, a, b *gateway) {
		later(time.Second)
		a.conn.set(func(s *socket) { s.stall = time.Minute })
		later(2 * time.Second)
		state, _ := a.StateOf(a.peer)
		require.Equal(t, "Unknown ProcessPaused Unknown", fmt.Sprintf("%s %s %s", state.Verdict, state.Reason, state.APIServer), "nobody has noticed yet")
		require.Len(t, a.verdicts(), 1)
		w.setPass(cut(romeAddr, milanAddr))
		later(time.Minute)
		require.Equal(t, []string{"Up ProbesAnswered Up", "Unknown ProcessPaused Unknown"}, a.verdicts())
		state, _ = a.StateOf(a.peer)
		require.Contains(t, state.Message, "this gateway stood still for 59s, and has had no answer from gateway gw-a of milan (10.71.0.2) since", "a packet was read after a second of it")
		w.setPass(cut())
		later(time.Second)
		require.Len(t, a.verdicts(), 3)
		state, _ = a.StateOf(a.peer)
		require.Equal(t, health.Up, state.Verdict)

		require.NoError(t, b.stop())
		later(time.Minute)
		state, _ = b.StateOf(b.peer)
		require.Equal(t, health.Unknown, state.Verdict, "an Echo that does not run knows nothing")
	})
}

// TestAPauseThatAnAnswerFollows: the state that is reported stays as it is. The gateways of the peer are chosen anew: during the
// pause, the state of each was another one, and one of them may have been chosen by it.
func TestAPauseThatAnAnswerFollows(t *testing.T) {
	paired(t, func(t *testing.T, w *wire, a, b *gateway) {
		later(time.Second)
		a.conn.set(func(s *socket) { s.stall = 5 * time.Second })
		later(2 * time.Second)
		state, _ := a.StateOf(a.peer)
		require.Equal(t, reasons.ProcessPaused, state.Reason)
		require.Equal(t, 1, a.turns)
		a.conn.set(func(s *socket) { s.stall = 0 })
		later(4 * time.Second)
		require.Equal(t, 2, a.turns, "before the peer's gateway serves, which is another turn")
		later(time.Minute)
		require.Equal(t, []string{"Up ProbesAnswered Up"}, a.verdicts())
		require.Equal(t, 3, a.turns)
		state, _ = a.StateOf(a.peer)
		require.Equal(t, health.Up, state.Verdict)
	})
}

// TestWordsOfSilence: the words hold as long as the state does, and the condition has its time.
func TestWordsOfSilence(t *testing.T) {
	t.Parallel()
	gw := target{peer: EchoPeer{Cluster: "milan", Gateway: "gw-a", Address: netip.MustParseAddr("10.71.0.2")}}
	require.Equal(t, "nothing comes from gateway gw-a of milan (10.71.0.2)", gw.explainState(reasons.TunnelSilent, pulse{}))
	require.Equal(t, "gateway gw-a of milan (10.71.0.2) reports that it receives nothing from this gateway, and does not answer", gw.explainState(reasons.TunnelOneWay, pulse{}))
}

// TestProbesOfAnotherKey: the reason is the key if the last packet of a gateway was made with another one than it
// announces, whether it has ever answered or not.
func TestProbesOfAnotherKey(t *testing.T) {
	paired(t, func(t *testing.T, w *wire, a, b *gateway) {
		later(10 * time.Second)
		require.NoError(t, b.stop())
		later(100 * time.Millisecond) // what it has sent arrives
		w.send(milanAddr, romeAddr, EncodeProbe(ProbeKey{}, someProbe))
		later(10 * time.Second)
		require.Equal(t, []string{"Up ProbesAnswered Up", "Down KeyDiffers Unknown"}, a.verdicts())

		require.NoError(t, a.stop())
		a = w.gateway(t, rome, milan).start(t)
		w.send(milanAddr, romeAddr, EncodeProbe(ProbeKey{}, someProbe))
		later(time.Minute)
		require.Equal(t, []string{"Down KeyDiffers Unknown"}, a.verdicts())
	})
}

func TestSendingIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		a := w.gateway(t, rome, milan)
		a.conn.set(func(s *socket) { s.refuse = errors.New("network is unreachable") })
		a.start(t)
		later(time.Second)
		require.Equal(t, []string{"Unknown ProbesNotSent Unknown"}, a.verdicts())
		state, _ := a.StateOf(a.peer)
		require.Equal(t, "sending a probe to gateway gw-a of milan (10.71.0.2): network is unreachable", state.Message)
		later(time.Minute)
		require.Equal(t, []string{"Unknown ProbesNotSent Unknown", "Down ProbesNotSent Unknown"}, a.verdicts())
		a.conn.set(func(s *socket) { s.refuse = nil })
		later(time.Second)
		require.Equal(t, "Down ProbesNotAnswered Unknown", a.verdicts()[2])
	})
}

// A peer's process is started again: it has another number, and counts from 1.
func TestAPeerIsStartedAgain(t *testing.T) {
	paired(t, func(t *testing.T, w *wire, a, b *gateway) {
		later(time.Minute)
		require.NoError(t, b.stop())
		b = w.gateway(t, milan, rome).start(t)
		later(time.Minute)
		require.Equal(t, []string{"Up ProbesAnswered Up"}, a.verdicts(), "a quick one costs nothing")
		require.Equal(t, []string{"Up ProbesAnswered Up"}, b.verdicts())
		require.Zero(t, a.garbage(GarbageReplay))
		require.Zero(t, a.garbage(GarbageUnasked))
	})
}

// Recorded packets of a gateway that is gone keep nothing alive.
func TestRecordings(t *testing.T) {
	paired(t, func(t *testing.T, w *wire, a, b *gateway) {
		later(time.Second) // from then on a has had an answer: each request before it might be the first one
		var mu sync.Mutex
		var tape [][]byte
		w.setPass(func(from, to netip.Addr, packet []byte) bool {
			mu.Lock()
			defer mu.Unlock()
			if from == milanAddr && to == romeAddr {
				tape = append(tape, append([]byte(nil), packet...))
			}
			return true
		})
		later(10 * time.Second)
		require.NoError(t, b.stop())
		later(10 * time.Second)
		require.Equal(t, []string{"Up ProbesAnswered Up", "Down TunnelSilent Unknown"}, a.verdicts())

		w.setPass(cut())
		for _, packet := range tape {
			w.send(milanAddr, romeAddr, packet)
			later(50 * time.Millisecond)
		}
		require.Len(t, a.verdicts(), 2)
		require.EqualValues(t, len(tape), a.garbage(GarbageReplay)+a.garbage(GarbageUnasked))

		require.NoError(t, a.stop())
		a = w.gateway(t, rome, milan).start(t)
		for _, packet := range tape {
			w.send(milanAddr, romeAddr, packet)
			later(50 * time.Millisecond)
		}
		later(10 * time.Second)
		require.Equal(t, []string{"Down ProbesNotAnswered Unknown"}, a.verdicts(), "nor for a process that knows of no earlier one")
	})
}

// Garbage is counted by reason, and never answered.
func TestGarbage(t *testing.T) {
	t.Parallel()
	private, _ := privateKey(t, milan.key)
	_, romePublic := privateKey(t, rome.key)
	keys, err := NewProbeKeys(private, romePublic)
	require.NoError(t, err)
	ask := func(change func(*Probe)) []byte {
		p := Probe{Kind: ProbeRequest, Sender: HashCluster("milan"), Run: 7, Sequence: 1}
		change(&p)
		return EncodeProbe(keys.Send, p)
	}
	for name, tc := range map[string]struct {
		from   netip.Addr
		packet []byte
		want   ProbeGarbage
	}{
		"a stranger":         {alienAddr, ask(func(*Probe) {}), GarbageSource},
		"not a probe":        {milanAddr, []byte(strings.Repeat("x", 100)), GarbageMagic},
		"nothing":            {milanAddr, nil, GarbageSize},
		"much":               {milanAddr, make([]byte, 20000), GarbageSize},
		"another key":        {milanAddr, EncodeProbe(ProbeKey{}, someProbe), GarbageMAC},
		"back to its sender": {milanAddr, EncodeProbe(keys.Receive, someProbe), GarbageMAC},
		"another cluster":    {milanAddr, ask(func(p *Probe) { p.Sender = HashCluster("turin") }), GarbageSender},
		"an answer":          {milanAddr, ask(func(p *Probe) { p.Kind = ProbeAnswer }), GarbageUnasked},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWire()
				a := w.gateway(t, rome, milan).start(t)
				seen := w.socket(tc.from)
				w.setPass(func(_, _ netip.Addr, packet []byte) bool {
					return len(packet) < ProbeSize || packet[4] != byte(ProbeRequest) || string(packet) == string(tc.packet)
				})
				for range 20 {
					w.send(tc.from, romeAddr, tc.packet)
				}
				later(time.Second)
				require.EqualValues(t, 20, a.garbage(tc.want))
				require.Equal(t, 20.0, sum(t, a.registry, "liqod_tunnel_probe_garbage_total"), "and by no other reason")
				require.Empty(t, seen.in)
				require.Empty(t, a.verdicts())
				if tc.want != GarbageSource {
					state, _ := a.StateOf(a.peer)
					require.Contains(t, state.Message, "; the last packet from there was dropped: "+string(tc.want))
				}
			})
		})
	}
}

// sum adds up the series of a counter.
func sum(t *testing.T, registry *prometheus.Registry, name string) (total float64) {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				total += m.GetCounter().GetValue()
			}
		}
	}
	return total
}

// Requests are answered at a bounded rate: few as long as they may be recordings.
func TestAnswersAreBounded(t *testing.T) {
	paired(t, func(t *testing.T, w *wire, a, b *gateway) {
		later(10 * time.Second)
		flood := func(run uint64) (answers float64) {
			before := a.counted(a.cfg.Metrics.sent, ProbeAnswer)
			for i := range uint64(300) {
				w.send(milanAddr, romeAddr, EncodeProbe(b.targets[romeAddr].keys.Send, Probe{
					Kind: ProbeRequest, Sender: HashCluster("milan"), Run: run, Sequence: 1000 + i, Hears: true,
				}))
			}
			later(10 * time.Millisecond)
			return a.counted(a.cfg.Metrics.sent, ProbeAnswer) - before
		}
		require.InDelta(t, answersToUnknown, flood(12345), 1)
		later(10 * time.Second)
		require.Len(t, a.verdicts(), 1, "what is known is still answered")
		require.InDelta(t, answersToKnown, flood(b.targets[romeAddr].run), 1)
		require.NotZero(t, a.garbage(GarbageRate))

		// What is above the limit changes nothing: no sequence number, no sign of life.
		state := func() (window, pulse) {
			a.mu.Lock()
			defer a.mu.Unlock()
			return a.targets[milanAddr].requests, a.targets[milanAddr].pulse
		}
		requests, pulse := state()
		require.Nil(t, a.take(EncodeProbe(b.targets[romeAddr].keys.Send, Probe{
			Kind: ProbeRequest, Sender: HashCluster("milan"), Run: b.targets[romeAddr].run, Sequence: 5000, APIServer: health.Down,
		}), milanAddr))
		requestsAfter, pulseAfter := state()
		require.Equal(t, requests, requestsAfter)
		require.Equal(t, pulse, pulseAfter)
	})
}

// The newest request counts: one that it has overtaken says how things were.
func TestOvertakenRequests(t *testing.T) {
	paired(t, func(t *testing.T, w *wire, a, b *gateway) {
		later(10 * time.Second)
		there := b.targets[romeAddr]
		ask := func(ahead uint64, server health.Verdict) {
			w.send(milanAddr, romeAddr, EncodeProbe(there.keys.Send, Probe{
				Kind: ProbeRequest, Sender: HashCluster("milan"), Run: there.run,
				Sequence: there.pulse.asked.top + ahead, APIServer: server, Hears: true,
			}))
			later(2 * time.Millisecond)
		}
		ask(10, health.Up)
		ask(5, health.Down)
		require.Len(t, a.verdicts(), 1)
		ask(11, health.Down)
		require.Equal(t, "Up ProbesAnswered Down", a.verdicts()[1])
		require.Zero(t, a.garbage(GarbageReplay))
	})
}

// A gateway is preferred when its tunnel has been up for hold, and until it leaves. The other
// side hears that with the next packet.
func TestLeaving(t *testing.T) {
	paired(t, func(t *testing.T, w *wire, a, b *gateway) {
		away := func(g *gateway) bool {
			s, ok := g.StateOf(g.peer)
			require.True(t, ok)
			require.Equal(t, health.Up, s.Verdict)
			return s.Away
		}
		later(hold - time.Second)
		require.True(t, away(a) && away(b))
		later(2 * time.Second)
		require.False(t, away(a) || away(b))
		a.Leave()
		later(2 * w.delay)
		require.True(t, away(b))
		require.False(t, away(a))
		later(time.Minute)
		require.True(t, away(b) && !away(a))
		require.True(t, b.changes[len(b.changes)-1].Away, "it is reported")
	})
}

// Nodes use a gateway whose tunnel is new, or comes and goes, before one without a tunnel, and after
// one that serves.
func TestNodesOfNewTunnels(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		a := w.gateway(t, rome, milan)
		a.start(t)
		node := &nearGateway{number: 1, alive: true}
		p := &NodeProbes{gateways: map[netip.Addr]*nearGateway{romeAddr: node}, nonce: 1, changed: func() {}}
		see := func(what string, alive, serves bool) {
			t.Helper()
			p.take(append(nodePacket(nodeAnswer, 1), a.cfg.Nodes.answer...), netip.AddrPortFrom(romeAddr, plan.ProbePort))
			c, _ := p.judge(1, "milan")
			require.Equal(t, plan.Candidate{Number: 1, Alive: alive, Serves: serves}, c, what)
		}
		later(time.Second)
		see("no tunnel", false, false)
		w.gateway(t, milan, rome).start(t)
		later(2 * time.Second)
		see("a new tunnel", true, false)
		later(hold)
		see("a tunnel that stays", true, true)
		w.setPass(cut(milanAddr))
		later(2 * time.Second)
		see("the tunnel is down", false, false)
		for range 2 { // it comes and goes
			w.setPass(cut())
			later(time.Minute)
			w.setPass(cut(milanAddr))
			later(2 * time.Second)
		}
		w.setPass(cut())
		later(2 * time.Second)
		s, _ := a.StateOf(a.peer)
		require.Equal(t, health.Down, s.Verdict)
		require.True(t, s.Answers, "another gateway is better, none is not")
		see("a tunnel that comes and goes", true, false)
	})
}

// A probe may be as large as the packets whose way it tests; so is its answer.
func TestPaddedRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		w.gateway(t, rome, milan).start(t)
		seen := w.socket(milanAddr)
		private, _ := privateKey(t, milan.key)
		_, public := privateKey(t, rome.key)
		keys, err := NewProbeKeys(private, public)
		require.NoError(t, err)
		later(10 * time.Millisecond)
		for len(seen.in) > 0 {
			<-seen.in
		}
		w.send(milanAddr, romeAddr, EncodeProbe(keys.Send, Probe{
			Kind: ProbeRequest, Sender: HashCluster("milan"), Run: 7, Sequence: 9, Time: 5, Size: 1420,
		}))
		later(10 * time.Millisecond)
		got, garbage := DecodeProbe(keys.Receive, (<-seen.in).data)
		require.Empty(t, garbage)
		require.NotZero(t, got.Run)
		got.Run = 0
		require.Equal(t, Probe{
			Kind: ProbeAnswer, APIServer: health.Up, Hears: true, Away: true, Sender: HashCluster("rome"), Asker: 7, Sequence: 9, Time: 5, Size: 1420,
		}, got)
	})
}

func TestRoundTripTimesAreReportedSeldom(t *testing.T) {
	paired(t, func(t *testing.T, w *wire, a, b *gateway) {
		delay := func(d time.Duration) {
			w.mu.Lock()
			w.delay = d
			w.mu.Unlock()
			later(150 * time.Second)
		}
		delay(2 * time.Millisecond)
		require.Len(t, a.changes, 1, "from 2 to 4 ms is nothing")
		delay(25 * time.Millisecond)
		require.Len(t, a.changes, 3, "12 ms are on the way to 50")
		require.GreaterOrEqual(t, a.at[2]-a.at[1], rttEvery)
		delay(40 * time.Millisecond)
		require.InDelta(t, 80, a.changes[len(a.changes)-1].RTT.Milliseconds(), 45)
		delay(time.Millisecond)
		n := len(a.changes)
		require.LessOrEqual(t, n, 8, "once for each doubling, and once for each halving")
		later(150 * time.Second)
		require.Len(t, a.changes, n)
	})
}

func TestSet(t *testing.T) {
	paired(t, func(t *testing.T, w *wire, a, b *gateway) {
		later(time.Minute)
		before, _ := a.StateOf(a.peer)

		twin, bad, none := a.peer, a.peer, a.peer
		twin.Gateway = "gw-b"
		bad.Gateway, bad.Address, bad.Key = "gw-c", alienAddr, "?"
		none.Gateway, none.Address = "gw-d", netip.Addr{}
		mapped := none
		mapped.Gateway, mapped.Address = "gw-e", netip.AddrFrom16(alienAddr.As16())
		err := a.Set([]EchoPeer{a.peer, twin, bad, none, mapped})
		require.ErrorContains(t, err, "probing gateway gw-b of milan (10.71.0.2): gateway gw-a of milan (10.71.0.2) has the same address")
		require.ErrorContains(t, err, `probing gateway gw-c of milan (10.72.0.2): reading WireGuard public key "?"`)
		require.ErrorContains(t, err, "probing gateway gw-d of milan (invalid IP): the address is invalid IP")
		require.ErrorContains(t, err, "probing gateway gw-e")
		after, _ := a.StateOf(a.peer)
		require.Equal(t, before, after)
		for _, p := range []EchoPeer{twin, bad, none, mapped} {
			_, ok := a.StateOf(p)
			require.False(t, ok)
		}

		require.NoError(t, a.Set(nil))
		sent := sum(t, a.registry, "liqod_tunnel_probe_sent_total")
		require.Zero(t, sent, "its series are gone")
		later(time.Minute)
		require.Zero(t, sum(t, a.registry, "liqod_tunnel_probe_sent_total"))
		require.NotZero(t, a.garbage(GarbageSource), "the gateway there still asks")
		_, ok := a.StateOf(a.peer)
		require.False(t, ok)

		a.mu.Lock()
		a.changes = nil
		a.mu.Unlock()
		require.NoError(t, a.Set([]EchoPeer{a.peer}))
		again, _ := a.StateOf(a.peer)
		require.Equal(t, health.Unknown, again.Verdict)
		later(time.Second)
		require.Equal(t, []string{"Up ProbesAnswered Up"}, a.verdicts())
	})
}

func TestRunEnds(t *testing.T) {
	paired(t, func(t *testing.T, w *wire, a, b *gateway) {
		later(time.Second)
		before := time.Now()
		require.NoError(t, a.stop())
		require.Equal(t, before, time.Now(), "at once")

		b.conn.set(func(s *socket) { s.readErr = net.ErrClosed })
		require.NoError(t, b.conn.SetReadDeadline(time.Time{}))
		synctest.Wait()
		require.ErrorIs(t, b.stop(), net.ErrClosed)
	})
}
