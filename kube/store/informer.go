// Package store reads and writes the objects of an API server. An Informer caches one resource
// and needs little memory: a process that watches hundreds of namespaces has thousands of
// informers, and each handler of a client-go informer has two goroutines and a buffer for a
// thousand events. Writes covers the delay between a write of this process and its event. A
// Head detects that the state of an API server went back. The helpers for writes (conditions,
// finalizers, owner references, preconditions, merge patches) are pure. A Binder keeps bindings
// of roles equal to the wanted ones. The package has no liqod types.
package store

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Client is the part of a typed client that an Informer uses. L is a list of objects.
type Client[L runtime.Object] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// Informer is a loop.Informer that calls its handlers one after the other, in the goroutine of
// the watch. Handlers must not block. They must be added before the informer runs, and it can
// run only once.
type Informer struct {
	// Transform, unless it is nil, changes objects before they enter the cache. It must be set
	// before the informer runs.
	Transform cache.TransformFunc

	lw      cache.ListerWatcher
	example runtime.Object
	indexer cache.Indexer
	synced  synced

	mu       sync.Mutex
	handlers []*registration
	runs     bool
}

// NewInformer returns an Informer for the objects that client lists and watches. client belongs to
// clientset. example is an object of their type. tweak selects objects, and may be nil.
func NewInformer[L runtime.Object](clientset any, client Client[L], example runtime.Object, tweak func(*metav1.ListOptions)) *Informer {
	return &Informer{
		lw: ListerWatcher(clientset, client, tweak), example: example,
		indexer: cache.NewIndexer(cache.DeletionHandlingMetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
		synced:  synced{name: fmt.Sprintf("%T", example), done: make(chan struct{})},
	}
}

// ListerWatcher returns what a reflector lists and watches with. The arguments are those of NewInformer.
func ListerWatcher[L runtime.Object](clientset any, client Client[L], tweak func(*metav1.ListOptions)) cache.ListerWatcher {
	if tweak == nil {
		tweak = func(*metav1.ListOptions) {}
	}
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			tweak(&opts)
			return client.List(ctx, opts)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			tweak(&opts)
			return client.Watch(ctx, opts)
		},
	}, clientset)
}

// synced is done when all handlers have received the first list.
type synced struct {
	name string
	done chan struct{}
}

// Name implements cache.DoneChecker.
func (s synced) Name() string { return s.name }

// Done implements cache.DoneChecker.
func (s synced) Done() <-chan struct{} { return s.done }

func (s synced) is() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// registration is the registration of one handler.
type registration struct {
	cache.ResourceEventHandler

	informer *Informer
}

// HasSynced implements cache.ResourceEventHandlerRegistration.
func (r *registration) HasSynced() bool { return r.informer.HasSynced() }

// HasSyncedChecker implements cache.ResourceEventHandlerRegistration.
func (r *registration) HasSyncedChecker() cache.DoneChecker { return r.informer.synced }

// AddEventHandler implements loop.Informer.
func (i *Informer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.runs {
		return nil, errors.New("the informer is running already")
	}
	r := &registration{handler, i}
	i.handlers = append(i.handlers, r)
	return r, nil
}

// GetStore implements loop.Informer.
func (i *Informer) GetStore() cache.Store { return i.indexer }

// GetIndexer implements loop.Informer.
func (i *Informer) GetIndexer() cache.Indexer { return i.indexer }

// HasSynced reports whether all handlers have received the first list.
func (i *Informer) HasSynced() bool { return i.synced.is() }

// RunWithContext lists and watches until ctx is done.
func (i *Informer) RunWithContext(ctx context.Context) {
	i.mu.Lock()
	i.runs = true
	i.mu.Unlock()
	cache.NewReflectorWithOptions(i.lw, i.example, feed{i}, cache.ReflectorOptions{Name: i.synced.name}).RunWithContext(ctx)
}

// feed is the store of a reflector. It updates the cache of an Informer, and then calls the
// handlers. Only one goroutine calls it.
type feed struct{ *Informer }

var _ cache.ReflectorStore = feed{}

// Add implements cache.ReflectorStore.
func (f feed) Add(obj any) error { return f.set(obj, false) }

// Update implements cache.ReflectorStore.
func (f feed) Update(obj any) error { return f.set(obj, false) }

// Delete implements cache.ReflectorStore. The watch has reported the deletion.
func (f feed) Delete(obj any) error {
	obj, err := f.transformed(obj)
	if err != nil {
		return err
	}
	if err := f.indexer.Delete(obj); err != nil {
		return err
	}
	f.each(func(h cache.ResourceEventHandler) { h.OnDelete(obj) })
	return nil
}

// Replace implements cache.ReflectorStore: the cache becomes equal to a new list. The
// handlers receive a cache.DeletedFinalStateUnknown for each object that the list lacks.
func (f feed) Replace(list []any, _ string) error {
	listed := make(map[string]struct{}, len(list))
	for _, obj := range list {
		key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
		if err != nil {
			return err
		}
		listed[key] = struct{}{}
		if err := f.set(obj, true); err != nil {
			return err
		}
	}
	for _, key := range f.indexer.ListKeys() {
		if _, ok := listed[key]; ok {
			continue
		}
		last, _, err := f.indexer.GetByKey(key)
		if err != nil {
			return err
		}
		missed := cache.DeletedFinalStateUnknown{Key: key, Obj: last}
		if err := f.indexer.Delete(missed); err != nil {
			return err
		}
		f.each(func(h cache.ResourceEventHandler) { h.OnDelete(missed) })
	}
	if !f.synced.is() {
		close(f.synced.done)
	}
	return nil
}

// Resync implements cache.ReflectorStore. It does nothing.
func (f feed) Resync() error { return nil }

// set stores an object and calls the handlers. It calls none if a list has the object in
// the same version as the cache.
func (f feed) set(obj any, listed bool) error {
	obj, err := f.transformed(obj)
	if err != nil {
		return err
	}
	before, known, err := f.indexer.Get(obj)
	if err != nil {
		return err
	}
	if err := f.indexer.Update(obj); err != nil {
		return err
	}
	switch {
	case !known:
		initial := !f.synced.is()
		f.each(func(h cache.ResourceEventHandler) { h.OnAdd(obj, initial) })
	case !listed || !sameVersion(before, obj):
		f.each(func(h cache.ResourceEventHandler) { h.OnUpdate(before, obj) })
	}
	return nil
}

func (f feed) transformed(obj any) (any, error) {
	if f.Transform == nil {
		return obj, nil
	}
	return f.Transform(obj)
}

// each needs no lock: no handler can be added once the informer runs.
func (f feed) each(call func(cache.ResourceEventHandler)) {
	for _, h := range f.handlers {
		call(h)
	}
}

func sameVersion(a, b any) bool {
	x, err1 := meta.Accessor(a)
	y, err2 := meta.Accessor(b)
	return err1 == nil && err2 == nil && x.GetResourceVersion() == y.GetResourceVersion()
}
