package namespace

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
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

// twinFor reports whether a namespace is a twin of a map, created for it or accepted.
func (m *Maps) twinFor(ns *corev1.Namespace, key loop.Key) bool {
	return m.madeFor(ns, key) || (offloadingv1beta1.IsAccepted(ns) && key.Name == m.cfg.ClusterID && peerOf(key) != "" && offloadingv1beta1.TwinOf(ns) == key.String())
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
	if ns.Labels[corev1beta1.PodSecurityLabel] == "" {
		return fmt.Sprintf("namespace %s accepts cluster %s, whose pods would run under no pod-security level: set its label %s, for example to %s",
			ns.Name, w.peer, corev1beta1.PodSecurityLabel, m.cfg.PodSecurityLevel), m.revoke(ctx, ns.Name, "")
	}
	if _, err := offloadingv1beta1.SharesOf(ns); err != nil {
		return err.Error(), m.revoke(ctx, ns.Name, "")
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
		if ns, err = m.unmark(ctx, ns, peer); err != nil {
			return err
		}
		if err := m.vacate(ctx, ns.Name, peer); err != nil {
			return err
		}
	}
	if err := m.unbound(ctx, ns.Name); err != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": ns.UID, "resourceVersion": ns.ResourceVersion,
		"labels":      map[string]any{corev1beta1.RemoteClusterIDLabel: nil},
		"annotations": map[string]any{offloadingv1beta1.AcceptedForAnnotation: nil, offloadingv1beta1.OriginalNameAnnotation: nil},
	}})
	if err != nil {
		return fmt.Errorf("encoding the release of %s: %w", ns.Name, err)
	}
	_, err = m.cfg.Kube.CoreV1().Namespaces().Patch(ctx, ns.Name, types.MergePatchType, body, metav1.PatchOptions{})
	if err := store.IgnoreGone(err); err != nil {
		return fmt.Errorf("giving namespace %s back: %w", ns.Name, err)
	}
	m.cfg.Log.Info("accepted namespace given back", zap.String("namespace", ns.Name), zap.String("peer", peer))
	return loop.After(cacheDelay) // requeue the map once the cache shows the namespace as free
}

// unmark takes the mark of the cluster that the namespace was given to off the namespace, and
// returns the namespace as it is then. Where claims of the peer stay, the mark does too: else
// another cluster with the peer's id would get the claims.
func (m *Maps) unmark(ctx context.Context, ns *corev1.Namespace, peer string) (*corev1.Namespace, error) {
	if ns.Annotations[offloadingv1beta1.ConsumerUIDAnnotation] == "" {
		return ns, nil
	}
	keeps, err := m.keepsClaims(ctx, ns.Name, peer)
	if err != nil || keeps {
		return ns, err
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": ns.UID, "resourceVersion": ns.ResourceVersion, "annotations": map[string]any{offloadingv1beta1.ConsumerUIDAnnotation: nil},
	}})
	if err != nil {
		return nil, fmt.Errorf("encoding the release of %s: %w", ns.Name, err)
	}
	now, err := m.cfg.Kube.CoreV1().Namespaces().Patch(ctx, ns.Name, types.MergePatchType, body, metav1.PatchOptions{})
	if err != nil {
		return nil, fmt.Errorf("giving namespace %s back: %w", ns.Name, err)
	}
	return now, nil
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

// vacate deletes a peer's objects in a namespace, and then the controller's own rights
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
	if err := m.removeAccount(ctx, namespace); err != nil {
		return err
	}
	return m.bindings.Remove(ctx, namespace, ControllerTwinRole)
}

// sharedRole is the ClusterRole of what the owner of an accepted namespace shares beside what
// PeerAcceptedRole has. Its RoleBinding has the same name.
func sharedRole(share string) string { return PeerAcceptedRole + "-" + strings.ToLower(share) }

// bindShares grants a peer what the owner of an accepted namespace shares, and revokes the
// rest.
func (m *Maps) bindShares(ctx context.Context, w wish, ns *corev1.Namespace, marks map[string]string) error {
	shares, err := offloadingv1beta1.SharesOf(ns)
	if err != nil {
		return err
	}
	for _, share := range offloadingv1beta1.AllShares() {
		role := sharedRole(share)
		if !slices.Contains(shares, share) {
			if err := m.bindings.Remove(ctx, w.name, role); err != nil {
				return err
			}
			continue
		}
		if err := m.bindings.Ensure(ctx, store.Binding{Namespace: w.name, Name: role, ClusterRole: role, Labels: marks,
			Subjects: []rbacv1.Subject{store.UserSubject(w.user)}}); err != nil {
			return err
		}
	}
	return nil
}

// unshared tells the peer what it cannot use in an accepted namespace; empty: nothing.
func unshared(ns *corev1.Namespace) string {
	list := slices.DeleteFunc(offloadingv1beta1.AllShares(), func(share string) bool {
		shares, err := offloadingv1beta1.SharesOf(ns)
		return err == nil && slices.Contains(shares, share)
	})
	if len(list) == 0 {
		return ""
	}
	return fmt.Sprintf("namespace %s stands there, and does not share its %s, which are not reflected and cannot be used: its owner allows them by the annotation %s",
		ns.Name, strings.Join(list, ", "), offloadingv1beta1.AcceptTwinSharesAnnotation)
}

// account creates the service account of the peer's pods in an accepted namespace.
func (m *Maps) account(ctx context.Context, namespace string, marks map[string]string) error {
	accounts := m.cfg.Kube.CoreV1().ServiceAccounts(namespace)
	_, err := accounts.Get(ctx, offloadingv1beta1.AcceptedAccount, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = accounts.Create(ctx, &corev1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Name: offloadingv1beta1.AcceptedAccount, Labels: marks}, AutomountServiceAccountToken: new(bool),
		}, metav1.CreateOptions{})
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating ServiceAccount %s/%s: %w", namespace, offloadingv1beta1.AcceptedAccount, err)
	}
	return nil
}

// removeAccount deletes what account created.
func (m *Maps) removeAccount(ctx context.Context, namespace string) error {
	accounts := m.cfg.Kube.CoreV1().ServiceAccounts(namespace)
	have, err := accounts.Get(ctx, offloadingv1beta1.AcceptedAccount, metav1.GetOptions{})
	if err == nil && have.Labels[offloadingv1beta1.ManagedByLabel] == managedByNamespaceMap {
		err = accounts.Delete(ctx, have.Name, store.DeleteUID(have))
	}
	if err := store.IgnoreGone(err); err != nil {
		return fmt.Errorf("deleting ServiceAccount %s/%s: %w", namespace, offloadingv1beta1.AcceptedAccount, err)
	}
	return nil
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
