package host

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/netfabric/plan"
)

// NodeProbes probes the gateways of its own cluster from a node. It is safe for concurrent use.
type NodeProbes struct {
	open    func() (ProbeSocket, error)
	clock   clock.WithTicker
	log     *zap.Logger
	changed func()
	nonce   uint64
	begin   loop.Signal // there are gateways to probe

	mu       sync.Mutex
	gateways map[netip.Addr]*nearGateway // by their addresses for probes
}

// nearGateway is a gateway of the own cluster as a node sees it.
type nearGateway struct {
	number int
	quiet  time.Duration // since the last answer, as far as this process ran
	alive  bool
	none   bool // it serves no peer
	away   []uint64
}

// timesAway returns how often the last answer names a peer: once if the gateway does not serve it,
// twice if no tunnel leads there.
func (g *nearGateway) timesAway(peer string) (n int) {
	for _, short := range g.away {
		if short == HashCluster(peer).short() {
			n++
		}
	}
	return n
}

// NewNodeProbes returns probes of no gateway. open opens a socket of UDP. changed is called
// when a choice may have changed; it returns at once.
func NewNodeProbes(open func() (ProbeSocket, error), clk clock.WithTicker, log *zap.Logger, changed func()) *NodeProbes {
	var nonce [8]byte
	_, _ = rand.Read(nonce[:]) // never fails, since Go 1.24
	return &NodeProbes{open: open, clock: clk, log: log, changed: changed, nonce: binary.BigEndian.Uint64(nonce[:]), begin: loop.NewSignal()}
}

// follow probes the gateways of in, if there are several.
func (p *NodeProbes) follow(in plan.Input) {
	next := map[netip.Addr]*nearGateway{}
	p.mu.Lock()
	defer p.mu.Unlock()
	if external, ok := oneFamily(in.External); ok && len(in.Gateways) > 1 {
		for _, g := range in.Gateways {
			address := plan.ReplicaAddr(external, g.Number)
			if next[address] = p.gateways[address]; next[address] == nil {
				next[address] = &nearGateway{number: g.Number}
			}
		}
	}
	p.gateways = next
	if len(next) > 0 {
		p.begin.Notify()
	}
}

// judge returns how this node sees the gateway with a number, for the packets of a peer. heard
// is false while no gateway has answered: then nothing is known of any.
func (p *NodeProbes) judge(number int, peer string) (c plan.Candidate, heard bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.Number = number
	for _, g := range p.gateways {
		heard = heard || g.alive
		if g.number == number {
			away := g.timesAway(peer)
			c.Alive = g.alive && away < 2
			c.Serves = g.alive && away == 0 && !g.none
		}
	}
	return c, heard
}

// Run probes until ctx is done. It has a socket only while there are gateways to probe.
func (p *NodeProbes) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.begin:
		}
		if err := p.session(ctx); err != nil && ctx.Err() == nil {
			p.log.Warn("probing the gateways of this cluster failed; the next plan of this node begins it again", zap.Error(err))
		}
	}
}

// session probes with one socket, until ctx is done, there is nothing to probe, or the socket
// cannot be read.
func (p *NodeProbes) session(ctx context.Context) error {
	conn, err := p.open()
	if err != nil {
		return fmt.Errorf("opening the socket of probes: %w", err)
	}
	defer conn.Close()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	go func() { end(p.read(conn)) }()
	last := p.clock.Now()
	for range loop.Rounds(ctx, p.clock, nodeProbeEvery, nil) {
		now := p.clock.Now()
		all := p.tick(min(now.Sub(last), 2*nodeProbeEvery))
		if len(all) == 0 {
			return nil
		}
		for _, to := range all {
			_, _ = conn.WriteToUDPAddrPort(nodePacket(nodeRequest, p.nonce), to) // a lost one is silence
		}
		last = now
	}
	return context.Cause(ctx)
}

// tick lets time pass, and returns where to send probes to.
func (p *NodeProbes) tick(passed time.Duration) (to []netip.AddrPort) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for address, g := range p.gateways {
		if g.quiet += passed; g.alive && g.quiet >= nodeProbeSilence {
			g.alive = false
			p.log.Info("a gateway of this cluster does not answer this node", zap.Int("number", g.number))
			p.changed()
		}
		to = append(to, netip.AddrPortFrom(address, plan.ProbePort))
	}
	return to
}

func (p *NodeProbes) read(conn ProbeSocket) error {
	packet := make([]byte, nodeHeader+3+8*mostAway+1)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(packet)
		if err != nil {
			return fmt.Errorf("reading probes: %w", err)
		}
		p.take(packet[:n], from)
	}
}

// take takes an answer.
func (p *NodeProbes) take(packet []byte, from netip.AddrPort) {
	if from.Port() != plan.ProbePort || !IsNodeAnswer(packet, p.nonce) {
		return
	}
	rest := packet[nodeHeader:]
	if count := int(binary.BigEndian.Uint16(rest[1:])); count > mostAway || len(rest) != 3+8*count {
		return
	}
	var away []uint64
	for list := rest[3:]; len(list) > 0; list = list[8:] {
		away = append(away, binary.BigEndian.Uint64(list))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.gateways[from.Addr().Unmap()]
	if g == nil {
		return
	}
	none := rest[0]&flagAway != 0
	changed := !g.alive || g.none != none || !slices.Equal(g.away, away)
	g.alive, g.quiet, g.none, g.away = true, 0, none, away
	if changed {
		p.changed()
	}
}
