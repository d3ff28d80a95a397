package roles

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/netfabric/exchange"
	"github.com/liqod/liqod/netfabric/host"
	"github.com/liqod/liqod/peering/link"
)

// networkBase returns what the loops of networks and addresses have in common.
func (c *controller) networkBase(own clients) exchange.Base {
	return exchange.Base{Env: c.env.component(), Client: own.liqo, ForeignClusters: c.liqo.Core().V1beta1().ForeignClusters()}
}

// addNetwork wires the loops that negotiate the networks of this cluster and its peers. If
// networking.enabled is false, the loops run as well, and delete the objects that they
// created while it was true. It returns the one that publishes.
func (c *controller) addNetwork() (*exchange.Publisher, error) {
	networking := c.liqo.Networking().V1beta1()
	var err error
	if c.ranges, err = c.findRanges(); err != nil {
		return nil, err
	}
	cfg := exchange.NegotiationConfig{
		ClusterID: c.env.Config.ClusterID, Off: !c.env.Config.Networking.Enabled, Own: c.ranges, Gateways: c.gateways,
		Base: c.networkBase(c.home.fenced), Offers: c.liqo.Sharing().V1alpha1().ResourceOffers(),
		Configurations: networking.Configurations(), Connections: networking.Connections(), Offloadings: c.liqo.Offloading().V1beta1().NamespaceOffloadings(),
		Networks: c.liqo.IPAM().V1alpha1().Networks(),
	}
	publisher := exchange.NewPublisher(cfg)
	c.addLoop("network-exchanged", exchange.NewExchange(cfg))
	standing := exchange.NewNetworkStatus(cfg)
	c.conditions.AddSource(corev1beta1.ConditionNetwork, standing)
	c.conditions.AddSource(corev1beta1.ConditionAPIServer, append([]link.Source{exchange.PeerServers{NetworkStatus: standing}}, c.addHeartbeat()...)...)
	c.addLoop("network-published", publisher)
	return publisher, nil
}

// findRanges follows the ranges of this cluster. Without the network fabric no loop uses
// them, and the controller has no right to read ServiceCIDRs.
func (c *controller) findRanges() (*exchange.Ranges, error) {
	cfg := c.env.Config.Networking
	if !cfg.Enabled {
		return exchange.NewRanges(exchange.RangesConfig{Given: givenRanges(cfg), Nodes: c.own.Core().V1().Nodes(), Log: c.env.Log})
	}
	ranges, err := newRanges(cfg, c.own, c.apiServer.Discovery().V1().EndpointSlices(), c.env.Log)
	if err != nil {
		return nil, err
	}
	c.actors = append(c.actors, Actor{Name: "ranges", Run: ranges.Run})
	return ranges, nil
}

// knownRanges returns the ranges of this cluster, and those under which it sees its peers.
func (c *controller) knownRanges() ([]netip.Prefix, error) {
	claims := c.liqo.IPAM().V1alpha1().Networks().Informer()
	if !claims.HasSynced() {
		return nil, errors.New("the Networks are not read yet")
	}
	own, err := c.ranges.Own()
	known := slices.Concat(own.Pods, own.Services, own.External)
	for _, n := range store.All[*ipamv1alpha1.Network](claims.GetStore()) {
		if view, ok := n.Status.CIDR.Prefix(); ok {
			known = append(known, view)
		}
	}
	return known, err
}

// followGateways follows the announcements of this cluster's gateways.
func (c *controller) followGateways() {
	if !c.env.Config.Networking.Enabled {
		c.gateways = unannounced{}
		return
	}
	namespace := c.env.Config.Namespace
	c.leases = gatewayLeases(c.home.plain.kube, namespace)
	gateways := host.NewLeaseGateways(c.leases.Coordination().V1().Leases(), c.env.Clock, c.env.Log)
	c.gateways = gateways
	c.actors = append(c.actors, Actor{Name: "gateways", Run: func(ctx context.Context) error {
		return gateways.Judge(ctx, c.home.plain.kube.CoordinationV1().Leases(namespace), c.env.Config.Lease.RetryPeriod)
	}})
}

// unannounced stands for the gateways of a cluster without the network fabric. It reports
// that they are not known.
type unannounced struct{}

// Gateways implements exchange.Gateways.
func (unannounced) Gateways() ([]networkingv1beta1.Gateway, bool) { return nil, false }

// Alive implements exchange.Gateways.
func (unannounced) Alive() bool { return true }

// MTU implements exchange.Gateways.
func (unannounced) MTU() int32 { return 0 }

// Subscribe implements exchange.Gateways.
func (unannounced) Subscribe(func()) {}
