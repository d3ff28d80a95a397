// Package pod keeps the pods of ShadowPods running in a provider, with or without a
// connection to the consumer. It creates each pod, keeps its mutable part equal to the
// ShadowPod, decides whether a lost pod is replaced, and records the final status of a pod
// in its ShadowPod. It writes nothing while a pod merely runs, and it never contacts the
// consumer.
//
// A label or annotation of the ShadowPod is restored when it changes on the pod, and
// removed when it disappears from the ShadowPod. Other labels and annotations of the pod
// stay. The mutable part of the spec is patched only when the ShadowPod's generation
// changes, so that liqod does not fight a provider whose admission rewrites images or
// resources. AppliedAnnotation on the pod records the generation and the keys.
package pod

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/shadow/rules"
)

// RoomConfig is what an Enforcer needs to decide on the room in the consumers' Quotas.
type RoomConfig = LedgerConfig

// Config is the input of New. All fields are required except Limits, HomeLost, AlwaysPull and Observer.
type Config struct {
	// RoomConfig also has the clients: Kube writes pods, and reads a single pod live before a
	// decision that rests on its absence. Liqo reads single ShadowPods live and writes their status.
	RoomConfig

	// ShadowPods is the informer of all ShadowPods, indexed by namespace. New adds indexes to
	// it.
	ShadowPods cache.SharedIndexInformer
	// Pods is the informer of the pods labelled ManagedByLabel=ManagedByShadowPod.
	Pods cache.SharedIndexInformer
	// Namespaces is the informer of at least all twin namespaces.
	Namespaces cache.SharedIndexInformer
	// ForeignClusters is the informer that Harden and Metadata read. A change of the trust in a
	// consumer may change their results.
	ForeignClusters cache.SharedIndexInformer
	// StorageClasses is the informer that Harden reads. A change of a class may change its
	// result for ephemeral volumes.
	StorageClasses cache.SharedIndexInformer
	// Harden rewrites the parts of a consumer's pod spec that its author may not choose. Its
	// error is a message for the author of a spec that cannot be made acceptable. A change of
	// the consumer's Quotas may change its result for a spec that selects nodes.
	Harden func(consumer string, spec *corev1.PodSpec) error
	// Metadata returns the rule for labels and annotations that a consumer sets on pods.
	Metadata func(consumer string) rules.Metadata
	// Limits has the most pods in each twin: CountPods of all, and corev1.ResourcePods of those that
	// have not ended.
	Limits corev1.ResourceList
	// AlwaysPull has the nodes pull the images of debug containers; Harden does so for all
	// other containers.
	AlwaysPull bool
	// Recorder records events on ShadowPods, for exceptional changes only.
	Recorder record.EventRecorder
}

// Enforcer keeps the provider's pods equal to their ShadowPods. It runs under a lease; all
// its writes are idempotent.
type Enforcer struct {
	cfg        Config
	loop       *loop.Loop
	memory     *memory
	shadows    *store.Store[*offloadingv1beta1.ShadowPod]
	pods       *store.Store[*corev1.Pod]
	namespaces *store.Store[*corev1.Namespace]
	quota      *Ledger
	// since is when the current Run began.
	since atomic.Pointer[time.Time]
	// head is the resource version of the API server at that time; empty: unknown.
	head atomic.Pointer[string]
}

// New returns an Enforcer and registers its event handlers on the informers. It starts
// nothing.
func New(cfg Config) *Enforcer {
	e := &Enforcer{
		cfg: cfg, memory: newMemory(),
		shadows: store.New("ShadowPod", cfg.ShadowPods, cfg.Clock, func(ns string) store.API[*offloadingv1beta1.ShadowPod] {
			return cfg.Liqo.OffloadingV1beta1().ShadowPods(ns)
		}),
		pods:       store.New("pod", cfg.Pods, cfg.Clock, func(ns string) store.API[*corev1.Pod] { return cfg.Kube.CoreV1().Pods(ns) }),
		namespaces: store.New("namespace", cfg.Namespaces, cfg.Clock, func(string) store.API[*corev1.Namespace] { return cfg.Kube.CoreV1().Namespaces() }),
	}
	e.loop = loop.New(loop.Config{
		Name: "shadowpod", Sync: e.sync, Class: e.consumer, Log: cfg.Log, Observer: cfg.Observer,
		// A pod without a ShadowPod is queued by no other event.
		Beside: func() []loop.Key { return loop.Keys(e.pods.List()) },
	},
		loop.From(cfg.ShadowPods, loop.Self),
		loop.From(cfg.Namespaces, e.shadowsIn),
		// A StorageClass or a Quota changes what Harden accepts.
		loop.From(cfg.StorageClasses, func(any) []loop.Key { return e.indexed(refusedIndex, withClaims) }),
		loop.From(cfg.Quotas, e.shadowsThatSelect),
	)
	e.loop.Index(cfg.ShadowPods, refusedIndex, store.Index(refusals))
	e.quota = newLedgerOf(cfg.RoomConfig, e.again, func(key loop.Key) { e.loop.Wake(key) })
	e.loop.Watch(
		e.shadows.On(store.Handler[*offloadingv1beta1.ShadowPod]{Gone: func(shadow *offloadingv1beta1.ShadowPod, _ bool) {
			e.memory.forgetAll(cache.MetaObjectToName(shadow), shadow.UID)
		}}),
		// loop.From does not suffice: memory must hold the last state of the pod before the
		// key is queued.
		e.pods.On(store.Handler[*corev1.Pod]{Set: e.podChanged, Gone: func(pod *corev1.Pod, _ bool) { e.podGone(pod) }}),
		store.Changes(cfg.ForeignClusters, sameTrust, e.trustChanged),
	)
	e.loop.Await(cfg.LimitRanges.Informer().HasSynced, cfg.RuntimeClasses.Informer().HasSynced)
	return e
}

// Run blocks until ctx is done and every worker has returned. It may be called again after
// that, but not concurrently.
func (e *Enforcer) Run(ctx context.Context, workers int) error {
	if !cache.WaitForCacheSync(ctx.Done(), e.loop.HasSynced) {
		return nil
	}
	e.head.Store(e.newest(ctx))
	now := e.cfg.Clock.Now()
	e.since.Store(&now)
	e.quota.Begin()
	defer loop.Start(ctx, e.quota.Run)()
	return e.loop.Run(ctx, workers)
}

// newest returns the resource version of the ShadowPods in the API server. It returns nil if
// the API server does not answer; then more creations are confirmed by live reads.
func (e *Enforcer) newest(ctx context.Context) *string {
	list, err := e.cfg.Liqo.OffloadingV1beta1().ShadowPods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		e.cfg.Log.Warn("the resource version at the begin of the term is not known", zap.Error(fmt.Errorf("listing ShadowPods: %w", err)))
		return nil
	}
	return &list.ResourceVersion
}

// Accounts returns the usage of each consumer, sorted by id. It returns nil while this
// process does not lead. It is safe for concurrent use.
func (e *Enforcer) Accounts() []Account { return e.quota.Accounts() }

// again reports whether a terminated pod is going to be replaced.
func (e *Enforcer) again(pod *corev1.Pod) bool {
	return !endedItself(pod) && offloadingv1beta1.MayRunAgain(pod) && e.wanted(pod)
}

// podChanged handles a pod that has appeared (was is nil) or changed. After an interrupted watch,
// the two may be different pods of the same name.
func (e *Enforcer) podChanged(was, is *corev1.Pod) {
	if was != nil && was.UID != is.UID {
		e.keepLost(was)
		e.quota.Gone(was, "")
	}
	e.quota.Seen(is)
	e.loop.Wake(cache.MetaObjectToName(is))
}

func (e *Enforcer) podGone(pod *corev1.Pod) {
	successor := types.UID("")
	if e.keepLost(pod) && offloadingv1beta1.MayRunAgain(pod) {
		successor = shadowOf(pod)
	}
	e.quota.Gone(pod, successor)
	e.loop.Wake(cache.MetaObjectToName(pod))
}

// keepLost keeps the last state of a pod that is gone, and reports whether it did. Only that
// of a wanted pod is kept. Otherwise the memory of a standby would grow without limit.
func (e *Enforcer) keepLost(pod *corev1.Pod) bool {
	e.memory.refusals.Forget(pod.UID)
	lost := !e.memory.arrived(pod.UID) && e.wanted(pod)
	if lost {
		e.memory.lose(cache.MetaObjectToName(pod), pod)
	}
	return lost
}

// wanted reports whether the ShadowPod of pod exists and its end is not recorded.
func (e *Enforcer) wanted(pod *corev1.Pod) bool {
	shadow := e.shadows.Cached(cache.MetaObjectToName(pod))
	return shadow != nil && owns(shadow, pod) && shadow.DeletionTimestamp == nil && shadow.Status.Phase == ""
}

const (
	// refusedIndex has the ShadowPods whose pods Harden may refuse now and accept later: those
	// with ephemeral volumes under withClaims, and those that are not enforced and select nodes
	// under their consumer.
	refusedIndex = "pod/refused"
	withClaims   = "/claims"
)

// refusals is the index function of refusedIndex.
func refusals(s *offloadingv1beta1.ShadowPod) (values []string) {
	if slices.ContainsFunc(s.Spec.Pod.Volumes, func(v corev1.Volume) bool { return v.Ephemeral != nil }) {
		values = append(values, withClaims)
	}
	selects := len(s.Spec.Pod.NodeSelector) > 0 || s.Spec.Pod.Affinity != nil
	if selects && meta.FindStatusCondition(s.Status.Conditions, offloadingv1beta1.ShadowPodEnforced) != nil {
		values = append(values, s.Labels[offloadingv1beta1.OriginLabel])
	}
	return values
}

// indexed returns the keys of the ShadowPods under a value of an index.
func (e *Enforcer) indexed(index, value string) []loop.Key {
	return loop.Keys(e.shadows.ByIndex(index, value))
}

// shadowsThatSelect returns the keys of the ShadowPods of a Quota's consumer that are not
// enforced and select nodes.
func (e *Enforcer) shadowsThatSelect(q *offloadingv1beta1.Quota) []loop.Key {
	return e.indexed(refusedIndex, corev1beta1.PeerOfNamespace(q.Namespace))
}

func sameTrust(a, b *corev1beta1.ForeignCluster) bool { return a.Spec.Trust == b.Spec.Trust }

// trustChanged queues the ShadowPods of a consumer: pods that were refused may be accepted, and
// the reverse.
func (e *Enforcer) trustChanged(fc *corev1beta1.ForeignCluster) {
	for _, ns := range e.namespaces.List() {
		if ns.Labels[corev1beta1.RemoteClusterIDLabel] == fc.Spec.ClusterID {
			e.loop.Wake(e.shadowsIn(ns)...)
		}
	}
}

// shadowsIn returns the keys of the ShadowPods in a namespace.
func (e *Enforcer) shadowsIn(ns *corev1.Namespace) []loop.Key {
	return e.indexed(cache.NamespaceIndex, ns.Name)
}

// consumer returns the consumer that a key is worked on for: the one of its twin namespace,
// or of its ShadowPod while no cache has the namespace.
func (e *Enforcer) consumer(key loop.Key) string {
	if ns := e.namespaces.Cached(loop.Key{Name: key.Namespace}); ns != nil {
		return ns.Labels[corev1beta1.RemoteClusterIDLabel]
	}
	if shadow := e.shadows.Cached(key); shadow != nil {
		return shadow.Labels[offloadingv1beta1.OriginLabel]
	}
	return ""
}
