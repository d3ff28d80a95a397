package endpoints

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/liqod/liqod/api/generated/clientset/versioned"
	corev1beta1listers "github.com/liqod/liqod/api/generated/listers/core/v1beta1"
	offloadingv1beta1listers "github.com/liqod/liqod/api/generated/listers/offloading/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/shadow/rules"
)

// Config is the input of New. All fields are required except Observer. The informers watch
// this cluster in all namespaces, and are indexed by namespace.
type Config struct {
	// Kube writes EndpointSlices. It also reads a single one live before a deletion, and a
	// namespace that is absent from the cache.
	Kube kubernetes.Interface
	// Liqod reads single ShadowEndpointSlices live and writes their status.
	Liqo versioned.Interface
	// Shadows is the informer of all ShadowEndpointSlices.
	Shadows cache.SharedIndexInformer
	// Slices is the informer of the EndpointSlices with the managed-by label
	// ManagedByShadowEndpointSlice.
	Slices cache.SharedIndexInformer
	// Namespaces is the informer of at least all twin namespaces.
	Namespaces cache.SharedIndexInformer
	// ForeignClusters is the informer of all ForeignClusters.
	ForeignClusters cache.SharedIndexInformer
	// Nodes is the informer of all Nodes; New adds an index to it.
	Nodes cache.SharedIndexInformer
	// Pods is the informer of the pods that run in this cluster for consumers. New adds an
	// index to it, and one to Shadows.
	Pods cache.SharedIndexInformer
	// Remap translates the consumers' addresses.
	Remap Remapper
	// Metadata returns the rule for labels and annotations that a consumer sets on
	// EndpointSlices. A change of its ForeignCluster may change the result.
	Metadata func(consumer string) rules.Metadata
	// Grace is how long endpoints keep their last readiness while the health of their
	// cluster is Unknown.
	Grace time.Duration
	// Recorder records events on ShadowEndpointSlices, for exceptional changes only.
	Recorder record.EventRecorder
	// Clock is the source of the current time.
	Clock clock.PassiveClock
	// Log receives state changes.
	Log *zap.Logger
	// Observer may be nil.
	Observer loop.Observer
}

// Enforcer keeps the provider's EndpointSlices equal to their ShadowEndpointSlices. It runs
// under a lease; all its writes are idempotent.
type Enforcer struct {
	cfg        Config
	loop       *loop.Loop
	memory     *memory
	shadows    offloadingv1beta1listers.ShadowEndpointSliceLister
	slices     discoverylisters.EndpointSliceLister
	namespaces corev1listers.NamespaceLister
	clusters   corev1beta1listers.ForeignClusterLister
	synced     []cache.InformerSynced

	ownSlices  *store.Writes[*discoveryv1.EndpointSlice]
	ownShadows *store.Writes[*offloadingv1beta1.ShadowEndpointSlice]
}

// New returns an Enforcer and registers its event handlers on the informers. It starts
// nothing.
func New(cfg Config) (*Enforcer, error) {
	e := &Enforcer{
		cfg:        cfg,
		memory:     newMemory(),
		shadows:    offloadingv1beta1listers.NewShadowEndpointSliceLister(cfg.Shadows.GetIndexer()),
		slices:     discoverylisters.NewEndpointSliceLister(cfg.Slices.GetIndexer()),
		namespaces: corev1listers.NewNamespaceLister(cfg.Namespaces.GetIndexer()),
		clusters:   corev1beta1listers.NewForeignClusterLister(cfg.ForeignClusters.GetIndexer()),
		ownSlices:  store.NewWrites[*discoveryv1.EndpointSlice](cfg.Clock),
		ownShadows: store.NewWrites[*offloadingv1beta1.ShadowEndpointSlice](cfg.Clock),
	}
	if err := cfg.Nodes.AddIndexers(cache.Indexers{nodeAddressIndex: nodeAddresses}); err != nil {
		return nil, fmt.Errorf("indexing Nodes by address: %w", err)
	}
	if err := cfg.Pods.AddIndexers(cache.Indexers{podAddressIndex: podAddresses}); err != nil {
		return nil, fmt.Errorf("indexing Pods by address: %w", err)
	}
	if err := cfg.Shadows.AddIndexers(cache.Indexers{ownPodsIndex: ownPods}); err != nil {
		return nil, fmt.Errorf("indexing ShadowEndpointSlices by their EndpointSlices: %w", err)
	}
	e.loop = loop.New(loop.Config{Name: "shadowendpointslice", Sync: e.sync, Class: e.consumer, Log: cfg.Log, Observer: cfg.Observer, Beside: e.known})
	for _, w := range []struct {
		informer cache.SharedIndexInformer
		keys     func(any) []loop.Key
	}{
		{cfg.Namespaces, e.shadowsIn}, {cfg.ForeignClusters, e.shadowsOf},
	} {
		if _, err := e.loop.Watch(w.informer, w.keys); err != nil {
			return nil, err
		}
	}
	return e, e.listen()
}

// listen registers the event handlers that loop.Watch does not cover.
func (e *Enforcer) listen() error {
	// loop.Watch does not suffice: memory must record the deletion of a shadow or an
	// EndpointSlice before the key is queued, and most updates of Nodes and Pods change
	// nothing of interest.
	for _, l := range []struct {
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}{
		{e.cfg.Shadows, cache.ResourceEventHandlerFuncs{
			AddFunc: e.wake, UpdateFunc: func(_, after any) { e.wake(after) }, DeleteFunc: e.shadowGone,
		}},
		{e.cfg.Slices, cache.ResourceEventHandlerFuncs{
			AddFunc: e.wake, UpdateFunc: func(_, after any) { e.wake(after) }, DeleteFunc: e.sliceGone,
		}},
		{e.cfg.Nodes, onChange(e.nodeChanged)},
		{e.cfg.Pods, onChange(e.podChanged)},
	} {
		reg, err := l.informer.AddEventHandler(l.handler)
		if err != nil {
			return fmt.Errorf("listening for shadowendpointslice: %w", err)
		}
		e.synced = append(e.synced, reg.HasSynced)
	}
	synced, err := e.cfg.Remap.Subscribe(e.remapped)
	if err != nil {
		return fmt.Errorf("following the translation of addresses: %w", err)
	}
	// Without a Connection endpoints have no address. One that the cache does not have yet
	// must not cost any.
	e.synced = append(e.synced, synced)
	return nil
}

// onChange returns a handler that calls changed with the object before and after the event;
// nil: absent. It skips the initial list, because Run queues all keys.
func onChange(changed func(before, after any)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if !initial {
				changed(nil, obj)
			}
		},
		UpdateFunc: changed,
		DeleteFunc: func(obj any) {
			obj, _ = loop.Deleted(obj)
			changed(obj, nil)
		},
	}
}

// Run blocks until ctx is done and every worker has returned. It may be called again after
// that, but not concurrently.
func (e *Enforcer) Run(ctx context.Context, workers int) error {
	if !cache.WaitForCacheSync(ctx.Done(), e.synced...) {
		return nil
	}
	return e.loop.Run(ctx, workers)
}

// known returns the keys of all shadows and of all EndpointSlices. An EndpointSlice without
// a shadow is queued by no other event.
func (e *Enforcer) known() []loop.Key {
	var keys []loop.Key
	for _, informer := range []cache.SharedIndexInformer{e.cfg.Shadows, e.cfg.Slices} {
		for _, obj := range informer.GetStore().List() {
			keys = append(keys, loop.Self(obj)...)
		}
	}
	return keys
}

func (e *Enforcer) wake(obj any) {
	for _, key := range loop.Self(obj) {
		e.loop.Wake(key)
	}
}

func (e *Enforcer) shadowGone(obj any) {
	obj, missed := loop.Deleted(obj)
	shadow, ok := obj.(*offloadingv1beta1.ShadowEndpointSlice)
	if !ok {
		return
	}
	e.ownShadows.Gone(shadow)
	key := loop.Key{Namespace: shadow.Namespace, Name: shadow.Name}
	e.memory.refusals.Forget(shadow.UID)
	e.memory.forgetSent(key)
	if slice, err := e.cachedSlice(key); err == nil && !missed && madeFor(slice) == shadow.UID {
		e.memory.sawLeave(shadow.UID)
	}
	e.loop.Wake(key)
}

func (e *Enforcer) sliceGone(obj any) {
	if slice, ok := loop.Object[*discoveryv1.EndpointSlice](obj); ok {
		e.ownSlices.Gone(slice)
		e.memory.forget(slice.UID, madeFor(slice))
		e.wake(slice)
	}
}

// consumer returns the consumer that a key is worked on for: the one of its twin namespace,
// or of its shadow while no cache has the namespace.
func (e *Enforcer) consumer(key loop.Key) string {
	if key == namespaceKey(key.Name) {
		key = loop.Key{Namespace: key.Name}
	}
	if ns, err := e.namespaces.Get(key.Namespace); err == nil {
		return peerOf(ns)
	}
	if shadow, err := e.shadows.ShadowEndpointSlices(key.Namespace).Get(key.Name); err == nil {
		return shadow.Labels[offloadingv1beta1.OriginLabel]
	}
	return ""
}

func (e *Enforcer) sync(ctx context.Context, key loop.Key) error {
	if key == namespaceKey(key.Name) {
		return e.podsChanged(key.Name)
	}
	f, err := e.cached(key)
	if err != nil {
		return err
	}
	if behind, err := e.behind(ctx, f); err != nil {
		return err
	} else if behind {
		return loop.After(store.CatchUp)
	}
	a := decide(f)
	if a.confirm {
		if f, err = e.live(ctx, key); err != nil {
			return err
		}
		a = decide(f)
	}
	return e.do(ctx, f, a)
}

// cached gathers the facts about key from the caches, and from writes of this process that
// the caches do not show yet.
func (e *Enforcer) cached(key loop.Key) (facts, error) {
	shadow, err := e.shadows.ShadowEndpointSlices(key.Namespace).Get(key.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return facts{}, fmt.Errorf("looking up ShadowEndpointSlice %s: %w", key, err)
	}
	if err == nil {
		shadow, _ = e.ownShadows.Latest(key, shadow, true)
	} else {
		shadow = nil
		e.memory.forgetSent(key) // the shadow may have been deleted during the write
	}
	slice, err := e.cachedSlice(key)
	if err != nil {
		return facts{}, err
	}
	f, err := e.gather(key, shadow, slice)
	f.left = shadow == nil && e.memory.hasLeft(madeFor(slice))
	return f, err
}

// cachedSlice returns the EndpointSlice of that name. It returns nil if there is none or if
// this process has deleted it.
func (e *Enforcer) cachedSlice(key loop.Key) (*discoveryv1.EndpointSlice, error) {
	slice, err := e.slices.EndpointSlices(key.Namespace).Get(key.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("looking up EndpointSlice %s: %w", key, err)
	}
	slice, found := e.ownSlices.Latest(key, slice, err == nil)
	if !found || e.ownSlices.WasDeleted(slice.UID) {
		return nil, nil
	}
	return slice, nil
}

// live gathers the facts about key with two requests to the API server.
func (e *Enforcer) live(ctx context.Context, key loop.Key) (facts, error) {
	shadow, err := store.OrNil(e.cfg.Liqo.OffloadingV1beta1().ShadowEndpointSlices(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{}))
	if err != nil {
		return facts{}, fmt.Errorf("reading ShadowEndpointSlice %s: %w", key, err)
	}
	slice, err := store.OrNil(e.cfg.Kube.DiscoveryV1().EndpointSlices(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{}))
	if err != nil {
		return facts{}, fmt.Errorf("reading EndpointSlice %s: %w", key, err)
	}
	f, err := e.gather(key, shadow, slice)
	f.live = true
	return f, err
}

func (e *Enforcer) gather(key loop.Key, shadow *offloadingv1beta1.ShadowEndpointSlice, slice *discoveryv1.EndpointSlice) (facts, error) {
	f := facts{shadow: shadow, slice: slice, now: e.cfg.Clock.Now()}
	ns, err := e.namespaces.Get(key.Namespace)
	if err != nil && !apierrors.IsNotFound(err) {
		return facts{}, fmt.Errorf("looking up namespace %s: %w", key.Namespace, err)
	}
	if err == nil {
		f.namespace = ns
	}
	if shadow == nil || f.namespace == nil {
		return f, nil
	}
	f.notBefore = e.memory.refusals.NotBefore(shadow.UID, shadow.Generation)
	return f, e.forge(&f)
}

// forge adds the wanted EndpointSlice to the facts.
func (e *Enforcer) forge(f *facts) error {
	r, conditions, err := e.rules(f.namespace)
	if err != nil {
		return err
	}
	conditions = e.memory.sighted(r.peer, conditions, f.now)
	ready, again := well(conditions, e.lastWell(r.peer, f.slice), e.cfg.Grace, f.now)
	f.again = again
	if again == 0 {
		e.memory.judged(r.peer, ready)
	}
	if f.want, f.refused = forge(f.shadow, r, ready); f.want == nil {
		return nil
	}
	if f.undone, err = e.memory.due(f.want, f.now); err != nil || f.slice == nil {
		return err
	}
	if rest, odd := e.memory.odd(f.slice); odd {
		now, err := remaining(f.want, f.slice)
		if err != nil {
			return err
		}
		f.kept = now == rest
	}
	return nil
}

// remaining returns the patch that have still needs, as text; empty: none.
func remaining(want, have *discoveryv1.EndpointSlice) (string, error) {
	patch := changes(want, have)
	if len(patch) == 0 {
		return "", nil
	}
	data, err := store.EncodePatch(patch, have)
	return string(data), err
}

// behind reports whether the API server has the namespace, or the ForeignCluster of its peer,
// that the caches lack: without them the EndpointSlice of a shadow would lose its endpoints.
func (e *Enforcer) behind(ctx context.Context, f facts) (bool, error) {
	if f.shadow == nil || f.slice == nil {
		return false, nil // there is nothing to lose
	}
	if f.namespace == nil {
		_, err := e.cfg.Kube.CoreV1().Namespaces().Get(ctx, f.shadow.Namespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("confirming that namespace %s is gone: %w", f.shadow.Namespace, err)
		}
		return true, nil
	}
	peer := peerOf(f.namespace)
	if peer == "" {
		return false, nil
	}
	cached, err := store.OrNil(e.clusters.Get(peer))
	if err != nil || cached != nil {
		return false, err
	}
	live, err := store.OrNil(e.cfg.Liqo.CoreV1beta1().ForeignClusters().Get(ctx, peer, metav1.GetOptions{}))
	if err != nil {
		return false, fmt.Errorf("confirming that ForeignCluster %s is gone: %w", peer, err)
	}
	return live != nil && live.DeletionTimestamp == nil, nil
}
