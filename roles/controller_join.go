package roles

import (
	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/peering/join"
	"github.com/liqod/liqod/peering/link"
	"github.com/liqod/liqod/peering/manual"
)

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
	c.loop("join", identities)
	c.loop("ending", manual.NewEnding(manual.EndingConfig{
		Cluster:         manual.Cluster{ID: c.env.Config.ClusterID, Kube: c.home.fenced.kube, Liqo: c.home.fenced.liqo},
		ForeignClusters: c.liqo.Core().V1beta1().ForeignClusters(), Events: c.events, Env: c.env.component(),
	}))
}
