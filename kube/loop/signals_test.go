package loop

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// TestListenersAreToldInOrder: a listener may subscribe another one, which hears of what comes later. None is lost
// when several subscribe at the same time.
func TestListenersAreToldInOrder(t *testing.T) {
	var l Listeners[string]
	l.Tell("nobody listens")
	var got []string
	l.Subscribe(func(what string) {
		got = append(got, "a "+what)
		if what == "x" {
			l.Subscribe(func(what string) { got = append(got, "c "+what) })
		}
	})
	l.Subscribe(func(what string) { got = append(got, "b "+what) })
	l.Tell("x")
	require.Equal(t, []string{"a x", "b x"}, got)
	l.Tell("y")
	require.Equal(t, []string{"a x", "b x", "a y", "b y", "c y"}, got)

	var calls atomic.Int64
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for range 500 {
				l.Subscribe(func(string) { calls.Add(1) })
			}
		})
	}
	all.Wait()
	l.Tell("z")
	require.EqualValues(t, 10000, calls.Load())
}

func TestSignalsAreOne(t *testing.T) {
	s := NewSignal()
	s.Notify()
	s.Notify()
	require.Len(t, s, 1)
	<-s
	s.Notify()
	require.Len(t, s, 1)
}

func TestStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan string, 2)
		work := func(name string) func(context.Context) {
			return func(ctx context.Context) {
				<-ctx.Done()
				ended <- name
			}
		}
		stop := Start(t.Context(), work("a"), work("b"))
		synctest.Wait()
		require.Empty(t, ended)
		stop()
		require.Len(t, ended, 2)
		stop()
	})
}

func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		require.NoError(t, Pause(t.Context(), time.Hour))
		require.Equal(t, time.Hour, time.Since(begun))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, Pause(ctx, time.Hour), context.Canceled)
		require.Equal(t, time.Hour, time.Since(begun))
	})
}

// TestRounds counts the rounds of 2.5 seconds, of which each wake makes one more.
func TestRounds(t *testing.T) {
	for name, tc := range map[string]struct {
		of    func(context.Context, clock.WithTicker, time.Duration, <-chan struct{}) func(func() bool)
		wakes int
		want  int
	}{
		"rounds":             {Rounds, 0, 3},
		"ticks":              {Ticks, 0, 2},
		"rounds with a wake": {Rounds, 1, 4},
		"ticks with a wake":  {Ticks, 1, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
				defer cancel()
				wake, n := NewSignal(), 0
				for range tc.wakes {
					wake.Notify()
				}
				for range tc.of(ctx, clock.RealClock{}, time.Second, wake) {
					n++
				}
				require.Equal(t, tc.want, n)
				require.Error(t, ctx.Err())
			})
		})
	}
}

// TestRoundsEnd: a loop may be left.
func TestRoundsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		for range Ticks(t.Context(), clock.RealClock{}, time.Second, nil) {
			break
		}
		require.Equal(t, time.Second, time.Since(begun))
		require.NoError(t, Sleep(t.Context(), clock.RealClock{}, time.Second))
		require.Equal(t, 2*time.Second, time.Since(begun))
	})
}

func TestValue(t *testing.T) {
	t.Parallel()
	var v Value[string]
	require.Empty(t, v.Get())
	require.Empty(t, v.Swap("a"))
	require.Equal(t, "a", v.Swap("b"))
	require.Equal(t, "b", v.Get())
}

func TestRegister(t *testing.T) {
	t.Parallel()
	var n atomic.Int32
	core := informers.NewSharedInformerFactory(fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "a"}}), 0).Core().V1()
	pods := core.Pods().Informer()
	count := cache.ResourceEventHandlerFuncs{AddFunc: func(any) { n.Add(1) }}
	onPods := On(pods, count)
	one, err := Register(onPods)
	require.NoError(t, err)
	both, err := Register(On(core.Nodes().Informer(), count), onPods)
	require.NoError(t, err)
	go pods.RunWithContext(t.Context())
	require.True(t, cache.WaitForCacheSync(t.Context().Done(), one))
	require.NotZero(t, n.Load())
	require.False(t, both())
}
