package store

import (
	"context"
	"fmt"
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/rbac/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/liqod/liqod/kube/loop"
)

// Object is a pointer to an object of Kubernetes; nil: none.
type Object interface {
	comparable
	metav1.Object
}

// Getter is the part of a typed client that reads one object live.
type Getter[T any] interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
}

// Deleter is the part of a typed client that deletes one object.
type Deleter interface {
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

// API is the part of a typed client that a Store uses.
type API[T any] interface {
	Getter[T]
	Deleter
}

// Store has the objects of one kind in one API server: a cache, the process's own writes until
// the cache shows them, and the API server behind both. A component that stops the informer
// of a Store drops the Store with it, and so all records of writes. It is safe for concurrent use.
type Store[T Object] struct {
	*Writes[T]

	kind     string
	informer loop.Informer
	api      func(namespace string) API[T]
}

// New returns the Store of the objects that an informer caches. kind names them in errors. api
// returns the client of a namespace; "": that of a kind without namespaces.
func New[T Object](kind string, informer loop.Informer, c clock.PassiveClock, api func(namespace string) API[T]) *Store[T] {
	return &Store[T]{Writes: NewWrites[T](c), kind: kind, informer: informer, api: api}
}

// Cached returns the object that the cache has under key, or nil.
func (s *Store[T]) Cached(key cache.ObjectName) T { return Cached[T](s.informer.GetStore(), key) }

// Cached returns the object that a cache has under key, or nil.
func Cached[T Object](objects cache.Store, key cache.ObjectName) T {
	var none T
	obj, found, err := objects.GetByKey(key.String())
	if o, ok := obj.(T); ok && found && err == nil { // an error means an invalid key, which cannot occur
		return o
	}
	return none
}

// Known returns the object that the Get of a lister has returned, or nil. A lister returns no other
// error than that its cache lacks the object.
func Known[T Object](obj T, err error) T {
	var none T
	if err != nil {
		return none
	}
	return obj
}

// Listed returns the objects that the List of a lister has returned, which fails for none of ours.
func Listed[T any](all []T, _ error) []T { return all }

// Get returns the newest state known of an object: that of the cache, or that of a later write
// of this process. It returns nil if neither has the object.
func (s *Store[T]) Get(key cache.ObjectName) T { return s.Latest(key, s.Cached(key)) }

// List returns all objects of the cache, each in the newest state known of it (see Get).
func (s *Store[T]) List() []T { return s.newest(typed[T](s.informer.GetStore().List())) }

// ByIndex returns the objects that the cache has under a value of one of its indexes, which
// exists. Each is in the newest state known of it (see Get).
func (s *Store[T]) ByIndex(index, value string) []T {
	return s.newest(ByIndex[T](s.informer.GetIndexer(), index, value))
}

// ByIndex returns the objects that a cache has under a value of one of its indexes, which exists.
func ByIndex[T any](objects cache.Indexer, index, value string) []T {
	found, _ := objects.ByIndex(index, value) // it fails only for an index that does not exist
	return typed[T](found)
}

// All returns the objects of a cache, in no order.
func All[T any](objects cache.Store) []T { return typed[T](objects.List()) }

// AllIn returns the objects of a namespace that a cache has, in no order.
func AllIn[T Object](objects cache.Store, namespace string) []T {
	return slices.DeleteFunc(All[T](objects), func(o T) bool { return o.GetNamespace() != namespace })
}

func typed[T any](all []any) []T {
	out := make([]T, 0, len(all))
	for _, obj := range all {
		if o, ok := obj.(T); ok {
			out = append(out, o)
		}
	}
	return out
}

// On returns a source for a handler, which is called after the Store has noticed a deletion itself.
func (s *Store[T]) On(h Handler[T]) loop.Source {
	gone := h.Gone
	h.Gone = func(last T, missed bool) {
		s.Gone(last)
		if gone != nil {
			gone(last, missed)
		}
	}
	return loop.On(s.informer, h)
}

// Live reads an object from the API server; nil: there is none.
func (s *Store[T]) Live(ctx context.Context, key cache.ObjectName) (T, error) {
	return Live(ctx, s.kind, s.api(key.Namespace), key.Name)
}

// Live reads an object from the API server; nil: there is none. kind names it in the error.
func Live[T Object](ctx context.Context, kind string, client Getter[T], name string) (T, error) {
	var none T
	obj, err := client.Get(ctx, name, metav1.GetOptions{})
	switch {
	case absent(err):
		return none, nil
	case err != nil:
		return none, fmt.Errorf("reading %s %s: %w", kind, name, err)
	}
	return obj, nil
}

// ConfirmGone confirms by a live read that an object which the cache lacks does not exist. Its
// error requeues the key: the API server did not answer, or the cache is behind.
func (s *Store[T]) ConfirmGone(ctx context.Context, key cache.ObjectName) error {
	return ConfirmGone(ctx, s.kind, s.api(key.Namespace), key.Name)
}

// ConfirmGone is Store.ConfirmGone for an object that is in no Store.
func ConfirmGone[T Object](ctx context.Context, kind string, client Getter[T], name string) error {
	return ConfirmNone(ctx, kind, client, name, func(T) bool { return true })
}

// ConfirmNone is ConfirmGone for those objects of that name which are selected.
func (s *Store[T]) ConfirmNone(ctx context.Context, key cache.ObjectName, is func(T) bool) error {
	return ConfirmNone(ctx, s.kind, s.api(key.Namespace), key.Name, is)
}

// ConfirmNone is Store.ConfirmNone for an object that is in no Store.
func ConfirmNone[T Object](ctx context.Context, kind string, client Getter[T], name string, is func(T) bool) error {
	obj, err := client.Get(ctx, name, metav1.GetOptions{})
	switch {
	case absent(err), err == nil && !is(obj):
		return nil
	case err != nil:
		return fmt.Errorf("confirming that %s %s is gone: %w", kind, name, err)
	}
	return loop.After(CatchUp)
}

// Delete deletes an object by its UID, and records that. An object that is gone or replaced by a
// newer one is no error. Options change the request.
func (s *Store[T]) Delete(ctx context.Context, obj T, options ...func(*metav1.DeleteOptions)) error {
	if err := Delete(ctx, s.kind, s.api(obj.GetNamespace()), obj, options...); err != nil {
		return err
	}
	s.Deleted(obj.GetUID())
	return nil
}

// Delete is Store.Delete for an object that is in no Store.
func Delete(ctx context.Context, kind string, client Deleter, obj metav1.Object, options ...func(*metav1.DeleteOptions)) error {
	request := DeleteUID(obj)
	for _, change := range options {
		change(&request)
	}
	if err := IgnoreGone(client.Delete(ctx, obj.GetName(), request)); err != nil {
		return fmt.Errorf("deleting %s %s: %w", kind, cache.MetaObjectToName(obj), err)
	}
	return nil
}

// Unchanged is an option of Delete: the deletion fails if the object has changed since it was read.
func Unchanged(obj metav1.Object) func(*metav1.DeleteOptions) {
	version := obj.GetResourceVersion()
	return func(o *metav1.DeleteOptions) { o.Preconditions.ResourceVersion = &version }
}

// Handler is an event handler for objects of one type. Functions may be nil.
type Handler[T any] struct {
	// Set is called with an object that has appeared or changed, and with its state before, which
	// is nil for one that has appeared.
	Set func(before, after T)
	// Gone is called with the last known state of an object that was deleted. missed: the watch
	// did not report the deletion, and a new list lacks the object.
	Gone func(last T, missed bool)
}

var _ cache.ResourceEventHandler = Handler[any]{}

// OnAdd implements cache.ResourceEventHandler.
func (h Handler[T]) OnAdd(obj any, _ bool) { h.OnUpdate(nil, obj) }

// OnUpdate implements cache.ResourceEventHandler.
func (h Handler[T]) OnUpdate(before, after any) {
	was, _ := before.(T) // nil if it is new
	if is, ok := after.(T); ok && h.Set != nil {
		h.Set(was, is)
	}
}

// OnDelete implements cache.ResourceEventHandler.
func (h Handler[T]) OnDelete(obj any) {
	obj, missed := loop.Deleted(obj)
	if last, ok := obj.(T); ok && h.Gone != nil {
		h.Gone(last, missed)
	}
}

// Index returns the index function of objects of one type.
func Index[T any](values func(T) []string) cache.IndexFunc {
	return func(obj any) (of []string, _ error) {
		if o, ok := obj.(T); ok {
			of = values(o)
		}
		return of, nil
	}
}

// Each returns a Handler that calls changed with each object that appears, changes or is
// deleted.
func Each[T any](changed func(T)) Handler[T] {
	return Handler[T]{Set: func(_, after T) { changed(after) }, Gone: func(last T, _ bool) { changed(last) }}
}

// OnChange returns a Handler that calls changed with an object before and after an event. before is nil
// for an object that has appeared, and after for one that was deleted.
func OnChange[T any](changed func(before, after T)) Handler[T] {
	return Handler[T]{Set: changed, Gone: func(last T, _ bool) {
		var none T
		changed(last, none)
	}}
}

// Changes returns a source that calls changed for each object that appears, changes or disappears. An update
// for which same returns true is no change; same may be nil.
func Changes[T Object](inf loop.Informer, same func(before, after T) bool, changed func(T)) loop.Source {
	h := Each(changed)
	h.Set = func(before, after T) {
		var none T
		if same == nil || before == none || !same(before, after) {
			changed(after)
		}
	}
	return loop.On(inf, h)
}

// AnyChange is Changes for a function that needs no object.
func AnyChange[T Object](inf loop.Informer, same func(before, after T) bool, changed func()) loop.Source {
	return Changes(inf, same, func(T) { changed() })
}

// SameBy compares two states of an object by what of returns of them.
func SameBy[T any, V comparable](of func(T) []V) func(before, after T) bool {
	return func(before, after T) bool { return slices.Equal(of(before), of(after)) }
}

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

// Ensure creates or updates the binding. It writes all subjects at once, so that a removed
// subject loses the right immediately. It deletes a binding to another ClusterRole and
// creates it again, because the roleRef of a binding is immutable.
func (b *Binder) Ensure(ctx context.Context, want Binding) error {
	meta := metav1.ObjectMeta{Namespace: want.Namespace, Name: want.Name, Labels: maps.Clone(want.Labels)}
	if want.Namespace == "" {
		return ClusterRoleBindings(b.kube).Apply(ctx, Known(b.wide.Get(want.Name)),
			&rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: roleRef(want.ClusterRole), Subjects: want.Subjects})
	}
	return RoleBindings(b.kube, want.Namespace).Apply(ctx, Known(b.roles.RoleBindings(want.Namespace).Get(want.Name)),
		&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: roleRef(want.ClusterRole), Subjects: want.Subjects})
}

// RoleBindings says how Apply makes RoleBindings of a namespace.
func RoleBindings(kube kubernetes.Interface, namespace string) Kind[*rbacv1.RoleBinding] {
	return Kind[*rbacv1.RoleBinding]{Name: "RoleBinding", Client: kube.RbacV1().RoleBindings(namespace), Set: func(next, want *rbacv1.RoleBinding) bool {
		next.Subjects = want.Subjects
		AddLabels(next, want)
		return next.RoleRef == want.RoleRef
	}}
}

// ClusterRoleBindings says how Apply makes ClusterRoleBindings.
func ClusterRoleBindings(kube kubernetes.Interface) Kind[*rbacv1.ClusterRoleBinding] {
	return Kind[*rbacv1.ClusterRoleBinding]{Name: "ClusterRoleBinding", Client: kube.RbacV1().ClusterRoleBindings(), Set: func(next, want *rbacv1.ClusterRoleBinding) bool {
		next.Subjects = want.Subjects
		AddLabels(next, want)
		return next.RoleRef == want.RoleRef
	}}
}

// AddLabels gives next the labels that want has; others stay.
func AddLabels(next, want metav1.Object) {
	labels := maps.Clone(next.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, want.GetLabels())
	next.SetLabels(labels)
}

// RemoveUnless deletes the binding if it exists and is not exactly the subjects'.
func (b *Binder) RemoveUnless(ctx context.Context, namespace, name string, subjects ...rbacv1.Subject) error {
	if namespace == "" {
		have := Known(b.wide.Get(name))
		if have == nil || equality.Semantic.DeepEqual(have.Subjects, subjects) {
			return nil
		}
		return Delete(ctx, "ClusterRoleBinding", b.kube.RbacV1().ClusterRoleBindings(), have)
	}
	have := Known(b.roles.RoleBindings(namespace).Get(name))
	if have == nil || equality.Semantic.DeepEqual(have.Subjects, subjects) {
		return nil
	}
	return Delete(ctx, "RoleBinding", b.kube.RbacV1().RoleBindings(namespace), have)
}

func roleRef(clusterRole string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: clusterRole}
}
