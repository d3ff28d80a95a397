package host

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/liqod/liqod/health"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/netfabric/plan"
)

const (
	// redialAfter is the least time between two rounds over the endpoints of a gateway that is
	// down. Up to half of it more is random, so that two gateways do not end each other's attempts.
	redialAfter = 10 * time.Second
	// tryNext is the same between two endpoints of a round. It is longer than a handshake takes.
	tryNext = time.Second
)

// dialKey is the name of the key with which the loop of a gateway dials. One worker has it and
// fabricKey, so no plan is applied meanwhile.
const dialKey = "dial"

// attempts are those to dial one gateway that is not up.
type attempts struct {
	endpoints []netip.AddrPort
	first     int // the index of the endpoint of the first attempt
	n         int
	last, due time.Time // of the last one, and of the next one
}

// dial dials gateways of peers that do not answer, at one endpoint after the other until there is a
// handshake, and has their names looked up again. It returns loop.After the time until it is to
// be called again. A gateway that answers again, and is not Up yet, may be the best one that there
// is: it is chosen anew.
func (g *GatewayHost) dial() error {
	var down []plan.Tunnel
	answering := 0
	for _, t := range g.device.Peers {
		switch state, ok := g.echoes.state(t.Key); {
		case !ok || state.Verdict == health.Up:
		case state.Answers:
			answering++
		default:
			down = append(down, t)
		}
	}
	if answering > g.answering {
		g.wake()
	}
	before := g.dialled
	g.dialled, g.answering = map[string]attempts{}, answering
	if len(down)+answering == 0 {
		return nil
	}
	_, peers, err := g.cfg.Host.Tunnel()
	if err != nil {
		return err // there is no device: the next plan makes it
	}
	now, next := g.cfg.Clock.Now(), time.Time{}
	if answering > 0 {
		next = now.Add(tryNext)
	}
	for _, t := range down {
		a, ok := g.dialOne(t.Key, before, peers[t.Key].Handshake, now)
		if !ok {
			continue
		}
		g.dialled[t.Key] = a
		if next.IsZero() || a.due.Before(next) {
			next = a.due
		}
	}
	if next.IsZero() {
		return nil
	}
	return loop.After(min(max(next.Sub(now), tryNext/10), tryNext))
}

// dialOne dials a gateway if an attempt is due. It reports false for one that is not dialled.
func (g *GatewayHost) dialOne(key string, before map[string]attempts, handshake, now time.Time) (attempts, bool) {
	state, _ := g.echoes.state(key)
	endpoints, used := g.resolver.Endpoints(key)
	if len(endpoints) == 0 || state.Verdict != health.Down && (len(endpoints) == 1 || !handshake.IsZero()) {
		return attempts{}, false
	}
	a, known := before[key]
	switch {
	case !known && state.Verdict != health.Down:
		// WireGuard has just begun with the first one.
		a = attempts{endpoints: endpoints, first: used, n: 1, due: now.Add(tryNext)}
	case !known:
		a = attempts{endpoints: endpoints, first: used, due: now}
	case !slices.Equal(a.endpoints, endpoints):
		a = attempts{endpoints: endpoints, first: used, last: a.last, due: a.last.Add(tryNext)}
	}
	if handshake.After(state.Since) && now.Sub(handshake) < redialAfter {
		a.due = handshake.Add(redialAfter) // the tunnel is not the cause
	}
	g.resolver.Again(key)
	if now.Before(a.due) {
		return a, true
	}
	g.redial(key, endpoints[(a.first+a.n)%len(endpoints)])
	a.n, a.last, a.due = a.n+1, now, now.Add(tryNext+rand.N(tryNext/2))
	if a.n%len(endpoints) == 0 {
		a.due = now.Add(redialAfter + rand.N(redialAfter/2))
	}
	return a, true
}

// redial dials a gateway at an endpoint, which the next plan has, too.
func (g *GatewayHost) redial(key string, to netip.AddrPort) {
	g.resolver.Use(key, to)
	i := slices.IndexFunc(g.device.Peers, func(t plan.Tunnel) bool { return t.Key == key })
	g.device.Peers[i].Endpoint = to
	if err := g.cfg.Host.Redial(g.device, key); err != nil {
		g.log.Debug("dialling a gateway anew failed", zap.String("publicKey", key), zap.Error(err))
	}
}
