package virtualnode

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/store"
)

// takenError means that a foreign object has a name that the VirtualNode needs.
type takenError struct{ message string }

func (e takenError) Error() string { return e.message }

// put creates want, or updates have to it; nil: it deletes have. It returns an error for an object that was not made
// for vn and is in the way.
func put[T store.Applied[T]](ctx context.Context, k store.Kind[T], vn *offloadingv1beta1.VirtualNode, have, want T) error {
	k.By, k.Ours = fieldManager, func(have T) error {
		if owned(vn, have) {
			return nil
		}
		return takenError{fmt.Sprintf("%s %s exists and was not made for this VirtualNode: delete it, or name the VirtualNode differently", k.Name, cache.MetaObjectToName(have))}
	}
	return k.Apply(ctx, have, want)
}

func (l *Lifecycle) putServiceAccount(ctx context.Context, vn *offloadingv1beta1.VirtualNode) error {
	want := forgeServiceAccount(vn)
	k := store.Kind[*corev1.ServiceAccount]{
		Name: "ServiceAccount", Client: l.cfg.Kube.CoreV1().ServiceAccounts(want.Namespace), Set: func(_, _ *corev1.ServiceAccount) bool { return true },
	}
	return put(ctx, k, vn, store.Known(l.cfg.ServiceAccounts.Lister().ServiceAccounts(want.Namespace).Get(want.Name)), want)
}

func (l *Lifecycle) putRoleBinding(ctx context.Context, vn *offloadingv1beta1.VirtualNode, want *rbacv1.RoleBinding) error {
	have := store.Known(l.cfg.RoleBindings.Lister().RoleBindings(want.Namespace).Get(want.Name))
	return put(ctx, store.RoleBindings(l.cfg.Kube, want.Namespace), vn, have, want)
}

func (l *Lifecycle) putClusterRoleBinding(ctx context.Context, vn *offloadingv1beta1.VirtualNode) error {
	want := forgeClusterRoleBinding(vn)
	return put(ctx, store.ClusterRoleBindings(l.cfg.Kube), vn, store.Known(l.cfg.ClusterRoleBindings.Lister().Get(want.Name)), want)
}

func (l *Lifecycle) putDeployment(ctx context.Context, vn *offloadingv1beta1.VirtualNode) error {
	want, err := forgeDeployment(vn, l.cfg.VirtualKubelet)
	if err != nil {
		return err
	}
	k := store.Kind[*appsv1.Deployment]{Name: "Deployment", Client: l.cfg.Kube.AppsV1().Deployments(want.Namespace), Set: setDeployment}
	return put(ctx, k, vn, store.Known(l.cfg.Deployments.Lister().Deployments(want.Namespace).Get(want.Name)), want)
}

// setDeployment changes what differs. The API server adds defaults to the spec, so only fields of
// want are compared. Numbers count even if they are 0: want has the defaults of those that are not
// pointers. The digest reveals fields that an earlier want had set.
func setDeployment(next, want *appsv1.Deployment) bool {
	if next.Annotations[hashAnnotation] == want.Annotations[hashAnnotation] && apiequality.Semantic.DeepDerivative(want.Spec, next.Spec) {
		return true
	}
	metav1.SetMetaDataAnnotation(&next.ObjectMeta, hashAnnotation, want.Annotations[hashAnnotation])
	next.Spec.Replicas, next.Spec.Template = want.Spec.Replicas, want.Spec.Template
	return apiequality.Semantic.DeepEqual(next.Spec.Selector, want.Spec.Selector)
}

// putBudget creates or corrects the PodDisruptionBudget of a vkubelet with several replicas,
// and deletes that of others.
func (l *Lifecycle) putBudget(ctx context.Context, vn *offloadingv1beta1.VirtualNode) error {
	k := store.Kind[*policyv1.PodDisruptionBudget]{
		Name: "PodDisruptionBudget", Client: l.cfg.Kube.PolicyV1().PodDisruptionBudgets(vn.Namespace), Set: func(next, want *policyv1.PodDisruptionBudget) bool {
			next.Spec = want.Spec
			return true
		},
	}
	have := store.Known(l.cfg.Budgets.Lister().PodDisruptionBudgets(vn.Namespace).Get(VirtualKubeletName(vn.Name)))
	return put(ctx, k, vn, have, forgeBudget(vn, l.cfg.VirtualKubelet))
}

// offloadedNamespaces returns the namespaces that are offloaded to the provider, sorted. m
// is the NamespaceMap named after the provider, or nil.
func offloadedNamespaces(m *offloadingv1beta1.NamespaceMap) []string {
	if m == nil || m.Labels[offloadingv1beta1.ReplicatedLabel] == "true" {
		return nil // a peer's map, replicated here
	}
	return slices.Sorted(maps.Keys(m.Spec.DesiredMapping))
}

func (l *Lifecycle) putBindings(ctx context.Context, vn *offloadingv1beta1.VirtualNode) error {
	cached := store.Known(l.cfg.NamespaceMaps.Lister().NamespaceMaps(vn.Namespace).Get(vn.Spec.ClusterID))
	var errs []error
	for _, want := range forgeRoleBindings(vn, offloadedNamespaces(cached)) {
		err := l.putRoleBinding(ctx, vn, want)
		if (apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)) && want.Name == NamespaceBindingName(vn.Namespace, vn.Name) {
			continue // the mapping is removed with the namespace
		}
		errs = append(errs, err) // one namespace does not hold up the others
	}
	return errors.Join(append(errs, l.removeUnmapped(ctx, vn, offloadedNamespaces(cached)))...)
}

// removeUnmapped deletes the bindings in namespaces that are no longer offloaded, after a
// live read of the NamespaceMap.
func (l *Lifecycle) removeUnmapped(ctx context.Context, vn *offloadingv1beta1.VirtualNode, mapped []string) error {
	have := store.Listed(l.cfg.RoleBindings.Lister().List(labels.SelectorFromSet(ownLabels(vn))))
	surplus := slices.DeleteFunc(have, func(b *rbacv1.RoleBinding) bool {
		return b.Name != NamespaceBindingName(vn.Namespace, vn.Name) || slices.Contains(mapped, b.Namespace)
	})
	if len(surplus) == 0 {
		return nil
	}
	live, err := store.OrNil(l.cfg.Liqo.OffloadingV1beta1().NamespaceMaps(vn.Namespace).Get(ctx, vn.Spec.ClusterID, metav1.GetOptions{}))
	if err != nil {
		return fmt.Errorf("reading the NamespaceMap of %s again: %w", vn.Spec.ClusterID, err)
	}
	mapped = offloadedNamespaces(live)
	for _, b := range surplus {
		if slices.Contains(mapped, b.Namespace) {
			continue
		}
		if err := store.Delete(ctx, "RoleBinding", l.cfg.Kube.RbacV1().RoleBindings(b.Namespace), b); err != nil {
			return err
		}
	}
	return nil
}
