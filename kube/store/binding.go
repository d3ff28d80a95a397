package store

import (
	"context"
	"fmt"
	"maps"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/rbac/v1"
)

// Binding binds a ClusterRole to subjects: in one namespace, or in the whole cluster
// where Namespace is empty.
type Binding struct {
	Namespace, Name, ClusterRole string
	// Labels that the binding must carry; others are left alone.
	Labels   map[string]string
	Subjects []rbacv1.Subject
}

// Binder keeps RoleBindings and ClusterRoleBindings as they are wanted: it reads caches, and
// writes only what differs. It is safe for concurrent use for different bindings.
type Binder struct {
	kube  kubernetes.Interface
	roles listers.RoleBindingLister
	wide  listers.ClusterRoleBindingLister
}

// NewBinder returns a Binder that reads from the given caches, which must not be
// filtered: a right that is not seen would not be taken. wide may be nil where only
// bindings with a namespace are used.
func NewBinder(client kubernetes.Interface, roles listers.RoleBindingLister, wide listers.ClusterRoleBindingLister) *Binder {
	return &Binder{kube: client, roles: roles, wide: wide}
}

// UserSubject is the subject that stands for a user name.
func UserSubject(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}
}

// ServiceAccountSubject is the subject that stands for a service account.
func ServiceAccountSubject(namespace, name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
}

// Ensure makes the binding be as wanted. The subjects change in one write, so that who
// is no longer among them loses the right at once. A binding to another ClusterRole is
// deleted and made anew: what a binding refers to cannot be changed.
func (b *Binder) Ensure(ctx context.Context, want Binding) error {
	have, err := b.cached(want.Namespace, want.Name)
	if err != nil {
		return err
	}
	if have == nil {
		err := b.create(ctx, want)
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		// The cache is late.
		if have, err = b.live(ctx, want.Namespace, want.Name); err != nil || have == nil {
			return err
		}
	}
	return b.correct(ctx, have, want)
}

// Remove deletes the binding if it exists.
func (b *Binder) Remove(ctx context.Context, namespace, name string) error {
	have, err := b.cached(namespace, name)
	if err != nil || have == nil {
		return err
	}
	return b.remove(ctx, have)
}

// RemoveUnless deletes the binding if it exists and is not exactly the subjects'.
func (b *Binder) RemoveUnless(ctx context.Context, namespace, name string, subjects ...rbacv1.Subject) error {
	have, err := b.cached(namespace, name)
	if err != nil || have == nil || equality.Semantic.DeepEqual(have.Subjects, subjects) {
		return err
	}
	return b.remove(ctx, have)
}

func (b *Binder) correct(ctx context.Context, have *rbacv1.ClusterRoleBinding, want Binding) error {
	if have.RoleRef != roleRef(want.ClusterRole) {
		if err := b.remove(ctx, have); err != nil {
			return err
		}
		return b.create(ctx, want)
	}
	if len(MapChanges(want.Labels, have.Labels, nil)) == 0 && equality.Semantic.DeepEqual(have.Subjects, want.Subjects) {
		return nil
	}
	next := have.DeepCopy()
	next.Subjects = want.Subjects
	if next.Labels == nil {
		next.Labels = map[string]string{}
	}
	maps.Copy(next.Labels, want.Labels)
	return b.update(ctx, next)
}

func roleRef(clusterRole string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: clusterRole}
}

// The two kinds differ in nothing but their name: inside, both are ClusterRoleBindings.

func asWide(r *rbacv1.RoleBinding) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{ObjectMeta: r.ObjectMeta, RoleRef: r.RoleRef, Subjects: r.Subjects}
}

func asRole(c *rbacv1.ClusterRoleBinding) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{ObjectMeta: c.ObjectMeta, RoleRef: c.RoleRef, Subjects: c.Subjects}
}

func (b *Binder) cached(namespace, name string) (*rbacv1.ClusterRoleBinding, error) {
	if namespace == "" {
		have, err := b.wide.Get(name)
		return foundBinding(have, err, "reading ClusterRoleBinding "+name)
	}
	have, err := b.roles.RoleBindings(namespace).Get(name)
	if err != nil {
		return foundBinding(nil, err, "reading RoleBinding "+namespace+"/"+name)
	}
	return asWide(have), nil
}

func (b *Binder) live(ctx context.Context, namespace, name string) (*rbacv1.ClusterRoleBinding, error) {
	if namespace == "" {
		have, err := b.kube.RbacV1().ClusterRoleBindings().Get(ctx, name, metav1.GetOptions{})
		return foundBinding(have, err, "reading ClusterRoleBinding "+name)
	}
	have, err := b.kube.RbacV1().RoleBindings(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return foundBinding(nil, err, "reading RoleBinding "+namespace+"/"+name)
	}
	return asWide(have), nil
}

func foundBinding(have *rbacv1.ClusterRoleBinding, err error, doing string) (*rbacv1.ClusterRoleBinding, error) {
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	return have, nil
}

func (b *Binder) create(ctx context.Context, want Binding) error {
	c := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: want.Namespace, Name: want.Name, Labels: maps.Clone(want.Labels)},
		RoleRef:    roleRef(want.ClusterRole),
		Subjects:   want.Subjects,
	}
	var err error
	if want.Namespace == "" {
		_, err = b.kube.RbacV1().ClusterRoleBindings().Create(ctx, c, metav1.CreateOptions{})
	} else {
		_, err = b.kube.RbacV1().RoleBindings(want.Namespace).Create(ctx, asRole(c), metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("creating the binding %s in %q: %w", want.Name, want.Namespace, err)
	}
	return nil
}

func (b *Binder) update(ctx context.Context, c *rbacv1.ClusterRoleBinding) error {
	var err error
	if c.Namespace == "" {
		_, err = b.kube.RbacV1().ClusterRoleBindings().Update(ctx, c, metav1.UpdateOptions{})
	} else {
		_, err = b.kube.RbacV1().RoleBindings(c.Namespace).Update(ctx, asRole(c), metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("updating the binding %s in %q: %w", c.Name, c.Namespace, err)
	}
	return nil
}

func (b *Binder) remove(ctx context.Context, c *rbacv1.ClusterRoleBinding) error {
	opts := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(c.UID))}
	var err error
	if c.Namespace == "" {
		err = b.kube.RbacV1().ClusterRoleBindings().Delete(ctx, c.Name, opts)
	} else {
		err = b.kube.RbacV1().RoleBindings(c.Namespace).Delete(ctx, c.Name, opts)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting the binding %s in %q: %w", c.Name, c.Namespace, err)
	}
	return nil
}
