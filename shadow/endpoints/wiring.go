package endpoints

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/shadow/rules"
)

// Config is the input of New. All fields are required except Observer. The informers watch
// this cluster in all namespaces, and are indexed by namespace.
type Config struct {
	loop.Env

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
	// Own is the informer of the EndpointSlices that Kubernetes makes in this cluster from the
	// selectors of reflected Services, with the transform TrimOwn. New adds an index to it.
	Own cache.SharedIndexInformer
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
	// Names reports whether endpoints of a consumer may be names of hosts. A change of its
	// ForeignCluster may change the result.
	Names func(consumer string) bool
	// SharesZones reports whether zones of a consumer are those of this cluster with the same
	// names.
	SharesZones func(consumer string) bool
	// Grace is how long endpoints keep their last readiness while the health of their
	// cluster is Unknown.
	Grace time.Duration
	// Recorder records events on ShadowEndpointSlices, for exceptional changes only.
	Recorder record.EventRecorder
}

// Enforcer keeps the provider's EndpointSlices equal to their ShadowEndpointSlices. It runs
// under a lease; all its writes are idempotent.
type Enforcer struct {
	cfg        Config
	loop       *loop.Loop
	memory     *memory
	shadows    *store.Store[*offloadingv1beta1.ShadowEndpointSlice]
	slices     *store.Store[*discoveryv1.EndpointSlice]
	namespaces *store.Store[*corev1.Namespace]
	clusters   *store.Store[*corev1beta1.ForeignCluster]
}

// New returns an Enforcer and registers its event handlers on the informers. It starts
// nothing.
func New(cfg Config) *Enforcer {
	e := &Enforcer{
		cfg: cfg, memory: newMemory(),
		shadows: store.New("ShadowEndpointSlice", cfg.Shadows, cfg.Clock, func(ns string) store.API[*offloadingv1beta1.ShadowEndpointSlice] {
			return cfg.Liqo.OffloadingV1beta1().ShadowEndpointSlices(ns)
		}),
		slices: store.New("EndpointSlice", cfg.Slices, cfg.Clock, func(ns string) store.API[*discoveryv1.EndpointSlice] {
			return cfg.Kube.DiscoveryV1().EndpointSlices(ns)
		}),
		namespaces: store.New("namespace", cfg.Namespaces, cfg.Clock, func(string) store.API[*corev1.Namespace] { return cfg.Kube.CoreV1().Namespaces() }),
		clusters: store.New("ForeignCluster", cfg.ForeignClusters, cfg.Clock, func(string) store.API[*corev1beta1.ForeignCluster] {
			return cfg.Liqo.CoreV1beta1().ForeignClusters()
		}),
	}
	e.loop = loop.New(loop.Config{Name: "shadowendpointslice", Sync: e.sync, Class: e.consumer, Log: cfg.Log, Observer: cfg.Observer, Beside: e.known},
		loop.From(cfg.Namespaces, e.shadowsIn),
		loop.From(cfg.ForeignClusters, func(fc *corev1beta1.ForeignCluster) []loop.Key { return e.shadowsOfPeer(fc.Spec.ClusterID) }),
	)
	e.loop.Index(cfg.Nodes, nodeAddressIndex, store.Index(nodeAddresses))
	e.loop.Index(cfg.Pods, podIndex, store.Index(podKeys))
	e.loop.Index(cfg.Own, serviceIndex, store.Index(func(s *discoveryv1.EndpointSlice) []string { return []string{serviceKey(s)} }))
	e.loop.Index(cfg.Shadows, ownPodsIndex, store.Index(ownPods))
	// loop.From does not suffice: memory must record the deletion of a shadow or an
	// EndpointSlice before the key is queued, and most updates of the others change
	// nothing of interest.
	e.loop.Watch(
		e.shadows.On(store.Handler[*offloadingv1beta1.ShadowEndpointSlice]{
			Set: func(_, shadow *offloadingv1beta1.ShadowEndpointSlice) { e.wake(shadow) }, Gone: e.shadowGone,
		}),
		e.slices.On(store.Handler[*discoveryv1.EndpointSlice]{
			Set: func(_, slice *discoveryv1.EndpointSlice) { e.wake(slice) }, Gone: e.sliceGone,
		}),
		loop.On(cfg.Nodes, onChange(e.nodeChanged)),
		loop.On(cfg.Pods, onChange(e.podChanged)),
		loop.On(cfg.Own, onChange(e.ownChanged)),
	)
	// Without a Connection endpoints have no address. One that the cache does not have yet
	// must not cost any.
	e.loop.Await(cfg.Remap.Subscribe(e.remapped))
	return e
}

// onChange is store.OnChange without the initial list, because Run queues all keys.
func onChange[T any](changed func(before, after T)) cache.ResourceEventHandler {
	h := store.OnChange(changed)
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if !initial {
				h.OnAdd(obj, false)
			}
		},
		UpdateFunc: h.OnUpdate,
		DeleteFunc: h.OnDelete,
	}
}

// Run blocks until ctx is done and every worker has returned. It may be called again after
// that, but not concurrently.
func (e *Enforcer) Run(ctx context.Context, workers int) error { return e.loop.Run(ctx, workers) }

// known returns the keys of all shadows and of all EndpointSlices. An EndpointSlice without
// a shadow is queued by no other event.
func (e *Enforcer) known() []loop.Key {
	return append(loop.Keys(e.shadows.List()), loop.Keys(e.slices.List())...)
}

func (e *Enforcer) wake(obj metav1.Object) { e.loop.Wake(cache.MetaObjectToName(obj)) }

func (e *Enforcer) shadowGone(shadow *offloadingv1beta1.ShadowEndpointSlice, missed bool) {
	key := cache.MetaObjectToName(shadow)
	e.memory.refusals.Forget(shadow.UID)
	e.memory.forgetSent(key)
	if !missed && madeFor(e.cachedSlice(key)) == shadow.UID {
		e.memory.left.Begin(shadow.UID, e.cfg.Clock.Now())
	}
	e.loop.Wake(key)
}

func (e *Enforcer) sliceGone(slice *discoveryv1.EndpointSlice, _ bool) {
	e.memory.left.End(madeFor(slice))
	e.wake(slice)
}

// consumer returns the consumer that a key is worked on for: the one of its twin namespace,
// or of its shadow while no cache has the namespace.
func (e *Enforcer) consumer(key loop.Key) string {
	if key == podsKey(key.Name) {
		namespace, _, _ := strings.Cut(key.Name, "/")
		key = loop.Key{Namespace: namespace}
	}
	if ns := e.namespaces.Cached(loop.Key{Name: key.Namespace}); ns != nil {
		return peerOf(ns)
	}
	if shadow := e.shadows.Cached(key); shadow != nil {
		return shadow.Labels[offloadingv1beta1.OriginLabel]
	}
	return ""
}
