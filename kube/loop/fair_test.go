package loop

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/liqod/liqod/kube/kubetest"
)

func byNamespace(key Key) string { return key.Namespace }

func keysIn(namespace string, n int) []Key {
	keys := make([]Key, n)
	for i := range keys {
		keys[i] = Key{Namespace: namespace, Name: fmt.Sprint(i)}
	}
	return keys
}

// runs starts l in a bubble. The returned function ends it.
func runs(t *testing.T, l *Loop, workers int) (stop func()) {
	stop = kubetest.Run(t, func(ctx context.Context) error { return l.Run(ctx, workers) })
	synctest.Wait()
	return stop
}

// TestAFloodOfOneClassHoldsNoOther: each key of the flood takes a minute. A key of another
// class is synced at once, and the flood has as many workers as without others.
func TestAFloodOfOneClassHoldsNoOther(t *testing.T) {
	for name, tc := range map[string]struct {
		class func(Key) string
		want  time.Duration
	}{
		"with classes":    {byNamespace, 0},
		"without classes": {nil, 2000 * time.Minute}, // the attack
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				working, most, ended := 0, 0, time.Time{}
				l := New(Config{Name: "test", Log: zap.NewNop(), Class: tc.class, Sync: func(_ context.Context, key Key) error {
					if key.Namespace == "quiet" {
						ended = time.Now()
						return nil
					}
					mu.Lock()
					working++
					most = max(most, working)
					mu.Unlock()
					time.Sleep(time.Minute) // the bubble's clock
					mu.Lock()
					working--
					mu.Unlock()
					return nil
				}})
				stop := runs(t, l, 10)
				for _, key := range keysIn("flood", 20000) {
					l.Add(key)
				}
				synctest.Wait()
				begin := time.Now()
				l.Add(Key{Namespace: "quiet", Name: "a"})
				require.GreaterOrEqual(t, l.Len(), 19990)
				time.Sleep(2001 * time.Minute)
				synctest.Wait()
				require.Equal(t, tc.want, ended.Sub(begin))
				require.Equal(t, 10, most)
				require.Zero(t, l.Len())
				stop()
			})
		})
	}
}

// TestClassesTakeTurns: while others have all workers, a class waits for one key of each.
func TestClassesTakeTurns(t *testing.T) {
	f := newFair(byNamespace, 10)
	for _, namespace := range []string{"a", "b", "c"} {
		for _, key := range keysIn(namespace, 3) {
			f.Push(key)
		}
	}
	var got string
	for f.Len() > 0 {
		key := f.Pop()
		got += key.String() + " "
		f.done(key)
		if key.String() == "b/0" {
			f.Push(Key{Namespace: "late", Name: "0"})
		}
	}
	require.Equal(t, "a/0 b/0 c/0 a/1 b/1 late/0 c/1 a/2 b/2 c/2 ", got)
	require.Empty(t, f.classes, "an idle class costs nothing")
}

// TestAFullClassHasNoTurn: a class with limit keys in work gets its next turn when one of
// them is done. The key may have another class by then.
func TestAFullClassHasNoTurn(t *testing.T) {
	class := "a"
	f := newFair(func(Key) string { return class }, 2)
	for _, key := range keysIn("x", 3) {
		f.Push(key)
	}
	first := f.Pop()
	f.Pop()
	require.Zero(t, f.Len())
	require.Equal(t, 1, f.size())
	class = "b"
	f.Push(Key{Name: "other"})
	require.Equal(t, 1, f.Len())
	require.Equal(t, "other", f.Pop().Name)
	f.done(first)
	require.Equal(t, 1, f.Len())
	require.Equal(t, Key{Namespace: "x", Name: "2"}, f.Pop())
	require.Zero(t, f.size())
}

// TestEveryKeyHasItsTurn plays random classes, durations, failures and additions: each key
// is synced after its last addition, never twice at once, and no class exceeds the workers.
func TestEveryKeyHasItsTurn(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 3))
			workers := 1 + random.IntN(4)
			var mu sync.Mutex
			owed, busy, perClass := map[Key]bool{}, map[Key]bool{}, map[string]int{}
			roll := func(n int) int { mu.Lock(); defer mu.Unlock(); return random.IntN(n) }
			l := New(Config{Name: "test", Log: zap.NewNop(), Class: byNamespace, Sync: func(_ context.Context, key Key) error {
				mu.Lock()
				delete(owed, key)
				require.False(t, busy[key])
				busy[key] = true
				perClass[key.Namespace]++
				require.LessOrEqual(t, perClass[key.Namespace], workers)
				mu.Unlock()
				time.Sleep(time.Duration(roll(50)) * time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				busy[key] = false
				perClass[key.Namespace]--
				if random.IntN(5) == 0 {
					return After(time.Millisecond)
				}
				return nil
			}})
			stop := runs(t, l, workers)
			for range 300 {
				key := Key{Namespace: fmt.Sprint(roll(4)), Name: fmt.Sprint(roll(20))}
				mu.Lock()
				owed[key] = true
				mu.Unlock()
				l.Add(key)
				time.Sleep(time.Duration(roll(10)) * time.Millisecond)
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			require.Empty(t, owed)
			require.Zero(t, l.Len())
			stop()
		})
	}
}

// watcher is an observer that keeps the keys that wait.
type watcher struct {
	mu      sync.Mutex
	waiting map[Key]bool
}

func (w *watcher) Queued(_ string, key Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting[key] = true
}

func (w *watcher) Synced(_ string, key Key, _ time.Duration, _ error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.waiting, key)
}

// TestAKeyThatWaitsForItsTurnIsNotLate: health takes a key as stuck that waits while later
// ones are done. A flood must not look like that.
func TestAKeyThatWaitsForItsTurnIsNotLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &watcher{waiting: map[Key]bool{}}
		l := New(Config{Name: "test", Log: zap.NewNop(), Class: byNamespace, Observer: w, Sync: func(context.Context, Key) error {
			time.Sleep(time.Minute)
			return nil
		}})
		stop := runs(t, l, 1)
		for _, key := range keysIn("flood", 10) {
			l.Add(key)
		}
		synctest.Wait()
		require.Equal(t, map[Key]bool{{Namespace: "flood", Name: "0"}: true}, w.waiting, "in work")
		time.Sleep(time.Hour)
		require.Empty(t, w.waiting)
		stop()
	})
}
