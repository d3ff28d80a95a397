package namespace

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reasons"
)

// keptRetry is the poll interval for the claims in a twin that is kept for its volumes.
// Claims are not watched.
const keptRetry = 5 * time.Minute

// giveUp deletes a twin whose entry is gone. A twin with volumes is only emptied; it stays
// until the volumes are gone or its DeleteVolumesAnnotation names it. kept is the message
// for that case. user keeps the peer's rights while the namespace is being deleted; empty:
// nobody does.
func (m *Maps) giveUp(ctx context.Context, ns *corev1.Namespace, user string) (kept string, err error) {
	if ns.DeletionTimestamp != nil {
		return "", m.revoke(ctx, ns.Name, user)
	}
	if ns.Annotations[offloadingv1beta1.DeleteVolumesAnnotation] != ns.Name {
		if kept, err = m.holds(ctx, ns); err != nil {
			return "", err
		}
	}
	if kept == "" {
		return "", errors.Join(m.revoke(ctx, ns.Name, user), m.remove(ctx, ns))
	}
	return kept, m.keep(ctx, ns, kept)
}

// holds returns a message that names the volumes in a twin, or "" if there are none. Ephemeral volumes do
// not count: their data goes with their pods. It reads live.
func (m *Maps) holds(ctx context.Context, ns *corev1.Namespace) (string, error) {
	claims, err := store.Find[*corev1.PersistentVolumeClaim](ctx, "PersistentVolumeClaim", m.cfg.Kube.CoreV1().PersistentVolumeClaims(ns.Name), metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("asking whether the twin namespace %s holds volumes: %w", ns.Name, err)
	}
	const shown = 5
	var names []string
	for _, c := range claims {
		if c.Spec.VolumeName != "" && c.DeletionTimestamp == nil && c.Labels[offloadingv1beta1.EphemeralVolumeLabel] == "" {
			names = append(names, c.Name)
		}
	}
	if len(names) == 0 {
		return "", nil
	}
	return fmt.Sprintf("namespace %s is no longer asked for and is kept for its volumes (PersistentVolumeClaims %s): delete those, or annotate the namespace with %s=%s",
		ns.Name, store.First(names, shown, ", ", " and %d more"), offloadingv1beta1.DeleteVolumesAnnotation, ns.Name), nil
}

// keep removes the peer's rights and all objects of the peer except volumes from a twin. It
// writes DataKeptAnnotation last, as the mark that nothing is left to do.
func (m *Maps) keep(ctx context.Context, ns *corev1.Namespace, why string) error {
	key, err := cache.ParseObjectName(offloadingv1beta1.TwinOf(ns))
	if err != nil {
		return fmt.Errorf("reading whose twin namespace %s is: %w", ns.Name, err)
	}
	peer := corev1beta1.PeerOfNamespace(key.Namespace)
	all := m.together(peer, 0)
	// An object of another author under the name of a bound changes nothing: the peer has no
	// rights in the namespace.
	var foreign foreignError
	if err := m.bound(ctx, peer, ns.Name, all); err != nil && !errors.As(err, &foreign) {
		return err
	}
	if ns.Annotations[offloadingv1beta1.DataKeptAnnotation] == why {
		return nil
	}
	if err := m.revoke(ctx, ns.Name, ""); err != nil {
		return err
	}
	if err := m.empty(ctx, ns.Name); err != nil {
		return err
	}
	if err := patchNamespace(ctx, m.cfg.Kube, ns, store.Patch{"annotations": store.Patch{offloadingv1beta1.DataKeptAnnotation: why}}); err != nil {
		return store.IgnoreNotFound(err)
	}
	m.cfg.Events.Event(ns, corev1.EventTypeNormal, reasons.VolumesKept, why)
	m.cfg.Log.Info("twin namespace kept for its volumes", zap.String("namespace", ns.Name))
	return nil
}

// empty deletes the objects that peers write into a twin, except volumes, and the peers'
// pods. ShadowPods and ShadowEndpointSlices go first, so that their controllers create nothing again.
func (m *Maps) empty(ctx context.Context, twin string) error {
	core, liqo := m.cfg.Kube.CoreV1(), m.cfg.Liqo.OffloadingV1beta1()
	all := metav1.ListOptions{}
	reflected := metav1.ListOptions{LabelSelector: offloadingv1beta1.OriginLabel}
	made := metav1.ListOptions{LabelSelector: offloadingv1beta1.ManagedByLabel + "=" + offloadingv1beta1.ManagedByShadowPod}
	for _, step := range []struct {
		what   string
		delete func(context.Context, metav1.DeleteOptions, metav1.ListOptions) error
		which  metav1.ListOptions
	}{
		{"ShadowPods", liqo.ShadowPods(twin).DeleteCollection, all},
		{"ShadowEndpointSlices", liqo.ShadowEndpointSlices(twin).DeleteCollection, all},
		{"pods", core.Pods(twin).DeleteCollection, made},
		{"ingresses", m.cfg.Kube.NetworkingV1().Ingresses(twin).DeleteCollection, reflected},
		{"configmaps", core.ConfigMaps(twin).DeleteCollection, reflected},
		{"secrets", core.Secrets(twin).DeleteCollection, reflected},
	} {
		if err := step.delete(ctx, metav1.DeleteOptions{}, step.which); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting the %s of the twin namespace %s: %w", step.what, twin, err)
		}
	}
	// client-go has no DeleteCollection for Services.
	if _, err := store.Sweep[*corev1.Service](ctx, "service", core.Services(twin), reflected, nil); err != nil {
		return fmt.Errorf("emptying the twin namespace %s: %w", twin, err)
	}
	return nil
}
