package exchange

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	coreinformers "github.com/liqod/liqod/api/generated/informers/externalversions/core/v1beta1"
	networkinginformers "github.com/liqod/liqod/api/generated/informers/externalversions/networking/v1beta1"
	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/netfabric/check"
)

// Exchange answers the Configurations of peers: it claims a Network for each range, answers
// with the views that these get, and makes the Connection of both directions. Keys are
// cluster ids. One replica runs at a time; what it writes is harmless if done twice.
type Exchange struct {
	*loop.Loop
	cfg NegotiationConfig

	pace  loop.Pace // of new versions of Configurations, by peer
	taken sync.Map  // by peer: the version that counts
}

// version names a state of a peer's Configuration.
type version struct {
	uid        types.UID
	generation int64
}

// A new version of a peer's Configuration costs writes here and in third clusters, and a plan on each
// host, and a peer may change it without end.
const (
	versionsAtOnce  = 20
	versionInterval = 10 * time.Second
)

// NewExchange registers with the informers and starts nothing.
func NewExchange(cfg NegotiationConfig) *Exchange {
	e := &Exchange{cfg: cfg}
	e.Loop = loop.New(loop.Config{Name: "exchange", Sync: e.sync, Log: cfg.Log, Observer: cfg.Observer},
		loop.From(cfg.Configurations.Informer(), peerKey),
		loop.From(cfg.Networks.Informer(), peerKey),
		loop.From(cfg.Connections.Informer(), e.connectionKeys),
		loop.From(cfg.ForeignClusters.Informer(), loop.Self),
	)
	e.Await(cfg.Own.HasSynced)
	cfg.Own.Subscribe(e.wakeAll)
	return e
}

// peerKey returns the key of the peer in whose tenant namespace an object is.
func peerKey(obj any) []loop.Key {
	m, err := meta.Accessor(obj)
	if err != nil || corev1beta1.PeerOfNamespace(m.GetNamespace()) == "" {
		return nil
	}
	return []loop.Key{{Name: corev1beta1.PeerOfNamespace(m.GetNamespace())}}
}

// tellPeer calls changed with the peer in whose tenant namespace an object is.
func tellPeer(obj any, changed func(peer string)) {
	for _, key := range peerKey(obj) {
		changed(key.Name)
	}
}

// connectionKeys returns the peer of a Connection, each peer whose Configuration is not in force, as it
// may need what the Connection has, and each that has a key of the Connection too.
func (e *Exchange) connectionKeys(c *networkingv1beta1.Connection) []loop.Key {
	keys := peerKey(c)
	for _, other := range e.copies() {
		disputed := other.Namespace != c.Namespace && slices.ContainsFunc(c.Spec.Gateways, func(g networkingv1beta1.Gateway) bool {
			return slices.ContainsFunc(g.Keys(), func(key string) bool { return holder(other.Spec.Gateways, key) != nil })
		})
		if disputed || !meta.IsStatusConditionTrue(other.Status.Conditions, networkingv1beta1.ConditionReady) {
			keys = append(keys, peerKey(other)...)
		}
	}
	return keys
}

// holder returns the gateway that has a key, as its present or its next one, or nil.
func holder(gateways []networkingv1beta1.Gateway, key string) *networkingv1beta1.Gateway {
	i := slices.IndexFunc(gateways, func(g networkingv1beta1.Gateway) bool { return slices.Contains(g.Keys(), key) })
	if i < 0 {
		return nil
	}
	return &gateways[i]
}

// copies are the Configurations of all peers.
func (e *Exchange) copies() []*networkingv1beta1.Configuration {
	all := store.All[*networkingv1beta1.Configuration](e.cfg.Configurations.Informer().GetStore())
	return slices.DeleteFunc(all, func(c *networkingv1beta1.Configuration) bool { return !isTheirs(e.cfg.ClusterID, c) })
}

// clusterOf returns the ForeignCluster of a peer that a cache has, or nil.
func clusterOf(cached coreinformers.ForeignClusterInformer, peer string) *corev1beta1.ForeignCluster {
	return store.Cached[*corev1beta1.ForeignCluster](cached.Informer().GetStore(), loop.Key{Name: peer})
}

// connectionOf returns the Connection of a peer that a cache has, or nil.
func connectionOf(cached networkinginformers.ConnectionInformer, peer string) *networkingv1beta1.Connection {
	key := loop.Key{Namespace: corev1beta1.TenantNamespace(peer), Name: peer}
	return store.Cached[*networkingv1beta1.Connection](cached.Informer().GetStore(), key)
}

func (e *Exchange) wakeAll() {
	for _, c := range e.copies() {
		e.Wake(peerKey(c)...)
	}
}

// isTheirs reports whether a Configuration is a peer's: its copy has the id of this cluster as
// its name. Its labels are checked with its content.
func isTheirs(clusterID string, c *networkingv1beta1.Configuration) bool {
	return c.Name == clusterID && corev1beta1.PeerOfNamespace(c.Namespace) != ""
}

// isMine reports whether a Configuration is this cluster's own for the peer of its namespace.
func isMine(c *networkingv1beta1.Configuration) bool {
	return c.Name == corev1beta1.PeerOfNamespace(c.Namespace) && c.Labels[offloadingv1beta1.ReplicatedLabel] != "true" && managed(c) && c.DeletionTimestamp == nil
}

func (e *Exchange) sync(ctx context.Context, key loop.Key) error {
	f := e.gather(key.Name)
	if e.cfg.Off || f.theirs == nil || f.theirs.DeletionTimestamp != nil {
		return e.end(ctx, f)
	}
	if wait := e.waits(f.theirs); wait > 0 {
		return loop.After(wait)
	}
	var err error
	if f.theirs, err = e.hold(ctx, f.theirs, true); err != nil {
		return store.IgnoreNotFound(err)
	}
	d := f.decide()
	err = errors.Join(e.claim(ctx, f.theirs.Namespace, d), e.report(ctx, f.theirs, d.status))
	err = errors.Join(err, e.connect(ctx, f, d))
	if err != nil || len(d.release) == 0 {
		return err
	}
	return e.release(ctx, f, d.release)
}

// waits returns how long a version of a peer's Configuration waits until it is looked at.
func (e *Exchange) waits(c *networkingv1beta1.Configuration) time.Duration {
	now, peer := version{c.UID, c.Generation}, corev1beta1.PeerOfNamespace(c.Namespace)
	if taken, _ := e.taken.Load(peer); taken == now {
		return 0
	}
	wait := e.pace.Take(peer, versionsAtOnce, versionInterval, e.cfg.Clock.Now())
	if wait == 0 {
		e.taken.Store(peer, now)
	}
	return wait
}

// gather reads what there is of one peer from the caches.
func (e *Exchange) gather(peer string) facts {
	namespace := corev1beta1.TenantNamespace(peer)
	f := facts{peer: peer, now: metav1.NewTime(e.cfg.Clock.Now())}
	if fc := clusterOf(e.cfg.ForeignClusters, peer); fc != nil {
		f.trust = fc.Spec.Trust
	}
	f.objects(e.cfg.ClusterID, store.AllIn[*networkingv1beta1.Configuration](e.cfg.Configurations.Informer().GetStore(), namespace),
		store.AllIn[*ipamv1alpha1.Network](e.cfg.Networks.Informer().GetStore(), namespace))
	f.Surroundings, f.unknown = e.surroundings(f.mine)
	f.connection = connectionOf(e.cfg.Connections, peer)
	for _, c := range store.All[*networkingv1beta1.Connection](e.cfg.Connections.Informer().GetStore()) {
		if corev1beta1.PeerOfNamespace(c.Namespace) != peer {
			f.conflicts(c)
		}
	}
	return f
}

// objects replaces the objects of the peer by those in its tenant namespace.
func (f *facts) objects(clusterID string, configurations []*networkingv1beta1.Configuration, networks []*ipamv1alpha1.Network) {
	f.theirs, f.mine, f.networks = nil, nil, map[string]*ipamv1alpha1.Network{}
	for _, c := range configurations {
		switch {
		case isTheirs(clusterID, c):
			f.theirs = c
		case isMine(c):
			f.mine = c
		}
	}
	for _, n := range networks {
		f.networks[n.Name] = n
	}
}

// conflicts collects the keys and views of another peer's Connection: this peer may not have
// them. The peer reads the texts, so they name no other peer.
func (f *facts) conflicts(c *networkingv1beta1.Connection) {
	for _, g := range c.Spec.Gateways {
		for _, key := range g.Keys() {
			if !f.owns(key, g, c) {
				f.Keys[key] = "a gateway of another peer"
			}
		}
	}
	for _, m := range c.Spec.Remote {
		if p, ok := m.View.Prefix(); ok {
			f.Views = append(f.Views, ipamv1alpha1.NamedRange{Prefix: p, Name: "a range under which another peer is seen"})
		}
	}
}

// owns reports whether a key that the Connection of another peer has belongs to this peer: it proves the
// key and the other one does not. Where both or neither do, it is the one whose Connection is older.
func (f *facts) owns(key string, g networkingv1beta1.Gateway, other *networkingv1beta1.Connection) bool {
	if f.theirs != nil {
		if mine := holder(f.theirs.Spec.Gateways, key); mine != nil {
			theirs := check.Proved(key, corev1beta1.PeerOfNamespace(other.Namespace), g.Proofs)
			if proved := check.Proved(key, f.peer, mine.Proofs); proved != theirs {
				return proved
			}
		}
	}
	if f.connection == nil || holder(f.connection.Spec.Gateways, key) == nil {
		return false
	}
	return cmp.Or(f.connection.CreationTimestamp.Compare(other.CreationTimestamp.Time), strings.Compare(f.peer, corev1beta1.PeerOfNamespace(other.Namespace))) < 0
}

// surroundings returns those of this cluster alone. The error is what of them is not known.
func (e *Exchange) surroundings(mine *networkingv1beta1.Configuration) (check.Surroundings, error) {
	own, unknown := e.cfg.Own.Own()
	s := check.Surroundings{ClusterID: e.cfg.ClusterID, Own: own, Keys: map[string]string{}}
	s.Own.External = slices.Clone(own.External)
	if mine == nil {
		return s, unknown
	}
	for _, r := range check.OwnRanges(mine) {
		switch r.Use {
		case networkingv1beta1.RangePod:
			s.Own.Pods = append(s.Own.Pods, r.Prefix)
		case networkingv1beta1.RangeExternal:
			s.Own.External = append(s.Own.External, r.Prefix)
		case networkingv1beta1.RangeTransit, networkingv1beta1.RangeService: // a view of another peer, as Views has it; what Own has
		}
	}
	for _, g := range mine.Spec.Gateways {
		for _, key := range g.Keys() {
			s.Keys[key] = "a gateway of " + e.cfg.ClusterID
		}
	}
	return s, unknown
}

// hold gives the peer's Configuration our finalizer, or takes it away.
func (e *Exchange) hold(ctx context.Context, c *networkingv1beta1.Configuration, want bool) (*networkingv1beta1.Configuration, error) {
	return store.SetFinalizer(ctx, e.cfg.Client.NetworkingV1beta1().Configurations(c.Namespace), c, networkingv1beta1.ConfigurationFinalizer, want, "")
}

// claim writes the Networks of a decision.
func (e *Exchange) claim(ctx context.Context, namespace string, d decision) error {
	networks := e.cfg.Client.IPAMV1alpha1().Networks(namespace)
	for _, n := range d.networks {
		if err := write(ctx, "Network", networks, n.have, n.next); err != nil {
			return err
		}
	}
	return nil
}

// report writes the answer to the peer if it differs.
func (e *Exchange) report(ctx context.Context, c *networkingv1beta1.Configuration, status networkingv1beta1.ConfigurationStatus) error {
	next := c.DeepCopy()
	next.Status = status
	return store.IgnoreNotFound(store.WriteStatus(ctx, "Configuration", e.cfg.Client.NetworkingV1beta1().Configurations(c.Namespace), "", c, next))
}

// write is store.Write for an object whose events enqueue the key. The key is requeued if the cache lacks an
// object that exists.
func write[T store.Object](ctx context.Context, kind string, client store.Writer[T], have, next T) error {
	var none T
	_, err := store.Write(ctx, kind, client, "", have, next)
	switch {
	case apierrors.IsAlreadyExists(err):
		return loop.After(store.CatchUp)
	case have != none:
		return store.IgnoreNotFound(err)
	}
	return err
}

// connect makes the Connection as decided.
func (e *Exchange) connect(ctx context.Context, f facts, d decision) error {
	have := f.connection
	switch {
	case d.connection == nil && (have == nil || !managed(have)):
		return nil
	case d.connection == nil:
		return e.disconnect(ctx, f)
	case have != nil && !managed(have):
		return fmt.Errorf("keeping Connection %s/%s: it has no label %s=%s, so liqod has not made it: delete it",
			have.Namespace, have.Name, offloadingv1beta1.ManagedByLabel, networkingv1beta1.ManagedByConfiguration)
	case have != nil && have.DeletionTimestamp != nil:
		return nil // made again when it is gone
	}
	next := &networkingv1beta1.Connection{ObjectMeta: metav1.ObjectMeta{Namespace: f.theirs.Namespace, Name: f.peer, Labels: made(f.peer)}}
	if have != nil {
		next = have.DeepCopy()
	}
	next.Spec, next.OwnerReferences = *d.connection, []metav1.OwnerReference{ownedBy(f.theirs)}
	return write(ctx, "Connection", e.cfg.Client.NetworkingV1beta1().Connections(next.Namespace), have, next)
}

// disconnect deletes a Connection when the API server agrees with the caches that nothing
// holds it.
func (e *Exchange) disconnect(ctx context.Context, f facts) error {
	if f.connection.DeletionTimestamp != nil {
		return nil
	}
	live, err := e.live(ctx, f)
	if err != nil {
		return err
	}
	if live.theirs != nil && live.theirs.DeletionTimestamp == nil && live.decide().connection != nil {
		return loop.After(store.CatchUp)
	}
	return e.deleteConnection(ctx, f.connection)
}

func (e *Exchange) deleteConnection(ctx context.Context, c *networkingv1beta1.Connection) error {
	if c.DeletionTimestamp != nil {
		return nil
	}
	e.cfg.Log.Info("connection ends", zap.String("peer", c.Spec.ClusterID))
	return store.Delete(ctx, "Connection", e.cfg.Client.NetworkingV1beta1().Connections(c.Namespace), c)
}

// live returns the facts with the objects of the peer as the API server has them.
func (e *Exchange) live(ctx context.Context, f facts) (facts, error) {
	namespace := corev1beta1.TenantNamespace(f.peer)
	all, err := store.Find[*networkingv1beta1.Configuration](ctx, "Configuration", e.cfg.Client.NetworkingV1beta1().Configurations(namespace), metav1.ListOptions{})
	if err != nil {
		return f, err
	}
	networks, err := store.Find[*ipamv1alpha1.Network](ctx, "Network", e.cfg.Client.IPAMV1alpha1().Networks(namespace), metav1.ListOptions{})
	if err != nil {
		return f, err
	}
	f.objects(e.cfg.ClusterID, all, networks)
	f.connection, err = store.Live(ctx, "Connection", e.cfg.Client.NetworkingV1beta1().Connections(namespace), f.peer)
	return f, err
}

// release deletes Networks that no range needs. It leaves a Network whose view is still in the
// Connection: the view would be given to another peer.
func (e *Exchange) release(ctx context.Context, f facts, names []string) error {
	live, err := e.live(ctx, f)
	if err != nil {
		return err
	}
	if live.theirs == nil || live.theirs.UID != f.theirs.UID || live.theirs.Generation != f.theirs.Generation {
		return loop.After(store.CatchUp)
	}
	for _, name := range names {
		n := live.networks[name]
		if n == nil || !managed(n) || live.connected(n.Status.CIDR) {
			continue // the Connection wakes us when it changes
		}
		if err := e.free(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// connected reports whether the Connection has a view.
func (f facts) connected(view networkingv1beta1.CIDR) bool {
	return f.connection != nil && slices.ContainsFunc(f.connection.Spec.Remote, func(m networkingv1beta1.Mapping) bool { return m.View == view })
}

// stuck reports whether a Network that was made for the peer is being deleted and still has
// the finalizer of role ipam.
func (f facts) stuck() bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(f.networks)), func(n *ipamv1alpha1.Network) bool {
		return managed(n) && n.DeletionTimestamp != nil && store.HasFinalizer(n, ipamv1alpha1.NetworkFinalizer)
	})
}

func (e *Exchange) free(ctx context.Context, n *ipamv1alpha1.Network) error {
	networks := e.cfg.Client.IPAMV1alpha1().Networks(n.Namespace)
	if n.DeletionTimestamp == nil {
		return store.Delete(ctx, "Network", networks, n)
	}
	if !e.cfg.Off {
		return nil
	}
	// With networking off, no role ipam runs that would take its finalizer away.
	_, err := store.SetFinalizer(ctx, networks, n, ipamv1alpha1.NetworkFinalizer, false, "")
	return store.IgnoreNotFound(err)
}

// end removes what was made for a Configuration that is gone, that is being deleted, or that
// is not to be answered any more: the Connection, when that is gone the Networks, and then our finalizer.
func (e *Exchange) end(ctx context.Context, f facts) error {
	held := f.theirs != nil && store.HasFinalizer(f.theirs, networkingv1beta1.ConfigurationFinalizer)
	if !held && len(f.unneeded(nil)) == 0 && !(e.cfg.Off && f.stuck()) && (f.connection == nil || !managed(f.connection)) {
		return nil
	}
	live, err := e.live(ctx, f)
	if err != nil {
		return err
	}
	if !e.cfg.Off && live.theirs != nil && live.theirs.DeletionTimestamp == nil {
		return loop.After(store.CatchUp)
	}
	if c := live.connection; c != nil && managed(c) {
		if err := e.deleteConnection(ctx, c); err != nil {
			return err
		}
		if live, err = e.live(ctx, f); err != nil || live.connection != nil {
			return err // its end wakes us
		}
	}
	for _, name := range slices.Sorted(maps.Keys(live.networks)) {
		if n := live.networks[name]; managed(n) {
			if err := e.free(ctx, n); err != nil {
				return err
			}
		}
	}
	if live.theirs == nil {
		return nil
	}
	_, err = e.hold(ctx, live.theirs, false)
	return store.IgnoreNotFound(err)
}
