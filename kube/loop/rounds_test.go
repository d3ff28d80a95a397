package loop

import (
	"context"
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
