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
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"

	offloadinginformers "github.com/liqod/liqod/api/generated/informers/externalversions/offloading/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/reflect/engine"
	"github.com/liqod/liqod/reflect/forge"
)

const (
	eventsWaiting  = 1000             // how many events wait at most
	eventsKept     = 20000            // of how many it is known that home has them
	eventsStay     = time.Hour        // how long an API server keeps an event, if not told otherwise
	eventInterval  = 5 * time.Second  // between two writes of one event
	eventTooOld    = 10 * time.Minute // see backlogConfig
	eventsPerSec   = 20               // writes a second, for all
	eventsBurst    = 100
	eventRetry     = time.Second      // home or the provider is away
	eventTries     = 5                // how often it is looked for the object that an event is about
	eventHandOver  = 10 * time.Second // between these, for what another process is to bring home
	eventBusyPause = time.Second      // before each write, while pods wait
	eventPage      = 500              // events in one answer, when home is listed
)

// ErrSubjectUnknown says that it cannot be told yet whether an event is about an object of
// ours: what the provider holds is not known.
var ErrSubjectUnknown = errors.New("the object that the event is about is not known yet")

// ErrSubjectOfAnother says that another process brings home what happens to such objects.
// It may have ended, and this one be about to take its place.
var ErrSubjectOfAnother = errors.New("another process brings events about such objects home")

// errNotSynced says that it is not known, because of caches that have not shown everything yet.
var errNotSynced = errors.New("the caches of pods have not been filled yet")

// Subject returns the object at home that an object in the twin of a namespace stands for.
// It is false when that is not ours, or home has it no more. With an error it is asked
// again a few times. It is called from many goroutines.
type Subject func(ctx context.Context, namespace string, remote corev1.ObjectReference) (home corev1.ObjectReference, ours bool, err error)

// EventsConfig configures the way home of the provider's events.
type EventsConfig struct {
	// Home writes the events, Provider reads them.
	Home, Provider kubernetes.Interface
	// NamespaceMaps holds those of the tenant namespace.
	NamespaceMaps offloadinginformers.NamespaceMapInformer
	// TenantNamespace and Node name the VirtualNode; Origin and Destination are the ids of
	// the consumer and of the provider.
	TenantNamespace, Node, Origin, Destination string
	// Pods finds the pod that an event of a Pod or ShadowPod is about, Objects the object of
	// any other kind.
	Pods, Objects Subject
	// Chosen tells by an event's annotations whether it is reflected; nil: all are.
	Chosen func(annotations map[string]string) bool
	// Gate returns an error while the provider is not known to be the cluster that was
	// peered with: its events wait.
	Gate func() error
	// Busy tells that more important work waits: the writes of events are spaced then.
	Busy func() bool
	// Dropped is told the reason of each event that is given up; see the metric
	// liqod_events_dropped_total.
	Dropped func(reason string)
	Log     *zap.Logger
	// Workers is the number of events written at once.
	Workers int
}

// Events writes the events of a provider about our objects into the namespaces at home, as
// the last of all work: few at once, slowly, each seldom, and those that are too many are
// dropped. It keeps no cache of events.
type Events struct {
	cfg     EventsConfig
	backlog *backlog
	limiter flowcontrol.RateLimiter
	// refusing: the last write was refused, and said so.
	refusing atomic.Bool

	mu   sync.Mutex
	open map[string]*eventWatch // by local namespace
}

// eventWatch is the watch in one twin namespace.
type eventWatch struct {
	remote string
	stop   func()
}

// NewEvents returns an Events. It starts nothing.
func NewEvents(cfg EventsConfig) *Events {
	return &Events{
		cfg: cfg, open: map[string]*eventWatch{},
		backlog: newBacklog(backlogConfig{limit: eventsWaiting, kept: eventsKept, stays: eventsStay, interval: eventInterval, tooOld: eventTooOld, dropped: cfg.Dropped}),
		limiter: flowcontrol.NewTokenBucketRateLimiter(eventsPerSec, eventsBurst),
	}
}

// Run brings events home until ctx ends. It is called once.
func (e *Events) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	defer e.set(ctx, nil)
	informer := e.cfg.NamespaceMaps.Informer()
	follow := func(any) { e.follow(ctx) }
	reg, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: follow, UpdateFunc: func(_, after any) { follow(after) }, DeleteFunc: follow,
	})
	if err != nil {
		return fmt.Errorf("watching NamespaceMaps: %w", err)
	}
	// An informer that refuses to forget a handler has been stopped: nothing is left to undo.
	defer func() { _ = informer.RemoveEventHandler(reg) }()
	jobs := make(chan job)
	for range max(e.cfg.Workers, 1) {
		wg.Go(func() {
			for j := range jobs {
				e.work(ctx, j)
			}
		})
	}
	e.dispatch(ctx, jobs)
	close(jobs)
	return nil
}

// follow watches where the NamespaceMap says that there are twins.
func (e *Events) follow(ctx context.Context) {
	m, err := e.cfg.NamespaceMaps.Lister().NamespaceMaps(e.cfg.TenantNamespace).Get(e.cfg.Destination)
	if err != nil {
		m = nil // a lister's only error is that there is none
	}
	if ctx.Err() == nil {
		e.set(ctx, engine.Mapped(m))
	}
}

// set opens and closes watches until they match want, local to remote names.
func (e *Events) set(ctx context.Context, want map[string]string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for local, have := range e.open {
		if ctx.Err() != nil || want[local] != have.remote {
			have.stop()
			e.backlog.forget(local)
			delete(e.open, local)
		}
	}
	for local, remote := range want {
		if e.open[local] == nil && ctx.Err() == nil {
			e.open[local] = e.watch(ctx, local, remote)
		}
	}
}

// watch follows the events of a twin namespace, once it is known what home has of them.
func (e *Events) watch(ctx context.Context, local, remote string) *eventWatch {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if e.seed(ctx, local) {
			e.reflector(local, remote).RunWithContext(ctx)
		}
	}()
	return &eventWatch{remote: remote, stop: func() {
		cancel()
		<-done
	}}
}

func (e *Events) reflector(local, remote string) *cache.Reflector {
	events := e.cfg.Provider.CoreV1().Events(remote)
	lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return events.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return events.Watch(ctx, o)
		},
	}, e.cfg.Provider)
	return cache.NewReflectorWithOptions(lw, &corev1.Event{}, passage{e, local}, cache.ReflectorOptions{Name: "events/" + remote})
}

// seed notes which events home has, so that after a restart nothing is written that is
// there already. It tries until it has succeeded or ctx ends.
func (e *Events) seed(ctx context.Context, local string) bool {
	ours := labels.Set{offloadingv1beta1.OriginLabel: e.cfg.Destination, offloadingv1beta1.NodeNameLabel: e.cfg.Node}.String()
	told := false
	for {
		err := e.listHome(ctx, local, metav1.ListOptions{LabelSelector: ours, Limit: eventPage})
		if err == nil {
			return true
		}
		if !told && ctx.Err() == nil {
			e.cfg.Log.Warn("listing reflected events failed; will retry", zap.String("namespace", local), zap.Error(err))
			told = true
		}
		if pause(ctx, eventRetry+rand.N(eventRetry)) != nil {
			return false
		}
	}
}

func (e *Events) listHome(ctx context.Context, local string, o metav1.ListOptions) error {
	for {
		list, err := e.cfg.Home.CoreV1().Events(local).List(ctx, o)
		if err != nil {
			return err
		}
		for i := range list.Items {
			e.backlog.seed(&list.Items[i], time.Now())
		}
		if o.Continue = list.Continue; o.Continue == "" {
			return nil
		}
	}
}

// dispatch hands out what is due until ctx ends.
func (e *Events) dispatch(ctx context.Context, jobs chan<- job) {
	for ctx.Err() == nil {
		if e.cfg.Gate() != nil {
			_ = pause(ctx, eventRetry) // the loop looks at ctx itself
			continue
		}
		j, wait, ok := e.backlog.next(time.Now())
		if ok {
			select {
			case jobs <- j:
			case <-ctx.Done():
			}
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
	if !j.exists {
		var ok bool
		if subject, ok = e.about(ctx, j); !ok {
			return
		}
	}
	if e.pace(ctx) != nil {
		return
	}
	exists := j.exists
	var err error
	if exists {
		if err = e.patch(ctx, j.want); apierrors.IsNotFound(err) {
			e.later(j, false) // somebody deleted it: it is made anew
			return
		}
	} else if err = e.create(ctx, forge.AboutSubject(j.want, subject)); apierrors.IsAlreadyExists(err) {
		e.later(j, true)
		return
	}
	e.settle(ctx, j, err)
}

// settle notes what came of a write.
func (e *Events) settle(ctx context.Context, j job, err error) {
	switch {
	case err == nil:
		e.refusing.Store(false)
		e.backlog.wrote(j, time.Now())
	case ctx.Err() != nil:
	case loop.Unavailable(err), apierrors.IsConflict(err):
		e.later(j, j.exists)
	default:
		if e.refusing.CompareAndSwap(false, true) {
			e.cfg.Log.Warn("event refused", zap.Stringer("key", j.key), zap.Error(err))
		}
		e.cfg.Dropped(droppedRefused)
		e.backlog.drop(j, time.Now())
	}
}

func (e *Events) later(j job, exists bool) {
	e.backlog.again(j, exists, time.Now().Add(eventRetry))
}

// about finds the object at home. Without one the event is not for us.
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
		e.backlog.drop(j, time.Now())
	case errors.Is(err, ErrSubjectOfAnother):
		j.tries++
		e.backlog.spare(j, time.Now().Add(eventHandOver))
	default:
		if !loop.Unavailable(err) && !errors.Is(err, errNotSynced) {
			j.tries++
		}
		e.later(j, false)
	}
	return corev1.ObjectReference{}, false
}

// pace leaves pods the first place.
func (e *Events) pace(ctx context.Context) error {
	if e.cfg.Busy() {
		if err := pause(ctx, eventBusyPause); err != nil {
			return err
		}
	}
	return e.limiter.Wait(ctx)
}

func (e *Events) create(ctx context.Context, want *corev1.Event) error {
	_, err := e.cfg.Home.CoreV1().Events(want.Namespace).Create(ctx, want, metav1.CreateOptions{FieldManager: fieldManager})
	return err
}

func (e *Events) patch(ctx context.Context, want *corev1.Event) error {
	patch, err := forge.EventPatch(want)
	if err != nil {
		return fmt.Errorf("encoding the event: %w", err)
	}
	_, err = e.cfg.Home.CoreV1().Events(want.Namespace).Patch(ctx, want.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	return err
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// passage hands what a watch shows to the backlog, and keeps nothing.
type passage struct {
	events *Events
	local  string
}

var _ cache.ReflectorStore = passage{}

// Add implements cache.ReflectorStore.
func (p passage) Add(obj any) error {
	if want := p.forge(obj); want != nil {
		p.events.backlog.put(want, false, time.Now())
	}
	return nil
}

// Update implements cache.ReflectorStore.
func (p passage) Update(obj any) error { return p.Add(obj) }

// Delete implements cache.ReflectorStore.
func (p passage) Delete(obj any) error {
	if want := p.forge(obj); want != nil {
		p.events.backlog.remove(loop.Key{Namespace: want.Namespace, Name: want.Name})
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (p passage) Replace(list []any, _ string) error {
	var all []*corev1.Event
	for _, obj := range list {
		if want := p.forge(obj); want != nil {
			all = append(all, want)
		}
	}
	p.events.backlog.replace(p.local, all, time.Now())
	return nil
}

// Resync implements cache.ReflectorStore.
func (passage) Resync() error { return nil }

// forge returns what may stand at home for an event, or nil.
func (p passage) forge(obj any) *corev1.Event {
	remote, ok := obj.(*corev1.Event)
	if !ok {
		return nil
	}
	if _, _, ok := forge.EventSubject(remote, p.events.cfg.Origin); !ok {
		return nil
	}
	if chosen := p.events.cfg.Chosen; chosen != nil && !chosen(remote.Annotations) {
		return nil
	}
	cfg := p.events.cfg
	return forge.Event(remote, forge.EventOptions{ConsumerID: cfg.Origin, ProviderID: cfg.Destination, NodeName: cfg.Node, Namespace: p.local})
}
