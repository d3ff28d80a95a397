package host

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/netfabric/kernel"
	"github.com/liqod/liqod/netfabric/plan"
)

// A gateway replaces its key without a hole. It makes the next key, and announces its public
// part. Each gateway of a peer adds a second tunnel with this key, and reports that by its
// probes. Then the next key becomes the key: the device has it, sessions that it has received
// by go on, and its next packet begins a handshake. A gateway of a peer has the packets of the
// tunnel with the latest handshake, so it follows at once, without an API server.
const (
	rotateEvery = time.Second // between two steps, and two looks at the age of the key
	// rotatePatience is how long a gateway waits for peers that are not down, and have not
	// accepted the next key: their API server may be away.
	rotatePatience = time.Hour
	// followEvery is the time between two looks at handshakes while a gateway of a peer has two
	// keys. A look takes at most a part of the time, one in followShare.
	followEvery = 20 * time.Millisecond
	followShare = 20
	// A peer may begin handshakes with both keys in turns, without end. Each turn costs a plan.
	turnsAtOnce  = 100
	turnInterval = time.Second
)

// Keys are the private keys of a gateway.
type Keys struct {
	Key      kernel.Key
	Made     time.Time
	Next     kernel.Key // zero: none
	NextMade time.Time
}

// KeyStore keeps the private keys of one gateway, and outlives it. A method that fails may have
// done its work, or a part of it: Read ends what Promote began.
type KeyStore interface {
	// Read returns the keys. It makes the first one.
	Read(ctx context.Context) (Keys, error)
	// Prepare makes the next key, if there is none.
	Prepare(ctx context.Context) error
	// Promote makes the next key the key, and deletes the one before.
	Promote(ctx context.Context) error
}

// rotation is the state of the keys. The zero value has none, and no channel.
type rotation struct {
	begin  loop.Signal // there are gateways of peers with two keys
	unsure bool        // of rotate alone: an attempt to change the store has begun
	waits  []string    // of rotate alone: as they were announced

	pace loop.Pace // of turns, by peer

	keys  loop.Value[Keys]
	pairs loop.Value[[]keyPair]
}

// keyPair is a gateway of a peer with two keys.
type keyPair struct {
	peer string
	plan.Remote
}

// watch replaces the gateways whose use of their two keys is followed.
func (r *rotation) watch(peers []plan.Peer) {
	var pairs []keyPair
	for _, p := range peers {
		for _, g := range p.Gateways {
			if g.Next != "" {
				pairs = append(pairs, keyPair{p.ID, g})
			}
		}
	}
	r.pairs.Swap(pairs)
	if len(pairs) > 0 {
		r.begin.Notify()
	}
}

// turned reports whether a gateway of a peer has begun to use another key, by the times of handshakes.
func (r *rotation) turned(tunnels map[string]kernel.Peer, now time.Time) (turned bool) {
	for _, p := range r.pairs.Get() {
		if tunnels[p.Next].Handshake.After(tunnels[p.Key].Handshake) && r.pace.Take(p.peer, turnsAtOnce, turnInterval, now) == 0 {
			turned = true
		}
	}
	return turned
}

// readKeys reads the keys from the store.
func (g *GatewayHost) readKeys(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	keys, err := g.cfg.Keys.Read(ctx)
	if err == nil {
		g.rotation.keys.Swap(keys)
	}
	return err
}

// takeKey has the device use the key that was read last, from the next Apply on.
func (g *GatewayHost) takeKey() Keys {
	keys := g.rotation.keys.Get()
	if g.key != keys.Key {
		if g.key != (kernel.Key{}) {
			g.log.Info("the key of this gateway is replaced", zap.String("publicKey", keys.Key.Public()))
		}
		g.key = keys.Key
		g.cfg.Host.SetKey(g.key)
	}
	return keys
}

// rotate replaces the key, when it is too old or people ask for it, until ctx is done.
func (g *GatewayHost) rotate(ctx context.Context) {
	failed := false
	for range loop.Ticks(ctx, g.clk, rotateEvery, nil) {
		err := g.rotateStep(ctx)
		if err != nil && !failed && ctx.Err() == nil {
			g.log.Warn("replacing the key of this gateway failed; will retry", zap.Error(err))
		}
		failed = err != nil
	}
}

// rotateStep does what is next, if anything. Each step follows from the store alone, so another
// process goes on where this one ended.
func (g *GatewayHost) rotateStep(ctx context.Context) error {
	keys := g.rotation.keys.Get()
	none := keys.Next == (kernel.Key{})
	if !g.announcer.Active() || none && !g.rotation.unsure && !g.outdated(keys) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	var err error
	switch {
	case g.rotation.unsure:
	case none:
		g.rotation.unsure = true
		err = g.cfg.Keys.Prepare(ctx)
	case g.accepted(keys):
		g.rotation.unsure = true
		err = g.cfg.Keys.Promote(ctx)
	default:
		return nil
	}
	if err != nil {
		return err
	}
	if err := g.readKeys(ctx); err != nil {
		return err
	}
	g.rotation.unsure = false
	g.wake()
	return nil
}

// outdated reports whether the key is to be replaced.
func (g *GatewayHost) outdated(keys Keys) bool {
	return g.announcer.Rotate() == keys.Key.Public() || g.cfg.KeyAge > 0 && g.clk.Since(keys.Made) >= g.cfg.KeyAge
}

// accepted reports whether no gateway of a peer would be lost by the next key, or has had long
// enough to accept it.
func (g *GatewayHost) accepted(keys Keys) bool {
	waits, known := g.echoes.waiting(keys.Next.Public())
	if !known {
		return false
	}
	if !slices.Equal(waits, g.rotation.waits) {
		g.rotation.waits = waits
		g.wake() // it is announced
	}
	if len(waits) > 0 && g.clk.Since(keys.NextMade) >= rotatePatience {
		g.log.Warn("the key of this gateway is replaced, though peers have not accepted the next one; they get it from their API servers", zap.Strings("gateways", waits))
		return true
	}
	return len(waits) == 0
}

// followKeys wakes the loop of the host when a gateway of a peer has begun to use another key.
func (g *GatewayHost) followKeys(ctx context.Context) {
	for ctx.Err() == nil {
		if len(g.rotation.pairs.Get()) == 0 {
			select {
			case <-ctx.Done():
			case <-g.rotation.begin:
			}
			continue
		}
		began := g.clk.Now()
		if g.rotation.turned(g.tunnels(), began) {
			g.wake()
		}
		_ = loop.Sleep(ctx, g.clk, max(followEvery, followShare*g.clk.Since(began))) // the loop's condition looks at ctx
	}
}
