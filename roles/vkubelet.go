package roles

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	"github.com/liqod/liqod/kube/client"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/serve"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/peering/link"
	"github.com/liqod/liqod/reflect/engine"
	"github.com/liqod/liqod/reflect/forge"
	"github.com/liqod/liqod/reflect/kinds"
	"github.com/liqod/liqod/roles/config"
	"github.com/liqod/liqod/shadow/kubelet"
	"github.com/liqod/liqod/shadow/virtualnode"
)

// gcPercent makes the garbage collector run more often than by default. A consumer with many
// virtual nodes runs many vkubelets, and the live heap of each is small beside the garbage
// of a burst of changes.
const gcPercent = 50

func buildVKubelet(_ context.Context, env Env) (Parts, error) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	v := &vkubelet{env: env}
	v.namespace, v.name, _ = strings.Cut(env.Config.VKubelet.VirtualNode, "/")
	var err error
	if v.home, err = newHome(env, v.namespace, "vk-"+v.name); err != nil {
		return Parts{}, err
	}
	v.findAddress()
	v.eventsDropped = newEventsDropped(env.Registry)
	if err = v.watch(); err != nil {
		return Parts{}, err
	}
	server, err := v.kubeletServer()
	if err != nil {
		return Parts{}, err
	}
	v.addMetrics()
	var stopEvents func()
	v.events, stopEvents = newRecorder(v.home, corev1.EventSource{Component: "liqod-vkubelet", Host: v.name})
	return Parts{Leader: v.home.lease, Actors: []Actor{
		{Name: "caches", Run: func(ctx context.Context) error {
			defer stopEvents()
			return v.runCaches(ctx)
		}},
		{Name: "certificate", Run: v.serving.Run},
		{Name: "kubelet-api", Run: server.Run},
		{Name: "addresses", Run: v.runAddresses},
		{Name: "node", Leased: true, Run: v.keeper.Run},
		{Name: "pods", Leased: true, Run: v.runPods},
	}}, nil
}

// findAddress reads the address under which the API server reaches this vkubelet, which is also
// the host IP of the pods. The configuration accepts nothing else.
func (v *vkubelet) findAddress() {
	cfg := v.env.Config.VKubelet
	address, _ := netip.ParseAddr(cfg.NodeAddress)
	_, port, _ := net.SplitHostPort(cfg.ListenAddress)
	number, _ := strconv.ParseUint(port, 10, 16)
	v.addresses, v.port = []netip.Addr{address}, int32(number)
}

// watch makes the caches of every replica.
func (v *vkubelet) watch() error {
	v.tenant = externalversions.NewSharedInformerFactoryWithOptions(v.home.plain.liqo, 0,
		externalversions.WithNamespace(v.namespace), externalversions.WithTransform(client.StripManagedFields))
	v.kube = stripped(v.home.plain.kube, informers.WithNamespace(v.namespace))
	v.nodes = stripped(v.home.plain.kube, named(v.name))
	v.credentials = &link.Credentials{
		VirtualNodes: v.tenant.Offloading().V1beta1().VirtualNodes(), Secrets: v.kube.Core().V1().Secrets(),
		Namespace: v.namespace, Name: v.name, Log: v.env.Log,
	}
	if err := v.credentials.Watch(); err != nil {
		return err
	}
	if err := v.watchAddresses(); err != nil {
		return err
	}
	var addresses []string
	for _, a := range v.addresses {
		addresses = append(addresses, a.String())
	}
	v.keeper = virtualnode.NewKeeper(virtualnode.KeeperConfig{
		Kube: v.home.fenced.kube, VirtualNodes: v.tenant.Offloading().V1beta1().VirtualNodes(), Nodes: v.nodes.Core().V1().Nodes(),
		ForeignClusters: v.tenant.Core().V1beta1().ForeignClusters(),
		Namespace:       v.namespace,
		NodeSettings: virtualnode.NodeSettings{
			Name: v.name, Addresses: addresses, Port: v.port, Untainted: !v.env.Config.VKubelet.NodeTaint, OwnZone: v.env.Config.VKubelet.OwnZone,
			Closed:    v.env.Config.Reflection.Pod.Workers == 0,
			NoVolumes: v.env.Config.Reflection.PersistentVolumeClaim.Workers == 0,
			Grace:     v.env.Config.Health.UnknownGrace,
		},
		LeaseDuration: v.env.Config.VKubelet.NodeLeaseDuration, Identity: v.home.identity,
		Clock: v.env.Clock, Log: v.env.Log, Observer: v.env.Observer,
	})
	return nil
}

func (v *vkubelet) kubeletServer() (*kubelet.Server, error) {
	var err error
	v.serving, err = serve.NewKubeletCertificate(serve.KubeletCertificateConfig{
		Client: v.home.plain.kube.CertificatesV1(), NodeName: v.name,
		DNSNames: []string{v.name}, Addresses: v.addresses,
		Directory: v.env.Config.VKubelet.CertificateDirectory, Log: v.env.Log,
	})
	if err != nil {
		return nil, err
	}
	return kubelet.New(kubelet.Config{
		NodeName: v.name, Address: v.env.Config.VKubelet.ListenAddress, GetCertificate: v.serving.GetCertificate,
		Kube: v.home.plain.kube, Remote: v.remoteConfig, Pods: v.lookup(), Clock: v.env.Clock, Log: v.env.Log.Named("kubelet-api"),
		Closed: func() { v.env.Closed("kubelet") },
	})
}

// lookup returns the Lookup that finds the pods of the node for its kubelet API.
func (v *vkubelet) lookup() kubelet.Lookup {
	return kubelet.Lookup{
		Namespace: v.namespace, Name: v.name, Kube: v.home.plain.kube, VirtualNodes: v.credentials.VirtualNodes.Lister(),
		NamespaceMaps: v.tenant.Offloading().V1beta1().NamespaceMaps().Lister(),
		Provider: func() (kubernetes.Interface, error) {
			_, provider, err := v.remote()
			return provider, err
		},
		Held: v.heldPods,
	}
}

func (v *vkubelet) runCaches(ctx context.Context) error {
	// The kubelet API of every replica uses the NamespaceMaps.
	v.tenant.Offloading().V1beta1().NamespaceMaps().Informer()
	factories := []factory{v.tenant, v.kube, v.nodes}
	if v.clusters != nil {
		factories = append(factories, v.clusters)
	}
	return runFactories(factories...)(ctx)
}

// runPods offloads pods while this replica leads, always with the current credentials.
func (v *vkubelet) runPods(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), v.credentials.VirtualNodes.Informer().HasSynced, v.credentials.Secrets.Informer().HasSynced, v.addressesKnown) {
		return nil
	}
	return v.credentials.Use(ctx, v.offload, func(reason error) {
		v.env.Log.Warn("no credentials for the provider", zap.Error(reason))
		v.tell(link.ProviderState{Ready: new(bool), Reason: corev1beta1.ReasonInvalidCredentials, Message: reason.Error()})
	})
}

func (v *vkubelet) tell(s link.ProviderState) {
	v.keeper.SetRemote(func(r *virtualnode.Remote) {
		r.Ready, r.Reason, r.Message, r.Silent = s.Ready, s.Reason, s.Message, s.Silent
		if s.Version.GitVersion != "" {
			r.Version = s.Version
		}
	})
}

// offload runs until ctx ends. It runs the reflection of pods and volumes, the reflection
// of the shared kinds, and the check of the provider.
func (v *vkubelet) offload(ctx context.Context, way *client.Way) error {
	vn := store.Known(v.credentials.VirtualNodes.Lister().VirtualNodes(v.namespace).Get(v.name))
	if vn == nil {
		<-ctx.Done() // the VirtualNode was just deleted; this vkubelet will be deleted too
		return nil
	}
	provider, err := v.home.toPeer(v.env, vn.Spec.ClusterID, way.Config())
	if err != nil {
		return err
	}
	// The factories end with the term of leadership, because a standby holds no pods.
	local := stripped(v.home.plain.kube, where("spec.nodeName", v.name))
	maps := externalversions.NewSharedInformerFactoryWithOptions(v.home.plain.liqo, 0, externalversions.WithNamespace(v.namespace))
	nodes := stripped(v.home.plain.kube, named(v.name))
	offloaded, err := engine.NewFollower(maps.Offloading().V1beta1().NamespaceMaps(), v.namespace, vn.Spec.ClusterID)
	if err != nil {
		return err
	}
	for _, loop := range []string{"pods", kinds.TokensLoop, "claims", kinds.LossesLoop} {
		defer v.env.Tracker.Forget(loop) // objects that an ended loop had queued do not count as late
	}
	check := link.NewCheck(link.CheckConfig{
		Provider: provider.kube, Namespace: corev1beta1.TenantNamespace(v.env.Config.ClusterID), RecordedUID: func(ctx context.Context) (types.UID, error) { return v.recordedUID(ctx, vn.Spec.ClusterID) },
		Window: v.env.Config.Probe.Window(), Interval: v.env.Config.Probe.Interval, Timeout: v.env.Config.Probe.Timeout,
		OnState: v.tell, Env: v.env.component(),
	})
	v.pods.Swap(local.Core().V1().Pods().Informer())
	defer v.pods.Swap(nil)
	node := kinds.OfNode{Node: v.name, Target: engine.Target{
		Namespaces: offloaded, VirtualNodes: maps.Offloading().V1beta1().VirtualNodes(),
		TenantNamespace: v.namespace, Origin: v.env.Config.ClusterID, Destination: vn.Spec.ClusterID,
		SkipLabels: v.env.Config.Reflection.SkipLabels, SkipAnnotations: v.env.Config.Reflection.SkipAnnotations,
		Gate: check.Gate, Verify: check.Verify, HomeLost: v.home.head.Lost, Transform: client.StripManagedFields,
		Recorder: v.events, Env: v.env.component(),
	}}
	claims, volumes := v.newStorage(node, provider)
	shared, err := v.newReflection(node.Target, way.Config())
	if err != nil {
		return err
	}
	pods := kinds.NewPods(kinds.PodsConfig{
		OfNode: node, Home: v.home.fenced.kube, HomeLiqo: v.home.fenced.liqo, Remote: engine.Clients{Kube: provider.kube, Liqo: provider.liqo},
		Pods: local.Core().V1().Pods(), Nodes: nodes.Core().V1().Nodes(),
		API: v.apiAccess(), HomeAPI: v.homeAPI(vn.Spec.ClusterID), HomeDNS: func() (forge.DNS, error) { return v.homeDNS(vn.Spec.ClusterID) }, RightsName: virtualnode.NamespaceBindingName(v.namespace, v.name),
		HostIPs: v.addresses, Behind: shared.behind, Claims: claims, Remapper: v.remapper(vn.Spec.ClusterID),
		Refused: func(reason string) { v.env.Refused(vn.Spec.ClusterID, reason) }, While: check.While, Silent: check.Silent, Workers: v.env.Config.Reflection.Pod.Workers,
		TokenWorkers: v.env.Config.Reflection.ServiceAccount.Workers,
	})
	v.addressed.Swap(addressed{vn.Spec.ClusterID, pods.Resync, func(namespace string) { shared.current().EndpointsChanged(namespace) }})
	defer v.addressed.Swap(addressed{})
	losses, namespaces := v.newLosses(local)
	stop, err := v.startEvents(ctx, node, provider, pods, shared.reflects)
	if err != nil {
		return err
	}
	defer stop()
	check.OnOpen(func() { shared.current().Resync() })
	check.OnOpen(pods.Resync)
	check.OnOpen(claims.Resync)
	defer loop.Start(ctx, check.Run)()
	reflect := func(ctx context.Context) error { return shared.run(ctx, pods.Settled) }
	return together(pods.Run, claims.Run, reflect, losses.Run, v.answerNodePorts(offloaded), runFactories(local, maps, nodes, namespaces, volumes))(ctx)
}

// answerNodePorts returns what answers the node ports of Services in offloaded namespaces at the address of the node.
// The Node lists those of namespaces with services Home, so that the provider reaches them.
func (v *vkubelet) answerNodePorts(offloaded *engine.Follower) func(context.Context) error {
	ports := kubelet.NewNodePorts(v.addresses[0], func(served map[string]string) {
		maps.DeleteFunc(served, func(_, namespace string) bool { return !offloaded.Map().AtHome(namespace) })
		v.keeper.SetRemote(func(r *virtualnode.Remote) { r.NodePorts = strings.Join(slices.Sorted(maps.Keys(served)), ",") })
	}, v.env.Closed, v.env.Log)
	spaces := engine.NewSpaces(func(ctx context.Context, namespace, _ string) (stop func()) {
		services := stripped(v.home.plain.kube, informers.WithNamespace(namespace), without("spec.type", string(corev1.ServiceTypeClusterIP)))
		ctx, cancel := context.WithCancel(ctx)
		if err := ports.Follow(services.Core().V1().Services().Informer()); err != nil { // it has not been stopped
			v.env.Log.Error("node ports are not answered", zap.String("namespace", namespace), zap.Error(err))
		}
		services.Start(ctx.Done())
		return func() {
			cancel()
			services.Shutdown()
			ports.Close(namespace)
		}
	}, func(stop func()) { stop() })
	return func(ctx context.Context) error {
		defer offloaded.Follow(ctx, nil, spaces)()
		<-ctx.Done()
		return nil
	}
}

// newLosses returns the loop that has pods stay on a lost provider as their namespaces say,
// and the factory of its namespaces.
func (v *vkubelet) newLosses(local informers.SharedInformerFactory) (*kinds.Losses, informers.SharedInformerFactory) {
	namespaces := stripped(v.home.plain.kube)
	return kinds.NewLosses(kinds.LossesConfig{
		Home: v.home.fenced.kube, Pods: local.Core().V1().Pods(), Namespaces: namespaces.Core().V1().Namespaces(), Env: v.env.component(),
	}), namespaces
}

// apiAccess returns the settings for the access of offloaded pods to the API server of this
// cluster.
func (v *vkubelet) apiAccess() forge.APIAccess {
	cfg := v.env.Config.VKubelet
	access := forge.APIAccess{Enabled: cfg.EnableAPIServerSupport && v.env.Config.Reflection.ServiceAccount.Workers > 0, PodBound: cfg.TokenBinding == config.TokenBindingPod}
	if host, port, err := net.SplitHostPort(cfg.HomeAPIServer); err == nil { // else it is empty
		access.Host, access.Port = host, port
	}
	return access
}

// recordedUID reads the UID that the ForeignCluster has recorded for a peer.
func (v *vkubelet) recordedUID(ctx context.Context, clusterID string) (types.UID, error) {
	fc, err := store.OrNil(v.home.plain.liqo.CoreV1beta1().ForeignClusters().Get(ctx, clusterID, metav1.GetOptions{}))
	if err != nil || fc == nil {
		return "", err
	}
	return fc.Status.ClusterUID, nil
}
