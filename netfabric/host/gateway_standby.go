package host

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/liqod/liqod/netfabric/kernel"
	"github.com/liqod/liqod/netfabric/plan"
)

// Several gateways of one cluster may have the same key. Then one of them is active, the one
// with the only number, and the others stand by: without a tunnel device, since two devices
// with one key would take the sessions of peers from each other.

// withdrawTimeout bounds how long a gateway that stops takes its tunnels down.
const withdrawTimeout = 3 * time.Second

// announcing returns the context of the Announcer: where others stand by, the number is given
// back by release, after the tunnels are down, and not when ctx is done.
func (g *GatewayHost) announcing(ctx context.Context) (announcing context.Context, release func()) {
	if !g.cfg.Announce.Standby {
		return ctx, func() {}
	}
	return context.WithCancel(context.WithoutCancel(ctx))
}

// standBy keeps the host empty while another gateway is active. A gateway that does not know
// yet whether one is, leaves the host as it is: it may be the active one, started again.
func (g *GatewayHost) standBy(ctx context.Context) error {
	if !g.announcer.StandsBy() {
		return nil // the announcer wakes this loop
	}
	g.echoes.stop()
	g.use, g.dialled, g.said, g.active = map[string]plan.Choice{}, map[string]time.Time{}, nil, 0
	g.mu.Lock()
	g.view = view{} // the status of Connections is the active one's to write
	g.mu.Unlock()
	g.lookIfNoneActive()
	return g.ended(g.cfg.Host.Apply(ctx, plan.State{}))
}

// lookIfNoneActive has a gateway that stands by look at the Lease when the active one has given
// it back. It does not wait for the loop, which may be busy with the host.
func (g *GatewayHost) lookIfNoneActive() {
	if g.announcer.StandsBy() && !slices.ContainsFunc(g.cfg.Sources.Gateways.List(), func(a Announcement) bool { return a.Alive }) {
		g.announcer.Look()
	}
}

// activate leads peers here, once there is a device for them.
func (g *GatewayHost) activate(ctx context.Context, mode kernel.Mode) error {
	term := g.announcer.Term()
	if g.cfg.Activate == nil || g.active == term || mode == "" {
		return nil
	}
	if err := g.cfg.Activate(ctx); err != nil {
		return err
	}
	g.active = term
	return nil
}

// withdraw takes the tunnels of the active gateway down when it stops: the next one has its
// key, and peers answer to whichever has sent last.
func (g *GatewayHost) withdraw(ctx context.Context) {
	if !g.announcer.Active() || !g.cfg.Announce.Standby {
		return
	}
	g.echoes.stop()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawTimeout)
	defer cancel()
	if err := g.cfg.Host.Apply(ctx, plan.State{}); err != nil {
		g.log.Warn("the tunnels of this gateway are not down; another gateway with its key takes over", zap.Error(err))
	}
}
