package link

import (
	"context"
	"time"

	"go.uber.org/zap"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	informers "github.com/liqod/liqod/api/generated/informers/externalversions/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/store"
)

// vouchEvery is the time between two renewals of a ControllerLease, and between two reads.
const vouchEvery = 10 * time.Second

// VouchConfig is the input of NewVouch. All fields are required.
type VouchConfig struct {
	// ClusterID is this cluster's id.
	ClusterID string
	// Kube is a client of this cluster.
	Kube kubernetes.Interface
	// The informers watch this cluster in all namespaces.
	ForeignClusters informers.ForeignClusterInformer
	Namespaces      coreinformers.NamespaceInformer
	Clock           clock.WithTicker
	Log             *zap.Logger
}

// Vouch renews the ControllerLease of each peer with rights in this cluster. Nothing else shows a
// peer that a controller runs here, which creates the pods that the peer asks for: the API server
// answers without it. It runs in the active controller.
type Vouch struct {
	cfg  VouchConfig
	none map[string]bool // cluster ids of the peers that have no Lease
}

// NewVouch returns a Vouch. It starts nothing.
func NewVouch(cfg VouchConfig) *Vouch { return &Vouch{cfg: cfg} }

// Run renews the Leases until ctx is done. It may be called again after that.
func (v *Vouch) Run(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), v.cfg.ForeignClusters.Informer().HasSynced, v.cfg.Namespaces.Informer().HasSynced) {
		return nil
	}
	v.none = map[string]bool{}
	ticker := v.cfg.Clock.NewTicker(vouchEvery)
	defer ticker.Stop()
	for {
		if err := v.all(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// all renews the Leases of peers with rights, and deletes those of peers without.
func (v *Vouch) all(ctx context.Context) error {
	for _, ns := range store.Listed(v.cfg.Namespaces.Lister().List(labels.SelectorFromSet(labels.Set{corev1beta1.TenantNamespaceLabel: "true"}))) {
		id, tenant := peerOf(ns)
		if !tenant || ns.DeletionTimestamp != nil || id == v.cfg.ClusterID {
			continue
		}
		fc := store.Known(v.cfg.ForeignClusters.Lister().Get(id))
		if fc == nil {
			continue // the cache may be behind; the Lease goes with the namespace
		}
		var err error
		if user, _ := userOf(fc); user != "" {
			err = v.renew(ctx, id)
		} else if !v.none[id] {
			err = v.remove(ctx, id)
		}
		if err != nil && ctx.Err() == nil {
			v.cfg.Log.Debug("the Lease of a peer is written at the next time", zap.String("peer", id), zap.Error(err))
		}
	}
	return nil
}

func (v *Vouch) renew(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, vouchEvery/2)
	defer cancel()
	delete(v.none, id)
	namespace, now := corev1beta1.TenantNamespace(id), metav1.NewMicroTime(v.cfg.Clock.Now())
	err := patchLease(ctx, v.cfg.Kube, namespace, corev1beta1.ControllerLease, store.Patch{"renewTime": &now})
	if !apierrors.IsNotFound(err) {
		return err
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: corev1beta1.ControllerLease,
		Labels: map[string]string{offloadingv1beta1.ManagedByLabel: managedByLink, corev1beta1.RemoteClusterIDLabel: id}}}
	lease.Spec.RenewTime = &now
	_, err = v.cfg.Kube.CoordinationV1().Leases(namespace).Create(ctx, lease, metav1.CreateOptions{FieldManager: heartbeatManager})
	return err
}

func (v *Vouch) remove(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, vouchEvery/2)
	defer cancel()
	leases := v.cfg.Kube.CoordinationV1().Leases(corev1beta1.TenantNamespace(id))
	have, err := store.OrNil(leases.Get(ctx, corev1beta1.ControllerLease, metav1.GetOptions{}))
	if err == nil && have != nil {
		err = store.Delete(ctx, "the Lease", leases, have)
	}
	if err == nil {
		v.none[id] = true
	}
	return err
}
