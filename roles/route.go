package roles

import (
	"cmp"
	"context"
	"net"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	"github.com/liqod/liqod/kube/client"
	"github.com/liqod/liqod/netfabric/check"
	"github.com/liqod/liqod/netfabric/host"
	"github.com/liqod/liqod/netfabric/kernel"
	"github.com/liqod/liqod/roles/config"
)

// fabric has the clients and caches of a host of the network fabric.
type fabric struct {
	home      clients
	sources   host.Sources
	liqo      externalversions.SharedInformerFactory
	core      informers.SharedInformerFactory // Nodes
	factories []factory
}

// newFabric makes the clients and caches. It sends no request.
func newFabric(env Env) (*fabric, error) {
	to, err := plainHome(env)
	if err != nil {
		return nil, err
	}
	liqo := externalversions.NewSharedInformerFactoryWithOptions(to.liqo, 0, externalversions.WithTransform(client.StripManagedFields))
	nodes := informers.NewSharedInformerFactoryWithOptions(to.kube, 0, informers.WithTransform(check.TrimNode))
	leases := gatewayLeases(to.kube, env.Config.Namespace)
	gateways := host.NewLeaseGateways(leases.Coordination().V1().Leases(), env.Clock, env.Log)
	return &fabric{
		home: to, liqo: liqo, core: nodes, factories: []factory{liqo, nodes, leases},
		sources: host.Sources{
			Connections: liqo.Networking().V1beta1().Connections(), IPs: liqo.IPAM().V1alpha1().IPs(),
			Nodes: nodes.Core().V1().Nodes(), Gateways: gateways, Client: to.liqo.NetworkingV1beta1(),
		},
	}, nil
}

// shares adds the informers that say which pods of a node peers reach.
func (f *fabric) shares(node string) *host.Shares {
	of := func(those informers.SharedInformerOption) informers.SharedInformerFactory {
		made := informers.NewSharedInformerFactoryWithOptions(f.home.kube, 0, informers.WithTransform(host.TrimShared), those)
		f.factories = append(f.factories, made)
		return made
	}
	return &host.Shares{
		Pods:        of(where("spec.nodeName", node)).Core().V1().Pods(),
		Twins:       of(labelled(host.TwinSelector)).Core().V1().Namespaces(),
		Slices:      of(labelled(host.SliceSelector)).Discovery().V1().EndpointSlices(),
		Offloadings: f.liqo.Offloading().V1beta1().NamespaceOffloadings(),
	}
}

// gatewayLeases returns a factory for the Leases by which gateways announce themselves.
func gatewayLeases(kube kubernetes.Interface, namespace string) informers.SharedInformerFactory {
	return stripped(kube, informers.WithNamespace(namespace), labelled(host.GatewayKey+"=true"))
}

// judge returns an actor that detects dead gateways by their Leases.
func (f *fabric) judge(env Env) func(context.Context) error {
	return func(ctx context.Context) error {
		return f.sources.Gateways.Judge(ctx, f.home.kube.CoordinationV1().Leases(env.Config.Namespace), env.Config.Lease.RetryPeriod)
	}
}

// plainHome makes the clients of a role without a lease.
func plainHome(env Env) (clients, error) {
	base, err := client.Load(client.Options{Kubeconfig: env.Config.Kubeconfig, Getenv: os.Getenv})
	if err != nil {
		return clients{}, err
	}
	return newClients(client.Harden(base, client.Settings{UserAgent: env.UserAgent, Observer: env.Requests("home"), Log: env.Log}))
}

func buildRoute(_ context.Context, env Env) (Parts, error) {
	cfg := env.Config.Route
	f, err := newFabric(env)
	if err != nil {
		return Parts{}, err
	}
	allPods := func(trust corev1beta1.Trust) bool {
		return env.Config.Under(cmp.Or(trust, env.Config.Sharing.Trust)).Networking.Reach == config.ReachAll
	}
	var shares *host.Shares
	if !allPods(corev1beta1.TrustStrict) {
		shares = f.shares(cfg.NodeName)
	}
	network := kernel.New(kernel.Config{Log: env.Log, Wrote: hostWrites(env)})
	node := host.NewNode(host.NodeConfig{
		ClusterID: env.Config.ClusterID, Name: cfg.NodeName, Overlay: uint16(cfg.OverlayPort), AnySender: cfg.AnyOverlaySender, MTU: cfg.MTU,
		Host: network, Sources: f.sources, Open: openProbes, Shares: shares, AllPods: allPods, Clock: env.Clock, Log: env.Log, Observer: env.Observer,
	})
	env.Registry.add(node.Metrics(network))
	env.Ready.Add("route", node.Ready)
	return Parts{Actors: []Actor{
		{Name: "caches", Run: runFactories(f.factories...)},
		{Name: "gateways", Run: f.judge(env)},
		{Name: "node", Run: node.Run},
		{Name: "refusals", Run: func(ctx context.Context) error {
			return node.RecordRefusals(ctx, network, f.home.kube.CoreV1(), corev1.EventSource{Component: "liqod-route", Host: cfg.NodeName})
		}},
	}}, nil
}

// hostWrites returns a counter of the writes to the network of this host. If it grows while
// nothing changes in the cluster, another program reverts the writes.
func hostWrites(env Env) func(kind string) {
	writes := counter("liqod_host_writes_total", "Writes to the network of this host, by kind of object.", "kind")
	env.Registry.add(writes)
	return func(kind string) { writes.WithLabelValues(kind).Inc() }
}

// openProbes opens the socket by which a node probes the gateways of its cluster.
func openProbes() (host.ProbeSocket, error) { return net.ListenUDP("udp", nil) }
