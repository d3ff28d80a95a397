package kinds

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/liqod/liqod/api/generated/clientset/versioned"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reflect/engine"
	"github.com/liqod/liqod/reflect/forge"
)

// PodsConfig is the configuration of a Pods for one virtual node.
type PodsConfig struct {
	OfNode
	// Home and HomeLiqod are clients for the consumer.
	Home     kubernetes.Interface
	HomeLiqo versioned.Interface
	// Remote has the clients for the provider.
	Remote engine.Clients
	// Pods is an informer for the pods of the virtual node only, and Nodes for its Node.
	Pods  coreinformers.PodInformer
	Nodes coreinformers.NodeInformer
	// HostIPs replace the addresses of the provider's nodes in the pod status.
	HostIPs []netip.Addr
	// Claims provisions the volumes of this virtual node.
	Claims *Claims
	// Remapper translates and checks the addresses of the provider's pods.
	Remapper forge.Remapper
	// Refused counts what is left out or delayed of the status of the provider's pods.
	Refused func(reason string)
	// API configures how pods in the provider reach the consumer's API server.
	API forge.APIAccess
	// HomeAPI finds the address of the consumer's API server if API.Host is empty; nil: pods
	// are not led there.
	HomeAPI HomeAPI
	// HomeDNS returns the DNS for pods that use the consumer's Services, or the reason why the provider
	// does not lead there.
	HomeDNS func() (forge.DNS, error)
	// Behind returns the first of the named objects of a namespace whose copy in its twin is not
	// as it has to be, as engine.Engine does.
	Behind func(ctx context.Context, namespace, remote string, named []forge.Named, existed time.Time) (forge.Named, bool, error)
	// RightsName is the name of the RoleBinding in each offloaded namespace that grants
	// the right to request tokens there.
	RightsName string
	// While returns a copy of a context that ends when Gate closes, and the function that
	// releases it.
	While func(context.Context) (context.Context, context.CancelFunc)
	// Silent says that the provider's controller does not run, so that no new pod is created
	// there; "": it runs, or nothing is known of it.
	Silent func() string
	// Workers is the number of pods synced concurrently, TokenWorkers that of tokens. With no
	// Workers, no further pods are offloaded, and one is for those that are.
	Workers, TokenWorkers int
}

// Pods offloads the pods of one virtual node: it copies their specs to the provider and
// their status back.
type Pods struct {
	cfg    PodsConfig
	loop   *loop.Loop
	twins  *engine.Spaces[*twin]
	tokens *tokens

	locals *store.Store[*corev1.Pod]

	// admitting is locked while the host ports of a pod are compared with those in use.
	admitting sync.Mutex

	mu sync.Mutex
	// memos are those of the local pods, by their UIDs.
	memos map[types.UID]*memo
	// endings has when namespaces were taken back.
	endings map[string]time.Time
	// spent limits the bytes that all statuses write after what is free for each pod.
	spent spent
}

// NewPods returns a Pods and registers its handlers with the informers; it starts no
// goroutines.
func NewPods(cfg PodsConfig) *Pods {
	p := &Pods{
		cfg: cfg, memos: map[types.UID]*memo{}, endings: map[string]time.Time{},
		locals: store.New("pod", cfg.Pods.Informer(), cfg.Clock, func(ns string) store.API[*corev1.Pod] { return cfg.Home.CoreV1().Pods(ns) }),
	}
	p.loop = loop.New(loop.Config{
		Name: "pods", Sync: p.sync, Log: cfg.Log, Observer: cfg.Observer,
		// The twin namespaces may be synced before the loop runs.
		Beside: func() []loop.Key { return p.twinKeys(corev1.NamespaceAll) },
	}, loop.From(cfg.Pods.Informer(), loop.Self), loop.From(cfg.VirtualNodes.Informer(), loop.None), loop.From(cfg.Nodes.Informer(), loop.None)) // follow has the handlers of the last two
	p.twins, p.tokens = engine.NewSpaces(p.open, p.close), newTokens(p)
	return p
}

// Run offloads pods until ctx is done. It may be called once.
func (p *Pods) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	if err := p.follow(); err != nil {
		return unlessOver(ctx, err)
	}
	// This is before the first sync, for which a namespace without a twin is not offloaded.
	defer p.cfg.Namespaces.Follow(ctx, p.mapChanged, p.twins, p.tokens.spaces)()
	if !cache.WaitForCacheSync(ctx.Done(), p.cfg.Pods.Informer().HasSynced) {
		return nil
	}
	wg.Go(func() { p.refreshHostIPs(ctx) })
	tokens := make(chan error, 1)
	wg.Go(func() { tokens <- p.tokens.run(ctx) })
	return unlessOver(ctx, errors.Join(p.loop.Run(ctx, max(p.cfg.Workers, 1)), <-tokens))
}

// unlessOver returns nil if ctx is done, and err otherwise. Stopped informers reject
// handlers, which is no error during shutdown.
func unlessOver(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// follow enqueues all pods when the readiness or the network of the Node or the patch of the VirtualNode
// changes.
func (p *Pods) follow() error {
	// The loop does not wait for these handlers: their informers have the objects already.
	_, err := loop.Register(p.locals.On(store.Handler[*corev1.Pod]{Gone: func(pod *corev1.Pod, missed bool) {
		p.forget(pod.UID)
		if !missed {
			p.sawLeave(pod)
		}
	}}), loop.On(p.cfg.Nodes.Informer(), store.Handler[*corev1.Node]{Set: func(b, a *corev1.Node) {
		// If b is nil, a deleted Node was created again: while it did not exist, no pod was
		// reported as ready.
		if a.Name == p.cfg.Node && (b == nil || readiness(b) != readiness(a) || networkDown(b) != networkDown(a)) {
			p.enqueueAll()
		}
	}}), loop.On(p.cfg.VirtualNodes.Informer(), store.Handler[*offloadingv1beta1.VirtualNode]{Set: func(b, a *offloadingv1beta1.VirtualNode) {
		if b != nil && a.Name == p.cfg.Node && !engine.SameReflection(b, a) {
			p.enqueueAll()
		}
	}}))
	return err
}

// Resync enqueues all pods. Callers use it after Gate has opened.
func (p *Pods) Resync() {
	p.enqueueAll()
	p.tokens.resync()
}

func (p *Pods) mapChanged(namespace string) {
	p.noteTakenBack(namespace)
	p.enqueueNamespace(namespace)
}

func (p *Pods) enqueueAll() { p.enqueueNamespace(corev1.NamespaceAll) }

func (p *Pods) enqueueNamespace(namespace string) {
	pods := p.localPods(namespace)
	slices.SortFunc(pods, earlier)
	queued := loop.Keys(pods)
	// Objects without a local pod have no other trigger.
	more := sets.New(p.twinKeys(namespace)...).Delete(queued...)
	p.loop.Wake(append(queued, more.UnsortedList()...)...)
}

// earlier orders pods by namespace and age. Pods that started together are mostly in the same
// EndpointSlice: the controller of this cluster, which follows while their statuses are
// being written, then has few of a Service's EndpointSlices to write at a time, and not all
// of them each time.
func earlier(a, b *corev1.Pod) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
}

func (p *Pods) localPods(namespace string) []*corev1.Pod {
	return store.Listed(p.cfg.Pods.Lister().Pods(namespace).List(labels.Everything()))
}

// memo is what is remembered of a local pod until it is deleted.
type memo struct {
	// moved is true if the status must be written even if only the host IP differs.
	moved bool
	// admitted is true if the pod has got its host ports.
	admitted bool
	// rejected is the last event about a rejected change, and told has the other events that a
	// pod gets once.
	rejected string
	told     map[string]bool
	// writes limits the writes of the status, and bytes is the size of those that were free.
	writes spent
	bytes  int
	// awaits is the copy that the pod waits for, or the last one that it waited for.
	awaits awaiting
	// last is the last state of the remote pod that was deleted.
	last *corev1.Pod
	// withLocal is true if the watch has reported the deletion of the remote pod after
	// that of its ShadowPod, while the local pod was being deleted. Then the provider
	// creates no replacement, and nothing is left there.
	withLocal bool
}

// change calls f with the memo of a pod.
func (p *Pods) change(uid types.UID, f func(*memo)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.memos[uid]
	if r == nil {
		r = &memo{}
		p.memos[uid] = r
	}
	f(r)
}

// memo returns a copy of the memo of a pod.
func (p *Pods) memo(uid types.UID) (out memo) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.memos[uid]; r != nil {
		out = *r
	}
	return out
}

// remember keeps the last state of a deleted remote pod as long as its local pod exists.
// missed is true if the watch did not report the deletion and a new list lacked the pod.
func (p *Pods) remember(tw *twin, pod *corev1.Pod, missed bool) {
	local := p.locals.Cached(loop.Key{Namespace: tw.local, Name: pod.Name})
	if local == nil || localUID(pod) != local.UID {
		return
	}
	// This process may have deleted the ShadowPod before the watch reports that.
	shadow := tw.shadows.Cached(tw.key(pod.Name))
	withdrawn := shadow == nil || tw.shadows.WasDeleted(shadow.UID)
	p.change(local.UID, func(r *memo) { r.last, r.withLocal = pod, !missed && local.DeletionTimestamp != nil && withdrawn })
}

func (p *Pods) forget(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.memos, uid)
}

func (p *Pods) now() metav1.Time { return metav1.NewTime(p.cfg.Clock.Now()) }

// twinKeys returns the local names of all objects in the twin of a local namespace, or in all
// twins.
func (p *Pods) twinKeys(namespace string) []loop.Key {
	var found []loop.Key
	for local, tw := range p.twins.Each(namespace) {
		for _, there := range append(loop.Keys(tw.shadows.List()), loop.Keys(tw.pods.List())...) {
			found = append(found, loop.Key{Namespace: local, Name: there.Name})
		}
	}
	return found
}

// newest returns the highest resource version of the consumer that any ShadowPod contains.
func (p *Pods) newest() (version string) {
	for _, tw := range p.twins.Each(corev1.NamespaceAll) {
		tw.mu.Lock()
		if version == "" || store.OlderVersion(version, tw.newest) {
			version = tw.newest
		}
		tw.mu.Unlock()
	}
	return version
}

func (p *Pods) close(tw *twin) {
	tw.stop()
	p.cfg.Log.Info("twin namespace closed", zap.String("namespace", tw.local), zap.String("remoteNamespace", tw.remote))
	p.enqueueTwin(tw.local)
}

// open runs informers for the ShadowPods and Pods of a twin namespace. Informers are per namespace
// because the rights are.
func (p *Pods) open(ctx context.Context, local, remote string) *twin {
	cfg, there := &p.cfg, p.cfg.Remote
	ours := labels.Set{offloadingv1beta1.NodeNameLabel: cfg.Node}.String()
	pods, podsInformer := selected("the provider's pod", &corev1.Pod{}, there.Kube, there.Kube.CoreV1().Pods(remote), ours, p.slim, cfg.Clock)
	shadows, shadowsInformer := selected("ShadowPod", &offloadingv1beta1.ShadowPod{}, there.Liqo, there.Liqo.OffloadingV1beta1().ShadowPods(remote), ours, cfg.Transform, cfg.Clock)
	tw := &twin{opened: opened{local: local, remote: remote}, shadows: shadows, pods: pods}
	tw.run(ctx, func() {
		cfg.Log.Info("twin namespace open", zap.String("namespace", local), zap.String("remoteNamespace", remote))
		p.enqueueTwin(local)
	}, []loop.Source{tw.pods.On(p.onRemote(tw)), tw.shadows.On(p.onShadow(tw))}, podsInformer, shadowsInformer)
	return tw
}

// enqueueTwin enqueues the pods and tokens of a namespace: the caches of its twin have synced, or it
// was closed.
func (p *Pods) enqueueTwin(namespace string) {
	p.enqueueNamespace(namespace)
	p.tokens.wakeNamespace(namespace)
}

// slim keeps the used fields of a remote pod. The spec is most of the size of a pod, and
// is only needed to see whether a change has arrived.
func (p *Pods) slim(obj any) (any, error) {
	if pod, ok := obj.(*corev1.Pod); ok {
		pod.Spec = corev1.PodSpec{
			NodeName: pod.Spec.NodeName, Containers: slimContainers(pod.Spec.Containers), InitContainers: slimContainers(pod.Spec.InitContainers),
			EphemeralContainers: pod.Spec.EphemeralContainers,
		}
	}
	return p.cfg.Transform(obj)
}

func (p *Pods) onRemote(tw *twin) store.Handler[*corev1.Pod] {
	return store.Handler[*corev1.Pod]{
		Set: func(_, pod *corev1.Pod) { p.loop.Wake(loop.Key{Namespace: tw.local, Name: pod.Name}) },
		Gone: func(pod *corev1.Pod, missed bool) {
			p.remember(tw, pod, missed)
			p.loop.Wake(loop.Key{Namespace: tw.local, Name: pod.Name})
		},
	}
}

func (p *Pods) onShadow(tw *twin) store.Handler[*offloadingv1beta1.ShadowPod] {
	return store.Handler[*offloadingv1beta1.ShadowPod]{
		Set: func(before, shadow *offloadingv1beta1.ShadowPod) {
			tw.saw(shadow)
			p.loop.Wake(loop.Key{Namespace: tw.local, Name: shadow.Name})
			if before == nil {
				p.tokens.wakeName(tw.local, shadow.Name)
			}
		},
		Gone: func(shadow *offloadingv1beta1.ShadowPod, _ bool) {
			tw.forget(localUID(shadow))
			p.loop.Wake(loop.Key{Namespace: tw.local, Name: shadow.Name})
		},
	}
}
