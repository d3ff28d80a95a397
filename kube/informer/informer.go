// Package informer keeps in memory what one API server has. An Informer follows one
// resource at little cost: a process that follows hundreds of namespaces has thousands of
// them, and in those of client-go each handler has two goroutines and room for a thousand
// events, used or not. Writes bridge the moment for which an informer is behind the
// process's own writes, and a Head notices an API server whose state went back. The package
// knows Kubernetes objects, and nothing of liqod.
package informer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

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

// Informer is a cache.SharedIndexInformer that calls its handlers one after the other, by
// the goroutine that watches: they must not block. All of them are added before it runs,
// and it runs once.
type Informer struct {
	lw      cache.ListerWatcher
	example runtime.Object
	indexer cache.Indexer
	synced  synced

	mu        sync.Mutex
	transform cache.TransformFunc
	handlers  []*registration
	reflector *cache.Reflector // nil until it runs
	stopped   bool
}

var _ cache.SharedIndexInformer = &Informer{}

var (
	errRuns        = errors.New("the informer runs already")
	errUnsupported = errors.New("not supported by this informer")
)

// New returns an Informer of what client, which belongs to clientset, lists and watches:
// objects of the type of example, chosen by tweak, which may be nil.
func New[L runtime.Object](clientset any, client Client[L], example runtime.Object, tweak func(*metav1.ListOptions)) *Informer {
	if tweak == nil {
		tweak = func(*metav1.ListOptions) {}
	}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			tweak(&opts)
			return client.List(ctx, opts)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			tweak(&opts)
			return client.Watch(ctx, opts)
		},
	}
	return &Informer{
		lw: cache.ToListWatcherWithWatchListSemantics(lw, clientset), example: example,
		indexer: cache.NewIndexer(cache.DeletionHandlingMetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
		synced:  synced{name: fmt.Sprintf("%T", example), done: make(chan struct{})},
	}
}

// synced tells when the first list has been told to all handlers.
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

// registration is that of one handler.
type registration struct {
	cache.ResourceEventHandler

	informer *Informer
}

// HasSynced implements cache.ResourceEventHandlerRegistration.
func (r *registration) HasSynced() bool { return r.informer.HasSynced() }

// HasSyncedChecker implements cache.ResourceEventHandlerRegistration.
func (r *registration) HasSyncedChecker() cache.DoneChecker { return r.informer.synced }

// AddEventHandler implements cache.SharedInformer.
func (i *Informer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.reflector != nil {
		return nil, errRuns
	}
	r := &registration{handler, i}
	i.handlers = append(i.handlers, r)
	return r, nil
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer. Nothing is told again.
func (i *Informer) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler, period time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	if period != 0 {
		return nil, errUnsupported
	}
	return i.AddEventHandler(handler)
}

// AddEventHandlerWithOptions implements cache.SharedInformer. Nothing is told again.
func (i *Informer) AddEventHandlerWithOptions(handler cache.ResourceEventHandler, opts cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	if opts.ResyncPeriod != nil && *opts.ResyncPeriod != 0 {
		return nil, errUnsupported
	}
	return i.AddEventHandler(handler)
}

// RemoveEventHandler implements cache.SharedInformer.
func (i *Informer) RemoveEventHandler(handle cache.ResourceEventHandlerRegistration) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	// A copy: the old list may be in use.
	i.handlers = slices.DeleteFunc(slices.Clone(i.handlers), func(r *registration) bool { return cache.ResourceEventHandlerRegistration(r) == handle })
	return nil
}

// GetStore implements cache.SharedInformer.
func (i *Informer) GetStore() cache.Store { return i.indexer }

// GetIndexer implements cache.SharedIndexInformer.
func (i *Informer) GetIndexer() cache.Indexer { return i.indexer }

// AddIndexers implements cache.SharedIndexInformer.
func (i *Informer) AddIndexers(indexers cache.Indexers) error { return i.indexer.AddIndexers(indexers) }

// GetController implements cache.SharedInformer.
func (i *Informer) GetController() cache.Controller { return i }

// Run implements cache.SharedInformer.
func (i *Informer) Run(stop <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	i.RunWithContext(ctx)
}

// RunWithContext implements cache.SharedInformer.
func (i *Informer) RunWithContext(ctx context.Context) {
	i.mu.Lock()
	if i.reflector != nil {
		i.mu.Unlock()
		return
	}
	i.reflector = cache.NewReflectorWithOptions(i.lw, i.example, feed{i}, cache.ReflectorOptions{Name: i.synced.name})
	i.mu.Unlock()
	i.reflector.RunWithContext(ctx)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.stopped = true
}

// HasSynced implements cache.SharedInformer: all handlers have been told of the first list.
func (i *Informer) HasSynced() bool { return i.synced.is() }

// HasSyncedChecker implements cache.SharedInformer.
func (i *Informer) HasSyncedChecker() cache.DoneChecker { return i.synced }

// LastSyncResourceVersion implements cache.SharedInformer.
func (i *Informer) LastSyncResourceVersion() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.reflector == nil {
		return ""
	}
	return i.reflector.LastSyncResourceVersion()
}

// SetWatchErrorHandler implements cache.SharedInformer; it is not supported.
func (i *Informer) SetWatchErrorHandler(cache.WatchErrorHandler) error { return errUnsupported }

// SetWatchErrorHandlerWithContext implements cache.SharedInformer; it is not supported.
func (i *Informer) SetWatchErrorHandlerWithContext(cache.WatchErrorHandlerWithContext) error {
	return errUnsupported
}

// SetTransform implements cache.SharedInformer.
func (i *Informer) SetTransform(transform cache.TransformFunc) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.reflector != nil {
		return errRuns
	}
	i.transform = transform
	return nil
}

// IsStopped implements cache.SharedInformer.
func (i *Informer) IsStopped() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.stopped
}
