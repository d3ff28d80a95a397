package link

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	informers "github.com/liqod/liqod/api/generated/informers/externalversions/core/v1beta1"
	networkinginformers "github.com/liqod/liqod/api/generated/informers/externalversions/networking/v1beta1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
)

// heartbeatManager is the field manager of the renewals of heartbeat Leases.
const heartbeatManager = "liqod-heartbeat"

// unaskedDelay is the delay before the next renewal of a Lease that a provider does not have,
// or does not let this cluster write: it needs no heartbeats.
const unaskedDelay = 30 * time.Second

// HeartbeatConfig is the input of NewHeartbeat. All fields are required except Observer.
type HeartbeatConfig struct {
	// ClusterID is this cluster's id.
	ClusterID string
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
	// The informers watch this cluster in all namespaces.
	ForeignClusters informers.ForeignClusterInformer
	Connections     networkinginformers.ConnectionInformer

	Clock clock.WithTicker
	Log   *zap.Logger
	// Observer may be nil.
	Observer loop.Observer
}

// Heartbeat renews this cluster's heartbeat Lease in each provider that can check this
// cluster in no other way: it has no credentials for it, and there is no tunnel between them.
// It renews only after this cluster's API server has answered, so that the renewals end when
// either ends. It runs in every replica: a take-over lasts longer than a provider waits.
type Heartbeat struct {
	loop *loop.Loop
	cfg  HeartbeatConfig

	mu      sync.Mutex
	renewal map[string]*renewal // by cluster id
	quiet   map[string]string   // Revision of the credentials with which a Lease was taken back, by cluster id
}

// NewHeartbeat returns a Heartbeat and registers its event handlers on the informers and the
// directory. It starts nothing.
func NewHeartbeat(cfg HeartbeatConfig) (*Heartbeat, error) {
	h := &Heartbeat{cfg: cfg, renewal: map[string]*renewal{}, quiet: map[string]string{}}
	h.loop = loop.New(loop.Config{Name: "heartbeat", Sync: h.sync, Log: cfg.Log, Observer: cfg.Observer})
	cfg.Directory.Subscribe(func(id string) { h.loop.Add(loop.Key{Name: id}) })
	return h, h.loop.WatchAll(
		loop.From(cfg.ForeignClusters.Informer(), ClusterKey),
		loop.From(cfg.Connections.Informer(), connectionKey),
	)
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
	h.mu.Lock()
	ids := make([]string, 0, len(h.renewal))
	for id := range h.renewal {
		ids = append(ids, id)
	}
	clear(h.quiet)
	h.mu.Unlock()
	for _, id := range ids {
		h.stop(id)
	}
	return err
}

// beat has all Leases renewed each time that this cluster's API server answers. A renewal
// that is still under way is not queued: it would be made when the answer is old.
func (h *Heartbeat) beat(ctx context.Context) {
	ticker := h.cfg.Clock.NewTicker(h.cfg.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		h.mu.Lock()
		all := make([]*renewal, 0, len(h.renewal))
		for _, r := range h.renewal {
			all = append(all, r)
		}
		h.mu.Unlock()
		if len(all) == 0 || !h.serves(ctx) {
			continue
		}
		for _, r := range all {
			select {
			case r.due <- struct{}{}:
			default:
			}
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
		h.stop(id)
		return nil
	}
	wanted := h.wanted(id)
	if wanted {
		h.start(ctx, id, e)
		return nil
	}
	h.stop(id)
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
	h.mu.Lock()
	done := h.quiet[id] == e.Revision
	h.mu.Unlock()
	if done {
		return nil
	}
	err := h.clearTime(ctx, id, e.Clients.Beats)
	if err != nil && !unasked(err) {
		return fmt.Errorf("taking back the heartbeats in %s: %w", id, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.quiet[id] = e.Revision
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
	h.mu.Lock()
	r := h.renewal[id]
	h.mu.Unlock()
	h.stop(id)
	if r == nil {
		return nil
	}
	goesOn := h.wanted(id)
	if lost, err := h.cfg.Directory.lost(ctx, id); goesOn && (lost || err != nil) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, recheckDelay)
	defer cancel()
	err := h.cfg.Identity(ctx, id, r.to.Kube)
	if err == nil {
		now := metav1.NewMicroTime(h.cfg.Clock.Now())
		err = patchLease(ctx, r.to.Beats, corev1beta1.TenantNamespace(h.cfg.ClusterID), corev1beta1.HeartbeatLease, store.Patch{"renewTime": nil, "acquireTime": &now})
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
