package kinds

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/liqod/liqod/api/generated/clientset/versioned"
	offloadinginformers "github.com/liqod/liqod/api/generated/informers/externalversions/offloading/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/informer"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/reflect/engine"
	"github.com/liqod/liqod/reflect/forge"
)

// PodsConfig configures the offloading of pods through one virtual node.
type PodsConfig struct {
	// Home and HomeLiqod reach the consumer.
	Home     kubernetes.Interface
	HomeLiqo versioned.Interface
	// Remote reaches the provider.
	Remote Remote
	// Pods holds the pods of the virtual node only, Nodes its Node, NamespaceMaps and
	// VirtualNodes those of the tenant namespace.
	Pods          coreinformers.PodInformer
	Nodes         coreinformers.NodeInformer
	NamespaceMaps offloadinginformers.NamespaceMapInformer
	VirtualNodes  offloadinginformers.VirtualNodeInformer
	// TenantNamespace and Node name the VirtualNode; Origin and Destination are the ids of
	// the consumer and of the provider.
	TenantNamespace, Node, Origin, Destination string
	// SkipLabels and SkipAnnotations are keys that stay in the consumer, beside those of
	// the VirtualNode's offloadingPatch, where its status does not say which.
	SkipLabels, SkipAnnotations []string
	// HostIPs replace those of the provider's nodes in pod status.
	HostIPs []netip.Addr
	// Claims has the claims whose data goes to the provider; nil where none does.
	Claims *Claims
	// Remapper translates the addresses of the provider's pods.
	Remapper forge.Remapper
	// API says how pods in the provider reach the consumer's API server, and with what.
	API forge.APIAccess
	// RightsName is the RoleBinding, in each offloaded namespace, with the rights to ask
	// for tokens there.
	RightsName string
	// Gate returns an error while the provider may not be acted upon: it is not known to
	// be the cluster that was peered with.
	Gate func() error
	// Verify asks the provider, now, whether it is that cluster. It is called before
	// anything follows from an absence there.
	Verify func(context.Context) error
	// HomeLost returns when the consumer's state was last seen to have gone back, zero for
	// never. It may be nil.
	HomeLost func() time.Time
	// Transform is applied to what the caches hold.
	Transform cache.TransformFunc
	Recorder  record.EventRecorder
	Clock     clock.PassiveClock
	Log       *zap.Logger
	Observer  loop.Observer
	// Workers is the number of pods worked on at once, TokenWorkers that of tokens.
	Workers, TokenWorkers int
}

// Pods offloads the pods of one virtual node: spec to the provider, status back.
type Pods struct {
	cfg    PodsConfig
	loop   *loop.Loop
	twins  *twins
	tokens *tokens

	// What was written a moment ago, until the caches show it.
	locals  *informer.Writes[*corev1.Pod]
	shadows *informer.Writes[*offloadingv1beta1.ShadowPod]
	remotes *informer.Writes[*corev1.Pod]

	opening sync.Mutex

	mu sync.Mutex
	// moved has the pods whose status is to be written though only its host IP differs.
	moved map[types.UID]bool
	// gone has the last state of the provider's pod of a local pod, by the local UID, from
	// the pod's disappearance until the local pod is gone too.
	gone map[types.UID]departed
	// told has the change that did not arrive and that an event has told of, by the local UID.
	told map[types.UID]string
	// left has the pods, by UID, that this cluster has shown to be deleted while the
	// provider held a ShadowPod for them.
	left map[types.UID]bool
	// doubted says since when a ShadowPod, by the local UID, seems to be of a pod that this
	// cluster has forgotten.
	doubted map[types.UID]time.Time
}

// NewPods returns a Pods that watches; it starts nothing.
func NewPods(cfg PodsConfig) (*Pods, error) {
	p := &Pods{
		cfg: cfg, gone: map[types.UID]departed{}, told: map[types.UID]string{}, moved: map[types.UID]bool{}, left: map[types.UID]bool{}, doubted: map[types.UID]time.Time{},
		locals:  informer.NewWrites[*corev1.Pod](cfg.Clock),
		shadows: informer.NewWrites[*offloadingv1beta1.ShadowPod](cfg.Clock),
		remotes: informer.NewWrites[*corev1.Pod](cfg.Clock),
	}
	p.loop = loop.New(loop.Config{
		Name: "pods", Sync: p.sync, Log: cfg.Log, Observer: cfg.Observer,
		// The twins may be known before the loop runs.
		Beside: func() []loop.Key { return p.twins.keys(corev1.NamespaceAll) },
	})
	p.twins = &twins{
		remote: cfg.Remote, node: cfg.Node, transform: cfg.Transform, log: cfg.Log, byLocal: map[string]*twin{},
		changed:    func(namespace, name string) { p.loop.Wake(loop.Key{Namespace: namespace, Name: name}) },
		gonePod:    p.remember,
		goneShadow: p.shadowGone,
		closed:     p.shadows.ForgetNamespace,
		ready: func(namespace string) {
			p.enqueueNamespace(namespace)
			p.tokens.wakeNamespace(namespace)
		},
	}
	var err error
	if p.tokens, err = newTokens(p); err != nil {
		return nil, err
	}
	p.twins.newShadow = p.tokens.wakeName
	if _, err := p.loop.Watch(cfg.Pods.Informer(), loop.Self); err != nil {
		return nil, err
	}
	for _, inf := range []cache.SharedIndexInformer{cfg.NamespaceMaps.Informer(), cfg.VirtualNodes.Informer(), cfg.Nodes.Informer()} {
		if _, err := p.loop.Watch(inf, func(any) []loop.Key { return nil }); err != nil {
			return nil, err // watched for its initial list only: what it brings is handled in Run
		}
	}
	return p, nil
}

// Run offloads pods until ctx ends. It may be called again after it has returned.
func (p *Pods) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	defer p.tokens.set(ctx, nil)
	defer p.twins.set(ctx, nil)
	remove, err := p.follow(ctx)
	if err != nil {
		return unlessOver(ctx, err)
	}
	defer remove()
	if !cache.WaitForCacheSync(ctx.Done(), p.cfg.NamespaceMaps.Informer().HasSynced, p.cfg.Pods.Informer().HasSynced) {
		return nil
	}
	p.openTwins(ctx) // before any pod is looked at: a namespace without a twin means something
	wg.Go(func() { p.refreshHostIPs(ctx) })
	tokens := make(chan error, 1)
	wg.Go(func() { tokens <- p.tokens.run(ctx) })
	return unlessOver(ctx, errors.Join(p.loop.Run(ctx, p.cfg.Workers), <-tokens))
}

// unlessOver drops an error that comes of the end: informers that have stopped take no
// handlers.
func unlessOver(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// follow keeps the twins as the NamespaceMap says, and looks at every pod again when
// the Node's readiness or the VirtualNode's patch changes.
func (p *Pods) follow(ctx context.Context) (remove func(), err error) {
	maps, err := p.cfg.NamespaceMaps.Informer().AddEventHandler(p.mapHandler(ctx))
	if err != nil {
		return nil, fmt.Errorf("watching NamespaceMaps: %w", err)
	}
	pods, err := p.cfg.Pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
		d, missed := obj.(cache.DeletedFinalStateUnknown)
		if missed {
			obj = d.Obj
		}
		if pod, ok := obj.(*corev1.Pod); ok {
			p.locals.Gone(pod)
			p.forget(pod.UID)
			if !missed {
				p.sawLeave(pod)
			}
		}
	}})
	if err != nil {
		return nil, fmt.Errorf("watching pods: %w", err)
	}
	nodes, err := p.cfg.Nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		// A Node that somebody deleted is back: while it was away no pod counted as ready.
		AddFunc: func(obj any) {
			if n, ok := obj.(*corev1.Node); ok && n.Name == p.cfg.Node {
				p.enqueueAll()
			}
		},
		UpdateFunc: func(before, after any) {
			if b, ok := before.(*corev1.Node); ok && b.Name == p.cfg.Node && readiness(b) != readiness(after.(*corev1.Node)) {
				p.enqueueAll()
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watching the Node: %w", err)
	}
	vns, err := p.cfg.VirtualNodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			b, a := before.(*offloadingv1beta1.VirtualNode), after.(*offloadingv1beta1.VirtualNode)
			if b.Name == p.cfg.Node && (b.Generation != a.Generation || !equality.Semantic.DeepEqual(b.Status.NotReflected, a.Status.NotReflected)) {
				p.enqueueAll()
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watching the VirtualNode: %w", err)
	}
	return func() {
		// An informer that refuses to forget a handler has been stopped: nothing is left to undo.
		_ = p.cfg.NamespaceMaps.Informer().RemoveEventHandler(maps)
		_ = p.cfg.Pods.Informer().RemoveEventHandler(pods)
		_ = p.cfg.Nodes.Informer().RemoveEventHandler(nodes)
		_ = p.cfg.VirtualNodes.Informer().RemoveEventHandler(vns)
	}, nil
}

// Resync looks at every pod again, after Gate has opened.
func (p *Pods) Resync() {
	p.enqueueAll()
	p.tokens.resync()
}

func (p *Pods) openTwins(ctx context.Context) {
	p.opening.Lock() // what was read last is applied last
	defer p.opening.Unlock()
	if ctx.Err() != nil {
		return
	}
	want := engine.Mapped(p.namespaceMap())
	p.twins.set(ctx, want)
	p.tokens.set(ctx, want)
}

func (p *Pods) namespaceMap() *offloadingv1beta1.NamespaceMap {
	m, err := p.cfg.NamespaceMaps.Lister().NamespaceMaps(p.cfg.TenantNamespace).Get(p.cfg.Destination)
	if err != nil {
		return nil // a lister's only error is that there is none
	}
	return m
}

func (p *Pods) enqueueAll() { p.enqueueNamespace(corev1.NamespaceAll) }

func (p *Pods) enqueueNamespace(namespace string) {
	for _, pod := range p.localPods(namespace) {
		p.loop.Wake(loop.Key{Namespace: pod.Namespace, Name: pod.Name})
	}
	for _, key := range p.twins.keys(namespace) { // what has no local pod is told of by nobody else
		p.loop.Wake(key)
	}
}

func (p *Pods) localPods(namespace string) []*corev1.Pod {
	pods, err := p.cfg.Pods.Lister().Pods(namespace).List(labels.Everything())
	if err != nil {
		return nil // a lister without a broken index does not fail
	}
	return pods
}

// departed is a pod of the provider that is not there any more.
type departed struct {
	last *corev1.Pod
	// withLocal says that the provider has shown it to go after its ShadowPod, while its
	// local pod was being deleted: none is made in its place, and nothing is left there.
	withLocal bool
}

// remember keeps the last state of a pod of the provider while its local pod is there. One
// that is missed is only absent from a list.
func (p *Pods) remember(namespace string, pod *corev1.Pod, missed bool) {
	p.remotes.Gone(pod)
	local, err := p.cfg.Pods.Lister().Pods(namespace).Get(pod.Name)
	if err != nil || string(local.UID) != pod.Labels[offloadingv1beta1.LocalPodUIDLabel] {
		return
	}
	withLocal := !missed && local.DeletionTimestamp != nil && p.withdrawn(namespace, pod.Name)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone[local.UID] = departed{pod, withLocal}
}

// withdrawn reports whether the provider has no ShadowPod of that name, or is about to show
// that it has none.
func (p *Pods) withdrawn(namespace, name string) bool {
	tw := p.twins.get(namespace)
	if tw == nil {
		return false
	}
	shadow, err := tw.shadows.Get(name)
	return err != nil || p.shadows.WasDeleted(shadow.UID)
}

func (p *Pods) lastSeen(uid types.UID) *corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gone[uid].last
}

func (p *Pods) wentWithLocal(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gone[uid].withLocal
}

func (p *Pods) forget(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.gone, uid)
	delete(p.told, uid)
	delete(p.moved, uid)
}

// view is all that is known of one pod: nil where there is none.
type view struct {
	key    loop.Key
	twin   *twin
	local  *corev1.Pod
	shadow *offloadingv1beta1.ShadowPod
	remote *corev1.Pod
}

func (p *Pods) sync(ctx context.Context, key loop.Key) error {
	v := view{key: key, local: p.localPod(key), twin: p.twins.get(key.Namespace)}
	if v.twin == nil {
		return p.notOffloaded(ctx, v.local)
	}
	if err := p.cfg.Gate(); err != nil {
		p.cfg.Log.Debug("the provider may not be acted upon", zap.Error(err))
		return p.holdUnready(ctx, v.local) // Resync follows
	}
	if !v.twin.synced() {
		return p.holdUnready(ctx, v.local) // looked at again as soon as it is
	}
	p.look(&v)
	return p.syncTwin(ctx, v)
}

// localPod returns the pod as the cache has it or as it was last written, nil if there
// is none.
func (p *Pods) localPod(key loop.Key) *corev1.Pod {
	// A lister's only error is that there is none.
	cached, err := p.cfg.Pods.Lister().Pods(key.Namespace).Get(key.Name)
	if err != nil || ended(cached) {
		return cached
	}
	local, _ := p.locals.Latest(key, cached, true)
	return local
}

// look fills in what the provider holds.
func (p *Pods) look(v *view) {
	there := loop.Key{Namespace: v.twin.remote, Name: v.key.Name}
	shadow, err := v.twin.shadows.Get(v.key.Name)
	v.shadow, _ = p.shadows.Latest(there, shadow, err == nil)
	if v.remote, err = v.twin.pods.Get(v.key.Name); err != nil {
		v.remote = nil
	}
	if v.local != nil && v.shadow != nil && !foreign(v.shadow, v.local) && foreignPod(v.remote, v.local) {
		v.remote = nil // the provider is about to replace a predecessor's pod by this one's
	}
}

// syncTwin is sync for a pod whose twin namespace is known.
func (p *Pods) syncTwin(ctx context.Context, v view) error {
	switch {
	case v.local == nil:
		return p.withdrawOrphan(ctx, v)
	case foreign(v.shadow, v.local) || (v.shadow == nil && foreignPod(v.remote, v.local)):
		// A predecessor of the same name: the successor waits until it is gone.
		return p.withdrawOrphan(ctx, v)
	case v.local.DeletionTimestamp != nil:
		return p.terminate(ctx, v)
	case ended(v.local):
		return nil
	case v.shadow == nil:
		return p.offload(ctx, v)
	case v.shadow.DeletionTimestamp != nil:
		return nil // its disappearance wakes us
	default:
		return p.reflect(ctx, v)
	}
}

func foreign(shadow *offloadingv1beta1.ShadowPod, local *corev1.Pod) bool {
	return shadow != nil && shadow.Labels[offloadingv1beta1.LocalPodUIDLabel] != string(local.UID)
}

func foreignPod(remote, local *corev1.Pod) bool {
	return remote != nil && remote.Labels[offloadingv1beta1.LocalPodUIDLabel] != string(local.UID)
}

func ended(pod *corev1.Pod) bool { return over(pod.Status.Phase) }

func over(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

// readiness is what a Node says of itself; Unknown is what the node controller says of one
// that has been silent. It is empty before the first word.
func readiness(n *corev1.Node) corev1.ConditionStatus {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return ""
}

func (p *Pods) virtualNode() *offloadingv1beta1.VirtualNode {
	vn, err := p.cfg.VirtualNodes.Lister().VirtualNodes(p.cfg.TenantNamespace).Get(p.cfg.Node)
	if err != nil {
		return nil // a lister's only error is that there is none
	}
	return vn
}

func (p *Pods) now() metav1.Time { return metav1.NewTime(p.cfg.Clock.Now()) }
