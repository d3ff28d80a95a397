package pod

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/shadow/rules"
)

// looks counts how often a Ledger has read the clock: once for each waiting ask whose age
// it looks at.
type looks struct {
	*clocktesting.FakePassiveClock
	n int
}

func (c *looks) Now() time.Time { c.n++; return c.FakePassiveClock.Now() }

func (c *looks) Since(at time.Time) time.Duration { c.n++; return c.FakePassiveClock.Since(at) }

// flooded returns a book in which n asks of origin wait, each with the need that need
// returns for its number, and a quiet consumer whose pod "busy" leaves no room.
func flooded(t *testing.T, n int, need func(int) string) (*book, *looks) {
	b := newBook(t, "100")
	c := &looks{FakePassiveClock: b.now}
	b.cfg.Clock = c
	b.limit(quiet, "1")
	b.Seen(b.small("full", "100"))
	b.Seen(b.of(quiet, "busy", "1"))
	for i := range n {
		require.NotEmpty(t, b.admits(asks(fmt.Sprintf("w-%05d", i), need(i), 0)).Reason)
	}
	return b, c
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
			require.LessOrEqual(t, c.counted(func() { b.Seen(full) }), glance, "an event that frees nothing")
			full.ResourceVersion, full.Spec.Containers[0].Resources.Requests = b.next(), cpu("99")
			require.LessOrEqual(t, c.counted(func() { b.Seen(full) }), glance+1, "one that frees too little")
			require.LessOrEqual(t, c.counted(func() { b.admits(asks("z", "3", 0)) }), glance+2, "another ask")
			require.LessOrEqual(t, c.counted(func() { b.Idle(named("w-01000")) }), glance+1, "one that is withdrawn")
			b.now.SetTime(testTime().Add(time.Hour))
			full.ResourceVersion, full.Spec.Containers[0].Resources.Requests = b.next(), cpu("98500m")
			require.LessOrEqual(t, c.counted(func() { b.Seen(full) }), 2, "the oldest holds the others")

			w := func() *ask {
				w := asks("one", "1", 0)
				w.consumer, w.key.Namespace = quiet, quiet
				return w
			}
			require.LessOrEqual(t, c.counted(func() {
				require.NotEmpty(t, b.admits(w()).Reason)
				require.Equal(t, []loop.Key{w().key}, b.wakes(func() { b.Gone(b.of(quiet, "busy", "1"), "") }))
				require.Empty(t, b.admits(w()).Reason)
				b.Sent(w().key)
				b.Created(b.of(quiet, "one", "1"), Verdict{})
				b.Seen(b.of(quiet, "one", "1"))
				b.Idle(w().key)
			}), 5, "the other consumer")
		})
	}
}

// TestAPassContinues: a pass over more different asks than glance reserves room for all that
// fit. The event looks at the first ones, and the loop of the consumers at the others.
func TestAPassContinues(t *testing.T) {
	b, c := flooded(t, 5*glance, different)
	full := b.small("full", "100")
	full.Spec.Containers[0].Resources.Requests = cpu("90")
	got := b.wakes(func() { require.LessOrEqual(t, c.counted(func() { b.Seen(full) }), glance+1) })
	require.Equal(t, []loop.Key{named("w-00000"), named("w-00001"), named("w-00002"), named("w-00003")}, got)
	require.Equal(t, 1, b.loop.Len(), "the loop goes on")
	small := asks("small", "1", -time.Second)
	require.Empty(t, b.admits(small).Reason)
	b.Absent(small.key)
	require.Empty(t, b.wakes(func() { require.NoError(t, b.sync(t.Context(), loop.Key{Name: origin})) }))

	full.ResourceVersion, full.Status.Phase = b.next(), corev1.PodSucceeded
	got = b.wakes(func() { b.Seen(full); require.NoError(t, b.sync(t.Context(), loop.Key{Name: origin})) })
	require.Greater(t, len(got), 40, "as many as fit")
}

// expected returns the asks that get room if each one is looked at by age.
func (b *book) expected() (keys []loop.Key) {
	a := b.account(origin)
	used := maps.Clone(a.used)
	for _, w := range a.line {
		switch fits := len(b.bound(origin).Short(used, w.need)) == 0; {
		case fits:
			rules.AddResources(used, w.need)
			keys = append(keys, w.key)
		case b.now.Since(w.created) >= b.cfg.Patience:
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
			switch name := fmt.Sprintf("p-%03d", i); random.IntN(4) {
			case 0, 1:
				w := asks(name, fmt.Sprintf("%dm", 500*(1+random.IntN(8))), time.Duration(random.IntN(120))*time.Second)
				w.total["memory"] = resource.MustParse(fmt.Sprintf("%dMi", random.IntN(3)))
				b.admits(w)
			case 2:
				b.now.SetTime(b.now.Now().Add(time.Duration(random.IntN(5)) * time.Second))
				continue
			default:
				if keys := slices.SortedFunc(maps.Keys(b.claims), func(a, b loop.Key) int { return order(&ask{key: a}, &ask{key: b}) }); len(keys) > 0 {
					b.Absent(keys[0])
				}
			}
			for b.loop.Len() > 0 && len(b.expected()) > 0 {
				before := len(b.account(origin).line)
				require.NoError(t, b.sync(t.Context(), loop.Key{Name: origin}))
				require.Less(t, len(b.account(origin).line), before)
			}
			require.Empty(t, b.expected(), "seed %d, step %d, woken %v", seed, i, b.woken)
			require.LessOrEqual(t, b.account(origin).used.Cpu().MilliValue(), int64(4000))
		}
	}
}

// TestAccountsAreIndependent: events and syncs of several consumers run at once. No account
// exceeds its Quota, and each is empty in the end.
func TestAccountsAreIndependent(t *testing.T) {
	l := newLedger(t, clock.RealClock{}, time.Millisecond, func(loop.Key) {})
	l.Begin()
	var version atomic.Int64
	consumers := []string{"rome", "milan", "oslo"}
	for _, c := range consumers {
		l.limit(c, "3")
	}
	l.settle(nil)
	var all sync.WaitGroup
	for _, c := range consumers {
		for worker := range 3 {
			all.Go(func() {
				b := &book{Ledger: l, t: t}
				for i := range 200 {
					wants := func() *ask {
						w := asks(fmt.Sprintf("%d-%d", worker, i), "1", 0)
						w.consumer, w.key.Namespace = c, c
						return w
					}
					for v := l.admits(wants()); !v.OK(); v = l.admits(wants()) {
						runtime.Gosched()
					}
					key := wants().key
					l.Sent(key)
					pod := b.of(c, key.Name, "1")
					pod.ResourceVersion = fmt.Sprint(version.Add(1))
					pod.UID += types.UID(c)
					l.Created(pod, Verdict{})
					l.Seen(pod)
					for _, a := range l.Accounts() {
						if used := a.Used.Cpu().MilliValue(); used > 3000 {
							t.Errorf("%s uses %dm", a.Consumer, used)
						}
					}
					l.Gone(pod, "")
					l.Idle(key)
					l.Absent(key)
				}
			})
		}
	}
	all.Wait()
	for _, a := range l.Accounts() {
		require.Empty(t, a.Used)
		require.Zero(t, a.Waiting)
	}
	require.Empty(t, l.claims)
	require.Empty(t, l.asks)
}
