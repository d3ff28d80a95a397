package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/liqod/liqod/health"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/netfabric/kernel"
)

// hold is how long a tunnel has to be up until its gateway is preferred again.
const hold = 10 * time.Second

// ProbeSocket is the UDP socket of probes, a *net.UDPConn. That of Echo is on the gateway's own
// address in the fabric, plan.ReplicaAddr, and on plan.ProbePort.
type ProbeSocket interface {
	io.Closer
	ReadFromUDPAddrPort(b []byte) (n int, from netip.AddrPort, err error)
	WriteToUDPAddrPort(b []byte, to netip.AddrPort) (int, error)
	SetReadDeadline(t time.Time) error
}

// EchoConfig configures Echo.
type EchoConfig struct {
	// ClusterID is the id of this cluster.
	ClusterID string
	// Keys returns the keys for the gateway that has a WireGuard public key.
	Keys func(publicKey string) (ProbeKeys, error)
	// Conn stays open when Run has returned, with a read deadline in the past.
	Conn ProbeSocket
	// Port is the UDP port that gateways of peers listen on.
	Port   uint16
	Timing EchoTiming
	// Nodes answers the probes of nodes of this cluster, which come by the same socket.
	Nodes *NodeAnswers
	// APIServer returns the verdict on the API server of this cluster. Each probe carries it.
	// Calls are concurrent, and must not block.
	APIServer func() health.Verdict
	// Tunnels returns the peers of the tunnel device, by public key. Echo calls it at most once in
	// an Interval, and only while a gateway that is Up sends no probes. A gateway without an entry
	// has sent nothing. Tunnels may be nil.
	Tunnels func() map[string]kernel.Peer
	// OnChange takes each changed state, in order, and never the first one: a new gateway is
	// Unknown with ReasonNotAnswered. Run's goroutine calls it and sends no probes meanwhile, so
	// it must not block; it may call Set and State. A gateway that Set is just removing may be
	// reported once more.
	OnChange func(p EchoPeer, s EchoState)
	// OnTurn is called like OnChange, when another gateway may be better than before.
	OnTurn  func()
	Metrics *ProbeMetrics
	Clock   clock.WithTicker
}

// Echo probes gateways of peers through the tunnels to them, and answers their probes. It
// is safe for concurrent use.
type Echo struct {
	cfg   EchoConfig
	own   ClusterHash
	begun time.Time
	news  loop.Signal
	left  chan struct{}

	mu       sync.Mutex
	leaving  bool
	targets  map[netip.Addr]*target
	clusters map[ClusterHash][]*target
}

// NewEcho returns an Echo without gateways to probe. It starts nothing.
func NewEcho(cfg EchoConfig) *Echo {
	return &Echo{
		cfg: cfg, own: HashCluster(cfg.ClusterID), begun: cfg.Clock.Now(),
		news: loop.NewSignal(), left: make(chan struct{}, 1), targets: map[netip.Addr]*target{},
	}
}

// Set replaces the gateways that Echo probes and answers. A gateway keeps its state, also with
// another key. The error names each gateway that cannot be probed; Echo probes the others.
func (e *Echo) Set(peers []EchoPeer) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	want, errs := map[netip.Addr]*target{}, []error(nil)
	for _, p := range peers {
		if other := want[p.Address]; other != nil {
			errs = append(errs, fmt.Errorf("probing %s: %s has the same address", p, other.peer))
			continue
		}
		t := e.targets[p.Address]
		var err error
		switch {
		case t == nil || !t.peer.sameGateway(p):
			t, err = newTarget(e.cfg, p)
		case t.peer != p:
			t, err = t.rekeyed(e.cfg, p)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("probing %s: %w", p, err))
			continue
		}
		want[p.Address] = t
	}
	for address, t := range e.targets {
		if next := want[address]; next == nil || !next.peer.sameGateway(t.peer) {
			e.cfg.Metrics.forget(t.peer)
		}
	}
	e.targets, e.clusters = want, map[ClusterHash][]*target{}
	for _, t := range want {
		e.clusters[t.sender] = append(e.clusters[t.sender], t)
	}
	return errors.Join(errs...)
}

// Leave has nodes and peers use other gateways of this cluster from now on. What they send
// until they do goes on.
func (e *Echo) Leave() {
	e.mu.Lock()
	e.leaving = true
	e.mu.Unlock()
	e.left <- struct{}{}
}

// serves reports whether this gateway carries the packets of a peer: it does not end, and the
// tunnel to a gateway of the peer has been up for hold. Until then peers and nodes use another
// gateway of this cluster, so a tunnel that comes and goes moves them once. The caller holds mu.
func (e *Echo) serves(peer ClusterHash, now time.Time) bool {
	return !e.leaving && slices.ContainsFunc(e.clusters[peer], func(t *target) bool {
		return t.pulse.verdict == health.Up && now.Sub(t.pulse.since) >= hold
	})
}

// tellNodes hands the peers that this gateway does not serve to the answers of nodes, and those
// that no tunnel leads to a second time.
func (e *Echo) tellNodes() {
	now := e.cfg.Clock.Now()
	e.mu.Lock()
	leaving, away := e.leaving, []uint64(nil)
	for peer, gateways := range e.clusters {
		if !e.serves(peer, now) {
			away = append(away, peer.short())
		}
		if !slices.ContainsFunc(gateways, func(t *target) bool { return t.pulse.answers() }) {
			away = append(away, peer.short())
		}
	}
	e.mu.Unlock()
	e.cfg.Nodes.set(e.cfg.Conn, leaving, away)
}

// StateOf returns the present state of the tunnel to a gateway. The verdict is Unknown while
// Run stands still. State reports false for a gateway that Echo does not probe.
func (e *Echo) StateOf(p EchoPeer) (EchoState, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.targets[p.Address]
	if t == nil || t.peer != p {
		return EchoState{}, false
	}
	return t.state(e.cfg.Clock.Now()), true
}

// Run probes and answers until ctx is done, or the socket cannot be read. It runs once.
func (e *Echo) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { _ = e.cfg.Conn.SetReadDeadline(time.Unix(1, 0)) })()
	ended := make(chan error, 1)
	go func() { ended <- e.read(ctx) }()
	ticker := e.cfg.Clock.NewTicker(e.cfg.Timing.Interval)
	defer ticker.Stop()
	e.beat()
	for {
		select {
		case err := <-ended:
			return err
		case <-ticker.C():
			e.beat()
		case <-e.left:
			e.beat()
		case <-e.news:
			e.report()
		}
	}
}

// read takes packets until ctx is done.
func (e *Echo) read(ctx context.Context) error {
	packet := make([]byte, MaxProbeSize+1)
	for {
		n, from, err := e.cfg.Conn.ReadFromUDPAddrPort(packet)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading probes: %w", err)
		}
		if isNodeProbe(packet[:n]) {
			e.cfg.Nodes.take(e.cfg.Conn, packet[:n], from)
			continue
		}
		if answer := e.take(packet[:n], from.Addr().Unmap()); answer != nil {
			// A lost answer costs nothing more than one lost on the way: requests go on.
			_, _ = e.cfg.Conn.WriteToUDPAddrPort(answer, from)
		}
	}
}

// take reads a packet and returns the answer to it; nil: none.
func (e *Echo) take(packet []byte, from netip.Addr) (answer []byte) {
	server, now := e.cfg.APIServer(), e.cfg.Clock.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.targets[from]
	if t == nil {
		e.cfg.Metrics.garbage.WithLabelValues(string(GarbageSource)).Inc()
		return nil
	}
	in, garbage := t.read(packet)
	switch {
	case garbage != "":
	case in.Kind == ProbeAnswer:
		garbage = e.answered(t, in, now)
	default:
		answer, garbage = e.requested(t, in, server, now)
	}
	t.dropped = garbage
	if garbage != "" {
		e.cfg.Metrics.garbage.WithLabelValues(string(garbage)).Inc()
	}
	t.pulse.judge(now)
	if changed, turn := t.changed(t.state(now), now); changed || turn {
		e.news.Notify() // Run reports it
	}
	return answer
}

// answered takes an answer. Its run is the peer's current one: an earlier run could not
// answer a request of this run.
func (e *Echo) answered(t *target, in Probe, now time.Time) ProbeGarbage {
	rtt := now.Sub(e.begun) - in.Time
	if in.Asker != t.run || in.Time < 0 || rtt < 0 || !t.pulse.answered(in, rtt, now) {
		return GarbageUnasked
	}
	if t.theirs != in.Run {
		t.theirs, t.requests = in.Run, window{}
	}
	t.away = in.Away
	e.cfg.Metrics.addProbe(e.cfg.Metrics.received, t.peer, in.Kind)
	e.cfg.Metrics.rtt.WithLabelValues(t.peer.Cluster, t.peer.Gateway).Observe(rtt.Seconds())
	return ""
}

// requested takes a request and returns the answer. A request of another run than the peer's
// current one may be a recording, so it is no sign of life; neither is an overtaken request.
// One that is not answered, because there are too many, changes nothing.
func (e *Echo) requested(t *target, in Probe, server health.Verdict, now time.Time) ([]byte, ProbeGarbage) {
	current, limit := in.Run == t.theirs, t.unknown
	if current {
		if !t.requests.fresh(in.Sequence) {
			return nil, GarbageReplay
		}
		limit = t.known
	}
	if !limit.AllowN(now, 1) {
		return nil, GarbageRate
	}
	if current && t.requests.admit(in.Sequence) && in.Sequence == t.requests.top {
		t.pulse.requested(in, now)
		t.away, t.accepts = in.Away, in.Asker
	}
	e.cfg.Metrics.addProbe(e.cfg.Metrics.received, t.peer, in.Kind)
	e.cfg.Metrics.addProbe(e.cfg.Metrics.sent, t.peer, ProbeAnswer)
	return EncodeProbe(t.keys.Send, Probe{
		Kind: ProbeAnswer, APIServer: server, Hears: true, Away: !e.serves(t.sender, now), Sender: e.own, Run: t.run,
		Asker: in.Run, Sequence: in.Sequence, Time: in.Time, Size: in.Size,
	}), ""
}

// beat does the work of one Interval: time passes for each tunnel, then Echo sends each
// gateway a request.
func (e *Echo) beat() {
	e.listen()
	e.tellNodes()
	server := e.cfg.APIServer()
	for _, t := range e.sorted() {
		packet := e.request(t, server)
		if packet == nil {
			continue
		}
		_, err := e.cfg.Conn.WriteToUDPAddrPort(packet, netip.AddrPortFrom(t.peer.Address, e.cfg.Port))
		e.mu.Lock()
		t.refused = err
		e.mu.Unlock()
	}
	e.report()
}

// listen lets time pass, and counts the received bytes of tunnels without probes.
func (e *Echo) listen() {
	now := e.cfg.Clock.Now()
	var quiet []*target
	for _, t := range e.sorted() {
		e.mu.Lock()
		if t.pulse.tick(now) {
			quiet = append(quiet, t)
		}
		e.mu.Unlock()
	}
	var tunnels map[string]kernel.Peer
	if len(quiet) > 0 && e.cfg.Tunnels != nil {
		tunnels = e.cfg.Tunnels()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range quiet {
		if have, ok := tunnels[t.peer.Key]; ok {
			t.pulse.received(have.Received)
		}
	}
	for _, t := range e.targets {
		t.pulse.judge(now)
	}
}

// request returns the next request to a gateway, or nil if Set has removed it.
func (e *Echo) request(t *target, server health.Verdict) []byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.targets[t.peer.Address] != t {
		return nil
	}
	now := e.cfg.Clock.Now()
	sequence, lost := t.pulse.asked.next()
	// Made before the first loss: a rate does not see the increase that a series begins with.
	losses := e.cfg.Metrics.lost.WithLabelValues(t.peer.Cluster, t.peer.Gateway)
	if lost {
		losses.Inc()
	}
	e.cfg.Metrics.addProbe(e.cfg.Metrics.sent, t.peer, ProbeRequest)
	return EncodeProbe(t.keys.Send, Probe{
		Kind: ProbeRequest, APIServer: server, Hears: t.pulse.hears(), Away: !e.serves(t.sender, now), Sender: e.own, Run: t.run,
		Asker: KeyHash(t.peer.Next), Sequence: sequence, Time: now.Sub(e.begun), Size: ProbeSize,
	})
}

// report calls OnChange for each changed state. Only Run's goroutine calls it.
func (e *Echo) report() {
	now := e.cfg.Clock.Now()
	for _, t := range e.sorted() {
		e.mu.Lock()
		state := t.state(now)
		changed, turn := t.changed(state, now)
		if changed {
			t.reported, t.reportedAt = state, now
		} else if turn {
			t.reported.Since = state.Since
		}
		e.mu.Unlock()
		if changed {
			e.cfg.OnChange(t.peer, state)
		}
		if turn {
			e.cfg.OnTurn()
		}
	}
}

func (e *Echo) sorted() []*target {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Values(e.targets))
}
