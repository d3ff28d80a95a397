package roles

import (
	"context"
	"net/netip"

	"github.com/liqod/liqod/api/generated/informers/externalversions"
	"github.com/liqod/liqod/kube/client"
	"github.com/liqod/liqod/netfabric/agent"
	"github.com/liqod/liqod/netfabric/ipam"
	"github.com/liqod/liqod/roles/config"
)

// ipamWorkers is how many claims of a kind are worked on at once. All of them write the same
// record, one after the other.
const ipamWorkers = 2

func buildIPAM(_ context.Context, env Env) (Parts, error) {
	h, err := newHome(env, env.Config.Namespace, "liqod-ipam")
	if err != nil {
		return Parts{}, err
	}
	own := externalversions.NewSharedInformerFactoryWithOptions(h.plain.liqo, 0, externalversions.WithTransform(client.StripManagedFields))
	group, cfg, network := own.IPAM().V1alpha1(), env.Config.IPAM, env.Config.Networking
	allocator, err := agent.NewAllocator(agent.AllocateConfig{
		Pools: config.Prefixes(cfg.Pools), Keep: config.Prefixes(cfg.Keep), External: config.Prefixes(network.ExternalCIDRs), Reserved: reservedRanges(network),
		Client: h.fenced.liqo, Networks: group.Networks(), IPs: group.IPs(), AddressPools: group.AddressPools(),
		Clock: env.Clock, Log: env.Log, Observer: env.Observer,
	})
	if err != nil {
		return Parts{}, err
	}
	return Parts{Leader: h.lease, Actors: []Actor{
		{Name: "caches", Run: runFactories(own)},
		{Name: "allocator", Leased: true, Run: func(ctx context.Context) error { return allocator.Run(ctx, ipamWorkers) }},
	}}, nil
}

// reservedRanges are what no peer is seen under.
func reservedRanges(cfg config.Networking) (out []ipam.Range) {
	add := func(ranges []netip.Prefix, name string) {
		for _, r := range ranges {
			out = append(out, ipam.Range{Prefix: r, Name: name})
		}
	}
	add(config.Prefixes(cfg.PodCIDRs), "a pod range of this cluster")
	add(config.Prefixes(cfg.ServiceCIDRs), "a Service range of this cluster")
	add(config.Prefixes(cfg.NodeCIDRs), "a range of this cluster's nodes")
	add(config.Prefixes(cfg.ReservedSubnets), "a range of networking.reservedSubnets")
	return out
}
