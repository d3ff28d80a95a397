package loop

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/liqod/liqod/kube/kubetest"
)

type script struct {
	mu    sync.Mutex
	calls map[Key]int
	sync  func(ctx context.Context, key Key, call int) error
}

func (s *script) run(ctx context.Context, key Key) error {
	s.mu.Lock()
	s.calls[key]++
	call := s.calls[key]
	s.mu.Unlock()
	return s.sync(ctx, key, call)
}

func (s *script) count(key Key) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[key]
}

func newScript(sync func(ctx context.Context, key Key, call int) error) (*script, *Loop) {
	s := &script{calls: map[Key]int{}, sync: sync}
	return s, New(Config{Name: "test", Sync: s.run, Log: zap.NewNop()})
}

func TestRetryPolicy(t *testing.T) {
	unavailable := apierrors.NewServiceUnavailable("away")
	notFound := apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "p")
	for name, tc := range map[string]struct {
		err      error
		min, max time.Duration
	}{
		"an ordinary error comes again soon":   {errors.New("x"), 150 * time.Millisecond, 300 * time.Millisecond},
		"a refused request comes again soon":   {notFound, 150 * time.Millisecond, 300 * time.Millisecond},
		"a server that is away is tried later": {unavailable, time.Second, 2 * time.Second},
		"a webhook that fails in the server":   {apierrors.NewInternalError(errors.New("failed calling webhook")), 150 * time.Millisecond, 300 * time.Millisecond},
		"a delay that was asked for":           {After(42 * time.Second), 42 * time.Second, 42 * time.Second},
		"a panic is an error":                  {nil, 150 * time.Millisecond, 300 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var second time.Duration
				start := time.Now()
				s, l := newScript(func(_ context.Context, _ Key, call int) error {
					if call > 1 {
						second = time.Since(start)
						return nil
					}
					if tc.err == nil {
						panic("bad object")
					}
					return tc.err
				})
				stop := runs(t, l, 1)
				l.Add(Key{Name: "a"})
				time.Sleep(time.Minute) // the bubble's clock
				stop()
				require.Equal(t, 2, s.count(Key{Name: "a"}))
				require.GreaterOrEqual(t, second, tc.min)
				require.LessOrEqual(t, second, tc.max)
			})
		})
	}
}

func TestRunWaitsForItsWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started, finished := make(chan struct{}), false
		_, l := newScript(func(ctx context.Context, _ Key, _ int) error {
			close(started)
			<-ctx.Done()
			time.Sleep(time.Second)
			finished = true
			return nil
		})
		stop := runs(t, l, 3)
		l.Add(Key{Name: "a"})
		<-started
		stop()
		require.True(t, finished, "Run returned while a worker was at work")
	})
}

func TestRunAwaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := make(chan Key, 10)
		_, l := newScript(func(_ context.Context, key Key, _ int) error { seen <- key; return nil })
		var known atomic.Bool
		l.Await(known.Load)
		stop := runs(t, l, 1)
		l.Add(Key{Name: "a"})
		time.Sleep(time.Minute)
		require.Empty(t, seen)
		known.Store(true)
		require.Equal(t, Key{Name: "a"}, <-seen)
		stop()
	})
}

func TestWatchUnwrapsTombstonesAndRunsAgain(t *testing.T) {
	client := fake.NewClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}})
	factory := informers.NewSharedInformerFactory(client, 0)
	seen := make(chan Key, 10)
	_, l := newScript(func(_ context.Context, key Key, _ int) error { seen <- key; return nil })
	inf := factory.Core().V1().ConfigMaps().Informer()
	l.Watch(From(inf, Self))
	factory.Start(t.Context().Done())

	key := Key{Namespace: "ns", Name: "a"}
	for range 2 { // leadership comes twice: each time the known object is seen
		stop := kubetest.Run(t, func(ctx context.Context) error { return l.Run(ctx, 1) })
		require.Equal(t, key, <-seen)
		stop()
	}

	l.Handler(Self).OnAdd(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "while-standing-by"}}, false)
	require.Zero(t, l.Len(), "a standby remembers nothing")

	kubetest.Run(t, func(ctx context.Context) error { return l.Run(ctx, 1) })
	require.Equal(t, key, <-seen)
	gone := cache.DeletedFinalStateUnknown{Key: "ns/b", Obj: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "b"}}}
	l.Handler(Self).OnDelete(gone)
	require.Equal(t, Key{Namespace: "ns", Name: "b"}, <-seen, "tombstones are unwrapped")
}

// TestUpdateWakesOnce uses an idle worker, which takes a key between two calls of Wake.
func TestUpdateWakesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newScript(func(context.Context, Key, int) error {
			time.Sleep(time.Millisecond) // what comes meanwhile is looked at again
			return nil
		})
		stop := runs(t, l, 2)
		labelled := func(name string) *corev1.ConfigMap {
			return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"for": name}}}
		}
		handler := l.Handler(func(obj any) []Key {
			synctest.Wait() // the workers have taken what there is
			return []Key{{Name: obj.(*corev1.ConfigMap).Labels["for"]}}
		})
		handler.OnUpdate(labelled("a"), labelled("a"))
		time.Sleep(time.Second)
		require.Equal(t, 1, s.count(Key{Name: "a"}))
		handler.OnUpdate(labelled("a"), labelled("b"))
		time.Sleep(time.Second)
		require.Equal(t, 2, s.count(Key{Name: "a"}), "who it was for must know")
		require.Equal(t, 1, s.count(Key{Name: "b"}))
		stop()
	})
}

func TestRunLooksAtWhatIsBeside(t *testing.T) {
	seen := make(chan Key, 1)
	key := Key{Namespace: "a", Name: "b"}
	l := New(Config{Name: "test", Log: zap.NewNop(), Beside: func() []Key { return []Key{key} }, Sync: func(_ context.Context, k Key) error {
		seen <- k
		return nil
	}})
	l.Wake(key) // not remembered: nothing runs yet
	stop := kubetest.Run(t, func(ctx context.Context) error { return l.Run(ctx, 1) })
	require.Equal(t, key, <-seen)
	stop()
	require.Zero(t, l.Len())
}

// gate is an observer whose Queued blocks until the test opens it.
type gate struct {
	opened chan struct{}
	mu     sync.Mutex
	seen   []string
}

func (g *gate) Queued(string, Key) {
	<-g.opened
	g.note("queued")
}

func (g *gate) Synced(string, Key, time.Duration, error) { g.note("synced") }

func (g *gate) note(what string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seen = append(g.seen, what)
}

// TestTheObserverKnowsOfAKeyBeforeAWorkerDoes requires Queued before Synced: an observer
// that received them in the reverse order would count the key as queued.
func TestTheObserverKnowsOfAKeyBeforeAWorkerDoes(t *testing.T) {
	for name, add := range map[string]func(*Loop, ...Key){"Add": (*Loop).Add, "Wake": (*Loop).Wake} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &gate{opened: make(chan struct{})}
				l := New(Config{Name: "test", Log: zap.NewNop(), Observer: g, Sync: func(context.Context, Key) error { return nil }})
				stop := runs(t, l, 1)
				go add(l, Key{Name: "a"})
				synctest.Wait()
				require.Empty(t, g.seen)
				close(g.opened)
				synctest.Wait()
				require.Equal(t, []string{"queued", "synced"}, g.seen)
				stop()
			})
		})
	}
}

// TestKeysOfALoopThatDoesNotRun adds keys while no Run is running. The loop must keep
// them without a work queue, which starts goroutines: the synctest bubble fails if a
// goroutine remains.
func TestKeysOfALoopThatDoesNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newScript(func(context.Context, Key, int) error { return nil })
		early, late, between := Key{Name: "early"}, Key{Name: "late"}, Key{Name: "between"}
		run := func() {
			stop := runs(t, l, 1)
			require.Zero(t, l.Len())
			stop()
		}
		l.Add(early)
		l.Add(early)
		l.AddAfter(late, time.Second)
		require.Equal(t, 1, l.Len())
		synctest.Wait()
		run()
		require.Equal(t, 1, s.count(early))
		l.Add(between)
		l.Wake(late)
		require.Equal(t, 1, l.Len())
		run()
		require.Equal(t, 1, s.count(early), "once")
		require.Equal(t, 1, s.count(between))
		require.Zero(t, s.count(late))
		l.Add(late)
		l.AddAfter(late, time.Second)
	})
}

func TestDeleted(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	tombstone := cache.DeletedFinalStateUnknown{Key: "a", Obj: pod}
	for name, c := range map[string]struct {
		obj    any
		missed bool
	}{"an object": {pod, false}, "a tombstone": {tombstone, true}} {
		last, missed := Deleted(c.obj)
		require.Same(t, pod, last, name)
		require.Equal(t, c.missed, missed, name)
	}
}

// measuring is an observer that has metrics for queues.
type measuring struct {
	mu    sync.Mutex
	names []string
}

func (*measuring) Queued(string, Key) {}

func (*measuring) Synced(string, Key, time.Duration, error) {}

func (m *measuring) NewAddsMetric(name string) workqueue.CounterMetric {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.names = append(m.names, name)
	return counting{}
}

func (*measuring) NewDepthMetric(string) workqueue.GaugeMetric            { return counting{} }
func (*measuring) NewLatencyMetric(string) workqueue.HistogramMetric      { return counting{} }
func (*measuring) NewWorkDurationMetric(string) workqueue.HistogramMetric { return counting{} }
func (*measuring) NewRetriesMetric(string) workqueue.CounterMetric        { return counting{} }

func (*measuring) NewUnfinishedWorkSecondsMetric(string) workqueue.SettableGaugeMetric {
	return counting{}
}

func (*measuring) NewLongestRunningProcessorSecondsMetric(string) workqueue.SettableGaugeMetric {
	return counting{}
}

type counting struct{}

func (counting) Inc()            {}
func (counting) Dec()            {}
func (counting) Set(float64)     {}
func (counting) Observe(float64) {}

// TestOnlyLoopsAreMeasured: the queue of a loop has metrics, the queue of a library has none.
func TestOnlyLoopsAreMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &measuring{}
		l := New(Config{Name: "pods", Sync: func(context.Context, Key) error { return nil }, Log: zap.NewNop(), Observer: m})
		stop := runs(t, l, 1)
		library := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: "DynamicConfigMapCABundle-client-ca"})
		library.Add("x")
		library.ShutDown()
		stop()
		require.Equal(t, []string{"pods"}, m.names)
	})
}

// TestStoppedInformer: a loop whose informer takes no handler any more does not run.
func TestStoppedInformer(t *testing.T) {
	t.Parallel()
	inf := cache.NewSharedIndexInformer(&cache.ListWatch{}, &corev1.Pod{}, 0, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	inf.RunWithContext(ctx)
	watching := New(Config{Name: "pods", Log: zap.NewNop()}, From(inf, func(*corev1.Pod) []Key { return nil }))
	require.ErrorContains(t, watching.Run(t.Context(), 1), "watching for pods")
	handling := New(Config{Name: "pods", Log: zap.NewNop()})
	handling.Watch(On(inf, cache.ResourceEventHandlerFuncs{}))
	require.ErrorContains(t, handling.Run(t.Context(), 1), "watching for pods")
}
