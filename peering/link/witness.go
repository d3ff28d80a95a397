package link

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/clock"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned"
	"github.com/liqod/liqod/kube/store"
)

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
	ticker := w.cfg.Clock.NewTicker(w.cfg.Period)
	defer ticker.Stop()
	for {
		if w.silent(ctx) {
			w.look(ctx)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
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
	list, err := w.cfg.Liqo.CoreV1beta1().ForeignClusters().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing ForeignClusters: %w", err)
	}
	var errs []error
	for i := range list.Items {
		fc := &list.Items[i]
		next := fc.DeepCopy()
		w.doubt(next)
		if equality.Semantic.DeepEqual(next.Status, fc.Status) {
			continue
		}
		_, err := w.cfg.Liqo.CoreV1beta1().ForeignClusters().UpdateStatus(ctx, next, metav1.UpdateOptions{})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("writing the status of ForeignCluster %s: %w", fc.Name, err))
		}
	}
	if len(errs) == 0 {
		w.cfg.Log.Info("no controller runs: the health of peers is Unknown, but for what gateways report")
	}
	return errors.Join(errs...)
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
