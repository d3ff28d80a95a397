package namespace

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	networkinginformers "k8s.io/client-go/informers/networking/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	liqonetinformers "github.com/liqod/liqod/api/generated/informers/externalversions/networking/v1beta1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
)

// BoundsConfig configures the ResourceQuota and the NetworkPolicy of each twin.
type BoundsConfig struct {
	// Limits are the counts of the ResourceQuota. Twins have none if it is empty.
	Limits corev1.ResourceList
	// Storage is the size of all claims in the twins of one peer, in bytes; 0: no limit. It needs
	// Limits with a size for each twin.
	Storage int64
	// NetworkPolicy is false if twins have no NetworkPolicy.
	NetworkPolicy bool
	// Fabric is true if the network fabric connects this cluster with its peers, except those
	// whose ForeignCluster disables networking.
	Fabric bool
	// Reachable are further ranges that pods of peers may reach.
	Reachable []netip.Prefix
	// Own returns the ranges and addresses of this cluster, as far as they are known.
	Own func() []netip.Prefix
	// OwnChanged registers a function that is called when Own may return something else. It
	// is called before anything runs.
	OwnChanged func(f func())

	// The informers watch all namespaces. ResourceQuotas and NetworkPolicies have at least the
	// objects named offloadingv1beta1.TwinBounds.
	ResourceQuotas  coreinformers.ResourceQuotaInformer
	NetworkPolicies networkinginformers.NetworkPolicyInformer
	Connections     liqonetinformers.ConnectionInformer
}

// watchBounds registers the event handlers for what the bounds of twins follow from, and for
// the bounds themselves.
func (m *Maps) watchBounds() {
	b := m.cfg.Bounds
	b.OwnChanged(func() { m.Wake(m.allReplicas()...) })
	m.Watch(
		store.Changes(b.ResourceQuotas.Informer(), sameQuota, func(q *corev1.ResourceQuota) { m.Wake(m.quotaKeys(q)...) }),
		store.Changes(b.NetworkPolicies.Informer(), samePolicy, func(p *networkingv1.NetworkPolicy) { m.Wake(m.bindingKeys(p)...) }),
		store.Changes(b.Connections.Informer(), sameConnection, func(c *networkingv1beta1.Connection) { m.Wake(m.connectionKeys(c)...) }),
	)
}

// allReplicas returns the keys of the maps of all peers.
func (m *Maps) allReplicas() []loop.Key {
	all := store.Listed(m.cfg.Maps.Lister().List(labels.Everything()))
	return loop.Keys(slices.DeleteFunc(all, func(nm *offloadingv1beta1.NamespaceMap) bool { return !isReplica(nm) }))
}

// sameQuota reports whether two versions of a ResourceQuota differ only in their usage,
// which changes with each object of the twin. The size of claims, and kinds of liqod for which a
// usage appears, are a difference.
func sameQuota(a, b *corev1.ResourceQuota) bool {
	return claimed(a).Equal(*claimed(b)) && equality.Semantic.DeepEqual(a.Spec, b.Spec) && maps.Equal(a.Labels, b.Labels) && countedKinds(a) == countedKinds(b)
}

// countsLiqod reports whether an entry of a ResourceQuota counts objects of a kind of liqod.
func countsLiqod(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), "count/") && strings.HasSuffix(string(name), ".liqo.io")
}

// countedKinds is the number of kinds of liqod whose objects Kubernetes counts for a quota.
func countedKinds(q *corev1.ResourceQuota) int {
	n := 0
	for name := range q.Status.Used {
		if countsLiqod(name) {
			n++
		}
	}
	return n
}

// quotaKeys returns the maps for which a ResourceQuota counts: that in the namespace of liqod
// counts for all.
func (m *Maps) quotaKeys(q *corev1.ResourceQuota) []loop.Key {
	if q.Namespace == m.cfg.OwnNamespace {
		return m.allReplicas()
	}
	return m.bindingKeys(q)
}

// limits returns the counts of the ResourceQuota of a twin. The API server refuses all objects
// of a kind that a quota names before their number is known, and Kubernetes starts to count
// objects of a new kind up to 30 s after its definition. So kinds of liqod are left out until
// they are counted for the ResourceQuota that the chart puts into the namespace of liqod.
func (m *Maps) limits() corev1.ResourceList {
	own := store.Known(m.cfg.Bounds.ResourceQuotas.Lister().ResourceQuotas(m.cfg.OwnNamespace).Get(offloadingv1beta1.TwinBounds))
	limits := maps.Clone(m.cfg.Bounds.Limits)
	maps.DeleteFunc(limits, func(name corev1.ResourceName, _ resource.Quantity) bool {
		if !countsLiqod(name) {
			return false
		}
		if own == nil {
			return true
		}
		_, counted := own.Status.Used[name]
		return !counted
	})
	return limits
}

func samePolicy(a, b *networkingv1.NetworkPolicy) bool {
	return equality.Semantic.DeepEqual(a.Spec, b.Spec) && maps.Equal(a.Labels, b.Labels)
}

func sameConnection(a, b *networkingv1beta1.Connection) bool {
	return equality.Semantic.DeepEqual(a.Spec.Remote, b.Spec.Remote) &&
		equality.Semantic.DeepEqual(a.Spec.Behind, b.Spec.Behind) && equality.Semantic.DeepEqual(a.Spec.Admitted, b.Spec.Admitted)
}

// connectionKeys returns the maps of the peer of a Connection, and of those peers that run pods behind it.
func (m *Maps) connectionKeys(c *networkingv1beta1.Connection) []loop.Key {
	if corev1beta1.PeerOfNamespace(c.Namespace) == "" {
		return nil
	}
	keys := []loop.Key{{Namespace: c.Namespace, Name: m.cfg.ClusterID}}
	for _, hub := range store.All[*networkingv1beta1.Connection](m.cfg.Bounds.Connections.Informer().GetStore()) {
		if slices.ContainsFunc(hub.Spec.Behind, func(t networkingv1beta1.Third) bool { return t.ClusterID == c.Spec.ClusterID }) {
			keys = append(keys, loop.Key{Namespace: hub.Namespace, Name: m.cfg.ClusterID})
		}
	}
	return keys
}

// bound makes the ResourceQuota and the NetworkPolicy of a twin as they are wanted. While they
// cannot be, as for a foreignError, the peer gets no rights in the twin. all is what counts for
// all twins of the peer.
func (m *Maps) bound(ctx context.Context, peer, twin string, all together) error {
	if err := m.boundCounts(ctx, peer, twin, all); err != nil {
		return err
	}
	return m.boundNetwork(ctx, peer, twin, all.blocks)
}

// together is what counts for all twins of a peer.
type together struct {
	blocks []networkingv1.NetworkPolicyEgressRule
	// room is how much each twin may claim beyond what it has, in bytes.
	room int64
}

// together returns what counts for the twins of a peer, which has or asks for a number of them. The
// room halves until what is free of the peer's storage has it once for each twin, so that quotas
// change seldom.
func (m *Maps) together(peer string, twins int) together {
	out := together{blocks: m.blocks(peer)}
	if m.cfg.Bounds.Storage == 0 {
		return out
	}
	quotas := store.Listed(m.cfg.Bounds.ResourceQuotas.Lister().List(labels.SelectorFromSet(boundLabels(peer))))
	free := m.cfg.Bounds.Storage
	for _, q := range quotas {
		free -= claimed(q).Value()
	}
	share := max(free, 0) / int64(max(twins, len(quotas), 1))
	for out.room = m.cfg.Bounds.Limits.Name(corev1.ResourceRequestsStorage, resource.BinarySI).Value(); out.room > share; {
		out.room /= 2
	}
	return out
}

// boundLabels are the labels of the objects that bound a twin.
func boundLabels(peer string) map[string]string {
	return map[string]string{offloadingv1beta1.ManagedByLabel: managedByNamespaceMap, corev1beta1.RemoteClusterIDLabel: peer}
}

// foreignError is the message about an object of another author under the name of one that
// bounds a twin.
type foreignError string

func (e foreignError) Error() string { return string(e) }

// bounding says how objects of one kind bound a twin. setting is the one that ends them with the
// value off.
func bounding[T store.Applied[T]](kind, setting, off string, client interface {
	store.Writer[T]
	store.API[T]
}, spec func(next, want T),
) store.Kind[T] {
	return store.Kind[T]{Name: kind, Client: client, Ours: func(have T) error {
		if have.GetLabels()[offloadingv1beta1.ManagedByLabel] == managedByNamespaceMap {
			return nil
		}
		return foreignError(fmt.Sprintf("%s %s in namespace %s was not made by liqod (label %s=%s), which bounds what a peer has there by an object of that name: delete or rename it, or set %s to %s",
			kind, offloadingv1beta1.TwinBounds, have.GetNamespace(), offloadingv1beta1.ManagedByLabel, managedByNamespaceMap, setting, off))
	}, Set: func(next, want T) bool {
		store.AddLabels(next, want)
		spec(next, want)
		return true
	}}
}

func (m *Maps) boundCounts(ctx context.Context, peer, twin string, all together) error {
	k := bounding("ResourceQuota", "sharing.twinLimits", "[]", m.cfg.Kube.CoreV1().ResourceQuotas(twin),
		func(next, want *corev1.ResourceQuota) { next.Spec = want.Spec })
	have := store.Known(m.cfg.Bounds.ResourceQuotas.Lister().ResourceQuotas(twin).Get(offloadingv1beta1.TwinBounds))
	if len(m.cfg.Bounds.Limits) == 0 {
		return k.Apply(ctx, have, nil)
	}
	limits := m.limits()
	if limit, bounded := limits[corev1.ResourceRequestsStorage]; bounded && m.cfg.Bounds.Storage > 0 {
		most := resource.NewQuantity(all.room, resource.BinarySI)
		if have != nil {
			most.Add(*claimed(have))
		}
		if most.Cmp(limit) < 0 {
			limits[corev1.ResourceRequestsStorage] = *most
		}
	}
	return k.Apply(ctx, have, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: twin, Name: offloadingv1beta1.TwinBounds, Labels: boundLabels(peer)},
		Spec:       corev1.ResourceQuotaSpec{Hard: limits.DeepCopy()},
	})
}

// claimed returns the size of all claims that Kubernetes counts for a quota.
func claimed(q *corev1.ResourceQuota) *resource.Quantity {
	return q.Status.Used.Name(corev1.ResourceRequestsStorage, resource.BinarySI)
}

func (m *Maps) boundNetwork(ctx context.Context, peer, twin string, blocks []networkingv1.NetworkPolicyEgressRule) error {
	k := bounding("NetworkPolicy", "sharing.networkPolicy", "false", m.cfg.Kube.NetworkingV1().NetworkPolicies(twin),
		func(next, want *networkingv1.NetworkPolicy) { next.Spec = want.Spec })
	have := store.Known(m.cfg.Bounds.NetworkPolicies.Lister().NetworkPolicies(twin).Get(offloadingv1beta1.TwinBounds))
	if !m.cfg.Bounds.NetworkPolicy {
		return k.Apply(ctx, have, nil)
	}
	return k.Apply(ctx, have, twinPolicy(peer, twin, m.home(twin), blocks))
}

// home reports whether the pods of a twin use the Services of the consumer.
func (m *Maps) home(twin string) bool {
	ns := store.Known(m.cfg.Namespaces.Lister().Get(twin))
	return ns != nil && ns.Annotations[offloadingv1beta1.ServicesAnnotation] == string(offloadingv1beta1.ServicesHome)
}

// blocks returns what the NetworkPolicies of a peer's twins allow outside of the cluster.
func (m *Maps) blocks(peer string) []networkingv1.NetworkPolicyEgressRule {
	if !m.cfg.Bounds.NetworkPolicy {
		return nil
	}
	return toBlocks(m.reach(peer))
}

// reach returns the ranges that the NetworkPolicies of a peer's twins follow from.
func (m *Maps) reach(peer string) reach {
	r := reach{own: m.cfg.Bounds.Own(), reachable: m.cfg.Bounds.Reachable}
	fc := m.record(peer)
	if fc == nil {
		return r // nothing of the peer's counts
	}
	if m.cfg.Bounds.Fabric && (fc.Spec.NetworkingEnabled == nil || *fc.Spec.NetworkingEnabled) {
		r.peer = m.fabricRanges(peer)
		return r
	}
	if fc.Annotations[corev1beta1.EnrolledRangesAnnotation] == strings.Join(fc.Spec.AddressRanges, ",") {
		return r // the peer has chosen them: they may be those of others
	}
	for _, text := range fc.Spec.AddressRanges {
		r.peer = appendRange(r.peer, text)
	}
	return r
}

// fabricRanges returns the ranges under which this cluster sees a peer, and pods of it in clusters behind
// it to which this one has a tunnel, too.
func (m *Maps) fabricRanges(peer string) (out []netip.Prefix) {
	c := m.connection(peer)
	if c == nil {
		return nil
	}
	for _, mapping := range c.Spec.Remote {
		out = appendRange(out, string(mapping.View))
	}
	for _, third := range c.Spec.Behind {
		direct := m.connection(third.ClusterID)
		if direct == nil {
			continue
		}
		for _, mapping := range direct.Spec.AdmittedPods(peer, "") {
			out = appendRange(out, string(mapping.View))
		}
	}
	return out
}

// connection returns the Connection to a peer, or nil.
func (m *Maps) connection(peer string) *networkingv1beta1.Connection {
	return store.Known(m.cfg.Bounds.Connections.Lister().Connections(corev1beta1.TenantNamespace(peer)).Get(peer))
}

func appendRange(to []netip.Prefix, text string) []netip.Prefix {
	if p, err := netip.ParsePrefix(text); err == nil {
		return append(to, p.Masked())
	}
	return to
}
