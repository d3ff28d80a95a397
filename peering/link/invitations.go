package link

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationinformers "k8s.io/client-go/informers/coordination/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	informers "github.com/liqod/liqod/api/generated/informers/externalversions/core/v1beta1"
	networkinginformers "github.com/liqod/liqod/api/generated/informers/externalversions/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
)

// InvitationsConfig is the input of NewInvitations. All fields are required except Observer.
type InvitationsConfig struct {
	// ClusterID is this cluster's id.
	ClusterID string
	// Interval is the time between two renewals of a peer; 0: there are none.
	Interval time.Duration

	// Kube is a client of this cluster.
	Kube kubernetes.Interface
	// Directory says for which peers there are credentials. NewInvitations subscribes to it.
	Directory *Directory

	// The informers watch this cluster in all namespaces. Leases has those named
	// HeartbeatLease alone.
	ForeignClusters informers.ForeignClusterInformer
	Namespaces      coreinformers.NamespaceInformer
	Connections     networkinginformers.ConnectionInformer
	Leases          coordinationinformers.LeaseInformer

	Log *zap.Logger
	// Observer may be nil.
	Observer loop.Observer
}

// Invitations keeps a heartbeat Lease, without a renewal, for each peer that has rights here
// and that this cluster can check in no other way. So a peer needs no right to create Leases
// beside those of the vkubelets in its tenant namespace. Its keys are cluster ids.
type Invitations struct {
	*loop.Loop
	cfg    InvitationsConfig
	synced cache.InformerSynced
}

// NewInvitations returns an Invitations and registers its event handlers on the informers and
// the directory. It starts nothing.
func NewInvitations(cfg InvitationsConfig) (*Invitations, error) {
	n := &Invitations{cfg: cfg}
	n.Loop = loop.New(loop.Config{Name: "heartbeat-leases", Sync: n.sync, Log: cfg.Log, Observer: cfg.Observer})
	add := func(id string) { n.Add(loop.Key{Name: id}) }
	cfg.Directory.Subscribe(add)
	cfg.Directory.onNone(add)
	if err := n.WatchAll(
		loop.From(cfg.ForeignClusters.Informer(), ClusterKey),
		loop.From(cfg.Namespaces.Informer(), TenantKey),
		loop.From(cfg.Connections.Informer(), connectionKey),
	); err != nil {
		return nil, err
	}
	// A Lease wakes nobody by its renewals.
	registration, err := cfg.Leases.Informer().AddEventHandler(store.Handler[*coordinationv1.Lease]{Gone: func(l *coordinationv1.Lease, _ bool) {
		for _, key := range peerKey(l.Namespace) {
			if l.Name == corev1beta1.HeartbeatLease {
				n.Wake(key)
			}
		}
	}})
	if err != nil {
		return nil, fmt.Errorf("watching heartbeat Leases: %w", err)
	}
	n.synced = registration.HasSynced
	return n, nil
}

// Run is that of a Loop.
func (n *Invitations) Run(ctx context.Context, workers int) error {
	if !cache.WaitForCacheSync(ctx.Done(), n.synced) {
		return nil
	}
	return n.Loop.Run(ctx, workers)
}

func (n *Invitations) sync(ctx context.Context, key loop.Key) error {
	id := key.Name
	namespace := corev1beta1.TenantNamespace(id)
	ns := store.Known(n.cfg.Namespaces.Lister().Get(namespace))
	if ns == nil {
		return nil // the Lease goes with it
	}
	if _, tenant := peerOf(ns); !tenant || ns.DeletionTimestamp != nil || !n.cfg.Directory.Judged(id) {
		return nil
	}
	have := store.Known(n.cfg.Leases.Lister().Leases(namespace).Get(corev1beta1.HeartbeatLease))
	wanted, needless := n.weigh(id)
	switch {
	case wanted && have == nil:
		return n.create(ctx, id)
	case needless && have != nil:
		return n.remove(ctx, have)
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
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1beta1.TenantNamespace(id), Name: corev1beta1.HeartbeatLease,
		Labels: map[string]string{offloadingv1beta1.ManagedByLabel: managedByLink, corev1beta1.RemoteClusterIDLabel: id}}}
	_, err := n.cfg.Kube.CoordinationV1().Leases(lease.Namespace).Create(ctx, lease, metav1.CreateOptions{FieldManager: heartbeatManager})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating the heartbeat Lease: %w", err)
	}
	return nil
}

func (n *Invitations) remove(ctx context.Context, lease *coordinationv1.Lease) error {
	return store.Delete(ctx, "the heartbeat Lease", n.cfg.Kube.CoordinationV1().Leases(lease.Namespace), lease)
}

// peerKey returns the key of the peer of a tenant namespace.
func peerKey(namespace string) []loop.Key {
	if id, ok := strings.CutPrefix(namespace, corev1beta1.TenantNamespacePrefix); ok {
		return []loop.Key{{Name: id}}
	}
	return nil
}
