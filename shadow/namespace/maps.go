// Package namespace offloads namespaces. In the consumer, Offloading turns
// NamespaceOffloadings into entries of NamespaceMaps, one map per provider. It writes to
// its own cluster only, and never waits for a provider. In the provider, Maps reads the
// NamespaceMaps that peers have replicated into their tenant namespaces. It creates a twin
// namespace for each entry, with the peer's rights in it, and deletes a twin whose entry is
// gone. A peer is another organisation, so Maps validates everything that it reads from a
// map.
package namespace

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	rbacinformers "k8s.io/client-go/informers/rbac/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned"
	foreigninformers "github.com/liqod/liqod/api/generated/informers/externalversions/core/v1beta1"
	informers "github.com/liqod/liqod/api/generated/informers/externalversions/offloading/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
)

// Base is what the loops of namespaces have in common. All fields are required except Observer.
type Base struct {
	loop.Env

	// ClusterID is this cluster's id. A peer's NamespaceMap for this cluster has it as its
	// name.
	ClusterID string
	// OwnNamespace is the namespace that liqod runs in.
	OwnNamespace string
	// Kube and Liqo are clients of this cluster.
	Kube kubernetes.Interface
	Liqo versioned.Interface
	// The informers watch this cluster in all namespaces.
	Maps       informers.NamespaceMapInformer
	Namespaces coreinformers.NamespaceInformer
}

// MapsConfig is the input of NewMaps. All fields are required.
type MapsConfig struct {
	Base

	// ServiceAccount is the name of the controller's service account in OwnNamespace. Maps
	// binds it to ControllerTwinRole in every twin namespace.
	ServiceAccount string
	// TwinNames returns patterns, as of path.Match, of the names that a peer may give to its
	// twins, beside those that end in - and the peer's id. A change of the peer's ForeignCluster may change its result.
	TwinNames func(peer string) []string
	// PodSecurityLevel is the pod-security level that twin namespaces enforce: privileged,
	// baseline or restricted.
	PodSecurityLevel string
	// NamespacesPerPeer is the maximum number of twins that are created for a peer.
	NamespacesPerPeer int
	// Bounds configures what bounds the objects and the network of each twin.
	Bounds BoundsConfig

	// The informers watch this cluster in all namespaces.
	ForeignClusters foreigninformers.ForeignClusterInformer
	RoleBindings    rbacinformers.RoleBindingInformer
	Quotas          informers.QuotaInformer

	// Events records events on a NamespaceMap for twins that cannot be created.
	Events record.EventRecorder
}

// Maps creates the twin namespaces for the NamespaceMaps that peers have replicated into
// their tenant namespaces: one twin per entry, with the peer's rights and the controller's
// own in it. It deletes a twin whose entry is gone. It does not touch any other namespace. It runs under a lease.
type Maps struct {
	*loop.Loop
	cfg       MapsConfig
	bindings  *store.Binder
	creations loop.Pace // of twins, by peer
}

// NewMaps returns a Maps and registers its event handlers on the informers. It starts
// nothing.
func NewMaps(cfg MapsConfig) *Maps {
	m := &Maps{cfg: cfg, bindings: store.NewBinder(cfg.Kube, cfg.RoleBindings.Lister(), nil)}
	m.Loop = loop.New(loop.Config{Name: "namespacemap", Sync: m.sync, Class: tenantOf, Log: cfg.Log, Observer: cfg.Observer},
		loop.From(cfg.Maps.Informer(), loop.Self),
		loop.From(cfg.Namespaces.Informer(), m.namespaceKeys),
		loop.From(cfg.RoleBindings.Informer(), m.bindingKeys),
		loop.From(cfg.ForeignClusters.Informer(), m.clusterKeys),
		loop.From(cfg.Quotas.Informer(), m.besideKeys),
	)
	m.Index(cfg.Namespaces.Informer(), twinIndex, store.Index(twinOf))
	m.watchBounds()
	return m
}

// tenantOf returns the class of a map: maps of one peer are in one tenant namespace.
func tenantOf(key loop.Key) string { return key.Namespace }

// twinIndex indexes namespaces by the map that they are a twin of.
const twinIndex = "namespace/twin-of"

// twinOf is the index function of twinIndex.
func twinOf(ns *corev1.Namespace) (maps []string) {
	if of := offloadingv1beta1.TwinOf(ns); of != "" {
		maps = []string{of}
	}
	return maps
}

// besideKeys returns the maps in the tenant namespace of a Quota.
func (m *Maps) besideKeys(q *offloadingv1beta1.Quota) []loop.Key {
	return loop.Keys(store.Listed(m.cfg.Maps.Lister().NamespaceMaps(q.Namespace).List(labels.Everything())))
}

// namespaceKeys returns the maps that an event of a namespace may affect: the map that it
// is a twin of, the maps that have an entry with its name, and the maps in it.
func (m *Maps) namespaceKeys(ns *corev1.Namespace) (keys []loop.Key) {
	if owner := offloadingv1beta1.TwinOf(ns); owner != "" {
		if key, err := cache.ParseObjectName(owner); err == nil {
			keys = append(keys, key)
		}
	}
	for _, nm := range store.Listed(m.cfg.Maps.Lister().List(labels.Everything())) {
		if nm.Namespace == ns.Name || (isReplica(nm) && wants(nm, ns.Name)) {
			keys = append(keys, cache.MetaObjectToName(nm))
		}
	}
	return keys
}

func wants(nm *offloadingv1beta1.NamespaceMap, twin string) bool {
	return slices.Contains(slices.Collect(maps.Values(nm.Spec.DesiredMapping)), twin)
}

func (m *Maps) bindingKeys(o metav1.Object) []loop.Key {
	ns, err := m.cfg.Namespaces.Lister().Get(o.GetNamespace())
	if err != nil {
		return nil
	}
	key, err := cache.ParseObjectName(offloadingv1beta1.TwinOf(ns))
	if err != nil || key.Name == "" {
		return nil
	}
	return []loop.Key{key}
}

func (m *Maps) clusterKeys(fc *corev1beta1.ForeignCluster) []loop.Key {
	// The name of a peer's map is fixed, so no search is needed.
	return []loop.Key{{Namespace: corev1beta1.TenantNamespace(fc.Spec.ClusterID), Name: m.cfg.ClusterID}}
}

func isReplica(nm *offloadingv1beta1.NamespaceMap) bool {
	return nm.Labels[offloadingv1beta1.ReplicatedLabel] == "true"
}

func (m *Maps) sync(ctx context.Context, key loop.Key) error {
	nm := store.Known(m.cfg.Maps.Lister().NamespaceMaps(key.Namespace).Get(key.Name))
	switch {
	case nm == nil:
		return m.sweep(ctx, key)
	case nm.DeletionTimestamp != nil:
		return m.end(ctx, nm, key)
	case !isReplica(nm):
		return nil // this cluster's own map towards a provider
	}
	peer, problem, err := m.origin(nm)
	if err != nil {
		return err
	}
	if problem != "" {
		status := *nm.Status.DeepCopy()
		status.ObservedGeneration = nm.Generation
		m.ready(&status, nm, offloadingv1beta1.ReasonInvalid, problem)
		return m.report(ctx, nm, status)
	}
	if nm, err = m.finalizer(ctx, nm, true); err != nil {
		return err
	}
	return m.enforce(ctx, nm, peer)
}

// origin returns the peer that a map comes from, or the problem with the map. A peer may
// write only maps of its own, in its own tenant namespace. A replicated map is named after
// the provider, so that it can stand beside the own map of this cluster for the same peer.
func (m *Maps) origin(nm *offloadingv1beta1.NamespaceMap) (peer, problem string, err error) {
	ns, err := m.cfg.Namespaces.Lister().Get(nm.Namespace)
	if err != nil {
		return "", "", fmt.Errorf("reading the tenant namespace: %w", err)
	}
	peer = ns.Labels[corev1beta1.RemoteClusterIDLabel]
	switch origin := nm.Labels[offloadingv1beta1.OriginIDLabel]; {
	case ns.Labels[corev1beta1.TenantNamespaceLabel] != "true" || peer == "" || ns.Name != corev1beta1.TenantNamespace(peer):
		return "", fmt.Sprintf("namespace %s is not a tenant namespace: a replicated NamespaceMap is accepted in a namespace %[4]s<id> with the labels %[2]s=true and %[3]s=<id>",
			nm.Namespace, corev1beta1.TenantNamespaceLabel, corev1beta1.RemoteClusterIDLabel, corev1beta1.TenantNamespacePrefix), nil
	case origin != peer:
		return "", fmt.Sprintf("label %s is %q: in the tenant namespace of cluster %s only %s is accepted", offloadingv1beta1.OriginIDLabel, origin, peer, peer), nil
	case nm.Name != m.cfg.ClusterID:
		return "", fmt.Sprintf("requests of cluster %s to this cluster are accepted in the NamespaceMap %s only", peer, m.cfg.ClusterID), nil
	}
	return peer, "", nil
}

// end deletes all twins of a map that is being deleted, and removes the finalizer when none
// is left. Twins that are kept for their volumes, and those of a map that is lost, do not
// block it.
func (m *Maps) end(ctx context.Context, nm *offloadingv1beta1.NamespaceMap, key loop.Key) error {
	if !slices.Contains(nm.Finalizers, offloadingv1beta1.NamespaceMapFinalizer) {
		return nil
	}
	twins, err := m.liveTwins(ctx, key)
	if err != nil {
		return err
	}
	user, _ := m.user(corev1beta1.PeerOfNamespace(key.Namespace))
	left, _, err := m.giveUpAll(ctx, key, twins, user)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		status := *nm.Status.DeepCopy()
		status.CurrentMapping = left
		m.ready(&status, nm, offloadingv1beta1.ReasonTerminating, fmt.Sprintf("%d twin namespaces are being removed", len(left)))
		return m.report(ctx, nm, status) // the deletion of the last twin queues the key again
	}
	_, err = m.finalizer(ctx, nm, false)
	return store.IgnoreNotFound(err)
}

// giveUpAll gives up the twins of a map that ends. It returns the answers for those that are being removed. kept: some
// are kept for their volumes. Twins of a map that is lost stay as they are.
func (m *Maps) giveUpAll(ctx context.Context, key loop.Key, twins map[string]*corev1.Namespace, user string) (left map[string]offloadingv1beta1.RemoteNamespaceStatus, kept bool, err error) {
	lost, err := m.lost(ctx, key)
	if err != nil {
		return nil, false, err
	}
	left = map[string]offloadingv1beta1.RemoteNamespaceStatus{}
	for _, ns := range twins {
		if lost(ns) {
			continue
		}
		why, err := m.giveUp(ctx, ns, user)
		switch {
		case err != nil:
			return nil, false, err
		case why != "":
			kept = true
		default:
			left[originalOf(ns)] = offloadingv1beta1.RemoteNamespaceStatus{RemoteNamespace: ns.Name, Phase: offloadingv1beta1.MappingTerminating}
		}
	}
	return left, kept, nil
}

// lost returns which twins belong to a map that went with its tenant namespace, although the
// peer still has rights here. The peer writes the map again as soon as the namespace is there
// again, and its pods run on until then.
func (m *Maps) lost(ctx context.Context, key loop.Key) (func(twin *corev1.Namespace) bool, error) {
	user, _ := m.user(corev1beta1.PeerOfNamespace(key.Namespace))
	if user == "" {
		return func(*corev1.Namespace) bool { return false }, nil
	}
	ns, err := store.Live(ctx, "Namespace", m.cfg.Kube.CoreV1().Namespaces(), key.Namespace)
	return func(twin *corev1.Namespace) bool {
		return ns == nil || ns.DeletionTimestamp != nil || ns.CreationTimestamp.After(twin.CreationTimestamp.Time)
	}, err
}

// sweep deletes the twins of a map that was deleted without its finalizer.
func (m *Maps) sweep(ctx context.Context, key loop.Key) error {
	twins := m.twins(key)
	if len(twins) == 0 {
		return nil
	}
	if err := store.ConfirmGone(ctx, "NamespaceMap", m.cfg.Liqo.OffloadingV1beta1().NamespaceMaps(key.Namespace), key.Name); err != nil {
		return err
	}
	if _, kept, err := m.giveUpAll(ctx, key, twins, ""); err != nil || !kept {
		return err
	}
	return loop.After(keptRetry)
}

// twins returns the cached twins of a map, by name.
func (m *Maps) twins(key loop.Key) map[string]*corev1.Namespace {
	out := map[string]*corev1.Namespace{}
	for _, ns := range store.ByIndex[*corev1.Namespace](m.cfg.Namespaces.Informer().GetIndexer(), twinIndex, key.String()) {
		if m.madeFor(ns, key) {
			out[ns.Name] = ns
		}
	}
	return out
}

// liveTwins is like twins, but confirms an empty result by a live list: the cache may lack
// the newest twin.
func (m *Maps) liveTwins(ctx context.Context, key loop.Key) (map[string]*corev1.Namespace, error) {
	out := m.twins(key)
	if len(out) > 0 || corev1beta1.PeerOfNamespace(key.Namespace) == "" {
		return out, nil // only maps in tenant namespaces have twins
	}
	all, err := store.Find[*corev1.Namespace](ctx, "twin namespace", m.cfg.Kube.CoreV1().Namespaces(), metav1.ListOptions{
		LabelSelector: corev1beta1.RemoteClusterIDLabel + "=" + corev1beta1.PeerOfNamespace(key.Namespace)})
	for _, ns := range all {
		if m.madeFor(ns, key) {
			out[ns.Name] = ns
		}
	}
	return out, err
}

// remove deletes a twin. The deletion is a conflict if the namespace has changed since it
// was judged.
func (m *Maps) remove(ctx context.Context, ns *corev1.Namespace) error {
	if ns.DeletionTimestamp != nil {
		return nil
	}
	err := m.cfg.Kube.CoreV1().Namespaces().Delete(ctx, ns.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &ns.UID, ResourceVersion: &ns.ResourceVersion}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting the twin namespace %s: %w", ns.Name, err)
	}
	m.cfg.Log.Info("twin namespace deleted", zap.String("namespace", ns.Name),
		zap.String("map", ns.Annotations[offloadingv1beta1.ManagedByNamespaceMapAnnotation]))
	return nil
}

func (m *Maps) finalizer(ctx context.Context, nm *offloadingv1beta1.NamespaceMap, want bool) (*offloadingv1beta1.NamespaceMap, error) {
	return store.SetFinalizer(ctx, m.cfg.Liqo.OffloadingV1beta1().NamespaceMaps(nm.Namespace), nm, offloadingv1beta1.NamespaceMapFinalizer, want, "")
}

func (m *Maps) ready(status *offloadingv1beta1.NamespaceMapStatus, nm *offloadingv1beta1.NamespaceMap, reason, message string) {
	status.Conditions = slices.Clone(status.Conditions)
	store.SetCondition(&status.Conditions, condition(offloadingv1beta1.RemoteNamespaceReady,
		reason == offloadingv1beta1.ReasonNamespaceCreated, reason, message, nm.Generation, m.cfg.Clock.Now()))
}

// report writes the status if it has changed, and an event for each twin that has begun to
// fail, up to mostTold.
func (m *Maps) report(ctx context.Context, nm *offloadingv1beta1.NamespaceMap, status offloadingv1beta1.NamespaceMapStatus) error {
	if equality.Semantic.DeepEqual(status, nm.Status) {
		return nil
	}
	next := nm.DeepCopy()
	next.Status = status
	if err := store.WriteStatus(ctx, "NamespaceMap", m.cfg.Liqo.OffloadingV1beta1().NamespaceMaps(nm.Namespace), "", nm, next); err != nil {
		return store.IgnoreNotFound(err)
	}
	told := 0
	for _, original := range slices.Sorted(maps.Keys(status.CurrentMapping)) {
		now, before := status.CurrentMapping[original], nm.Status.CurrentMapping[original]
		if now.Phase == offloadingv1beta1.MappingCreationLoopBackOff && now != before && told < mostTold {
			told++
			m.cfg.Events.Event(next, corev1.EventTypeWarning, offloadingv1beta1.ReasonCreationLoopBackOff, now.Message)
		}
	}
	return nil
}

const (
	// creationInterval is the time after which a peer may have one more twin created. A suite
	// of tests that makes a namespace in each second is steady use, and never slower for it.
	creationInterval = time.Second
	// fewestCreations is the least number of twins that a peer may have created at once.
	fewestCreations = 20
)

// beyond returns the entries of a map for which there is no room: a peer may have at most
// most twins. All its twins count, also those that are being deleted or are kept for their
// volumes. An existing twin always stays.
func beyond(nm *offloadingv1beta1.NamespaceMap, twins map[string]*corev1.Namespace, most int) map[string]bool {
	out := map[string]bool{}
	count := len(twins)
	for _, original := range slices.Sorted(maps.Keys(nm.Spec.DesiredMapping)) {
		switch {
		case twins[nm.Spec.DesiredMapping[original]] != nil:
		case count < most:
			count++
		default:
			out[original] = true
		}
	}
	return out
}

// tooMany is the message for an entry for which there is no room.
func (m *Maps) tooMany(peer string) string {
	return fmt.Sprintf("cluster %s may have %d namespaces in %s, and has or asks for more: offload fewer, or have sharing.namespacesPerPeer of %s raised. Namespaces that are being deleted or are kept for their volumes count too",
		peer, m.cfg.NamespacesPerPeer, m.cfg.ClusterID, m.cfg.ClusterID)
}

// tooOften is the error for a twin that is created later.
type tooOften struct{ wait time.Duration }

// Error implements error.
func (tooOften) Error() string {
	return fmt.Sprintf("more namespaces were created for the cluster in a short time than sharing.namespacesPerPeer: one more is created each %s, and this one follows by itself", creationInterval)
}
