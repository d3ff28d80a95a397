package roles

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/client"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/netfabric/exchange"
	"github.com/liqod/liqod/peering/link"
	"github.com/liqod/liqod/peering/offer"
	"github.com/liqod/liqod/reflect/replication"
	"github.com/liqod/liqod/roles/config"
	"github.com/liqod/liqod/shadow/endpoints"
	"github.com/liqod/liqod/shadow/namespace"
	"github.com/liqod/liqod/shadow/pod"
	"github.com/liqod/liqod/shadow/virtualnode"
)

// controllerLease is the name of the Lease of role controller.
const controllerLease = "liqod-controller"

// controllerAccount is the name of the service account of role controller, to which the chart
// gives its rights.
const controllerAccount = "liqod-controller"

func buildController(_ context.Context, env Env) (Parts, error) {
	c := &controller{env: env, cfg: env.Config.Controller}
	var err error
	if c.home, err = newHome(env, env.Config.Namespace, controllerLease); err != nil {
		return Parts{}, err
	}
	directions := env.Config.Peering
	c.outgoing, c.incoming = link.NewPolicy(directions.Outgoing, directions.OutgoingSelector), link.NewPolicy(directions.Incoming, directions.IncomingSelector)
	c.makeFactories()
	events, stopEvents := newRecorder(c.home, corev1.EventSource{Component: "liqod-controller"})
	c.events = events
	c.addPeering()
	consumer := c.addOffers()
	c.followGateways()
	publisher, err := c.addNetwork()
	if err = errors.Join(err, c.addVirtualNodes(consumer)); err != nil {
		return Parts{}, err
	}
	c.addReplication(consumer, publisher)
	c.addNamespaces()
	c.addWorkload()
	c.addEndpoints()
	c.addStorage()
	c.addAddresses()
	c.addAuthentication()
	c.addJoin()
	c.addDiscovery()
	c.addWebhookCertificates()
	c.addAnnouncements()
	c.addMetrics()
	caches := Actor{Name: "caches", Run: func(ctx context.Context) error {
		defer stopEvents()
		factories := []factory{c.own, c.vkubelets, c.pods, c.slices, c.selected, c.requests, c.apiServer, c.heartbeats, c.bounds, c.volumes, c.there, c.liqo}
		if c.leases != nil {
			factories = append(factories, c.leases)
		}
		return runFactories(factories...)(ctx)
	}}
	return Parts{Leader: c.home.lease, Actors: append(c.actors, caches)}, nil
}

func (c *controller) makeFactories() {
	core := c.home.plain.kube
	c.own = stripped(core)
	c.vkubelets = stripped(core, labelled(offloadingv1beta1.VirtualNodeLabel))
	c.pods = stripped(core, labelled(offloadingv1beta1.ManagedByLabel+"="+offloadingv1beta1.ManagedByShadowPod))
	c.slices = stripped(core, labelled(discoveryv1.LabelManagedBy+"="+offloadingv1beta1.ManagedByShadowEndpointSlice))
	c.selected = informers.NewSharedInformerFactoryWithOptions(core, 0, informers.WithTransform(endpoints.TrimOwn),
		labelled(discoveryv1.LabelManagedBy+"=endpointslice-controller.k8s.io,"+offloadingv1beta1.OriginLabel))
	c.apiServer = apiServerSlices(core)
	c.heartbeats = informers.NewSharedInformerFactoryWithOptions(core, 0, informers.WithTransform(link.TrimLease), named(corev1beta1.HeartbeatLease))
	c.bounds = stripped(core, named(offloadingv1beta1.TwinBounds))
	c.volumes = stripped(core, labelled(offloadingv1beta1.LocalClaimUIDLabel))
	c.there = stripped(core, labelled(corev1beta1.RemoteClusterIDLabel))
	c.requests = stripped(core, where("spec.signerName", certificatesv1.KubeletServingSignerName))
	c.liqo = externalversions.NewSharedInformerFactoryWithOptions(c.home.plain.liqo, 0, externalversions.WithTransform(client.StripManagedFields))
}

func (c *controller) addPeering() {
	base := c.peeringBase()
	c.directory = link.NewDirectory(link.DirectoryConfig{
		Base: base,
		Connect: link.Connector(client.Settings{
			UserAgent: c.env.UserAgent, Observer: c.env.Requests("peers"), Gate: c.home.lease.Fence(),
			MaxWrites: writesInFlight, Log: c.env.Log,
		}, c.env.foreign),
	})
	c.conditions = link.NewConditions(link.ConditionsConfig{
		Base: base, Directory: c.directory, VirtualNodes: c.liqo.Offloading().V1beta1().VirtualNodes(),
		Window: c.env.Config.Probe.Window(), Interval: c.env.Config.Probe.Interval, Timeout: c.env.Config.Probe.Timeout, Probed: probeSeconds(c.env.Registry),
	})
	c.addLoop("rights", link.NewRights(link.RightsConfig{
		Base: base, OwnNamespace: c.env.Config.Namespace, ServiceAccount: controllerAccount,
		RoleBindings: c.own.Rbac().V1().RoleBindings(), ClusterRoleBindings: c.own.Rbac().V1().ClusterRoleBindings(),
	}))
	c.actors = append(c.actors, Actor{Name: "directory", Run: c.directory.Run}) // heartbeats need it in every replica
	c.addLoop("conditions", c.conditions)
	c.leased("vouch", link.NewVouch(link.VouchConfig{Base: base, Clock: c.env.Clock}).Run)
}

// addReplication wires the replicator of what peers ask of each other.
func (c *controller) addReplication(consumer *offer.Consumer, publisher *exchange.Publisher) {
	replicator := replication.New(replication.Config{
		ClusterID: c.env.Config.ClusterID, Kube: c.home.fenced.kube, Liqo: c.home.fenced.liqo, Maps: c.liqo.Offloading().V1beta1().NamespaceMaps(),
		Requests: c.liqo.Sharing().V1alpha1().ResourceRequests(), Offers: c.liqo.Sharing().V1alpha1().ResourceOffers(),
		CapacityWanted: consumer.Wanted, Configurations: c.liqo.Networking().V1beta1().Configurations(), NetworkPublished: publisher.Wanted,
		Peers: c, Env: c.env.component(), Forget: c.env.Tracker.Forget, HomeLost: c.home.head.Lost,
		Delayed: func(peer string) { c.env.Refused(peer, replication.RefusedRate) },
	})
	c.directory.Subscribe(replicator.Changed)
	// A peer with rights in this cluster pushes its Configuration. The replicator pulls that of every
	// other peer. The call fails for an informer that has stopped only.
	_, _ = c.liqo.Core().V1beta1().ForeignClusters().Informer().AddEventHandler(store.Each(func(fc *corev1beta1.ForeignCluster) { replicator.Changed(fc.Spec.ClusterID) }))
	c.leased("replica", func(ctx context.Context) error {
		// The replicator pulls the Configurations of peers without rights in this cluster.
		if !cache.WaitForCacheSync(ctx.Done(), c.liqo.Core().V1beta1().ForeignClusters().Informer().HasSynced) {
			return nil
		}
		return replicator.Run(ctx)
	})
}

// Peer implements replication.Peers.
func (c *controller) Peer(clusterID string) (replication.Peer, bool) {
	e, ok := c.directory.Endpoint(clusterID)
	if !ok || e.Problem != "" {
		return replication.Peer{}, false
	}
	pull := c.env.Config.Networking.Enabled && !c.admitted(clusterID)
	return replication.Peer{
		Revision: fmt.Sprintf("%s %t", e.Revision, pull), Liqo: e.Clients.Liqo, PullNetwork: pull,
		Identity: func(ctx context.Context) error { return c.conditions.Identity(ctx, clusterID, e.Clients.Kube) },
	}, true
}

// admitted reports whether a peer has rights in this cluster.
func (c *controller) admitted(clusterID string) bool {
	fc, err := c.liqo.Core().V1beta1().ForeignClusters().Lister().Get(clusterID)
	return err == nil && fc.Spec.UserName != ""
}

func (c *controller) addNamespaces() {
	base := namespace.Base{
		ClusterID: c.env.Config.ClusterID, OwnNamespace: c.env.Config.Namespace, Kube: c.home.fenced.kube, Liqo: c.home.fenced.liqo,
		Maps: c.liqo.Offloading().V1beta1().NamespaceMaps(), Namespaces: c.own.Core().V1().Namespaces(), Env: c.env.component(),
	}
	c.addLoop("namespace-offloadings", namespace.NewOffloading(namespace.OffloadingConfig{
		Base: base, Offloadings: c.liqo.Offloading().V1beta1().NamespaceOffloadings(),
		VirtualNodes: c.liqo.Offloading().V1beta1().VirtualNodes(), Nodes: c.own.Core().V1().Nodes(),
	}))
	maps := namespace.NewMaps(namespace.MapsConfig{
		Base: base, ServiceAccount: controllerAccount, PodSecurityLevel: c.cfg.PodSecurityLevel,
		TwinNames:         perPeer(c.env.Config, c.liqo.Core().V1beta1().ForeignClusters().Lister(), func(cfg config.Config) []string { return cfg.Controller.TwinNames }),
		NamespacesPerPeer: c.env.Config.Sharing.NamespacesPerPeer, Bounds: c.twinBounds(),
		ForeignClusters: c.liqo.Core().V1beta1().ForeignClusters(),
		RoleBindings:    c.own.Rbac().V1().RoleBindings(), Quotas: c.liqo.Offloading().V1beta1().Quotas(), Events: c.events,
	})
	maps.Await(c.ranges.HasSynced) // NetworkPolicies name them
	c.addLoop("namespace-maps", maps)
}

// twinBounds returns the settings of what bounds each twin namespace.
func (c *controller) twinBounds() namespace.BoundsConfig {
	sharing := c.env.Config.Sharing
	storage, _ := resource.ParseQuantity(sharing.StoragePerPeer) // empty: 0
	limits := config.Amounts(sharing.TwinLimits)
	delete(limits, corev1.ResourcePods) // package pod keeps these two
	delete(limits, pod.CountPods)
	return namespace.BoundsConfig{
		Storage: storage.Value(),
		Limits:  limits, NetworkPolicy: sharing.NetworkPolicy, Fabric: c.env.Config.Networking.Enabled,
		Reachable: config.Prefixes(sharing.ReachableRanges), Own: c.ranges.Addresses, OwnChanged: c.ranges.Subscribe,
		ResourceQuotas: c.bounds.Core().V1().ResourceQuotas(), NetworkPolicies: c.bounds.Networking().V1().NetworkPolicies(),
		Connections: c.liqo.Networking().V1beta1().Connections(),
	}
}

func (c *controller) addVirtualNodes(consumer *offer.Consumer) error {
	base := virtualnode.Base{
		Env: c.env.component(), Kube: c.home.fenced.kube, VirtualNodes: c.liqo.Offloading().V1beta1().VirtualNodes(), Nodes: c.own.Core().V1().Nodes(), Events: c.events,
	}
	lifecycle, err := virtualnode.NewLifecycle(virtualnode.Config{
		Base: base, Wanted: consumer.Wanted, Liqo: c.home.fenced.liqo, NamespaceMaps: c.liqo.Offloading().V1beta1().NamespaceMaps(),
		Deployments: c.vkubelets.Apps().V1().Deployments(), Budgets: c.vkubelets.Policy().V1().PodDisruptionBudgets(),
		ServiceAccounts: c.vkubelets.Core().V1().ServiceAccounts(), RoleBindings: c.vkubelets.Rbac().V1().RoleBindings(),
		ClusterRoleBindings: c.vkubelets.Rbac().V1().ClusterRoleBindings(),
		VirtualKubelet:      vkubeletDefaults(c.env.Config),
		NotReflected:        offloadingv1beta1.NotReflected{Labels: c.env.Config.Reflection.SkipLabels, Annotations: c.env.Config.Reflection.SkipAnnotations},
		Drain:               virtualnode.DrainConfig{Timeout: c.cfg.DrainTimeout, ForceAfter: c.cfg.DrainForceAfter},
	})
	if err != nil {
		return err
	}
	c.addLoop("virtual-nodes", lifecycle)
	address, _ := netip.ParseAddr(c.cfg.VKubelet.NodeAddress) // empty, or an address: the configuration accepts nothing else
	c.addLoop("certificate-approval", virtualnode.NewApprover(virtualnode.ApproverConfig{
		Base: base, Requests: c.requests.Certificates().V1().CertificateSigningRequests(), NodeAddress: address,
	}))
	return nil
}

func (c *controller) addEndpoints() {
	c.addLoop("shadow-endpoint-slices", endpoints.New(endpoints.Config{
		Kube: c.home.fenced.kube, Liqo: c.home.fenced.liqo,
		Shadows: c.liqo.Offloading().V1beta1().ShadowEndpointSlices().Informer(), Slices: c.slices.Discovery().V1().EndpointSlices().Informer(),
		Own:        c.selected.Discovery().V1().EndpointSlices().Informer(),
		Namespaces: c.own.Core().V1().Namespaces().Informer(), ForeignClusters: c.liqo.Core().V1beta1().ForeignClusters().Informer(),
		Nodes: c.own.Core().V1().Nodes().Informer(), Pods: c.pods.Core().V1().Pods().Informer(), Remap: c.remapper(),
		Metadata: perPeer(c.env.Config, c.liqo.Core().V1beta1().ForeignClusters().Lister(), metadataOf), Grace: c.env.Config.Health.UnknownGrace,
		Names: perPeer(c.env.Config, c.liqo.Core().V1beta1().ForeignClusters().Lister(), func(cfg config.Config) bool {
			return slices.Contains(cfg.Sharing.ServiceTypes, string(corev1.ServiceTypeExternalName))
		}),
		SharesZones: c.env.Config.Reflection.SharesZones,
		Recorder:    c.events, Env: c.env.component(),
	}))
}

// vkubeletDefaults returns the defaults of vkubelet Deployments. A vkubelet gets the
// settings of this process.
func vkubeletDefaults(cfg *config.Effective) virtualnode.VirtualKubeletDefaults {
	t := cfg.Controller.VKubelet
	args := cfg.VKubeletArgs()
	if t.NodeAddress != "" {
		args = append(args, "--vkubelet.nodeAddress="+t.NodeAddress)
	}
	var secrets []corev1.LocalObjectReference
	for _, name := range t.ImagePullSecrets {
		secrets = append(secrets, corev1.LocalObjectReference{Name: name})
	}
	return virtualnode.VirtualKubeletDefaults{
		Image: t.Image, ImagePullPolicy: corev1.PullPolicy(t.ImagePullPolicy), ImagePullSecrets: secrets,
		Replicas: int32(t.Replicas), PriorityClassName: t.PriorityClassName, Resources: resources(t.Resources), Args: append(args, t.ExtraArgs...),
		NodeSelector: config.Pairs(t.NodeSelector), Tolerations: config.Tolerations(t.Tolerations), Spread: t.Spread,
	}
}

func resources(r config.Resources) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: quantities(r.CPURequest, r.MemoryRequest),
		Limits:   quantities(r.CPULimit, r.MemoryLimit),
	}
}

// quantities returns the amounts of CPU and memory. The validation of the configuration has
// parsed them before.
func quantities(cpu, memory string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, value := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
		if q, err := resource.ParseQuantity(value); value != "" && err == nil {
			list[name] = q
		}
	}
	return list
}
