package kinds

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/lru"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reflect/engine"
	"github.com/liqod/liqod/reflect/forge"
)

const (
	eventsWaiting  = 1000             // maximum number of waiting events
	eventsKept     = 20000            // maximum number of remembered events
	eventsStay     = time.Hour        // default lifetime of an event in an API server
	eventInterval  = 5 * time.Second  // minimum time between two writes of one event
	eventTooOld    = 10 * time.Minute // see backlogConfig
	eventsPerSec   = 20               // writes per second, over all namespaces
	eventsBurst    = 100
	eventsOfOne    = 10               // writes about one object that have no lasting limit: what a pod needs to start, and to end
	eventsEver     = 1                // further writes per second, or a provider that writes events all the time would fill etcd
	eventsMore     = 500              // further writes at once
	eventsWait     = 10 * time.Second // delay of a write that has no room among these
	eventRetry     = time.Second      // back-off while one of the clusters is unreachable
	eventTries     = 5                // attempts to find the object that an event is about
	eventHandOver  = 10 * time.Second // time between these attempts if another process should write the event
	eventBusyPause = time.Second      // delay of each write while pods wait
)

// ErrSubjectUnknown is returned if a Subject cannot decide yet whether an event is about
// a reflected object.
var ErrSubjectUnknown = errors.New("the object that the event is about is not known yet")

// ErrSubjectOfAnother is returned if another process writes the events about such
// objects. That process may have ended, and this one may be about to take over.
var ErrSubjectOfAnother = errors.New("another process brings events about such objects home")

// errNotSynced is returned if the decision needs caches that have not synced.
var errNotSynced = errors.New("the caches of pods have not been filled yet")

// Subject finds the local object for an object in the twin of a namespace. ours is false
// if the object was not reflected, or if the local object does not exist. After an error
// the search is repeated a few times. It is called from many goroutines.
type Subject func(ctx context.Context, namespace string, remote corev1.ObjectReference) (home corev1.ObjectReference, ours bool, err error)

// EventsConfig is the configuration of an Events.
type EventsConfig struct {
	OfNode
	// Home is the client that writes the events, Provider the one that reads them.
	Home, Provider kubernetes.Interface
	// Pods is the Subject for events about Pods and ShadowPods, Objects for those about
	// other kinds.
	Pods, Objects Subject
	// Chosen decides by the annotations of an event whether it is copied.
	Chosen func(annotations map[string]string) bool
	// Busy reports whether more important work waits. Writes of events are delayed then.
	Busy func() bool
	// Dropped is called with the reason of each dropped event, for the metric
	// liqod_events_dropped_total.
	Dropped func(reason string)
	// Workers is the number of concurrent writes of events.
	Workers int
}

// Events copies the provider's events about reflected objects to the consumer. This has
// the lowest priority of all work: the rate of writes is limited, in total and per event,
// and events are dropped if too many wait. It keeps no cache of events.
type Events struct {
	cfg     EventsConfig
	backlog *backlog
	limiter flowcontrol.RateLimiter
	// lasting limits the writes that are not free for their object over a long time. free
	// counts those that were, by the UID of the object, for as many objects as events are kept.
	lasting flowcontrol.RateLimiter
	free    *lru.Cache
	// refusing is true if the last write was rejected and a log line says so.
	refusing atomic.Bool

	watches *engine.Spaces[func()] // each ends the watch in a twin namespace

	affording sync.Mutex // guards the counts of free
}

// NewEvents returns an Events. It starts no goroutines.
func NewEvents(cfg EventsConfig) *Events {
	e := &Events{
		cfg:     cfg,
		backlog: newBacklog(backlogConfig{limit: eventsWaiting, kept: eventsKept, stays: eventsStay, interval: eventInterval, tooOld: eventTooOld, dropped: cfg.Dropped}),
		limiter: flowcontrol.NewTokenBucketRateLimiter(eventsPerSec, eventsBurst),
		lasting: flowcontrol.NewTokenBucketRateLimiter(eventsEver, eventsMore), free: lru.New(eventsKept),
	}
	e.watches = engine.NewSpaces(e.watch, func(stop func()) { stop() })
	return e
}

// Run copies events until ctx is done. It may be called once.
func (e *Events) Run(ctx context.Context) error {
	defer e.cfg.Namespaces.Follow(ctx, nil, e.watches)()
	var workers sync.WaitGroup
	for range max(e.cfg.Workers, 1) {
		workers.Go(func() { e.writeDue(ctx) })
	}
	workers.Wait()
	return nil
}

// watch watches the events of a twin namespace, after it has listed those that the
// consumer already has. The returned function ends it.
func (e *Events) watch(ctx context.Context, local, remote string) (stop func()) {
	end := loop.Start(ctx, func(ctx context.Context) {
		if e.seed(ctx, local) {
			e.reflector(local, remote).RunWithContext(ctx)
		}
	})
	return func() {
		end()
		e.backlog.forget(local)
	}
}

func (e *Events) reflector(local, remote string) *cache.Reflector {
	lw := store.ListerWatcher(e.cfg.Provider, e.cfg.Provider.CoreV1().Events(remote), nil)
	return cache.NewReflectorWithOptions(lw, &corev1.Event{}, passage{e, local}, cache.ReflectorOptions{Name: "events/" + remote})
}

// seed lists the copied events in the consumer, so that a restart does not write them
// again. It retries until it has succeeded (true) or ctx is done (false).
func (e *Events) seed(ctx context.Context, local string) bool {
	ours := labels.Set{offloadingv1beta1.OriginLabel: e.cfg.Destination, offloadingv1beta1.NodeNameLabel: e.cfg.Node}.String()
	told := false
	for {
		err := e.listHome(ctx, local, metav1.ListOptions{LabelSelector: ours})
		if err == nil {
			return true
		}
		if !told && ctx.Err() == nil {
			e.cfg.Log.Warn("listing reflected events failed; will retry", zap.String("namespace", local), zap.Error(err))
			told = true
		}
		if loop.Pause(ctx, eventRetry+rand.N(eventRetry)) != nil {
			return false
		}
	}
}

func (e *Events) listHome(ctx context.Context, local string, o metav1.ListOptions) error {
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return e.cfg.Home.CoreV1().Events(local).List(ctx, o)
	})
	return pages.EachListItem(ctx, o, func(obj runtime.Object) error {
		if have, ok := obj.(*corev1.Event); ok {
			e.backlog.seed(have, e.cfg.Clock.Now())
		}
		return nil
	})
}

// writeDue writes due events until ctx is done.
func (e *Events) writeDue(ctx context.Context) {
	for ctx.Err() == nil {
		if e.cfg.Gate() != nil {
			_ = loop.Pause(ctx, eventRetry) // the loop condition checks ctx
			continue
		}
		j, wait, ok := e.backlog.next(e.cfg.Clock.Now())
		if ok {
			e.backlog.wake.Notify() // another worker may take the next one
			e.work(ctx, j)
			continue
		}
		var timer <-chan time.Time
		if wait > 0 {
			timer = time.After(wait)
		}
		select {
		case <-e.backlog.wake:
		case <-timer:
		case <-ctx.Done():
		}
	}
}

// work writes one event.
func (e *Events) work(ctx context.Context, j job) {
	var subject corev1.ObjectReference
	if !j.written {
		var ok bool
		if subject, ok = e.about(ctx, j); !ok {
			return
		}
	}
	if !e.afford(subject.UID) {
		e.tooMany(j)
		return
	}
	if e.pace(ctx) != nil {
		return
	}
	var err error
	if j.written {
		if err = e.patch(ctx, j.want); apierrors.IsNotFound(err) {
			e.later(j, false) // another client deleted it: it is created again
			return
		}
	} else if err = e.create(ctx, forge.AboutSubject(j.want, subject)); apierrors.IsAlreadyExists(err) {
		e.later(j, true)
		return
	}
	e.settle(ctx, j, err)
}

// tooMany drops a new event beyond the limit. One that has occurred again waits: it is written
// as it is then.
func (e *Events) tooMany(j job) {
	if j.written {
		e.backlog.again(j, true, e.cfg.Clock.Now().Add(eventsWait))
		return
	}
	e.cfg.Dropped(droppedRate)
	e.backlog.drop(j, e.cfg.Clock.Now())
}

// settle records the result of a write.
func (e *Events) settle(ctx context.Context, j job, err error) {
	switch {
	case err == nil:
		e.refusing.Store(false)
		e.backlog.wrote(j, e.cfg.Clock.Now())
	case ctx.Err() != nil:
	case loop.Unavailable(err), apierrors.IsConflict(err):
		e.later(j, j.written)
	default:
		if e.refusing.CompareAndSwap(false, true) {
			e.cfg.Log.Warn("event refused", zap.Stringer("key", j.key), zap.Error(err))
		}
		e.cfg.Dropped(droppedRefused)
		e.backlog.drop(j, e.cfg.Clock.Now())
	}
}

func (e *Events) later(j job, exists bool) {
	e.backlog.again(j, exists, e.cfg.Clock.Now().Add(eventRetry))
}

// about finds the local object of an event. If ok is false, the event has been dropped or
// requeued.
func (e *Events) about(ctx context.Context, j job) (corev1.ObjectReference, bool) {
	find := e.cfg.Objects
	if k := j.want.InvolvedObject.Kind; k == "Pod" || k == "ShadowPod" {
		find = e.cfg.Pods
	}
	subject, ours, err := find(ctx, j.key.Namespace, j.want.InvolvedObject)
	switch {
	case err == nil && ours:
		return subject, true
	case err == nil, j.tries >= eventTries:
		e.backlog.drop(j, e.cfg.Clock.Now())
	case errors.Is(err, ErrSubjectOfAnother):
		j.tries++
		e.backlog.spare(j, e.cfg.Clock.Now().Add(eventHandOver))
	default:
		if !loop.Unavailable(err) && !errors.Is(err, errNotSynced) {
			j.tries++
		}
		e.later(j, false)
	}
	return corev1.ObjectReference{}, false
}

// pace delays a write while pods wait, and limits the rate of writes.
func (e *Events) pace(ctx context.Context) error {
	if e.cfg.Busy() {
		if err := loop.Pause(ctx, eventBusyPause); err != nil {
			return err
		}
	}
	return e.limiter.Wait(ctx)
}

// afford reports whether one more event may be written. about is the UID of the local object of
// a new event, which the provider does not choose; it is empty for an event that has occurred again.
func (e *Events) afford(about types.UID) bool {
	if about != "" {
		e.affording.Lock()
		defer e.affording.Unlock()
		have, _ := e.free.Get(about)
		n, _ := have.(int)
		if n < eventsOfOne {
			e.free.Add(about, n+1)
			return true
		}
	}
	return e.lasting.TryAccept()
}

func (e *Events) create(ctx context.Context, want *corev1.Event) error {
	_, err := e.cfg.Home.CoreV1().Events(want.Namespace).Create(ctx, want, metav1.CreateOptions{FieldManager: engine.FieldManager})
	return err
}

func (e *Events) patch(ctx context.Context, want *corev1.Event) error {
	patch, err := forge.EventPatch(want)
	if err != nil {
		return fmt.Errorf("encoding the event: %w", err)
	}
	_, err = e.cfg.Home.CoreV1().Events(want.Namespace).Patch(ctx, want.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: engine.FieldManager})
	return err
}

// passage is a store for a reflector that passes events to the backlog and stores none.
type passage struct {
	events *Events
	local  string
}

var _ cache.ReflectorStore = passage{}

// Add implements cache.ReflectorStore.
func (p passage) Add(obj any) error {
	if want := p.localCopy(obj); want != nil {
		p.events.backlog.put(want, false, p.events.cfg.Clock.Now())
	}
	return nil
}

// Update implements cache.ReflectorStore.
func (p passage) Update(obj any) error { return p.Add(obj) }

// Delete implements cache.ReflectorStore.
func (p passage) Delete(obj any) error {
	if want := p.localCopy(obj); want != nil {
		p.events.backlog.remove(loop.Key{Namespace: want.Namespace, Name: want.Name})
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (p passage) Replace(list []any, _ string) error {
	var all []*corev1.Event
	for _, obj := range list {
		if want := p.localCopy(obj); want != nil {
			all = append(all, want)
		}
	}
	p.events.backlog.replace(p.local, all, p.events.cfg.Clock.Now())
	return nil
}

// Resync implements cache.ReflectorStore.
func (passage) Resync() error { return nil }

// localCopy returns the local copy of an event, or nil if the event is not copied.
func (p passage) localCopy(obj any) *corev1.Event {
	remote, ok := obj.(*corev1.Event)
	if !ok {
		return nil
	}
	if !forge.CopiesEvent(remote) || !p.events.cfg.Chosen(remote.Annotations) {
		return nil
	}
	cfg := p.events.cfg
	return forge.Event(remote, forge.EventOptions{ConsumerID: cfg.Origin, ProviderID: cfg.Destination, NodeName: cfg.Node, Namespace: p.local})
}
