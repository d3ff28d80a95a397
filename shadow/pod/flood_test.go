package pod

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/shadow/rules"
)

// looks counts how often a ledger has read the clock: once for each waiting ask whose age
// it looks at.
type looks struct {
	*clocktesting.FakePassiveClock
	n int
}

func (c *looks) Now() time.Time { c.n++; return c.FakePassiveClock.Now() }

func (c *looks) Since(at time.Time) time.Duration { c.n++; return c.FakePassiveClock.Since(at) }

const quiet = "oslo" // a consumer beside origin, which floods

// flooded returns a ledger in which n asks of origin wait, each with the need that need
// returns for its number, and a quiet consumer whose pod "busy" leaves no room.
func flooded(t *testing.T, n int, need func(int) string) (*book, *looks) {
	c := &looks{FakePassiveClock: clocktesting.NewFakePassiveClock(testTime())}
	b := &book{ledger: newLedger(c, time.Minute, nil, func(*corev1.Pod) bool { return false }), t: t, now: c.FakePassiveClock, version: 100}
	b.begin()
	b.listQuotas(&offloadingv1beta1.QuotaList{ListMeta: metav1.ListMeta{ResourceVersion: b.next()}})
	b.bound("100")
	b.quotaSeen(quiet, quotaOf(b.next(), "1"))
	b.listPods(&corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: b.next()}})
	b.seen(b.small("full", "100"))
	b.seen(b.of(quiet, "busy", "1"))
	for i := range n {
		require.NotEmpty(t, b.admits(asks(fmt.Sprintf("w-%05d", i), need(i), 0)).reason)
	}
	return b, c
}

// of is small for another consumer.
func (b *book) of(consumer, name, n string) *corev1.Pod {
	pod := b.small(name, n)
	pod.Namespace, pod.Labels[offloadingv1beta1.OriginLabel] = consumer, consumer
	return pod
}

func same(int) string        { return "2" }
func different(i int) string { return fmt.Sprintf("%dm", 2000+i) }

// counted returns how many waiting asks act looks at.
func (c *looks) counted(act func()) int { c.n = 0; act(); return c.n }

// TestAFloodCostsNoSteps: what happens to a pod looks at few of the asks that wait, however
// many there are, and what happens to a pod of another consumer at none of them.
func TestAFloodCostsNoSteps(t *testing.T) {
	for name, need := range map[string]func(int) string{"equal pods": same, "different pods": different} {
		t.Run(name, func(t *testing.T) {
			b, c := flooded(t, 2000, need)
			full := b.small("full", "100")
			require.LessOrEqual(t, c.counted(func() { b.seen(full) }), glance, "an event that frees nothing")
			full.ResourceVersion, full.Spec.Containers[0].Resources.Requests = b.next(), cpu("99")
			require.LessOrEqual(t, c.counted(func() { b.seen(full) }), glance+1, "one that frees too little")
			require.LessOrEqual(t, c.counted(func() { b.admits(asks("z", "3", 0)) }), glance+2, "another ask")
			require.LessOrEqual(t, c.counted(func() { b.idle(keyOf("w-01000")) }), glance+1, "one that is withdrawn")
			b.now.SetTime(testTime().Add(time.Hour))
			full.ResourceVersion, full.Spec.Containers[0].Resources.Requests = b.next(), cpu("98500m")
			require.LessOrEqual(t, c.counted(func() { b.seen(full) }), 2, "the oldest holds the others")

			w := asks("one", "1", 0)
			w.consumer, w.key.Namespace = quiet, quiet
			require.LessOrEqual(t, c.counted(func() {
				require.NotEmpty(t, b.admits(w).reason)
				require.Equal(t, []loop.Key{w.key}, b.gone(b.of(quiet, "busy", "1"), false))
				require.Empty(t, b.admits(w).reason)
				b.send(quiet, w.key)
				b.created(b.of(quiet, "one", "1"), nil)
				b.seen(b.of(quiet, "one", "1"))
				b.idle(w.key)
			}), 3, "the other consumer")
		})
	}
}

// TestOnlyWhatFitsIsWoken: 1000 asks wait. Room for three wakes three.
func TestOnlyWhatFitsIsWoken(t *testing.T) {
	b, _ := flooded(t, 1000, same)
	full := b.small("full", "94")
	require.Equal(t, []loop.Key{keyOf("w-00000"), keyOf("w-00001"), keyOf("w-00002")}, b.seen(full))
}

// BenchmarkEventOfAnotherConsumer measures an event and an idle sync of one consumer's pod,
// while asks of another consumer wait. The results should be equal.
func BenchmarkEventOfAnotherConsumer(b *testing.B) {
	for _, n := range []int{0, 1000, 20000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			book, _ := flooded(&testing.T{}, 0, same)
			for i := range n {
				book.admits(asks(fmt.Sprintf("w-%05d", i), "2", 0))
			}
			pod := book.of(quiet, "busy", "1")
			key := loop.Key{Namespace: quiet, Name: "busy"}
			for b.Loop() {
				book.seen(pod)
				book.idle(key)
			}
		})
	}
}

// BenchmarkFlood measures each further ask of a consumer whose asks wait already.
func BenchmarkFlood(b *testing.B) {
	for _, n := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			book, _ := flooded(&testing.T{}, 0, same)
			for i := range n {
				book.admits(asks(fmt.Sprintf("w-%05d", i), different(i), 0))
			}
			for b.Loop() {
				book.admits(asks("z", "3", 0))
				book.idle(keyOf("z"))
			}
		})
	}
}

// TestAPassContinues: a pass over more different asks than glance reserves room for all that
// fit, in parts.
func TestAPassContinues(t *testing.T) {
	b, c := flooded(t, 5*glance, different)
	full := b.small("full", "100")
	full.Spec.Containers[0].Resources.Requests = cpu("90")
	got := b.seen(full)
	require.Equal(t, []loop.Key{keyOf("w-00000"), keyOf("w-00001"), keyOf("w-00002"), keyOf("w-00003"), turnKey(origin)}, got)
	small := asks("small", "1", -time.Second)
	require.Empty(t, b.admits(small).reason)
	b.refused(origin, small.key)
	for steps := 0; len(got) > 0; steps++ {
		require.Less(t, steps, 10)
		require.LessOrEqual(t, c.counted(func() { got = b.resume(origin) }), glance)
		for _, key := range got {
			require.Equal(t, turnKey(origin), key)
		}
	}
	require.Empty(t, b.resume(origin))

	full.ResourceVersion, full.Status.Phase = b.next(), corev1.PodSucceeded
	turn := map[loop.Key]bool{}
	for got = b.seen(full); len(got) > 0; got = b.resume(origin) {
		for _, key := range got {
			turn[key] = true
		}
	}
	require.Greater(t, len(turn), 40, "as many as fit, and the turns")
}

// expected returns the asks that get room if each one is looked at by age.
func (b *book) expected() (keys []loop.Key) {
	a := b.account(origin)
	used := maps.Clone(a.used)
	waits := slices.SortedFunc(maps.Values(a.creates.asks), byAge)
	for _, w := range waits {
		switch fits := len(a.bound.Short(used, w.need)) == 0; {
		case w.reason != "":
		case fits:
			rules.AddResources(used, w.need)
			keys = append(keys, w.key)
		case b.now.Since(w.created) >= b.patience:
			return keys
		}
	}
	return keys
}

// TestAPassLeavesNothingOut plays random asks, pods that end, and time: what gets room is
// what would get it if each ask were looked at.
func TestAPassLeavesNothingOut(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 11))
		b := newBook(t, "4")
		for i := range 400 {
			var got []loop.Key
			switch name := fmt.Sprintf("p-%03d", i); random.IntN(4) {
			case 0, 1:
				w := asks(name, fmt.Sprintf("%dm", 500*(1+random.IntN(8))), time.Duration(random.IntN(120))*time.Second)
				w.need["memory"] = resource.MustParse(fmt.Sprintf("%dMi", random.IntN(3)))
				_, got = b.admit(w)
			case 2:
				b.now.SetTime(b.now.Now().Add(time.Duration(random.IntN(5)) * time.Second))
				continue
			default:
				if key, r := oneOf(b.account(origin).reserved); r != nil {
					got = b.refused(origin, key)
				}
			}
			require.Empty(t, b.expected(), "seed %d, step %d, woken %v", seed, i, got)
			require.LessOrEqual(t, b.account(origin).used.Cpu().MilliValue(), int64(4000))
		}
	}
}

func oneOf[V any](m map[loop.Key]*V) (loop.Key, *V) {
	keys := slices.SortedFunc(maps.Keys(m), func(a, b loop.Key) int { return strings.Compare(a.String(), b.String()) })
	if len(keys) == 0 {
		return loop.Key{}, nil
	}
	return keys[0], m[keys[0]]
}

// TestAccountsAreIndependent: events and syncs of several consumers run at once, also with
// new terms in between. No account exceeds its Quota, and each is empty in the end.
func TestAccountsAreIndependent(t *testing.T) {
	l := newLedger(clock.RealClock{}, time.Millisecond, nil, func(*corev1.Pod) bool { return false })
	l.begin()
	var version atomic.Int64
	next := func() string { return fmt.Sprint(version.Add(1)) }
	consumers := []string{"rome", "milan", "oslo"}
	for _, c := range consumers {
		l.quotaSeen(c, quotaOf(next(), "3"))
	}
	l.listPods(&corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: next()}})
	var all sync.WaitGroup
	for _, c := range consumers {
		for worker := range 3 {
			all.Go(func() {
				b := &book{ledger: l, t: t}
				for i := range 200 {
					w := asks(fmt.Sprintf("%d-%d", worker, i), "1", 0)
					w.consumer, w.key.Namespace = c, c
					for v, _ := l.admit(w); v.reason != ""; v, _ = l.admit(w) {
						runtime.Gosched()
					}
					l.send(c, w.key)
					pod := b.small(w.key.Name, "1")
					pod.Namespace, pod.Labels[offloadingv1beta1.OriginLabel], pod.ResourceVersion = c, c, next()
					pod.UID += types.UID(c)
					l.created(pod, nil)
					l.seen(pod)
					for _, a := range l.report() {
						if used := a.Used.Cpu().MilliValue(); used > 3000 {
							t.Errorf("%s uses %dm", a.Consumer, used)
						}
					}
					l.gone(pod, false)
					l.idle(w.key)
					l.absent(w.key)
				}
			})
		}
	}
	all.Wait()
	for _, a := range l.report() {
		require.Empty(t, a.Used)
		require.Zero(t, a.Waiting)
	}
	require.Empty(t, l.keys.at)
	require.Empty(t, l.pods.at)
}

// TestKeysBelongToConsumers: the keys of a consumer take turns with those of others, also
// while its namespace is not in the cache, and those of its passes.
func TestKeysBelongToConsumers(t *testing.T) {
	r := newRig(t, newShadow(always))
	require.Equal(t, origin, r.e.consumer(r.key()))
	require.Equal(t, quiet, r.e.consumer(turnKey(quiet)))
	require.NoError(t, r.spaces.GetIndexer().Delete(twin()))
	require.Equal(t, origin, r.e.consumer(r.key()))
	require.Empty(t, r.e.consumer(loop.Key{Namespace: "gone", Name: "p"}))
	require.NoError(t, r.e.sync(t.Context(), turnKey(quiet)))
	require.Empty(t, r.writes)
	r.e.trials.learn("gone", true)
	r.e.trials.drop("gone")
	require.Empty(t, r.e.trials.plain)
}
