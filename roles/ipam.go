package roles

import (
	"context"
	"net/netip"
	"slices"

	"go.uber.org/zap"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	discoveryinformers "k8s.io/client-go/informers/discovery/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/liqod/liqod/api/generated/informers/externalversions"
	"github.com/liqod/liqod/kube/client"
	"github.com/liqod/liqod/netfabric/check"
	"github.com/liqod/liqod/netfabric/exchange"
	"github.com/liqod/liqod/roles/config"
)

// ipamWorkers is the number of workers per kind of claim. All of them write the same record,
// one after the other.
const ipamWorkers = 2

func buildIPAM(_ context.Context, env Env) (Parts, error) {
	h, err := newHome(env, env.Config.Namespace, "liqod-ipam")
	if err != nil {
		return Parts{}, err
	}
	own := externalversions.NewSharedInformerFactoryWithOptions(h.plain.liqo, 0, externalversions.WithTransform(client.StripManagedFields))
	core := informers.NewSharedInformerFactoryWithOptions(h.plain.kube, 0, informers.WithTransform(check.TrimNode))
	endpoints := apiServerSlices(h.plain.kube)
	group, cfg, network := own.IPAM().V1alpha1(), env.Config.IPAM, env.Config.Networking
	ranges, err := newRanges(network, core, endpoints.Discovery().V1().EndpointSlices(), env.Log)
	if err != nil {
		return Parts{}, err
	}
	peers := own.Core().V1beta1().ForeignClusters()
	allocator, err := exchange.NewAllocator(exchange.AllocateConfig{
		Pools: config.Prefixes(cfg.Pools), Keep: perPeer(env.Config, peers.Lister(), func(c config.Config) []netip.Prefix { return config.Prefixes(c.IPAM.Keep) }), External: config.Prefixes(network.ExternalCIDRs), Reserved: ranges,
		Base:     exchange.Base{Env: env.component(), Client: h.fenced.liqo, ForeignClusters: peers},
		Networks: group.Networks(), IPs: group.IPs(), AddressPools: group.AddressPools(),
	})
	if err != nil {
		return Parts{}, err
	}
	return Parts{Leader: h.lease, Actors: []Actor{
		{Name: "caches", Run: runFactories(own, core, endpoints)},
		{Name: "ranges", Run: ranges.Run},
		{Name: "allocator", Leased: true, Run: func(ctx context.Context) error { return allocator.Run(ctx, ipamWorkers) }},
	}}, nil
}

// apiServerSlices has the EndpointSlices of the API server.
func apiServerSlices(kube kubernetes.Interface) informers.SharedInformerFactory {
	return stripped(kube, informers.WithNamespace(metav1.NamespaceDefault), labelled(discoveryv1.LabelServiceName+"="+exchange.APIServerService))
}

// newRanges finds the ranges of this cluster. It adds the ranges that the informers of core
// report to those of the configuration. apiServer is nil for a role that does not need the
// addresses of the API server.
func newRanges(cfg config.Networking, core informers.SharedInformerFactory, apiServer discoveryinformers.EndpointSliceInformer, log *zap.Logger) (*exchange.Ranges, error) {
	return exchange.NewRanges(exchange.RangesConfig{
		Given: givenRanges(cfg), Nodes: core.Core().V1().Nodes(), ServiceCIDRs: core.Networking().V1().ServiceCIDRs(), APIServer: apiServer, Log: log,
	})
}

// givenRanges returns the configured ranges of this cluster. The view of a peer must not lie
// in the ranges of the nodes, but the gateways of a peer may have addresses there.
func givenRanges(cfg config.Networking) check.Own {
	return check.Own{
		Pods: config.Prefixes(cfg.PodCIDRs), External: config.Prefixes(cfg.ExternalCIDRs), Services: config.Prefixes(cfg.ServiceCIDRs),
		Reserved: slices.Concat(config.Prefixes(cfg.NodeCIDRs), config.Prefixes(cfg.ReservedSubnets)),
	}
}
