package namespace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/apply"
)

// keptRetry is how often a twin that is kept for its volumes is asked whether it still
// has any: claims are not watched.
const keptRetry = 5 * time.Minute

// ReasonVolumesKept is the reason of the event of a twin namespace that is kept.
const ReasonVolumesKept = "VolumesKept"

// giveUp removes a twin that is no longer asked for. One that holds volumes is emptied
// of all else and stays, until they are gone or their deletion is asked for by name: kept
// says why. user is who has the peer's rights there while the twin goes.
func (m *Maps) giveUp(ctx context.Context, ns *corev1.Namespace, user string) (kept string, err error) {
	if ns.DeletionTimestamp != nil {
		return "", m.revoke(ctx, ns.Name, user)
	}
	if isAccepted(ns) {
		return "", m.release(ctx, ns)
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

// holds says, by a live read, which volumes a twin holds; it is empty if it holds none.
func (m *Maps) holds(ctx context.Context, ns *corev1.Namespace) (string, error) {
	claims, err := m.cfg.Kube.CoreV1().PersistentVolumeClaims(ns.Name).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("asking whether the twin namespace %s holds volumes: %w", ns.Name, err)
	}
	const shown = 5
	var names []string
	for i := range claims.Items {
		if c := &claims.Items[i]; c.Spec.VolumeName != "" && c.DeletionTimestamp == nil {
			names = append(names, c.Name)
		}
	}
	if len(names) == 0 {
		return "", nil
	}
	list := strings.Join(names, ", ")
	if len(names) > shown {
		list = fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
	}
	return fmt.Sprintf("namespace %s is no longer asked for and is kept for its volumes (PersistentVolumeClaims %s): delete those, or annotate the namespace with %s=%s",
		ns.Name, list, offloadingv1beta1.DeleteVolumesAnnotation, ns.Name), nil
}

// keep takes from a twin the peer's rights and all that came from the peer but volumes.
// The annotation that says why it is kept is written last: with it, nothing is left to do.
func (m *Maps) keep(ctx context.Context, ns *corev1.Namespace, why string) error {
	if ns.Annotations[offloadingv1beta1.DataKeptAnnotation] == why {
		return nil
	}
	if err := m.revoke(ctx, ns.Name, ""); err != nil {
		return err
	}
	if err := m.empty(ctx, ns.Name, offloadingv1beta1.OriginLabel); err != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": ns.UID, "resourceVersion": ns.ResourceVersion, "annotations": map[string]any{offloadingv1beta1.DataKeptAnnotation: why},
	}})
	if err != nil {
		return fmt.Errorf("encoding why %s is kept: %w", ns.Name, err)
	}
	if _, err := m.cfg.Kube.CoreV1().Namespaces().Patch(ctx, ns.Name, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("marking the twin namespace %s as kept: %w", ns.Name, err)
	}
	m.cfg.Events.Event(ns, corev1.EventTypeNormal, ReasonVolumesKept, why)
	m.cfg.Log.Info("twin namespace kept for its volumes", zap.String("namespace", ns.Name))
	return nil
}

// empty deletes what peers write into a twin, volumes apart, and their pods. What was
// reflected is selected by its origin. The wishes go first, so that nothing is made again.
func (m *Maps) empty(ctx context.Context, twin, origin string) error {
	core, liqo := m.cfg.Kube.CoreV1(), m.cfg.Liqo.OffloadingV1beta1()
	all := metav1.ListOptions{}
	reflected := metav1.ListOptions{LabelSelector: origin}
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
	// The client has no such request for Services.
	services, err := core.Services(twin).List(ctx, reflected)
	if err != nil {
		return fmt.Errorf("listing the services of the twin namespace %s: %w", twin, err)
	}
	for i := range services.Items {
		if err := core.Services(twin).Delete(ctx, services.Items[i].Name, apply.DeleteUID(&services.Items[i])); apply.IgnoreGone(err) != nil {
			return fmt.Errorf("deleting a service of the twin namespace %s: %w", twin, err)
		}
	}
	return nil
}
