package roles

import (
	"context"

	"github.com/liqod/liqod/peering/link"
)

// addHeartbeat renews this cluster's heartbeat Leases in providers, and judges those of
// consumers. With health.heartbeat off, the loops take back what is there from a time when it
// was on, and addHeartbeat returns nil. Otherwise it returns the judge of the consumers' Leases.
func (c *controller) addHeartbeat() []link.Source {
	interval := c.env.Config.Health.Heartbeat
	connections := c.liqo.Networking().V1beta1().Connections()
	leases := c.heartbeats.Coordination().V1().Leases()
	heartbeat := link.NewHeartbeat(link.HeartbeatConfig{
		Base: c.peeringBase(), Interval: interval, Serving: link.Readyz(c.home.plain.kube), Timeout: c.env.Config.Probe.Timeout,
		Identity: c.conditions.Identity, Directory: c.directory, Connections: connections, Clock: c.env.Clock,
	})
	c.addLoop("heartbeat-leases", link.NewInvitations(link.InvitationsConfig{
		Base: c.peeringBase(), Interval: interval, Directory: c.directory, Connections: connections, Leases: leases,
	}))
	// In every replica: else an active one that is killed would look like a dead API server.
	c.actors = append(c.actors, Actor{Name: "heartbeat", Run: func(ctx context.Context) error { return heartbeat.Run(ctx, c.cfg.Workers) }})
	if interval == 0 {
		return nil
	}
	pulse := link.NewPulse(link.PulseConfig{Interval: interval, Leases: leases, Client: c.home.plain.kube.CoordinationV1(), Env: c.env.component()})
	c.actors = append(c.actors, Actor{Name: "heartbeats", Run: func(ctx context.Context) error { return pulse.Run(ctx, c.cfg.Workers) }})
	return []link.Source{pulse}
}
