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

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/store"
)

// takenError means that a foreign object has a name that the VirtualNode needs.
type takenError struct{ message string }

func (e takenError) Error() string { return e.message }

// writer is the part of a typed client that put uses.
type writer[T any] interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
	Create(ctx context.Context, obj T, opts metav1.CreateOptions) (T, error)
	Update(ctx context.Context, obj T, opts metav1.UpdateOptions) (T, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

// kind describes to put how objects of one kind are compared and changed.
type kind[T metav1.Object] struct {
	name   string
	client writer[T]
	// equal reports whether have needs no write.
	equal func(have, want T) bool
	// merge returns a copy of have with the wanted fields, or false if have must be deleted
	// and created again.
	merge func(have, want T) (T, bool)
}

// put creates or corrects want. cached and cacheErr are the result of the lister.
func put[T metav1.Object](ctx context.Context, k kind[T], vn *offloadingv1beta1.VirtualNode, want, cached T, cacheErr error) error {
	have := cached
	if cacheErr != nil {
		if _, err := k.client.Create(ctx, want, metav1.CreateOptions{FieldManager: fieldManager}); !apierrors.IsAlreadyExists(err) {
			return wrap(err, "creating %s %s", k.name, qualified(want))
		}
		var err error
		if have, err = k.client.Get(ctx, want.GetName(), metav1.GetOptions{}); err != nil {
			return wrap(err, "reading %s %s", k.name, qualified(want))
		}
	}
	if !owned(vn, have) {
		return takenError{fmt.Sprintf("%s %s exists and was not made for this VirtualNode: delete it, or name the VirtualNode differently", k.name, qualified(want))}
	}
	if k.equal(have, want) {
		return nil
	}
	merged, ok := k.merge(have, want)
	if !ok {
		if err := k.client.Delete(ctx, have.GetName(), byUID(have)); err != nil && !apierrors.IsNotFound(err) {
			return wrap(err, "deleting %s %s", k.name, qualified(want))
		}
		_, err := k.client.Create(ctx, want, metav1.CreateOptions{FieldManager: fieldManager})
		return wrap(err, "creating %s %s", k.name, qualified(want))
	}
	_, err := k.client.Update(ctx, merged, metav1.UpdateOptions{FieldManager: fieldManager})
	return wrap(err, "updating %s %s", k.name, qualified(want))
}

func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}

func qualified(obj metav1.Object) string {
	if obj.GetNamespace() == "" {
		return obj.GetName()
	}
	return obj.GetNamespace() + "/" + obj.GetName()
}

func byUID(obj metav1.Object) metav1.DeleteOptions {
	uid := obj.GetUID()
	return metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
}

func (l *Lifecycle) putServiceAccount(ctx context.Context, vn *offloadingv1beta1.VirtualNode) error {
	want := forgeServiceAccount(vn)
	k := kind[*corev1.ServiceAccount]{
		name:   "ServiceAccount",
		client: l.kube.CoreV1().ServiceAccounts(want.Namespace),
		equal:  func(_, _ *corev1.ServiceAccount) bool { return true },
		merge:  func(have, _ *corev1.ServiceAccount) (*corev1.ServiceAccount, bool) { return have, true },
	}
	have, err := l.serviceAccounts.ServiceAccounts(want.Namespace).Get(want.Name)
	return put(ctx, k, vn, want, have, err)
}

func (l *Lifecycle) putRoleBinding(ctx context.Context, vn *offloadingv1beta1.VirtualNode, want *rbacv1.RoleBinding) error {
	k := kind[*rbacv1.RoleBinding]{
		name:   "RoleBinding",
		client: l.kube.RbacV1().RoleBindings(want.Namespace),
		equal: func(have, want *rbacv1.RoleBinding) bool {
			return have.RoleRef == want.RoleRef && sameSubjects(have.Subjects, want.Subjects) && len(store.MapChanges(want.Labels, have.Labels, nil)) == 0
		},
		merge: func(have, want *rbacv1.RoleBinding) (*rbacv1.RoleBinding, bool) {
			merged := have.DeepCopy()
			merged.Subjects = want.Subjects
			maps.Copy(merged.Labels, want.Labels) // it has those that every object of ours has
			return merged, have.RoleRef == want.RoleRef
		},
	}
	have, err := l.roleBindings.RoleBindings(want.Namespace).Get(want.Name)
	return put(ctx, k, vn, want, have, err)
}

func (l *Lifecycle) putClusterRoleBinding(ctx context.Context, vn *offloadingv1beta1.VirtualNode) error {
	want := forgeClusterRoleBinding(vn)
	k := kind[*rbacv1.ClusterRoleBinding]{
		name:   "ClusterRoleBinding",
		client: l.kube.RbacV1().ClusterRoleBindings(),
		equal: func(have, want *rbacv1.ClusterRoleBinding) bool {
			return have.RoleRef == want.RoleRef && sameSubjects(have.Subjects, want.Subjects)
		},
		merge: func(have, want *rbacv1.ClusterRoleBinding) (*rbacv1.ClusterRoleBinding, bool) {
			merged := have.DeepCopy()
			merged.Subjects = want.Subjects
			return merged, have.RoleRef == want.RoleRef
		},
	}
	have, err := l.clusterRoleBindings.Get(want.Name)
	return put(ctx, k, vn, want, have, err)
}

func sameSubjects(have, want []rbacv1.Subject) bool {
	return apiequality.Semantic.DeepEqual(have, want)
}

func (l *Lifecycle) putDeployment(ctx context.Context, vn *offloadingv1beta1.VirtualNode) error {
	want, err := forgeDeployment(vn, l.defaults)
	if err != nil {
		return err
	}
	k := kind[*appsv1.Deployment]{
		name:   "Deployment",
		client: l.kube.AppsV1().Deployments(want.Namespace),
		// The API server adds defaults to the spec, so only fields of want are compared.
		// Numbers count even if they are 0: want has the defaults of those that are not pointers.
		// The digest reveals fields that an earlier want had set.
		equal: func(have, want *appsv1.Deployment) bool {
			return have.Annotations[hashAnnotation] == want.Annotations[hashAnnotation] &&
				apiequality.Semantic.DeepDerivative(want.Spec, have.Spec)
		},
		merge: func(have, want *appsv1.Deployment) (*appsv1.Deployment, bool) {
			merged := have.DeepCopy()
			if merged.Annotations == nil {
				merged.Annotations = map[string]string{}
			}
			maps.Copy(merged.Annotations, want.Annotations)
			merged.Spec.Replicas = want.Spec.Replicas
			merged.Spec.Template = want.Spec.Template
			return merged, apiequality.Semantic.DeepEqual(have.Spec.Selector, want.Spec.Selector)
		},
	}
	have, err := l.deployments.Deployments(want.Namespace).Get(want.Name)
	return put(ctx, k, vn, want, have, err)
}

// putBudget creates or corrects the PodDisruptionBudget of a vkubelet with several replicas,
// and deletes that of others.
func (l *Lifecycle) putBudget(ctx context.Context, vn *offloadingv1beta1.VirtualNode) error {
	have, err := l.budgets.PodDisruptionBudgets(vn.Namespace).Get(VirtualKubeletName(vn.Name))
	want := forgeBudget(vn, l.defaults)
	if want == nil {
		if err != nil || !owned(vn, have) {
			return nil
		}
		return absent(l.kube.PolicyV1().PodDisruptionBudgets(vn.Namespace).Delete(ctx, have.Name, byUID(have)), "PodDisruptionBudget", have)
	}
	k := kind[*policyv1.PodDisruptionBudget]{
		name:   "PodDisruptionBudget",
		client: l.kube.PolicyV1().PodDisruptionBudgets(want.Namespace),
		equal: func(have, want *policyv1.PodDisruptionBudget) bool {
			return apiequality.Semantic.DeepEqual(have.Spec, want.Spec)
		},
		merge: func(have, want *policyv1.PodDisruptionBudget) (*policyv1.PodDisruptionBudget, bool) {
			merged := have.DeepCopy()
			merged.Spec = want.Spec
			return merged, true
		},
	}
	return put(ctx, k, vn, want, have, err)
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
	cached := store.Known(l.namespaceMaps.NamespaceMaps(vn.Namespace).Get(vn.Spec.ClusterID))
	var errs []error
	for _, want := range forgeRoleBindings(vn, offloadedNamespaces(cached)) {
		err := l.putRoleBinding(ctx, vn, want)
		if (apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)) && want.Name == namespaceBindingName(vn) {
			continue // the mapping is removed with the namespace
		}
		errs = append(errs, err) // one namespace does not hold up the others
	}
	return errors.Join(append(errs, l.removeUnmapped(ctx, vn, offloadedNamespaces(cached)))...)
}

// removeUnmapped deletes the bindings in namespaces that are no longer offloaded, after a
// live read of the NamespaceMap.
func (l *Lifecycle) removeUnmapped(ctx context.Context, vn *offloadingv1beta1.VirtualNode, mapped []string) error {
	have := store.Listed(l.roleBindings.List(labels.SelectorFromSet(ownLabels(vn))))
	surplus := slices.DeleteFunc(have, func(b *rbacv1.RoleBinding) bool {
		return b.Name != namespaceBindingName(vn) || slices.Contains(mapped, b.Namespace)
	})
	if len(surplus) == 0 {
		return nil
	}
	live, err := store.OrNil(l.liqo.OffloadingV1beta1().NamespaceMaps(vn.Namespace).Get(ctx, vn.Spec.ClusterID, metav1.GetOptions{}))
	if err != nil {
		return fmt.Errorf("reading the NamespaceMap of %s again: %w", vn.Spec.ClusterID, err)
	}
	mapped = offloadedNamespaces(live)
	for _, b := range surplus {
		if slices.Contains(mapped, b.Namespace) {
			continue
		}
		if err := l.kube.RbacV1().RoleBindings(b.Namespace).Delete(ctx, b.Name, byUID(b)); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting RoleBinding %s/%s: %w", b.Namespace, b.Name, err)
		}
	}
	return nil
}
