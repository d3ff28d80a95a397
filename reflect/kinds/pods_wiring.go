package kinds

import (
	"context"
	"errors"
	"slices"
	"sync"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reflect/engine"
)

// NewPods returns a Pods and registers its handlers with the informers; it starts no
// goroutines.
func NewPods(cfg PodsConfig) *Pods {
	p := &Pods{
		cfg: cfg, memos: map[types.UID]*memo{},
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
