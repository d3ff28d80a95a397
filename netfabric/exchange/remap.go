package exchange

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	networkinginformers "github.com/liqod/liqod/api/generated/informers/externalversions/networking/v1beta1"
	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/netfabric/check"
	"github.com/liqod/liqod/netfabric/plan"
)

// RemapConfig configures a Remapper.
type RemapConfig struct {
	Base // Client reads anew what is absent from the caches

	// Connections has at least those of the peers that the Remapper is used for.
	Connections networkinginformers.ConnectionInformer
}

// vanishedHold is how long the last translation of a peer counts when its Connection is gone:
// endpoints are not taken from pods because a backup is restored, or a peer is.
const vanishedHold = 30 * time.Second

// Remapper translates addresses as the Connections of peers say. Without a Connection an
// address has no translation. Addresses of a peer whose ForeignCluster disables networking
// stay as they are. The last state of an object that is absent now counts until Run has confirmed
// that it is gone, and for vanishedHold. The methods are safe for concurrent use. None of
// them but Run blocks.
type Remapper struct {
	cfg  RemapConfig
	loop *loop.Loop

	listeners loop.Listeners[string] // they take the ids of peers
	gone      loop.Since[string]     // peers of which something is confirmed to be gone

	mu sync.Mutex
	// known has the translation of each peer. Each is computed once for each state of the
	// Connection.
	known map[string]*translation
	off   map[string]bool // peers whose ForeignCluster, as it was seen last, disables networking
}

// translation is made of a Connection.
type translation struct {
	of *networkingv1beta1.Connection // as the cache has it
	// theirs translates the peer's own addresses to those under which this cluster sees
	// them; ours does so for this cluster's own and the peer.
	theirs, ours plan.Maps
	err          error // nothing of the Connection counts
}

// NewRemapper returns a Remapper. It starts nothing.
func NewRemapper(cfg RemapConfig) *Remapper {
	r := &Remapper{cfg: cfg, known: map[string]*translation{}, off: map[string]bool{}}
	r.loop = loop.New(loop.Config{Name: "remap", Sync: r.confirm, Beside: r.peers, Log: cfg.Log, Observer: cfg.Observer})
	r.loop.Await(r.HasSynced)
	// Objects of both kinds have the id of the peer as their name.
	gone := store.Handler[metav1.Object]{Gone: func(obj metav1.Object, _ bool) { r.loop.Wake(loop.Key{Name: obj.GetName()}) }}
	r.loop.Watch(loop.On(cfg.Connections.Informer(), gone), loop.On(cfg.ForeignClusters.Informer(), gone))
	return r
}

// Run confirms until ctx is done that what is absent from the caches is gone.
func (r *Remapper) Run(ctx context.Context) error {
	return r.loop.Run(ctx, 1)
}

// peers are those of which something is known.
func (r *Remapper) peers() (keys []loop.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for peer := range r.known {
		keys = append(keys, loop.Key{Name: peer})
	}
	for peer := range r.off {
		keys = append(keys, loop.Key{Name: peer})
	}
	return keys
}

// confirm forgets what is known of a peer, when it is gone for long enough.
func (r *Remapper) confirm(ctx context.Context, key loop.Key) error {
	peer := key.Name
	connection, cluster := r.absent(peer)
	if !connection && !cluster {
		r.gone.End(peer)
		return nil
	}
	there, err := r.there(ctx, peer, connection, cluster)
	if err != nil {
		return err
	}
	if there { // the caches have not seen it yet
		r.gone.End(peer)
		return loop.After(store.CatchUp)
	}
	now := r.cfg.Clock.Now()
	if rest := vanishedHold - now.Sub(r.gone.Begin(peer, now)); rest > 0 {
		return loop.After(rest)
	}
	r.gone.End(peer)
	r.mu.Lock()
	if connection {
		delete(r.known, peer)
	}
	if cluster {
		delete(r.off, peer)
	}
	r.mu.Unlock()
	r.cfg.Log.Info("the addresses of a peer are translated no more", zap.String("peer", peer))
	r.listeners.Tell(peer)
	return nil
}

// absent reports which objects of a peer the caches have no more, though their last state counts.
func (r *Remapper) absent(peer string) (connection, cluster bool) {
	c, fc := connectionOf(r.cfg.Connections, peer), clusterOf(r.cfg.ForeignClusters, peer)
	r.mu.Lock()
	defer r.mu.Unlock()
	return c == nil && r.known[peer] != nil, fc == nil && r.off[peer]
}

// there reports whether the API server has one of the objects of a peer that the caches lack.
func (r *Remapper) there(ctx context.Context, peer string, connection, cluster bool) (bool, error) {
	if connection {
		is := func(c *networkingv1beta1.Connection) bool { return c.Name == peer }
		there, err := store.Exists(ctx, "the Connection to "+peer, r.cfg.Client.NetworkingV1beta1().Connections(corev1beta1.TenantNamespace(peer)).List, is)
		if err != nil || there {
			return there, err
		}
	}
	if !cluster {
		return false, nil
	}
	is := func(fc *corev1beta1.ForeignCluster) bool { return fc.Name == peer }
	return store.Exists(ctx, "the ForeignCluster of "+peer, r.cfg.Client.CoreV1beta1().ForeignClusters().List, is)
}

// HasSynced reports whether the caches have had their first lists.
func (r *Remapper) HasSynced() bool {
	return r.cfg.Connections.Informer().HasSynced() && r.cfg.ForeignClusters.Informer().HasSynced()
}

// Fabric reports whether the network fabric connects this cluster with a peer, now or as
// soon as there is a Connection. It does not for a peer whose ForeignCluster disables it.
func (r *Remapper) Fabric(peer string) bool {
	fc := clusterOf(r.cfg.ForeignClusters, peer)
	r.mu.Lock()
	defer r.mu.Unlock()
	if fc != nil && disabled(fc) {
		r.off[peer] = true
	} else if fc != nil {
		delete(r.off, peer)
	}
	return !r.off[peer]
}

func disabled(fc *corev1beta1.ForeignCluster) bool {
	return fc.Spec.NetworkingEnabled != nil && !*fc.Spec.NetworkingEnabled
}

// Remap returns the address at which this cluster reaches addr, an address in the peer's
// own ranges. It returns false if there is none.
func (r *Remapper) Remap(peer string, addr netip.Addr) (netip.Addr, bool) {
	if !r.Fabric(peer) {
		return addr, true
	}
	return r.translation(peer).theirs.Out(addr)
}

// Direct returns the address at which this cluster reaches, by a tunnel of its own, the pod in a third
// cluster that addr stands for: an address of the hub, in a namespace of the hub. It returns false
// if this cluster has no such tunnel, if it is not up, or if the third cluster does not admit it.
func (r *Remapper) Direct(hub, namespace string, addr netip.Addr) (netip.Addr, bool) {
	c := r.connection(hub)
	if c == nil {
		return netip.Addr{}, false
	}
	for _, third := range c.Spec.Behind {
		behind, err := readMappings("spec.behind", third.Ranges)
		own, ok := behind.In(addr)
		if err == nil && ok && slices.Contains(third.Namespaces, namespace) {
			return r.admitted(third.ClusterID, hub, namespace, own)
		}
	}
	return netip.Addr{}, false
}

// admitted is Direct for an address that a pod has in the third cluster itself.
func (r *Remapper) admitted(third, hub, namespace string, own netip.Addr) (netip.Addr, bool) {
	c := r.connection(third)
	if c == nil || c.Status.Value != networkingv1beta1.Connected {
		return netip.Addr{}, false
	}
	has := func(m networkingv1beta1.Mapping) bool {
		p, ok := m.Own.Prefix()
		return ok && p.Contains(own)
	}
	if !slices.ContainsFunc(c.Spec.AdmittedPods(hub, namespace), has) {
		return netip.Addr{}, false
	}
	return r.translation(third).theirs.Out(own)
}

// connection returns the Connection of a peer that the fabric leads to, or nil.
func (r *Remapper) connection(peer string) *networkingv1beta1.Connection {
	c := connectionOf(r.cfg.Connections, peer)
	if c == nil || c.DeletionTimestamp != nil || !r.Fabric(peer) {
		return nil
	}
	return c
}

// Unmap returns the address in this cluster's own ranges that the peer reaches at addr. It
// returns false if there is none.
func (r *Remapper) Unmap(peer string, addr netip.Addr) (netip.Addr, bool) {
	if !r.Fabric(peer) {
		return addr, true
	}
	return r.translation(peer).ours.In(addr)
}

// View returns the address at which the peer reaches addr, an address in this cluster's own
// ranges. It returns false if there is none.
func (r *Remapper) View(peer string, addr netip.Addr) (netip.Addr, bool) {
	if !r.Fabric(peer) {
		return addr, true
	}
	return r.translation(peer).ours.Out(addr)
}

// Ranges returns the peer's own ranges, or the reason for which none are known.
func (r *Remapper) Ranges(peer string) ([]netip.Prefix, error) {
	t := r.translation(peer)
	if t.err != nil {
		return nil, t.err
	}
	return t.theirs.Owns(), nil
}

// Subscribe registers a function that is called with the id of each peer whose translation
// may have changed. The caches have the change already. The result reports whether the
// function has been called for all that the first lists had.
func (r *Remapper) Subscribe(changed func(peer string)) (synced cache.InformerSynced) {
	r.listeners.Subscribe(changed)
	same := func(a, b *corev1beta1.ForeignCluster) bool { return disabled(a) == disabled(b) }
	r.loop.Watch(
		store.Changes(r.cfg.Connections.Informer(), sameMappings, func(c *networkingv1beta1.Connection) { tellPeer(c, changed) }),
		store.Changes(r.cfg.Connections.Informer(), sameDirect, func(c *networkingv1beta1.Connection) { r.hubs(c.Spec.ClusterID, changed) }),
		store.Changes(r.cfg.ForeignClusters.Informer(), same, func(fc *corev1beta1.ForeignCluster) {
			changed(fc.Spec.ClusterID)
			r.hubs(fc.Spec.ClusterID, changed)
		}),
	)
	return r.loop.HasSynced
}

// hubs calls changed with each peer that leads to a cluster.
func (r *Remapper) hubs(third string, changed func(peer string)) {
	for _, c := range store.All[*networkingv1beta1.Connection](r.cfg.Connections.Informer().GetStore()) {
		if slices.ContainsFunc(c.Spec.Behind, func(t networkingv1beta1.Third) bool { return t.ClusterID == third }) {
			tellPeer(c, changed)
		}
	}
}

func sameMappings(a, b *networkingv1beta1.Connection) bool {
	return a.UID == b.UID && a.Spec.ClusterID == b.Spec.ClusterID && slices.Equal(a.Spec.Local, b.Spec.Local) && slices.Equal(a.Spec.Remote, b.Spec.Remote) &&
		equality.Semantic.DeepEqual(a.Spec.Behind, b.Spec.Behind)
}

// sameDirect reports whether pods of hubs are reached alike with two states of the Connection to the
// cluster that they run in.
func sameDirect(a, b *networkingv1beta1.Connection) bool {
	up := func(c *networkingv1beta1.Connection) bool {
		return c.DeletionTimestamp == nil && c.Status.Value == networkingv1beta1.Connected
	}
	return up(a) == up(b) && slices.Equal(a.Spec.Remote, b.Spec.Remote) && equality.Semantic.DeepEqual(a.Spec.Admitted, b.Spec.Admitted)
}

// translation returns that of the peer's Connection.
func (r *Remapper) translation(peer string) *translation {
	c := connectionOf(r.cfg.Connections, peer)
	r.mu.Lock()
	defer r.mu.Unlock()
	if c == nil {
		if have := r.known[peer]; have != nil && have.err == nil && !r.taken(peer, have) {
			return have
		}
		return &translation{err: fmt.Errorf("there is no Connection %s/%s yet", corev1beta1.TenantNamespace(peer), peer)}
	}
	have := r.known[peer]
	if have != nil && have.of == c {
		return have
	}
	t := translate(peer, c)
	r.known[peer] = t
	if t.err != nil && (have == nil || have.err == nil || have.err.Error() != t.err.Error()) {
		r.cfg.Log.Warn("Connection not used for addresses", zap.String("peer", peer), zap.Error(t.err))
	}
	return t
}

// taken reports whether another peer is seen now under addresses that a translation has.
func (r *Remapper) taken(peer string, t *translation) bool {
	all := store.All[*networkingv1beta1.Connection](r.cfg.Connections.Informer().GetStore())
	return slices.ContainsFunc(all, func(c *networkingv1beta1.Connection) bool {
		return c.Spec.ClusterID != peer && slices.ContainsFunc(c.Spec.Remote, func(m networkingv1beta1.Mapping) bool {
			view, ok := m.View.Prefix()
			return ok && slices.ContainsFunc(t.theirs.Views(), view.Overlaps)
		})
	})
}

// translate reads a Connection. One error in it makes it unusable, because another address
// could then stand for that of a pod.
func translate(peer string, c *networkingv1beta1.Connection) *translation {
	t := &translation{of: c}
	if t.theirs, t.ours, t.err = mapsOf(peer, &c.Spec); t.err != nil {
		t.theirs, t.ours = nil, nil
		t.err = fmt.Errorf("the Connection %s/%s is not used: %w", c.Namespace, c.Name, t.err)
	}
	return t
}

func mapsOf(peer string, spec *networkingv1beta1.ConnectionSpec) (theirs, ours plan.Maps, err error) {
	if spec.ClusterID != peer {
		return nil, nil, fmt.Errorf("spec.clusterID is %.64q: %q is accepted", spec.ClusterID, peer)
	}
	if theirs, err = readMappings("spec.remote", spec.Remote); err != nil {
		return nil, nil, err
	}
	if ours, err = readMappings("spec.local", spec.Local); err != nil {
		return nil, nil, err
	}
	// Both clusters use their own ranges and their views side by side.
	if err := disjoint(theirs.Owns(), ours.Views()); err != nil {
		return nil, nil, fmt.Errorf("in cluster %s %w", peer, err)
	}
	if err := disjoint(ours.Owns(), theirs.Views()); err != nil {
		return nil, nil, fmt.Errorf("in this cluster %w", err)
	}
	return theirs, ours, nil
}

func readMappings(field string, mappings []networkingv1beta1.Mapping) (plan.Maps, error) {
	out := make(plan.Maps, 0, len(mappings))
	for _, m := range mappings {
		if m.Use == networkingv1beta1.RangeService {
			continue // nodes alone translate these
		}
		one, err := check.ReadMapping(field, m)
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

// disjoint returns an error if two of the ranges overlap.
func disjoint(lists ...[]netip.Prefix) error {
	all := slices.Concat(lists...)
	for i, p := range all {
		if j := slices.IndexFunc(all[:i], p.Overlaps); j >= 0 {
			return fmt.Errorf("%s and %s overlap", all[j], p)
		}
	}
	return nil
}

// Peer returns the translation of one peer's own addresses.
func (r *Remapper) Peer(id string) PeerRemapper { return PeerRemapper{r, id} }

// PeerRemapper translates the addresses of one peer.
type PeerRemapper struct {
	all  *Remapper
	peer string
}

// Remap returns the address at which this cluster reaches addr, an address in the peer's
// own ranges. It returns false if there is none.
func (p PeerRemapper) Remap(addr netip.Addr) (netip.Addr, bool) { return p.all.Remap(p.peer, addr) }

// View returns the address at which the peer reaches addr, an address in this cluster's own
// ranges. It returns false if there is none.
func (p PeerRemapper) View(addr netip.Addr) (netip.Addr, bool) { return p.all.View(p.peer, addr) }

// Serves returns the reason why the peer does not lead to these addresses of Services of this cluster.
func (p PeerRemapper) Serves(services []netip.Addr) error {
	var given []netip.Prefix
	if c := connectionOf(p.all.cfg.Connections, p.peer); c != nil {
		for _, m := range c.Spec.Local {
			if own, ok := m.Own.Prefix(); ok && m.Use == networkingv1beta1.RangeService {
				given = append(given, own)
			}
		}
	}
	if len(given) == 0 {
		return fmt.Errorf("it has no view of the ranges of Services yet: it has no room in its ipam.pools (see the condition Ready of the Configuration %s/%s), or an earlier version", corev1beta1.TenantNamespace(p.peer), p.peer)
	}
	for _, a := range services {
		if !slices.ContainsFunc(given, func(r netip.Prefix) bool { return r.Contains(a) }) {
			return fmt.Errorf("%s, an address of the DNS, is in no range of Services (%s): set vkubelet.clusterDNS", a, ipamv1alpha1.RangesText(given))
		}
	}
	return nil
}

// Fabric reports whether the network fabric connects this cluster with the peer.
func (p PeerRemapper) Fabric() bool { return p.all.Fabric(p.peer) }
