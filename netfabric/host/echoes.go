package host

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/liqod/liqod/health"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/netfabric/kernel"
	"github.com/liqod/liqod/netfabric/plan"
)

// echoes has the Echo of a gateway. Its socket is bound to the gateway's own address in the
// fabric, so there is a new one whenever that changes.
type echoes struct {
	cfg    EchoConfig // of each Echo, but for its socket
	listen func(netip.AddrPort) (ProbeSocket, error)
	failed func(error) // an Echo has ended with an error

	// Of the loop of the host alone.
	address netip.Addr
	end     func() // nil: none runs

	mu    sync.Mutex
	echo  *Echo               // nil: no address, or the socket has failed
	idle  bool                // there is no address, and so nothing to probe
	byKey map[string]EchoPeer // by public key
}

// state is that of the tunnel to a gateway with a public key.
func (e *echoes) state(key string) (EchoState, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p, ok := e.byKey[key]
	if !ok || e.echo == nil {
		return EchoState{}, false
	}
	return e.echo.StateOf(p)
}

// probed returns the gateway with a public key.
func (e *echoes) probed(key string) (EchoPeer, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p, ok := e.byKey[key]
	return p, ok
}

// follow probes the gateways of all peers of in, which is applied. ctx is that of the
// process: the probes go on.
func (e *echoes) follow(ctx context.Context, in plan.Input, keys deviceKeys) error {
	address, peers := echoPeers(in, keys)
	e.mu.Lock()
	broken := e.echo == nil
	e.idle = !address.IsValid()
	e.mu.Unlock()
	if address != e.address || broken {
		e.stop()
		if !address.IsValid() {
			return nil
		}
		if err := e.start(ctx, address); err != nil {
			return err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.byKey = map[string]EchoPeer{}
	for _, p := range peers {
		e.byKey[p.Key] = p
		if p.Next != "" {
			e.byKey[p.Next] = p
		}
	}
	if e.echo == nil {
		return nil // it has just failed, and the loop is awake
	}
	return e.echo.Set(peers)
}

// waiting returns the gateways of peers that would lose this one by its next public key: those
// that are not down, and have not accepted it. Of two gateways that change their keys at the same
// time, neither would find the other: the one of the cluster with the smaller id is first. known
// is false while nothing is probed yet.
func (e *echoes) waiting(next string) (names []string, known bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.echo == nil {
		return nil, e.idle
	}
	for key, p := range e.byKey {
		s, ok := e.echo.StateOf(p)
		if !ok || key != p.Key || s.Verdict == health.Down {
			continue
		}
		if s.Accepts != KeyHash(next) || p.Next != "" && e.cfg.ClusterID > p.Cluster {
			names = append(names, p.String())
		}
	}
	slices.Sort(names)
	return names, true
}

func (e *echoes) start(ctx context.Context, address netip.Addr) error {
	conn, err := e.listen(netip.AddrPortFrom(address, e.cfg.Port))
	if err != nil {
		return fmt.Errorf("opening the socket of probes: %w", err)
	}
	cfg := e.cfg
	cfg.Conn = conn
	echo := NewEcho(cfg)
	e.set(echo)
	e.address, e.end = address, loop.Start(ctx, func(ctx context.Context) {
		defer conn.Close()
		if err := echo.Run(ctx); err != nil {
			e.set(nil)
			e.failed(err)
		}
	})
	return nil
}

func (e *echoes) set(echo *Echo) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.echo = echo
}

func (e *echoes) stop() {
	if e.end == nil {
		return
	}
	e.end()
	e.set(nil)
	e.end, e.address = nil, netip.Addr{}
}

// leave is that of Echo.
func (e *echoes) leave() {
	e.mu.Lock()
	echo := e.echo
	e.mu.Unlock()
	if echo != nil {
		echo.Leave()
	}
}

// deviceKeys are the own public key, and those that the tunnel device accepts.
type deviceKeys struct {
	own      string
	accepted map[string]kernel.Peer
}

// echoPeers are the own address for probes and the gateways to probe, of IPv4 if the cluster
// has an external range of it.
func echoPeers(in plan.Input, keys deviceKeys) (own netip.Addr, peers []EchoPeer) {
	external, ok := oneFamily(in.External)
	i := slices.IndexFunc(in.Gateways, func(r plan.Replica) bool { return r.Name == in.Self })
	if !ok || i < 0 {
		return netip.Addr{}, nil
	}
	for _, p := range in.Peers {
		j := slices.IndexFunc(p.Theirs.External, func(r netip.Prefix) bool { return r.Addr().Is4() == external.Addr().Is4() })
		if j < 0 {
			continue
		}
		for _, r := range p.Gateways {
			one := EchoPeer{Cluster: p.ID, Gateway: r.Name, Address: plan.ReplicaAddr(p.Theirs.External[j], r.Number), Key: r.Key, Own: keys.own}
			if _, ok := keys.accepted[r.Next]; ok {
				one.Next = r.Next
			}
			peers = append(peers, one)
		}
	}
	return plan.ReplicaAddr(external, in.Gateways[i].Number), peers
}

func oneFamily(ranges []netip.Prefix) (netip.Prefix, bool) {
	if len(ranges) == 0 {
		return netip.Prefix{}, false
	}
	i := slices.IndexFunc(ranges, func(r netip.Prefix) bool { return r.Addr().Is4() })
	return ranges[max(i, 0)], true
}
