package roles

import (
	"context"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/peering/discovery"
	"github.com/liqod/liqod/peering/join"
	"github.com/liqod/liqod/peering/link"
)

// addDiscovery wires the browsers of DNS and multicast DNS, and the loop that creates
// ForeignClusters from their answers. It wires nothing if neither a domain nor interfaces
// are configured.
func (c *controller) addDiscovery() {
	cfg := c.env.Config.Discovery
	if cfg.DNS.Domain == "" && len(cfg.Multicast.Interfaces) == 0 {
		return
	}
	clusters := discovery.NewClusters(discovery.Config{
		Base: c.peeringBase(), Most: cfg.MaxClusters, Metrics: discoveryMetrics(c.env.Registry),
	})
	looking := c.looking(clusters)
	c.leased("discovery", func(ctx context.Context) error {
		clusters.Forget() // the answers of an earlier term
		return together(append(looking, func(ctx context.Context) error { return clusters.Run(ctx, c.cfg.Workers) })...)(ctx)
	})
}

// looking returns the configured browsers.
func (c *controller) looking(clusters *discovery.Clusters) (run []func(context.Context) error) {
	cfg := c.env.Config.Discovery
	if cfg.DNS.Domain != "" {
		run = append(run, discovery.Domain{
			Name: cfg.DNS.Domain, Ask: discovery.Servers(cfg.DNS.Servers), Clock: c.env.Clock, Log: c.env.Log,
			Found: func(a discovery.Answer) { clusters.Set(corev1beta1.DiscoveredByDNS, a) },
		}.Run)
	}
	if len(cfg.Multicast.Interfaces) > 0 {
		m := discovery.Multicast{
			Interfaces: cfg.Multicast.Interfaces, Clock: c.env.Clock, Log: c.env.Log,
			Found: func(a discovery.Answer) { clusters.Set(corev1beta1.DiscoveredByMulticast, a) },
		}
		if cfg.Multicast.URL != "" {
			id := c.env.Config.ClusterID
			m.Own = &discovery.Record{ClusterID: id, URL: cfg.Multicast.URL, Instance: discovery.OwnInstance(id)}
		}
		run = append(run, m.Run)
	}
	return run
}

func discoveryMetrics(to *registry) discovery.Metrics {
	ignored := counter("liqod_discovery_ignored_total", "DNS-SD records that were ignored; via is dns or mdns.", "via", "reason")
	found := gauge("liqod_discovery_clusters", "Clusters that are found; via is dns or mdns.", "via")
	to.add(ignored, found)
	return discovery.Metrics{
		Ignored: func(via, reason string, n int) { ignored.WithLabelValues(via, reason).Add(float64(n)) },
		Found:   func(via string, n int) { found.WithLabelValues(via).Set(float64(n)) },
	}
}

// addJoin wires two loops: one gets and renews the identities of this cluster in its
// providers, the other ends peerings by hand.
func (c *controller) addJoin() {
	cfg := c.env.Config.Peering
	back := join.Back{Offered: func(fc *corev1beta1.ForeignCluster) bool { return link.IncomingOffered(fc, c.incoming) }}
	if own := c.env.Config.Authentication; own.Address != "" {
		back.URL = own.URL
	}
	identities := join.New(join.Config{
		Base: c.peeringBase(), Version: c.env.Version, OwnNamespace: c.env.Config.Namespace, AddressRanges: cfg.AddressRanges, RenewAt: cfg.RenewAt,
		Wanted: func(fc *corev1beta1.ForeignCluster) bool { return link.OutgoingWanted(fc, c.outgoing) },
		Back:   back, Events: c.events,
	})
	c.conditions.AddSource(corev1beta1.ConditionAuthenticated, identities)
	c.addLoop("join", identities)
	c.addLoop("ending", join.NewEnding(join.EndingConfig{
		Cluster:         join.Cluster{ID: c.env.Config.ClusterID, Kube: c.home.fenced.kube, Liqo: c.home.fenced.liqo},
		ForeignClusters: c.liqo.Core().V1beta1().ForeignClusters(), Events: c.events, Env: c.env.component(),
	}))
}
