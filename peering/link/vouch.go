package link

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"go.uber.org/zap"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
)

// vouchEvery is the time between two renewals of a ControllerLease, and between two reads.
const vouchEvery = 10 * time.Second

// VouchConfig is the input of NewVouch. All fields are required.
type VouchConfig struct {
	Base
	Clock clock.WithTicker
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
	for range loop.Rounds(ctx, v.cfg.Clock, vouchEvery, nil) {
		v.all(ctx)
	}
	return nil
}

// all renews the Leases of peers with rights, and deletes those of peers without.
func (v *Vouch) all(ctx context.Context) {
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
	lease := leaseFor(id, corev1beta1.ControllerLease)
	lease.Spec.RenewTime = &now
	_, err = v.cfg.Kube.CoordinationV1().Leases(namespace).Create(ctx, lease, metav1.CreateOptions{FieldManager: heartbeatManager})
	return err
}

// leaseFor returns a Lease for a peer, in the tenant namespace of the peer.
func leaseFor(id, name string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1beta1.TenantNamespace(id), Name: name,
		Labels: map[string]string{offloadingv1beta1.ManagedByLabel: managedByLink, corev1beta1.RemoteClusterIDLabel: id}}}
}

func (v *Vouch) remove(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, vouchEvery/2)
	defer cancel()
	leases := v.cfg.Kube.CoordinationV1().Leases(corev1beta1.TenantNamespace(id))
	have, err := store.Live(ctx, "Lease", leases, corev1beta1.ControllerLease)
	if err == nil && have != nil {
		err = store.Delete(ctx, "the Lease", leases, have)
	}
	if err == nil {
		v.none[id] = true
	}
	return err
}

// renewal renews this cluster's heartbeat Lease in one peer.
type renewal struct {
	to  Clients
	due loop.Signal // a receiver waits there unless it is at work
}

// start starts the renewals in a peer, unless they run with these credentials.
func (h *Heartbeat) start(ctx context.Context, id string, e Endpoint) {
	h.quiet.Delete(id)
	r := renewal{to: e.Clients, due: make(chan struct{})}
	h.renewals.keep(ctx, id, e.Revision, r, func(ctx context.Context) { h.renewAll(ctx, id, e, r.due) })
}

// renewAll renews each time that it is due, until ctx is done. It logs when the result
// changes. It reads which cluster answers before the first renewal and after each failure,
// as another one may answer at the same address.
func (h *Heartbeat) renewAll(ctx context.Context, id string, e Endpoint, due <-chan struct{}) {
	log := h.cfg.Log.With(zap.String("peer", id))
	var notBefore time.Time
	var last error
	for known := false; ; known = last == nil {
		select {
		case <-ctx.Done():
			return
		case <-due:
		}
		if h.cfg.Clock.Now().Before(notBefore) {
			continue
		}
		err := h.renew(ctx, id, e.Clients, known)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && last != nil:
			log.Info("the peer's Lease is renewed again")
		case err != nil && (last == nil || unasked(err) != unasked(last)):
			log.Info("the peer's Lease is not renewed", zap.Bool("unasked", unasked(err)), zap.Error(err))
		}
		if last = err; unasked(err) {
			notBefore = h.cfg.Clock.Now().Add(unaskedDelay)
		}
	}
}

func (h *Heartbeat) renew(ctx context.Context, id string, to Clients, known bool) error {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.Interval)
	defer cancel()
	if !known {
		if err := h.cfg.Identity(ctx, id, to.Kube); err != nil {
			return fmt.Errorf("reading which cluster answers: %w", err)
		}
	}
	now := metav1.NewMicroTime(h.cfg.Clock.Now())
	return patchLease(ctx, to.Beats, corev1beta1.TenantNamespace(h.cfg.ClusterID), corev1beta1.HeartbeatLease, store.Patch{"renewTime": &now})
}

// WitnessConfig is the input of NewWitness. All fields are required.
type WitnessConfig struct {
	// Leases reads the Lease of the controller, Namespace/Name, every Period.
	Leases          coordinationv1client.LeasesGetter
	Namespace, Name string
	Period          time.Duration
	// Patience is how long the Lease does not change until there is no controller. It is
	// longer than a take-over.
	Patience time.Duration
	// Networks returns the conditions NetworkStatus, by cluster id, that living gateways of this
	// cluster report. It is called every Period while no controller runs.
	Networks func(context.Context) map[string]metav1.Condition
	// Liqo writes ForeignClusters.
	Liqo  versioned.Interface
	Clock clock.WithTicker
	Log   *zap.Logger
}

// Witness writes the health of peers while no controller runs: what gateways report of the
// network, and Unknown for what only a controller checks, because what the last one has written
// may be over. It counts the time since it has seen the controller's Lease change by its own
// clock. A controller that comes back writes what it finds.
type Witness struct {
	cfg WitnessConfig

	version  string    // of the Lease
	since    time.Time // since when it has not changed
	told     bool      // all ForeignClusters have been written since then
	networks map[string]metav1.Condition
}

// NewWitness returns a Witness. It starts nothing.
func NewWitness(cfg WitnessConfig) *Witness { return &Witness{cfg: cfg} }

// Run looks at the Lease until ctx is done. It may be called again after that.
func (w *Witness) Run(ctx context.Context) error {
	w.version, w.since, w.told = "", w.cfg.Clock.Now(), false
	for range loop.Rounds(ctx, w.cfg.Clock, w.cfg.Period, nil) {
		if w.silent(ctx) {
			w.look(ctx)
		}
	}
	return nil
}

// look writes ForeignClusters, unless that is done and the networks are as they were then.
func (w *Witness) look(ctx context.Context) {
	networks := w.cfg.Networks(ctx)
	if w.told && maps.Equal(networks, w.networks) {
		return
	}
	w.networks = networks
	err := w.tell(ctx)
	if w.told = err == nil; err != nil && ctx.Err() == nil {
		w.cfg.Log.Warn("the health of peers could not be written; will retry", zap.Error(err))
	}
}

// silent reads the Lease, and reports whether it has not changed for Patience. A controller
// cannot renew it while the API server does not answer, so that time does not count.
func (w *Witness) silent(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Period)
	defer cancel()
	version := "none"
	lease, err := w.cfg.Leases.Leases(w.cfg.Namespace).Get(ctx, w.cfg.Name, metav1.GetOptions{})
	if err == nil {
		version = lease.ResourceVersion
	}
	now := w.cfg.Clock.Now()
	if err != nil && !apierrors.IsNotFound(err) {
		w.since = now
		return false
	}
	if version != w.version {
		w.version, w.since, w.told = version, now, false
	}
	return now.Sub(w.since) >= w.cfg.Patience
}

// tell writes all ForeignClusters. A conflict is left alone: somebody else has just written.
func (w *Witness) tell(ctx context.Context) error {
	all, err := store.Find[*corev1beta1.ForeignCluster](ctx, "ForeignCluster", w.cfg.Liqo.CoreV1beta1().ForeignClusters(), metav1.ListOptions{})
	errs := []error{err}
	for _, fc := range all {
		next := fc.DeepCopy()
		w.doubt(next)
		errs = append(errs, store.IgnoreGone(store.WriteStatus(ctx, "ForeignCluster", w.cfg.Liqo.CoreV1beta1().ForeignClusters(), "", fc, next)))
	}
	err = errors.Join(errs...)
	if err == nil {
		w.cfg.Log.Info("no controller runs: the health of peers is Unknown, but for what gateways report")
	}
	return err
}

// doubt makes the conditions Unknown that follow from checks of the controller.
func (w *Witness) doubt(fc *corev1beta1.ForeignCluster) {
	network, reported := w.networks[fc.Name]
	for _, kind := range []string{corev1beta1.ConditionAPIServer, corev1beta1.ConditionNetwork, corev1beta1.ConditionReady} {
		have := meta.FindStatusCondition(fc.Status.Conditions, kind)
		if have == nil {
			continue
		}
		if kind == corev1beta1.ConditionNetwork && reported {
			network.ObservedGeneration, network.LastTransitionTime = have.ObservedGeneration, metav1.NewTime(w.cfg.Clock.Now())
			store.SetCondition(&fc.Status.Conditions, network)
			continue
		}
		if have.Status == metav1.ConditionUnknown {
			continue
		}
		store.SetCondition(&fc.Status.Conditions, metav1.Condition{
			Type: kind, Status: metav1.ConditionUnknown, Reason: corev1beta1.ReasonNoController, ObservedGeneration: have.ObservedGeneration,
			LastTransitionTime: metav1.NewTime(w.cfg.Clock.Now()),
			Message: fmt.Sprintf("no controller of this cluster has renewed Lease %s/%s for %s, so nobody checks: it was %s (%s) before",
				w.cfg.Namespace, w.cfg.Name, w.cfg.Patience, have.Status, have.Reason),
		})
	}
}
