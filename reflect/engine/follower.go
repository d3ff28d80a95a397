package engine

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	offloadinginformers "github.com/liqod/liqod/api/generated/informers/externalversions/offloading/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/store"
)

// Follower follows the NamespaceMap of one provider. It has the one state of which namespaces
// are open: they are offloaded, and the provider has accepted their twins. All components of a
// vkubelet subscribe to it. It is safe for concurrent use.
type Follower struct {
	maps            offloadinginformers.NamespaceMapInformer
	namespace, name string
	registration    cache.ResourceEventHandlerRegistration

	mu            sync.Mutex // held while subscribers are called: each receives the states in their order
	open          map[string]string
	subscriptions []*subscription
}

type subscription struct {
	set     func(open map[string]string)
	changed func(namespace string)
}

// Subscriber opens and closes what it has of each open namespace. Spaces is the only one.
type Subscriber interface {
	set(ctx context.Context, open map[string]string)
}

// NewFollower returns a Follower of the NamespaceMap of a provider, by its cluster id. It
// registers a handler, and starts nothing.
func NewFollower(maps offloadinginformers.NamespaceMapInformer, tenantNamespace, provider string) (*Follower, error) {
	f := &Follower{maps: maps, namespace: tenantNamespace, name: provider}
	var err error
	f.registration, err = maps.Informer().AddEventHandler(store.OnChange(f.changed))
	if err != nil {
		return nil, fmt.Errorf("watching NamespaceMaps: %w", err)
	}
	return f, nil
}

// Map returns the NamespaceMap, or nil.
func (f *Follower) Map() *offloadingv1beta1.NamespaceMap {
	return store.Known(f.maps.Lister().NamespaceMaps(f.namespace).Get(f.name))
}

// Follow opens what is open in each of the spaces before it returns, and keeps them so. It calls
// changed, which may be nil, with each namespace whose entry in the map has changed, whether it
// is open or not, and with NamespaceAll when the map itself appears or disappears. The returned
// function ends that and closes all. Follow waits for the first list of NamespaceMaps.
func (f *Follower) Follow(ctx context.Context, changed func(namespace string), spaces ...Subscriber) (stop func()) {
	select {
	case <-f.registration.HasSyncedChecker().Done():
	case <-ctx.Done():
		return func() {}
	}
	s := &subscription{changed: changed, set: func(open map[string]string) {
		if ctx.Err() != nil {
			open = nil // nothing is opened any more
		}
		for _, each := range spaces {
			each.set(ctx, open)
		}
	}}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.subscriptions = append(f.subscriptions, s)
	s.set(f.open)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.subscriptions = slices.DeleteFunc(f.subscriptions, func(o *subscription) bool { return o == s })
		s.set(nil)
	}
}

// changed applies a state of a NamespaceMap. One of both is nil if the map appears or disappears.
func (f *Follower) changed(before, after *offloadingv1beta1.NamespaceMap) {
	if before != nil && before.Name != f.name || after != nil && after.Name != f.name {
		return
	}
	namespaces := []string{corev1.NamespaceAll} // those that a new map no longer contains have changed too
	if before != nil && after != nil {
		namespaces = store.ChangedKeys(before.Spec.DesiredMapping, after.Spec.DesiredMapping).
			Union(store.ChangedKeys(before.Status.CurrentMapping, after.Status.CurrentMapping)).UnsortedList()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open = Mapped(after)
	for _, s := range f.subscriptions {
		s.set(f.open)
		for _, namespace := range namespaces {
			if s.changed != nil {
				s.changed(namespace)
			}
		}
	}
}

// Mapped returns the twin namespace of each offloaded namespace that the provider has
// accepted, by the local name. m may be nil.
func Mapped(m *offloadingv1beta1.NamespaceMap) map[string]string {
	twins := map[string]string{}
	if m == nil {
		return twins
	}
	for local, desired := range m.Spec.DesiredMapping {
		// While the provider is unreachable, its status can still refer to a previous spec.
		if s := m.Status.CurrentMapping[local]; s.Phase == offloadingv1beta1.MappingAccepted && s.RemoteNamespace == desired {
			twins[local] = desired
		}
	}
	return twins
}

// Spaces has what a component holds of each open namespace: one T from the opening to the
// closing. It is safe for concurrent use.
type Spaces[T any] struct {
	open  func(ctx context.Context, local, remote string) T
	close func(T)

	mu      sync.RWMutex
	byLocal map[string]entry[T]
}

type entry[T any] struct {
	remote string
	held   T
}

// NewSpaces returns empty Spaces. open starts the T of a namespace and must not wait for its
// caches. Until it returns, Get and Each wait. close ends a T, which Get returns no longer. A
// namespace whose twin changes is closed first.
func NewSpaces[T any](open func(ctx context.Context, local, remote string) T, closeIt func(T)) *Spaces[T] {
	return &Spaces[T]{open: open, close: closeIt, byLocal: map[string]entry[T]{}}
}

// Get returns the T of an open local namespace, or the zero value.
func (s *Spaces[T]) Get(local string) T {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.byLocal[local].held
}

// Each returns what there is of a local namespace, or of all (NamespaceAll), with the names.
func (s *Spaces[T]) Each(namespace string) iter.Seq2[string, T] {
	s.mu.RLock()
	defer s.mu.RUnlock()
	found := map[string]T{}
	for local, have := range s.byLocal {
		if namespace == corev1.NamespaceAll || namespace == local {
			found[local] = have.held
		}
	}
	return maps.All(found)
}

// set closes and opens until exactly the given namespaces are open, which it maps to their twins.
func (s *Spaces[T]) set(ctx context.Context, open map[string]string) {
	var closing []T
	s.mu.Lock()
	for local, have := range s.byLocal {
		if open[local] != have.remote {
			closing = append(closing, have.held)
			delete(s.byLocal, local)
		}
	}
	s.mu.Unlock()
	for _, t := range closing {
		s.close(t)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for local, remote := range open {
		if _, is := s.byLocal[local]; !is {
			s.byLocal[local] = entry[T]{remote, s.open(ctx, local, remote)}
		}
	}
}
