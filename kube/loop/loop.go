// Package loop is the one work-queue engine: keys go in, a function makes the world
// right for each, and what fails is tried again. It knows Kubernetes objects, and
// nothing of liqod.
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
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// Key names the object that a sync is for. Namespace is empty for cluster scope.
type Key = cache.ObjectName

// SyncFunc makes the world right for one key, whatever event woke it. It must be
// idempotent. It returns nil when there is nothing left to do (an object that is
// gone, or a spec that only its author can mend), After(d) to be called again, and
// any other error to be retried for ever with a growing delay.
type SyncFunc func(ctx context.Context, key Key) error

// Observer is told what a loop does, for metrics and for health.
type Observer interface {
	// Queued reports that key waits to be synced.
	Queued(loop string, key Key)
	// Synced reports that a sync of key took d and returned err.
	Synced(loop string, key Key, d time.Duration, err error)
}

// Config configures a Loop.
type Config struct {
	// Name of the loop in logs and metrics.
	Name string
	// Sync is called by one worker at a time for one key.
	Sync SyncFunc
	// Log receives the errors of Sync.
	Log *zap.Logger
	// Observer may be nil.
	Observer Observer
	// Beside may be nil. It returns what Run looks at when it begins, beside what is
	// watched: what handlers told of before then is not remembered.
	Beside func() []Key
}

// Loop runs a SyncFunc for keys. Its methods are safe for concurrent use; a stopped
// Loop can be run again (leadership comes and goes).
type Loop struct {
	cfg Config

	mu sync.Mutex
	// queue has goroutines of its own: there is one while Run runs.
	queue workqueue.TypedRateLimitingInterface[Key]
	// early has what was added while there was none.
	early  sets.Set[Key]
	synced []cache.InformerSynced
	stores []cache.Store
	keysOf []func(any) []Key
}

const (
	baseDelay = 200 * time.Millisecond
	maxDelay  = time.Minute
	// A server that is away answers every key the same: no key is to blame, and all are
	// to be caught up soon after it is back.
	unavailableDelay = time.Second
)

// New returns a Loop. It starts nothing.
func New(cfg Config) *Loop {
	return &Loop{cfg: cfg, early: sets.New[Key]()}
}

func newQueue(name string) workqueue.TypedRateLimitingInterface[Key] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[Key](baseDelay, maxDelay),
		workqueue.TypedRateLimitingQueueConfig[Key]{Name: name})
}

// Name returns the loop's name.
func (l *Loop) Name() string { return l.cfg.Name }

// Watch enqueues keys(obj) for every change that inf reports; for an update it
// enqueues the keys of the object before and after. Run waits until the initial list
// has been seen. The registration may be used to end the watch.
func (l *Loop) Watch(inf cache.SharedIndexInformer, keys func(obj any) []Key) (cache.ResourceEventHandlerRegistration, error) {
	reg, err := inf.AddEventHandler(l.Handler(keys))
	if err != nil {
		return nil, fmt.Errorf("watching for %s: %w", l.cfg.Name, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.synced = append(l.synced, reg.HasSynced)
	l.stores = append(l.stores, inf.GetStore())
	l.keysOf = append(l.keysOf, keys)
	return reg, nil
}

// Handler returns an event handler that enqueues keys(obj), for informers that come
// and go while the loop runs. Run does not wait for them. What happens while the loop
// does not run is not remembered: Run looks at everything.
func (l *Loop) Handler(keys func(obj any) []Key) cache.ResourceEventHandler {
	wake := func(keys []Key) {
		for _, k := range keys {
			l.Wake(k)
		}
	}
	enqueue := func(obj any) {
		if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = t.Obj
		}
		wake(keys(obj))
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue,
		UpdateFunc: func(before, after any) {
			was, is := keys(before), keys(after)
			// An object's keys can change with its labels: who it was for must know. Those that
			// stay are woken once, or a worker that is free would sync them twice.
			if !slices.Equal(was, is) {
				wake(was)
			}
			wake(is)
		},
		DeleteFunc: enqueue,
	}
}

// Self is a keys function: the object's own name.
func Self(obj any) []Key {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil
	}
	return []Key{{Namespace: m.GetNamespace(), Name: m.GetName()}}
}

// Constant is a keys function for loops that treat the world as one unit.
func Constant(key Key) func(any) []Key { return func(any) []Key { return []Key{key} } }

// Add enqueues key. While the loop does not run the key is kept until Run begins.
func (l *Loop) Add(key Key) {
	if queue := l.queueOrKeep(key); queue != nil {
		l.put(queue, key)
	}
}

// Wake is Add for event handlers: it does nothing while the loop does not run, so that a
// standby keeps nothing. Run looks at what is watched when it begins.
func (l *Loop) Wake(key Key) {
	if queue := l.current(); queue != nil {
		l.put(queue, key)
	}
}

// AddAfter enqueues key once d has passed. Like Wake it does nothing while the loop does
// not run.
func (l *Loop) AddAfter(key Key, d time.Duration) {
	if queue := l.current(); queue != nil {
		queue.AddAfter(key, d)
	}
}

// Len is the number of keys that wait.
func (l *Loop) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queue == nil {
		return len(l.early)
	}
	return l.queue.Len()
}

func (l *Loop) put(queue workqueue.TypedRateLimitingInterface[Key], key Key) {
	// Before a worker can have it: what is told of a key after its sync would wait for ever.
	if l.cfg.Observer != nil {
		l.cfg.Observer.Queued(l.cfg.Name, key)
	}
	queue.Add(key)
}

// current returns nil while the loop does not run.
func (l *Loop) current() workqueue.TypedRateLimitingInterface[Key] {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queue
}

// queueOrKeep returns the queue, or nil and keeps the key.
func (l *Loop) queueOrKeep(key Key) workqueue.TypedRateLimitingInterface[Key] {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queue == nil {
		l.early.Insert(key)
	}
	return l.queue
}

// Run waits for the caches, enqueues every object that is watched, works until ctx is
// done, and returns when every worker has returned. It may be called again then.
func (l *Loop) Run(ctx context.Context, workers int) error {
	queue, early := l.begin()
	defer l.end()
	for key := range early {
		l.put(queue, key)
	}
	if !cache.WaitForCacheSync(ctx.Done(), l.hasSynced()...) {
		return nil
	}
	l.addAll()
	var wg sync.WaitGroup
	for range max(workers, 1) {
		wg.Go(func() {
			for l.processNextItem(ctx, queue) {
			}
		})
	}
	<-ctx.Done()
	queue.ShutDown()
	wg.Wait()
	return nil
}

func (l *Loop) hasSynced() []cache.InformerSynced {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]cache.InformerSynced(nil), l.synced...)
}

// begin makes the handlers enqueue from now on: nothing that comes after the stores
// are read is missed. It returns what was kept, too.
func (l *Loop) begin() (queue workqueue.TypedRateLimitingInterface[Key], early sets.Set[Key]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = newQueue(l.cfg.Name)
	early, l.early = l.early, sets.New[Key]()
	return l.queue, early
}

// end forgets the queue that Run has shut down.
func (l *Loop) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue.ShutDown()
	l.queue = nil
}

func (l *Loop) addAll() {
	l.mu.Lock()
	stores, keysOf := l.stores, l.keysOf
	l.mu.Unlock()
	for i, store := range stores {
		for _, obj := range store.List() {
			for _, k := range keysOf[i](obj) {
				l.Add(k)
			}
		}
	}
	if l.cfg.Beside != nil {
		for _, k := range l.cfg.Beside() {
			l.Add(k)
		}
	}
}

func (l *Loop) processNextItem(ctx context.Context, queue workqueue.TypedRateLimitingInterface[Key]) bool {
	key, shutdown := queue.Get()
	if shutdown {
		return false
	}
	defer queue.Done(key)
	if ctx.Err() != nil {
		return true // drains the queue without work
	}
	start := time.Now()
	err := l.syncOne(ctx, key)
	l.requeue(queue, key, err, time.Since(start))
	return true
}

// syncOne turns a panic into an error: one bad object must not stop the others.
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
		// Somebody wrote in between: the cache will have it in a moment.
		queue.AddRateLimited(key)
		log.Debug("conflict; will retry")
	case Unavailable(err) && !failedInside(err):
		queue.AddAfter(key, jitter(unavailableDelay))
		log.Debug("server away; will retry", zap.Error(err))
	default:
		log.Error("sync failed; will retry", zap.Int("attempt", queue.NumRequeues(key)+1), zap.Error(err))
		queue.AddRateLimited(key)
	}
	if l.cfg.Observer != nil {
		l.cfg.Observer.Synced(l.cfg.Name, key, took, err)
	}
}

func jitter(d time.Duration) time.Duration { return d + rand.N(d) }

type afterError struct{ d time.Duration }

func (e afterError) Error() string { return fmt.Sprintf("again in %s", e.d) }

// After makes a SyncFunc be called again for the same key once d has passed. It is
// not a failure.
func After(d time.Duration) error { return afterError{d} }

// failedInside reports whether the API server itself says what went wrong inside it: an
// admission webhook that fails, most often. That is not over soon, and is to be seen.
func failedInside(err error) bool {
	return apierrors.IsInternalError(err) && !apierrors.IsUnexpectedServerError(err)
}

// Unavailable reports whether err says that the API server is away or overloaded,
// rather than that the request was wrong.
func Unavailable(err error) bool {
	if err == nil {
		return false
	}
	if errors.Is(err, context.DeadlineExceeded) || utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) ||
		utilnet.IsProbableEOF(err) || utilnet.IsHTTP2ConnectionLost(err) {
		return true
	}
	// An unknown certificate authority is somebody's mistake, not an outage: it is logged.
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
