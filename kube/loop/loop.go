// Package loop is the work queue of every control loop. Event handlers enqueue keys,
// workers call a SyncFunc for each key, and a failed key is requeued with a back-off. The
// package depends on Kubernetes libraries only and has no liqod types.
package loop

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

// Key is the namespace and name of the object to sync. Namespace is empty for
// cluster-scoped objects.
type Key = cache.ObjectName

// Env is what a process gives to each of its components.
type Env struct {
	// Clock is the source of the current time.
	Clock clock.PassiveClock
	// Log receives state changes, and the errors of the loop.
	Log *zap.Logger
	// Observer may be nil.
	Observer Observer
}

// Informer is the part of a cache.SharedIndexInformer that loops and stores use.
type Informer interface {
	// AddEventHandler adds a handler. It returns an error if the informer takes no more handlers.
	AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error)
	// GetStore and GetIndexer return the cache.
	GetStore() cache.Store
	GetIndexer() cache.Indexer
}

// SyncFunc compares the desired and the actual state of one key and writes the
// difference. It must be idempotent and must not depend on which event enqueued the key.
// It returns nil if nothing is left to do: the object is gone, or its spec is invalid and
// only its author can correct it. It returns After(d) to be called again after d. Any
// other error is retried without a limit on attempts: after 1 to 2 s if the API server is
// unreachable or overloaded, else with a back-off that doubles from 200 ms to one minute.
type SyncFunc func(ctx context.Context, key Key) error

// Observer receives the queue events of a loop, for metrics and health checks. Its
// methods are called from many goroutines.
type Observer interface {
	// Queued reports that key was enqueued. It is called before a worker can take the key. In
	// a loop with classes it is called when a worker takes the key, because keys of different
	// classes do not leave the queue in the order in which they came.
	Queued(loop string, key Key)
	// Synced reports that a sync of key took d and returned err. err is nil if the sync
	// returned After.
	Synced(loop string, key Key, d time.Duration, err error)
}

// Config is the configuration of a Loop.
type Config struct {
	// Name identifies the loop in logs and metrics.
	Name string
	// Sync runs concurrently for different keys, but never concurrently for the same key.
	Sync SyncFunc
	// Log receives the errors that Sync returns.
	Log *zap.Logger
	// Observer may be nil. If it is a workqueue.MetricsProvider, the queue reports to it.
	Observer Observer
	// Beside may be nil. Run calls it once at its beginning and enqueues the returned
	// keys, in addition to the keys of the watched objects. It covers sources other than
	// Watch: their Wake calls before Run are dropped.
	Beside func() []Key
	// Class may be nil. It returns the class of a key, for instance the cluster that the key
	// is worked on for. Classes take turns, and none of them has more keys in work than Run is
	// given workers: Run starts half as many workers more, for the others. Class must be quick,
	// and may return another class for the same key later.
	Class func(Key) string
}

// Loop runs a SyncFunc for the keys in its queue. Its methods are safe for concurrent
// use. After Run has returned it may be called again, which happens when a process loses
// its Lease and acquires it later.
type Loop struct {
	cfg Config

	mu sync.Mutex
	// queue is nil unless Run is running, because a work queue starts goroutines of its
	// own.
	queue workqueue.TypedRateLimitingInterface[Key]
	// turns is the storage of queue if keys have classes, else nil.
	turns *fair
	// early holds the keys that Add received while queue was nil.
	early   sets.Set[Key]
	watched []Source
	// synced are what Run waits for.
	synced []cache.InformerSynced
	// broken is the error of informers that take no handler; nil: there is none.
	broken error
}

const (
	baseDelay = 200 * time.Millisecond
	maxDelay  = time.Minute
	// Every key fails in the same way while the API server is unreachable. A short
	// constant delay lets all keys catch up soon after the server is back.
	unavailableDelay = time.Second
)

// New returns a Loop that watches these sources, as by Watch. It starts no goroutines.
func New(cfg Config, sources ...Source) *Loop {
	l := &Loop{cfg: cfg, early: sets.New[Key]()}
	l.Watch(sources...)
	return l
}

// newQueue returns a queue that stores its keys in turns; nil: first in, first out. It reports
// to the observer, if that is a workqueue.MetricsProvider. The queues of libraries do not
// report to it.
func newQueue(name string, turns *fair, observer Observer) workqueue.TypedRateLimitingInterface[Key] {
	config := workqueue.TypedRateLimitingQueueConfig[Key]{Name: name}
	provider, _ := observer.(workqueue.MetricsProvider)
	config.MetricsProvider = provider
	if turns != nil {
		config.DelayingQueue = workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[Key]{
			Name: name, MetricsProvider: provider,
			Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[Key]{Name: name, MetricsProvider: provider, Queue: turns}),
		})
	}
	return workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.NewTypedItemExponentialFailureRateLimiter[Key](baseDelay, maxDelay), config)
}

// Name returns the name that Config gave to the loop.
func (l *Loop) Name() string { return l.cfg.Name }

// Await has Run wait for these, too, before the workers start.
func (l *Loop) Await(synced ...cache.InformerSynced) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.synced = append(l.synced, synced...)
}

// HasSynced reports whether all that Run waits for has been received.
func (l *Loop) HasSynced() bool {
	_, synced := l.sources()
	return allSynced(synced)
}

// allSynced reports whether all of these have synced.
func allSynced(synced []cache.InformerSynced) bool {
	return !slices.ContainsFunc(synced, func(is cache.InformerSynced) bool { return !is() })
}

// Source is an informer, and what its events cause.
type Source struct {
	informer Informer
	// keys has the keys of each object, for a Loop. They are nil if the handler does all.
	keys    func(any) []Key
	handler cache.ResourceEventHandler
}

// From returns the source of the keys that keys returns. Objects of other types have none. A Loop enqueues the
// keys of every object that is added, updated or deleted, and those of all objects when it begins to run. An
// update enqueues the keys of the object before and after the change.
func From[T any](inf Informer, keys func(T) []Key) Source {
	return Source{informer: inf, keys: func(obj any) (of []Key) {
		if o, ok := obj.(T); ok {
			of = keys(o)
		}
		return of
	}}
}

// On returns a source whose events a handler receives. It enqueues nothing itself.
func On(inf Informer, handler cache.ResourceEventHandler) Source {
	return Source{informer: inf, handler: handler}
}

// Add adds the handler of a source, which is not one of From, to its informer.
func (s Source) Add() (cache.ResourceEventHandlerRegistration, error) {
	return s.informer.AddEventHandler(s.handler)
}

// Register adds the handlers of sources to their informers, without a Loop. synced reports whether all have
// received their first lists.
func Register(sources ...Source) (synced cache.InformerSynced, err error) {
	var each []cache.InformerSynced
	for _, s := range sources {
		registration, err := s.Add()
		if err != nil {
			return func() bool { return false }, fmt.Errorf("adding an event handler: %w", err)
		}
		each = append(each, registration.HasSynced)
	}
	return func() bool { return allSynced(each) }, nil
}

// Watch has the loop receive the events of these sources. Run waits until all have received their first lists.
// If an informer takes no handler, because it has stopped already, Run returns the error. The caller may use
// the registrations to remove the handlers.
func (l *Loop) Watch(sources ...Source) (registered []cache.ResourceEventHandlerRegistration) {
	for _, s := range sources {
		if s.keys != nil {
			s.handler = l.Handler(s.keys)
		}
		registration, err := s.Add()
		registered = append(registered, registration)
		if err != nil {
			l.broken = errors.Join(l.broken, fmt.Errorf("watching for %s: %w", l.cfg.Name, err))
			continue
		}
		l.Await(registration.HasSynced)
		l.mu.Lock()
		l.watched = append(l.watched, s)
		l.mu.Unlock()
	}
	return registered
}

// Index adds an index to an informer. If that is not possible, Run returns the error.
func (l *Loop) Index(inf Informer, name string, of cache.IndexFunc) {
	if err := inf.GetIndexer().AddIndexers(cache.Indexers{name: of}); err != nil {
		l.broken = errors.Join(l.broken, fmt.Errorf("indexing for %s: %w", l.cfg.Name, err))
	}
}

// Handler returns an event handler that enqueues keys(obj). It is meant for informers
// that start and stop while the loop runs: Run does not wait for their initial lists.
// Events that arrive while the loop does not run are dropped.
func (l *Loop) Handler(keys func(obj any) []Key) cache.ResourceEventHandler {
	enqueue := func(obj any) {
		obj, _ = Deleted(obj)
		l.Wake(keys(obj)...)
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue,
		UpdateFunc: func(before, after any) {
			was, is := keys(before), keys(after)
			// A change of labels can change the keys of an object, and then its former keys
			// need a sync too. Unchanged keys are enqueued once: a worker could take the key
			// between two calls and sync it twice.
			if !slices.Equal(was, is) {
				l.Wake(was...)
			}
			l.Wake(is...)
		},
		DeleteFunc: enqueue,
	}
}

// Deleted returns the last known state of the object that a delete handler receives. missed
// is true if the informer did not see the deletion and found it by a new list.
func Deleted(obj any) (last any, missed bool) {
	if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		return t.Obj, true
	}
	return obj, false
}

// Self is a keys function that returns the object's own namespace and name, and nil for a
// value that is not an object.
func Self(obj any) []Key {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil
	}
	return []Key{{Namespace: m.GetNamespace(), Name: m.GetName()}}
}

// Keys returns the keys of objects.
func Keys[T metav1.Object](objects []T) (keys []Key) {
	for _, o := range objects {
		keys = append(keys, cache.MetaObjectToName(o))
	}
	return keys
}

// None is a keys function for objects that a loop waits for at its start, and no more.
func None(any) []Key { return nil }

// Constant returns a keys function for a loop that has a single key.
func Constant(key Key) func(any) []Key { return func(any) []Key { return []Key{key} } }

// Add enqueues keys. If the loop is not running, it keeps them until Run begins.
func (l *Loop) Add(keys ...Key) {
	l.mu.Lock()
	queue := l.queue
	if queue == nil {
		l.early.Insert(keys...)
	}
	l.mu.Unlock()
	l.put(queue, keys)
}

// Wake is the Add of event handlers. It drops the keys if the loop is not running, so that
// a standby process accumulates none. Run enqueues all watched objects when it begins.
func (l *Loop) Wake(keys ...Key) { l.put(l.current(), keys) }

// AddAfter enqueues key after d. Like Wake, it drops the key if the loop is not running.
func (l *Loop) AddAfter(key Key, d time.Duration) {
	if queue := l.current(); queue != nil {
		queue.AddAfter(key, d)
	}
}

// Len returns the number of keys that wait in the queue. Keys that a worker is syncing do
// not count.
func (l *Loop) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.queue == nil:
		return len(l.early)
	case l.turns != nil:
		return l.turns.size()
	}
	return l.queue.Len()
}

// put enqueues keys; nil: the loop is not running.
func (l *Loop) put(queue workqueue.TypedRateLimitingInterface[Key], keys []Key) {
	if queue == nil {
		return
	}
	for _, key := range keys {
		// The observer must receive Queued before a worker can report Synced, else it would
		// count the key as queued for ever.
		if l.cfg.Observer != nil && l.cfg.Class == nil {
			l.cfg.Observer.Queued(l.cfg.Name, key)
		}
		queue.Add(key)
	}
}

// current returns the queue, or nil if the loop is not running.
func (l *Loop) current() workqueue.TypedRateLimitingInterface[Key] {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queue
}

// Run waits for the caches and for what Await has got, enqueues all watched objects and the keys of Config.Beside,
// and starts the workers (at least one; with classes at least two). When ctx is done, it waits for the workers and
// returns nil. It may be called again afterwards, but not concurrently.
func (l *Loop) Run(ctx context.Context, workers int) error {
	if l.broken != nil {
		return l.broken
	}
	workers = max(workers, 1)
	queue, turns, early := l.begin(workers)
	defer l.end()
	l.put(queue, early.UnsortedList())
	if _, synced := l.sources(); !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil
	}
	l.addAll()
	if turns != nil {
		workers += max(workers/2, 1)
	}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for l.processNextItem(ctx, queue, turns) {
			}
		})
	}
	<-ctx.Done()
	queue.ShutDown()
	wg.Wait()
	return nil
}

func (l *Loop) sources() ([]Source, []cache.InformerSynced) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.watched), slices.Clone(l.synced)
}

// begin creates the queue and returns it together with the keys kept by Add. From then on
// handlers enqueue, so that no event is lost between this call and addAll.
func (l *Loop) begin(workers int) (queue workqueue.TypedRateLimitingInterface[Key], turns *fair, early sets.Set[Key]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cfg.Class != nil {
		l.turns = newFair(l.cfg.Class, workers)
	}
	l.queue = newQueue(l.cfg.Name, l.turns, l.cfg.Observer)
	early, l.early = l.early, sets.New[Key]()
	return l.queue, l.turns, early
}

// end drops the queue after its shutdown.
func (l *Loop) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue.ShutDown()
	l.queue, l.turns = nil, nil
}

func (l *Loop) addAll() {
	watched, _ := l.sources()
	for _, s := range watched {
		if s.keys == nil {
			continue
		}
		for _, obj := range s.informer.GetStore().List() {
			l.Add(s.keys(obj)...)
		}
	}
	if l.cfg.Beside != nil {
		l.Add(l.cfg.Beside()...)
	}
}

func (l *Loop) processNextItem(ctx context.Context, queue workqueue.TypedRateLimitingInterface[Key], turns *fair) bool {
	key, shutdown := queue.Get()
	if shutdown {
		return false
	}
	defer queue.Done(key)
	if turns != nil {
		defer turns.done(key)
	}
	if ctx.Err() != nil {
		return true // empties the queue without calling Sync
	}
	if turns != nil && l.cfg.Observer != nil {
		l.cfg.Observer.Queued(l.cfg.Name, key)
	}
	start := time.Now()
	err := l.syncOne(ctx, key)
	l.requeue(queue, key, err, time.Since(start))
	return true
}

// syncOne turns a panic into an error, so that one malformed object does not stop the
// loop.
func (l *Loop) syncOne(ctx context.Context, key Key) (err error) {
	defer func() {
		if r := recover(); r != nil {
			l.cfg.Log.Error("sync panicked", zap.Stringer("key", key), zap.Any("panic", r), zap.Stack("stack"))
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return l.cfg.Sync(ctx, key)
}

func (l *Loop) requeue(queue workqueue.TypedRateLimitingInterface[Key], key Key, err error, took time.Duration) {
	var later afterError
	log := l.cfg.Log.With(zap.String("loop", l.cfg.Name), zap.Stringer("key", key))
	switch {
	case err == nil:
		queue.Forget(key)
	case errors.As(err, &later):
		queue.Forget(key)
		queue.AddAfter(key, later.d)
		err = nil
	case apierrors.IsConflict(err):
		// Another client wrote the object first. The cache will receive its new version
		// within moments.
		queue.AddRateLimited(key)
		log.Debug("conflict; will retry")
	case Unavailable(err) && !failedInside(err):
		queue.AddAfter(key, unavailableDelay+rand.N(unavailableDelay))
		log.Debug("server away; will retry", zap.Error(err))
	default:
		log.Error("sync failed; will retry", zap.Int("attempt", queue.NumRequeues(key)+1), zap.Error(err))
		queue.AddRateLimited(key)
	}
	if l.cfg.Observer != nil {
		l.cfg.Observer.Synced(l.cfg.Name, key, took, err)
	}
}

type afterError struct{ d time.Duration }

// Error implements error.
func (e afterError) Error() string { return fmt.Sprintf("again in %s", e.d) }

// After returns the value with which a SyncFunc requeues its key after d. It does not count as a failure.
func After(d time.Duration) error { return afterError{d} }

// failedInside reports whether the API server answers with an internal error of its own,
// usually a failing admission webhook. Such a failure can last, so it is logged and
// backed off like any other error.
func failedInside(err error) bool {
	return apierrors.IsInternalError(err) && !apierrors.IsUnexpectedServerError(err)
}

// Unavailable reports whether err means that the API server is unreachable or overloaded,
// rather than that it rejected the request. It is true for refused, reset and lost
// connections, timeouts, other network errors, and the status codes 429 and 5xx. It is
// false for nil and for certificates that cannot be verified.
func Unavailable(err error) bool {
	if err == nil {
		return false
	}
	if errors.Is(err, context.DeadlineExceeded) || utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) ||
		utilnet.IsProbableEOF(err) || utilnet.IsHTTP2ConnectionLost(err) {
		return true
	}
	// These errors are also of type net.Error. They result from a wrong configuration, not
	// an outage, and need to be logged.
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	if errors.As(err, &unknown) || errors.As(err, &host) {
		return false
	}
	var netErr net.Error
	if errors.As(err, &netErr) {
		return true
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		code := int(status.Status().Code)
		return code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
	}
	return false
}
