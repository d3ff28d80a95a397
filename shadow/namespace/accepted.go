package namespace

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/apply"
	"github.com/liqod/liqod/kube/loop"
)

// leaveDelay is the poll interval while the peer's pods and endpoints in a namespace are
// being deleted.
const leaveDelay = time.Second

// accepts reports whether the owner of a namespace allows a peer to use it as a twin.
func accepts(ns *corev1.Namespace, peer string) bool {
	return peer != "" && ns.Annotations[offloadingv1beta1.AcceptTwinAnnotation] == peer
}

// free reports whether a namespace accepts a peer and is not a twin yet.
func free(ns *corev1.Namespace, peer string) bool {
	return accepts(ns, peer) && offloadingv1beta1.TwinOf(ns) == "" && !isTenant(ns)
}

// isAccepted reports whether a namespace is a twin that its owner provides, rather than one
// created by Maps.
func isAccepted(ns *corev1.Namespace) bool {
	return ns.Annotations[offloadingv1beta1.ManagedByNamespaceMapAnnotation] == "" && ns.Annotations[offloadingv1beta1.AcceptedForAnnotation] != ""
}

// twinFor reports whether a namespace is a twin of a map, created for it or accepted.
func (m *Maps) twinFor(ns *corev1.Namespace, key loop.Key) bool {
	return m.madeFor(ns, key) || (isAccepted(ns) && key.Name == m.cfg.ClusterID && peerOf(key) != "" && offloadingv1beta1.TwinOf(ns) == key.String())
}

// turnedDown returns the reason for which a namespace of this cluster's own is not, or no
// longer, a twin; empty if it is one. It also withdraws the peer's rights then.
func (m *Maps) turnedDown(ctx context.Context, w wish, ns *corev1.Namespace) (string, error) {
	if !accepts(ns, w.peer) {
		why := fmt.Sprintf("namespace %s no longer accepts cluster %s (annotation %s)", ns.Name, w.peer, offloadingv1beta1.AcceptTwinAnnotation)
		live, err := m.cfg.Kube.CoreV1().Namespaces().Get(ctx, ns.Name, metav1.GetOptions{})
		switch {
		case err != nil:
			return why, fmt.Errorf("confirming that %s: %w", why, err)
		case live.UID != ns.UID || accepts(live, w.peer):
			return "", nil // the cache is stale; the next event of the namespace requeues the map
		default:
			return why, m.release(ctx, ns)
		}
	}
	if ns.Labels[podSecurityEnforceLabel] == "" {
		return fmt.Sprintf("namespace %s accepts cluster %s, whose pods would run under no pod-security level: set its label %s, for example to %s",
			ns.Name, w.peer, podSecurityEnforceLabel, m.cfg.PodSecurityLevel), m.revoke(ctx, ns.Name, "")
	}
	return "", nil
}

// release gives an accepted namespace back to its owner. It first removes the peer's
// rights, then the peer's objects except volumes, and the controller's own rights last.
func (m *Maps) release(ctx context.Context, ns *corev1.Namespace) error {
	if err := m.revoke(ctx, ns.Name, ""); err != nil {
		return err
	}
	key, err := cache.ParseObjectName(offloadingv1beta1.TwinOf(ns))
	if err != nil {
		return fmt.Errorf("reading whose twin namespace %s is: %w", ns.Name, err)
	}
	peer := peerOf(key)
	// The controller's own rights go last, and are never granted again to a namespace that
	// no longer accepts the peer. If they are missing, an earlier release has already
	// deleted the peer's objects.
	if own, err := m.holdsOwn(ctx, ns.Name); err != nil {
		return err
	} else if own {
		if err := m.vacate(ctx, ns.Name, peer); err != nil {
			return err
		}
	}
	annotations := map[string]any{offloadingv1beta1.AcceptedForAnnotation: nil, offloadingv1beta1.OriginalNameAnnotation: nil}
	keeps, err := m.keepsClaims(ctx, ns.Name, peer)
	if err != nil {
		return err
	}
	if !keeps { // else another cluster with the peer's id would get the claims
		annotations[offloadingv1beta1.ConsumerUIDAnnotation] = nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": ns.UID, "resourceVersion": ns.ResourceVersion,
		"labels": map[string]any{corev1beta1.RemoteClusterIDLabel: nil}, "annotations": annotations,
	}})
	if err != nil {
		return fmt.Errorf("encoding the release of %s: %w", ns.Name, err)
	}
	_, err = m.cfg.Kube.CoreV1().Namespaces().Patch(ctx, ns.Name, types.MergePatchType, body, metav1.PatchOptions{})
	if err := apply.IgnoreGone(err); err != nil {
		return fmt.Errorf("giving namespace %s back: %w", ns.Name, err)
	}
	m.cfg.Log.Info("accepted namespace given back", zap.String("namespace", ns.Name), zap.String("peer", peer))
	return loop.After(cacheDelay) // requeue the map once the cache shows the namespace as free
}

// holdsOwn reports whether the controller has its own RoleBinding in a namespace. It reads
// live.
func (m *Maps) holdsOwn(ctx context.Context, namespace string) (bool, error) {
	_, err := m.cfg.Kube.RbacV1().RoleBindings(namespace).Get(ctx, ControllerTwinRole, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("reading our own rights in namespace %s: %w", namespace, err)
	}
	return err == nil, nil
}

// clear deletes a peer's objects in a namespace, and then the controller's own rights
// there.
func (m *Maps) vacate(ctx context.Context, namespace, peer string) error {
	if err := m.empty(ctx, namespace, labels.Set{offloadingv1beta1.OriginLabel: peer}.String()); err != nil {
		return err
	}
	left, err := m.present(ctx, namespace)
	if err != nil {
		return err
	}
	if left {
		return loop.After(leaveDelay)
	}
	return m.bindings.Remove(ctx, namespace, ControllerTwinRole)
}

// present reports whether a namespace still has pods of a peer, or EndpointSlices of it
// that are not being deleted yet. Their deletion needs the controller's own rights there,
// and nothing would retry it later.
func (m *Maps) present(ctx context.Context, namespace string) (bool, error) {
	pods, err := m.cfg.Kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: labels.Set{offloadingv1beta1.ManagedByLabel: offloadingv1beta1.ManagedByShadowPod}.String()})
	if err != nil {
		return false, fmt.Errorf("looking for the pods of a peer in namespace %s: %w", namespace, err)
	}
	if len(pods.Items) > 0 {
		return true, nil
	}
	endpoints, err := m.cfg.Kube.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: labels.Set{discoveryv1.LabelManagedBy: offloadingv1beta1.ManagedByShadowEndpointSlice}.String()})
	if err != nil {
		return false, fmt.Errorf("looking for the endpoints of a peer in namespace %s: %w", namespace, err)
	}
	return slices.ContainsFunc(endpoints.Items, func(s discoveryv1.EndpointSlice) bool {
		return s.DeletionTimestamp == nil && metav1.GetControllerOf(&s) == nil // EndpointSlices with another owner stay
	}), nil
}
