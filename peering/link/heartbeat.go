package link

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationinformers "k8s.io/client-go/informers/coordination/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	networkinginformers "github.com/liqod/liqod/api/generated/informers/externalversions/networking/v1beta1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/health"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
)

// heartbeatManager is the field manager of the renewals of heartbeat Leases.
const heartbeatManager = "liqod-heartbeat"

// unaskedDelay is the delay before the next renewal of a Lease that a provider does not have,
// or does not let this cluster write: it needs no heartbeats.
const unaskedDelay = 30 * time.Second

// HeartbeatConfig is the input of NewHeartbeat. All fields are required.
type HeartbeatConfig struct {
	Base

	// Interval is the time between two renewals; 0: there are none, and those from before are
	// taken back.
	Interval time.Duration
	// Serving returns an error unless this cluster's API server serves. It returns soon after
	// its context is done, which is after Timeout.
	Serving func(ctx context.Context) error
	Timeout time.Duration
	// Identity returns an error unless a client reaches the recorded cluster of a peer.
	Identity func(ctx context.Context, clusterID string, kube kubernetes.Interface) error

	// Directory has the clients for the peers. NewHeartbeat subscribes to it.
	Directory *Directory
	// Connections watches this cluster in all namespaces.
	Connections networkinginformers.ConnectionInformer

	Clock clock.WithTicker
}

// Heartbeat renews this cluster's heartbeat Lease in each provider that can check this
// cluster in no other way: it has no credentials for it, and there is no tunnel between them.
// It renews only after this cluster's API server has answered, so that the renewals end when
// either ends. It runs in every replica: a take-over lasts longer than a provider waits.
type Heartbeat struct {
	loop *loop.Loop
	cfg  HeartbeatConfig

	renewals perPeer[renewal]

	quiet sync.Map // Revision of the credentials with which a Lease was taken back, by cluster id
}

// NewHeartbeat returns a Heartbeat and registers its event handlers on the informers and the
// directory. It starts nothing.
func NewHeartbeat(cfg HeartbeatConfig) *Heartbeat {
	h := &Heartbeat{cfg: cfg}
	h.loop = loop.New(loop.Config{Name: "heartbeat", Sync: h.sync, Log: cfg.Log, Observer: cfg.Observer},
		loop.From(cfg.ForeignClusters.Informer(), ClusterKey),
		loop.From(cfg.Connections.Informer(), connectionKey),
	)
	cfg.Directory.Subscribe(func(id string) { h.loop.Add(loop.Key{Name: id}) })
	return h
}

// connectionKey returns the peer of a Connection.
func connectionKey(c *networkingv1beta1.Connection) []loop.Key {
	if c.Namespace != corev1beta1.TenantNamespace(c.Name) {
		return nil
	}
	return []loop.Key{{Name: c.Name}}
}

// Run blocks until ctx is done and all renewals have ended. It may be called again after
// that.
func (h *Heartbeat) Run(ctx context.Context, workers int) error {
	var wg sync.WaitGroup
	if h.cfg.Interval > 0 {
		wg.Go(func() { h.beat(ctx) })
	}
	err := h.loop.Run(ctx, workers)
	wg.Wait()
	h.renewals.stopAll()
	h.quiet.Clear()
	return err
}

// beat has all Leases renewed each time that this cluster's API server answers. A renewal
// that is still under way is not queued: it would be made when the answer is old.
func (h *Heartbeat) beat(ctx context.Context) {
	for range loop.Ticks(ctx, h.cfg.Clock, h.cfg.Interval, nil) {
		all := h.renewals.running()
		if len(all) == 0 || !h.serves(ctx) {
			continue
		}
		for _, r := range all {
			r.is.due.Notify()
		}
	}
}

func (h *Heartbeat) serves(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, min(h.cfg.Timeout, h.cfg.Interval))
	defer cancel()
	return h.cfg.Serving(ctx) == nil && ctx.Err() == nil
}

func (h *Heartbeat) sync(ctx context.Context, key loop.Key) error {
	id := key.Name
	e, ok := h.cfg.Directory.Endpoint(id)
	if !ok {
		return h.lastWord(ctx, id)
	}
	if e.Problem != "" {
		h.renewals.stop(id)
		return nil
	}
	if h.wanted(id) {
		h.start(ctx, id, e)
		return nil
	}
	h.renewals.stop(id)
	return h.takeBack(ctx, id, e)
}

// wanted reports whether the peer is to see heartbeats of this cluster. It has its own probes
// of one that it has rights in, and reports through a tunnel.
func (h *Heartbeat) wanted(id string) bool {
	fc := store.Known(h.cfg.ForeignClusters.Lister().Get(id))
	if h.cfg.Interval == 0 || fc == nil || fc.DeletionTimestamp != nil || fc.Spec.UserName != "" || id == h.cfg.ClusterID {
		return false
	}
	c := store.Known(h.cfg.Connections.Lister().Connections(corev1beta1.TenantNamespace(id)).Get(id))
	return c == nil || c.DeletionTimestamp != nil
}

// takeBack clears the time of the last renewal, once for each process and credentials: else
// the peer would take this cluster for down.
func (h *Heartbeat) takeBack(ctx context.Context, id string, e Endpoint) error {
	if revision, _ := h.quiet.Load(id); revision == e.Revision {
		return nil
	}
	err := h.clearTime(ctx, id, e.Clients.Beats)
	if err != nil && !unasked(err) {
		return fmt.Errorf("taking back the heartbeats in %s: %w", id, err)
	}
	h.quiet.Store(id, e.Revision)
	return nil
}

func (h *Heartbeat) clearTime(ctx context.Context, id string, kube kubernetes.Interface) error {
	ctx, cancel := context.WithTimeout(ctx, recheckDelay)
	defer cancel()
	namespace := corev1beta1.TenantNamespace(h.cfg.ClusterID)
	have, err := kube.CoordinationV1().Leases(namespace).Get(ctx, corev1beta1.HeartbeatLease, metav1.GetOptions{})
	if err != nil || !renewed(have) {
		return err
	}
	if err := h.cfg.Identity(ctx, id, kube); err != nil {
		return err
	}
	return patchLease(ctx, kube, namespace, corev1beta1.HeartbeatLease, store.Patch{"renewTime": nil, "acquireTime": nil})
}

// lastWord ends the renewals in a peer whose credentials were deleted here, and writes into the
// Lease that this cluster has ended its use of the peer: else the peer would take it for down.
// The credentials that renewed the Lease are good until the peer takes their rights. There is one
// attempt: a peer that is not reached misses the renewals, as does one whose tenant namespace
// was deleted here and is made again.
func (h *Heartbeat) lastWord(ctx context.Context, id string) error {
	r, renewing := h.renewals.running()[id]
	h.renewals.stop(id)
	if !renewing {
		return nil
	}
	goesOn := h.wanted(id)
	if lost, err := h.cfg.Directory.lost(ctx, id); goesOn && (lost || err != nil) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, recheckDelay)
	defer cancel()
	err := h.cfg.Identity(ctx, id, r.is.to.Kube)
	if err == nil {
		now := metav1.NewMicroTime(h.cfg.Clock.Now())
		err = patchLease(ctx, r.is.to.Beats, corev1beta1.TenantNamespace(h.cfg.ClusterID), corev1beta1.HeartbeatLease, store.Patch{"renewTime": nil, "acquireTime": &now})
	}
	if err != nil {
		h.cfg.Log.Info("the end of the use of the peer was not written into its Lease", zap.String("peer", id), zap.Error(err))
	}
	return nil
}

// unasked reports whether an error means that the peer needs no heartbeats.
func unasked(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) }

// patchLease writes times of a Lease, and nothing else. It needs no earlier read.
func patchLease(ctx context.Context, kube kubernetes.Interface, namespace, name string, times store.Patch) error {
	body, err := json.Marshal(store.Patch{"spec": times})
	if err != nil {
		return fmt.Errorf("encoding a renewal: %w", err)
	}
	_, err = kube.CoordinationV1().Leases(namespace).Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: heartbeatManager})
	return err
}

const (
	// missedBeats is how many renewals in a row a peer misses before it counts as down.
	missedBeats = 3
	// returnBeats is how many renewals in a row, none of them missedBeats after the other,
	// turn it up again.
	returnBeats = 2
)

// beat is what was seen of one heartbeat Lease. Its clock is this process's own: what the
// peer has written into the Lease is not looked at, as clocks differ and peers lie.
type beat struct {
	version string    // resource version of the Lease
	since   time.Time // the silence of the peer counts from here
	verdict health.Verdict
	returns int // renewals in a row since the verdict is Down
}

// seen takes the version of the Lease that was read at now. It reports whether the verdict
// changed. The first renewal is enough for a peer that was not judged yet.
func (b *beat) seen(version string, now time.Time, interval time.Duration) (changed bool) {
	if version == b.version {
		return false
	}
	late := now.Sub(b.since) >= missedBeats*interval
	b.version, b.since = version, now
	switch {
	case b.verdict == health.Up:
		return false
	case b.verdict == health.Down && late:
		b.returns = 1
		return false
	case b.verdict == health.Down && b.returns+1 < returnBeats:
		b.returns++
		return false
	}
	b.verdict, b.returns = health.Up, 0
	return true
}

// unread records that a read of the Lease failed at now. A peer could not have renewed it
// either, so the silence of the peer starts at now.
func (b *beat) unread(now time.Time) { b.since = now }

// silent records that the Lease was read at now, and had not changed. It reports whether the
// verdict changed.
func (b *beat) silent(now time.Time, interval time.Duration) (changed bool) {
	if b.verdict == health.Down || now.Sub(b.since) < missedBeats*interval {
		return false
	}
	b.verdict, b.returns = health.Down, 0
	return true
}

// due returns when the Lease is to be read, as the watch may be behind. It returns false
// while that is not needed. Reads begin early enough to see a short outage of this cluster's
// own API server, in which no peer can renew.
func (b *beat) due(interval time.Duration) (time.Time, bool) {
	return b.since.Add(interval * 3 / 2), b.verdict != health.Down
}

// InvitationsConfig is the input of NewInvitations. All fields are required.
type InvitationsConfig struct {
	Base

	// Interval is the time between two renewals of a peer; 0: there are none.
	Interval time.Duration

	// Directory says for which peers there are credentials. NewInvitations subscribes to it.
	Directory *Directory

	// The informers watch this cluster in all namespaces. Leases has those named
	// HeartbeatLease alone.
	Connections networkinginformers.ConnectionInformer
	Leases      coordinationinformers.LeaseInformer
}

// Invitations keeps a heartbeat Lease, without a renewal, for each peer that has rights here
// and that this cluster can check in no other way. So a peer needs no right to create Leases
// beside those of the vkubelets in its tenant namespace. Its keys are cluster ids.
type Invitations struct {
	*loop.Loop
	cfg InvitationsConfig
}

// NewInvitations returns an Invitations and registers its event handlers on the informers and
// the directory. It starts nothing.
func NewInvitations(cfg InvitationsConfig) *Invitations {
	n := &Invitations{cfg: cfg}
	n.Loop = loop.New(loop.Config{Name: "heartbeat-leases", Sync: n.sync, Log: cfg.Log, Observer: cfg.Observer},
		loop.From(cfg.ForeignClusters.Informer(), ClusterKey),
		loop.From(cfg.Namespaces.Informer(), TenantKey),
		loop.From(cfg.Connections.Informer(), connectionKey),
	)
	add := func(id string) { n.Add(loop.Key{Name: id}) }
	cfg.Directory.Subscribe(add)
	cfg.Directory.onNone(add)
	// A Lease wakes nobody by its renewals.
	n.Watch(loop.On(cfg.Leases.Informer(), store.Handler[*coordinationv1.Lease]{Gone: func(l *coordinationv1.Lease, _ bool) {
		if id := corev1beta1.PeerOfNamespace(l.Namespace); id != "" && l.Name == corev1beta1.HeartbeatLease {
			n.Wake(loop.Key{Name: id})
		}
	}}))
	return n
}

func (n *Invitations) sync(ctx context.Context, key loop.Key) error {
	id := key.Name
	namespace := corev1beta1.TenantNamespace(id)
	ns := store.Known(n.cfg.Namespaces.Lister().Get(namespace))
	if _, tenant := peerOf(ns); !tenant || ns.DeletionTimestamp != nil || !n.cfg.Directory.Judged(id) {
		return nil // the Lease goes with the namespace
	}
	have := store.Known(n.cfg.Leases.Lister().Leases(namespace).Get(corev1beta1.HeartbeatLease))
	wanted, needless := n.weigh(id)
	switch {
	case wanted && have == nil:
		return n.create(ctx, id)
	case needless && have != nil:
		return store.Delete(ctx, "the heartbeat Lease", n.cfg.Kube.CoordinationV1().Leases(namespace), have)
	}
	return nil
}

// weigh reports whether the Lease of a peer is wanted, and whether there is a reason to
// delete it. The absence of the peer's ForeignCluster is none: the cache may be behind, and
// the Lease goes with the namespace.
func (n *Invitations) weigh(id string) (wanted, needless bool) {
	if n.cfg.Interval == 0 {
		return false, true
	}
	if _, reached := n.cfg.Directory.Endpoint(id); reached {
		return false, true
	}
	if c := store.Known(n.cfg.Connections.Lister().Connections(corev1beta1.TenantNamespace(id)).Get(id)); c != nil && c.DeletionTimestamp == nil {
		return false, true
	}
	user, _ := userOf(store.Known(n.cfg.ForeignClusters.Lister().Get(id)))
	return user != "" && id != n.cfg.ClusterID, false
}

func (n *Invitations) create(ctx context.Context, id string) error {
	lease := leaseFor(id, corev1beta1.HeartbeatLease)
	_, err := store.Write(ctx, "the heartbeat Lease", n.cfg.Kube.CoordinationV1().Leases(lease.Namespace), heartbeatManager, nil, lease)
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
