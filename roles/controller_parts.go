package roles

import (
	"context"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/record"

	"github.com/liqod/liqod/api/generated/informers/externalversions"
	"github.com/liqod/liqod/netfabric/exchange"
	"github.com/liqod/liqod/peering/link"
	"github.com/liqod/liqod/roles/config"
)

// controller wires the loops of role controller. Every replica fills its caches, so that a
// standby can take over at once. The loops run under the lease.
type controller struct {
	env    Env
	cfg    config.Controller
	home   home
	events record.EventRecorder

	own informers.SharedInformerFactory // all objects of kinds of Kubernetes
	// vkubelets has the objects that the controller creates for virtual nodes. pods and
	// slices have the Pods and EndpointSlices that it creates for peers.
	vkubelets, pods, slices, requests informers.SharedInformerFactory
	// selected has the EndpointSlices of pods that Services of peers select.
	selected informers.SharedInformerFactory
	// apiServer has the EndpointSlices of the API server.
	apiServer informers.SharedInformerFactory
	// heartbeats has the heartbeat Leases of peers.
	heartbeats informers.SharedInformerFactory
	// bounds has the ResourceQuotas and NetworkPolicies of twin namespaces.
	bounds informers.SharedInformerFactory
	// volumes has the PersistentVolumes that have the data of other claims of this cluster.
	volumes informers.SharedInformerFactory
	// there has the PersistentVolumes whose data is in a provider.
	there informers.SharedInformerFactory
	// leases has the Leases of gateways. It is nil without the network fabric.
	leases informers.SharedInformerFactory
	liqo   externalversions.SharedInformerFactory

	outgoing, incoming link.Policy // of peerings

	directory *link.Directory
	// ranges are those of this cluster.
	ranges *exchange.Ranges
	// gateways are the gateways of this cluster.
	gateways exchange.Gateways
	// conditions writes the status of ForeignClusters.
	conditions *link.Conditions
	actors     []Actor
}

// leased adds an actor that runs while this replica leads.
func (c *controller) leased(name string, run func(context.Context) error) {
	c.actors = append(c.actors, Actor{Name: name, Leased: true, Run: run})
}

// runner is a loop with a configurable number of workers.
type runner interface {
	Run(ctx context.Context, workers int) error
}

func (c *controller) addLoop(name string, r runner) {
	c.leased(name, func(ctx context.Context) error { return r.Run(ctx, c.cfg.Workers) })
}

// peeringBase returns what the loops of peerings have in common.
func (c *controller) peeringBase() link.Base {
	return link.Base{
		Env: c.env.component(), ClusterID: c.env.Config.ClusterID, Kube: c.home.fenced.kube, Liqo: c.home.fenced.liqo,
		ForeignClusters: c.liqo.Core().V1beta1().ForeignClusters(), Namespaces: c.own.Core().V1().Namespaces(),
	}
}
