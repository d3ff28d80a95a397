package pod

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	liqodfake "github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	externalversions "github.com/liqod/liqod/api/generated/informers/externalversions"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
)

// book is a Ledger during a term, with a clock and resource versions that the test
// advances.
type book struct {
	*Ledger

	t       *testing.T
	now     *clocktesting.FakePassiveClock
	version int
	lost    time.Time
	woken   []loop.Key
}

// newLedger returns a Ledger whose informers do not run.
func newLedger(t *testing.T, c clock.PassiveClock, patience time.Duration, wake func(loop.Key)) *Ledger {
	kube, liqo := fake.NewClientset(), liqodfake.NewSimpleClientset()
	own, core := externalversions.NewSharedInformerFactory(liqo, 0), informers.NewSharedInformerFactory(kube, 0)
	l := newLedgerOf(LedgerConfig{
		Kube: kube, Liqo: liqo,
		Quotas: own.Offloading().V1beta1().Quotas().Informer(), LimitRanges: core.Core().V1().LimitRanges(), RuntimeClasses: core.Node().V1().RuntimeClasses(),
		Patience: patience, Env: loop.Env{Clock: c, Log: zap.NewNop()},
	}, func(p *corev1.Pod) bool { return p.Labels["again"] != "" }, wake)
	return l
}

func newBook(t *testing.T, limit string) *book {
	b := &book{t: t, now: clocktesting.NewFakePassiveClock(testTime()), version: 100}
	b.Ledger = newLedger(t, b.now, time.Minute, func(key loop.Key) { b.woken = append(b.woken, key) })
	b.cfg.HomeLost = func() time.Time { return b.lost }
	b.Begin()
	if limit != "" {
		b.limit(origin, limit)
	}
	b.settle(nil)
	return b
}

func (b *book) next() string { b.version++; return fmt.Sprint(b.version) }

// wakes returns the keys that act wakes, in their order.
func (b *book) wakes(act func()) []loop.Key {
	b.woken = nil
	act()
	return b.woken
}

// limit gives a consumer a Quota of n CPUs in place of the one that it has.
func (l *Ledger) limit(consumer, n string) {
	q := &offloadingv1beta1.Quota{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1beta1.TenantNamespace(consumer), Name: "q"},
		Spec:       offloadingv1beta1.QuotaSpec{Resources: cpu(n)},
	}
	_ = l.cfg.Quotas.GetIndexer().Add(q) // a store in memory takes everything
	l.quotaChanged(q)
}

func named(name string) loop.Key { return loop.Key{Namespace: testNamespace, Name: name} }

// asks returns the ask for a pod with n CPUs whose ShadowPod has the given age.
func asks(name, n string, age time.Duration) *ask {
	total := cpu(n)
	total[corev1.ResourcePods] = resource.MustParse("1")
	return &ask{consumer: origin, key: named(name), shadow: types.UID("shadow-" + name), generation: 1, created: testTime().Add(-age), total: total, spec: &corev1.PodSpec{}}
}

func grows(name, n string) *ask {
	w := asks(name, n, time.Hour)
	w.resize = true
	return w
}

// admits is Reserve for an ask, and Grow for a resize.
func (l *Ledger) admits(w *ask) Verdict {
	bound := l.bound(w.consumer)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.admit(w, bound)
}

// small returns the pod of ShadowPod name with n CPUs, as the API server has it.
func (b *book) small(name, n string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: testNamespace, Name: name, UID: types.UID("pod-" + name), ResourceVersion: b.next(),
			Labels:      map[string]string{offloadingv1beta1.OriginLabel: origin},
			Annotations: map[string]string{offloadingv1beta1.ShadowPodUIDAnnotation: "shadow-" + name},
		},
		Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways, Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: cpu(n)}}}},
	}
}

// of is small for another consumer.
func (b *book) of(consumer, name, n string) *corev1.Pod {
	pod := b.small(name, n)
	pod.Namespace, pod.Labels[offloadingv1beta1.OriginLabel] = consumer, consumer
	return pod
}

func (b *book) used() string {
	b.t.Helper()
	used := b.account(origin).used
	return used.Cpu().String()
}

func TestLedgerCountsWhatNoCacheHas(t *testing.T) {
	b := newBook(t, "1")
	require.Empty(t, b.admits(asks("a", "600m", 0)).Reason)
	require.Equal(t, "600m", b.used(), "reserved")
	require.Equal(t, offloadingv1beta1.ReasonQuotaExceeded, b.admits(asks("b", "500m", 0)).Reason)
	require.Empty(t, b.admits(asks("a", "600m", 0)).Reason, "asked twice, reserved once")
	require.Equal(t, "600m", b.used())
	b.Sent(named("a"))
	pod := b.small("a", "600m")
	b.Created(pod, Verdict{})
	require.Equal(t, "600m", b.used(), "answered")
	b.Seen(pod)
	require.Equal(t, "600m", b.used(), "seen")
	b.Created(pod, Verdict{})
	require.Equal(t, "600m", b.used(), "an answer later than the cache")
	pod = pod.DeepCopy()
	pod.ResourceVersion, pod.Status.Phase = b.next(), corev1.PodSucceeded
	require.Equal(t, []loop.Key{named("b")}, b.wakes(func() { b.Seen(pod) }), "ended: the next one's turn")
	require.Equal(t, "500m", b.used(), "for whom it is reserved")
	require.Empty(t, b.wakes(func() { b.Gone(pod, "") }))
	require.Equal(t, "500m", b.used())
}

func TestLedgerAnswers(t *testing.T) {
	for name, tc := range map[string]struct {
		act  func(*book)
		want string
	}{
		"refused":    {func(b *book) { b.Absent(named("a")) }, "0"},
		"lost":       {func(*book) {}, "600m"},
		"not wanted": {func(b *book) { b.Idle(named("a")) }, "600m"},
		"not there":  {func(b *book) { b.Idle(named("a")); b.Absent(named("a")) }, "0"},
		"smaller":    {func(b *book) { b.Created(b.small("a", "500m"), Verdict{}) }, "500m"},
		"larger":     {func(b *book) { b.Created(b.small("a", "2"), Verdict{}) }, "2"},
		"somebody's": {func(b *book) { p := b.small("a", "1m"); p.Annotations = nil; b.Seen(p) }, "601m"},
		"seen":       {func(b *book) { b.Seen(b.small("a", "650m")) }, "650m"},
		"seen, gone": {func(b *book) { p := b.small("a", "650m"); b.Seen(p); b.Gone(p, "") }, "0"},
		"to end":     {func(b *book) { p := b.small("a", "650m"); p.Status.Phase = corev1.PodFailed; b.Seen(p) }, "0"},
		"to be made again": {func(b *book) {
			p := b.small("a", "650m")
			p.Status.Phase, p.Labels["again"] = corev1.PodFailed, "yes"
			b.Seen(p)
		}, "650m"},
		"to be again":                     {func(b *book) { p := b.small("a", "650m"); b.Seen(p); b.Gone(p, "shadow-a") }, "650m"},
		"asked larger":                    {func(b *book) { w := asks("a", "700m", 0); w.generation = 2; b.admits(w) }, "700m"},
		"a new term":                      {func(b *book) { b.Begin() }, "0"},
		"not wanted once it was answered": {func(b *book) { b.Created(b.small("a", "600m"), Verdict{}); b.Idle(named("a")) }, "600m"},
		"deleted before it was answered": {func(b *book) {
			p := b.small("a", "600m")
			b.Seen(p)
			b.Gone(p, "")
			b.Created(p, Verdict{})
		}, "0"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBook(t, "1")
			b.admits(asks("a", "600m", 0))
			b.Sent(named("a"))
			tc.act(b)
			require.Equal(t, tc.want, b.used())
		})
	}
	b := newBook(t, "1")
	b.admits(asks("a", "600m", 0))
	require.Zero(t, b.Idle(named("a")), "what was not asked for is not there")
	require.Equal(t, "0", b.used())
}

// TestLedgerPredecessor: a pod of an earlier ShadowPod may still have the name of a pod that
// is created. Only one of them exists at a time, and the larger one counts.
func TestLedgerPredecessor(t *testing.T) {
	b := newBook(t, "1")
	before := b.small("a", "300m")
	before.Annotations[offloadingv1beta1.ShadowPodUIDAnnotation] = "shadow-before"
	b.Seen(before)
	require.Empty(t, b.admits(asks("a", "700m", 0)).Reason)
	require.Equal(t, "700m", b.used())
	b.Gone(before, "")
	require.Equal(t, "700m", b.used(), "not sent yet")
	b.Sent(named("a"))
	after := b.small("a", "700m")
	after.UID = "after"
	b.Created(after, Verdict{})
	b.Gone(before, "")
	b.Seen(before)
	require.Equal(t, "700m", b.used(), "the events of the earlier one are over")
	b.Seen(after)
	b.Gone(after, "")
	require.Equal(t, "0", b.used())
}

func TestLedgerLargerThanForeseen(t *testing.T) {
	for name, tc := range map[string]struct {
		made      string
		beyond    bool
		seenFirst bool
	}{
		"as foreseen":           {"500m", false, false},
		"larger, within":        {"600m", false, false},
		"larger, beyond":        {"601m", true, false},
		"the cache was quicker": {"601m", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBook(t, "1")
			b.Seen(b.small("other", "400m"))
			v := b.admits(asks("a", "500m", 0))
			b.Sent(named("a"))
			pod := b.small("a", tc.made)
			if tc.seenFirst {
				b.Seen(pod)
			}
			require.Equal(t, tc.beyond, b.Created(pod, v))
			if tc.beyond {
				b.TakenBack(pod)
				require.Equal(t, "400m", b.used())
				require.Contains(t, b.admits(asks("a", "500m", 0)).Message, "cpu: 601m requested")
				changed := asks("a", "500m", 0)
				changed.generation = 2
				require.Empty(t, b.admits(changed).Reason, "it is another pod")
			}
		})
	}
}

func TestLedgerOrder(t *testing.T) {
	b := newBook(t, "1")
	b.Seen(b.small("old", "800m"))
	exceeded := offloadingv1beta1.ReasonQuotaExceeded
	require.Equal(t, exceeded, b.admits(asks("young", "300m", time.Second)).Reason)
	require.Equal(t, exceeded, b.admits(asks("big", "900m", 50*time.Second)).Reason)
	require.Empty(t, b.admits(asks("small", "100m", 0)).Reason, "an older one is passed for a while")
	require.Equal(t, exceeded, b.admits(asks("huge", "500m", 2*time.Second)).Reason)
	require.Equal(t, offloadingv1beta1.ReasonQuotaTooSmall, b.admits(asks("never", "1001m", time.Hour)).Reason)
	require.Empty(t, b.admits(asks("tiny", "50m", 0)).Reason, "who is too large holds nobody")
	b.now.SetTime(testTime().Add(20 * time.Second))
	v := b.admits(asks("tiny-2", "50m", 0))
	require.Equal(t, exceeded, v.Reason, "and not for ever")
	require.Contains(t, v.Message, "longer")
	// 150m are used: the big one does not fit, and no younger ask overtakes it.
	require.Empty(t, b.wakes(func() { b.Gone(b.small("old", "800m"), "") }))
	require.Equal(t, []loop.Key{named("big")}, b.wakes(func() { b.Absent(named("tiny")) }), "its turn")
	require.Equal(t, "1", b.used())
	require.Equal(t, []loop.Key{named("huge"), named("young"), named("tiny-2")}, b.wakes(func() { b.Absent(named("big")) }), "by age")
	require.Equal(t, 1, b.Accounts()[0].Waiting)
	require.Equal(t, []loop.Key{named("never")}, b.wakes(func() { b.limit(origin, "2") }))
	require.Empty(t, b.admits(asks("never", "1001m", time.Hour)).Reason)
	require.Zero(t, b.Accounts()[0].Waiting)
}

// TestLedgerRoomOfALostPod: not even an ask that has waited longer gets the room that is
// kept for a replacement.
func TestLedgerRoomOfALostPod(t *testing.T) {
	b := newBook(t, "1")
	lost := b.small("lost", "600m")
	b.Seen(lost)
	require.Equal(t, offloadingv1beta1.ReasonQuotaExceeded, b.admits(asks("old", "700m", time.Hour)).Reason)
	require.Empty(t, b.wakes(func() { b.Gone(lost, "shadow-lost") }))
	require.Empty(t, b.admits(asks("lost", "600m", 0)).Reason)
	require.Equal(t, "600m", b.used())
	require.Equal(t, []loop.Key{named("old")}, b.wakes(func() { b.Absent(named("lost")) }))
}

func TestLedgerResize(t *testing.T) {
	b := newBook(t, "1")
	pod := b.small("a", "500m")
	b.Seen(pod)
	b.Seen(b.small("b", "300m"))
	require.Equal(t, offloadingv1beta1.ReasonQuotaExceeded, b.admits(grows("a", "701m")).Reason)
	require.Equal(t, "800m", b.used())
	require.Empty(t, b.admits(asks("c", "50m", 0)).Reason, "who waits to grow holds nobody")
	b.Absent(named("c"))
	require.Empty(t, b.admits(grows("a", "700m")).Reason)
	require.Equal(t, "1", b.used(), "under way")
	b.Resized(pod, nil)
	require.Equal(t, "800m", b.used(), "refused")
	require.Empty(t, b.admits(grows("a", "700m")).Reason)
	later := pod.DeepCopy()
	later.ResourceVersion = b.next()
	b.Seen(later)
	require.Equal(t, "1", b.used(), "an event that knows nothing of it")
	b.Idle(named("a"))
	require.Equal(t, "1", b.used(), "it is not over by that")
	require.Empty(t, b.admits(grows("a", "600m")).Reason)
	require.Equal(t, "1", b.used(), "the resize before may be done, its answer was lost")
	b.Resized(pod, b.small("a", "600m"))
	require.Equal(t, "900m", b.used())
	b.Seen(later)
	require.Equal(t, "900m", b.used(), "an older state is over")
	require.Empty(t, b.admits(grows("a", "100m")).Reason)
	require.Equal(t, "900m", b.used(), "smaller once it is done")
	b.Resized(pod, b.small("a", "100m"))
	require.Equal(t, "400m", b.used())

	require.Equal(t, offloadingv1beta1.ReasonQuotaExceeded, b.admits(grows("a", "800m")).Reason)
	require.Equal(t, []loop.Key{named("a")}, b.wakes(func() { b.Gone(b.small("b", "300m"), "") }), "there is room now")
	require.Empty(t, b.admits(grows("a", "800m")).Reason)
	b.Gone(b.small("a", "100m"), "shadow-a")
	require.Equal(t, "100m", b.used(), "its successor has what it had")
}

// TestLedgerResizeEnded: a pod may end while its resize is in flight.
func TestLedgerResizeEnded(t *testing.T) {
	b := newBook(t, "1")
	pod := b.small("a", "500m")
	b.Seen(pod)
	require.Empty(t, b.admits(grows("a", "700m")).Reason)
	require.Equal(t, "700m", b.used())
	ended := pod.DeepCopy()
	ended.ResourceVersion, ended.Status.Phase = b.next(), corev1.PodSucceeded
	b.Seen(ended)
	require.Equal(t, "0", b.used(), "finished pods are free")
	shadow := &offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: "a"}}
	require.True(t, b.Grow(shadow, ended, b.small("a", "700m")).Later, "it grows no more")
	require.Equal(t, "0", b.used())
	b.Resized(pod, nil)
	require.Equal(t, "0", b.used())
	b.Gone(ended, "")
	require.Equal(t, "0", b.used())
	require.Empty(t, b.claims)
}

// TestLedgerTerm: a new leader admits no pod before it has counted the pods of the previous
// leader.
func TestLedgerTerm(t *testing.T) {
	b := newBook(t, "1")
	stale, kept := b.small("stale", "100m"), b.small("kept", "200m")
	b.Seen(stale)
	b.Seen(kept)
	b.admits(asks("w", "950m", 0))
	b.Begin()
	b.limit(origin, "700m")
	require.True(t, b.admits(asks("a", "100m", 0)).Later)
	require.True(t, b.admits(grows("kept", "300m")).Later)
	late := b.small("late", "300m") // created by the previous leader; no cache shows it
	woken := b.wakes(func() { b.settle([]*corev1.Pod{kept, late}) })
	require.Subset(t, woken, []loop.Key{named("a"), named("kept")})
	require.Equal(t, "700m", b.used(), "kept, late, stale until the cache shows its end, and what was waited for")
	b.Seen(late)
	require.Equal(t, "700m", b.used(), "counted once")
	require.Equal(t, offloadingv1beta1.ReasonQuotaExceeded, b.admits(asks("b", "1m", 0)).Reason)
	b.Gone(stale, "")
	require.Equal(t, "601m", b.used(), "its room is free, and b has some of it")
	for _, obj := range b.cfg.Quotas.GetIndexer().List() {
		require.NoError(t, b.cfg.Quotas.GetIndexer().Delete(obj))
	}
	b.quotaChanged(&offloadingv1beta1.Quota{ObjectMeta: metav1.ObjectMeta{Namespace: corev1beta1.TenantNamespace(origin)}})
	require.Empty(t, b.admits(asks("c", "1k", 0)).Reason, "without a Quota nothing is bounded")
}

// TestLedgerCount: a new leader counts pods that no cache shows, once the previous leader's
// last writes have arrived and its own cache shows the Quotas as they are.
func TestLedgerCount(t *testing.T) {
	b := newBook(t, "")
	b.cfg.Settle = 5 * time.Second
	b.Begin()
	pod := b.small("late", "300m")
	pod.Labels[offloadingv1beta1.ManagedByLabel] = offloadingv1beta1.ManagedByShadowPod
	kubetest.Create(t, b.cfg.Kube.CoreV1().Pods(testNamespace), pod)
	b.limit(origin, "2")
	q := &offloadingv1beta1.Quota{ObjectMeta: metav1.ObjectMeta{Namespace: corev1beta1.TenantNamespace(origin), Name: "q", ResourceVersion: "9"}, Spec: offloadingv1beta1.QuotaSpec{Resources: cpu("1")}}
	kubetest.Create(t, b.cfg.Liqo.OffloadingV1beta1().Quotas(q.Namespace), q)
	sync := func() error { return b.sync(t.Context(), loop.Key{Name: origin}) }
	require.NoError(t, sync())
	require.Equal(t, "0", b.used(), "nobody needs it")
	require.True(t, b.admits(asks("a", "800m", 0)).Later)
	require.Equal(t, loop.After(5*time.Second), sync(), "a write may be under way")
	b.now.SetTime(testTime().Add(5 * time.Second))
	before := q.DeepCopy()
	before.ResourceVersion, before.Spec.Resources = "8", cpu("2")
	require.NoError(t, b.cfg.Quotas.GetIndexer().Add(before))
	require.Equal(t, loop.After(cacheLag), sync(), "the cache has an earlier Quota")
	require.True(t, b.admits(asks("a", "800m", 0)).Later)
	require.NoError(t, b.cfg.Quotas.GetIndexer().Add(q))
	require.Equal(t, []loop.Key{named("a")}, b.wakes(func() { require.NoError(t, sync()) }))
	require.Equal(t, "300m", b.used())
	require.Equal(t, offloadingv1beta1.ReasonQuotaExceeded, b.admits(asks("a", "800m", 0)).Reason)
}

// TestLedgerStateWentBack: after the cluster's state has gone back, an older resource
// version does not mean that the object is outdated.
func TestLedgerStateWentBack(t *testing.T) {
	b := newBook(t, "1")
	pod := b.small("a", "100m")
	b.Seen(pod)
	pod = pod.DeepCopy()
	pod.ResourceVersion, pod.Spec.Containers[0].Resources.Requests = "7", cpu("300m")
	b.Seen(pod)
	require.Equal(t, "100m", b.used())
	b.lost = testTime().Add(time.Second)
	b.Seen(pod)
	require.Equal(t, "300m", b.used())
}

// TestLedgerNeverBeyond plays random lives of pods behind lagging caches. The existing pods
// never exceed the Quota, and all pods run in the end.
func TestLedgerNeverBeyond(t *testing.T) {
	for seed := range uint64(30) {
		play(t, rand.New(rand.NewPCG(seed, 7)))
	}
}

// server holds the existing pods, and the events that the cache has not received yet.
type server struct {
	live   map[string]*corev1.Pod
	events []func()
}

func play(t *testing.T, random *rand.Rand) {
	b, s := newBook(t, "1"), &server{live: map[string]*corev1.Pod{}}
	todo := map[string]func() *ask{}
	for i := range 60 {
		name := fmt.Sprintf("p-%02d", i)
		n, age := fmt.Sprintf("%dm", 50+50*random.IntN(12)), time.Duration(random.IntN(120))*time.Second
		todo[name] = func() *ask { return asks(name, n, age) }
	}
	for step := 0; len(todo)+len(s.live)+len(s.events) > 0; step++ {
		require.Less(t, step, 100000, "it comes to an end")
		switch {
		case len(s.events) > 0 && random.IntN(3) == 0:
			s.events[0]()
			s.events = s.events[1:]
		case len(s.live) > 0 && random.IntN(4) == 0:
			s.end(b, random)
		case random.IntN(60) == 0:
			b.restart(s)
		default:
			b.begins(todo, s, random)
		}
		sum := resource.Quantity{}
		for _, pod := range s.live {
			sum.Add(*pod.Spec.Containers[0].Resources.Requests.Cpu())
		}
		require.LessOrEqual(t, sum.MilliValue(), int64(1000))
	}
	require.Equal(t, "0", b.used())
}

// begins tries to create one pod. The request may fail, and its answer may be lost.
func (b *book) begins(todo map[string]func() *ask, s *server, random *rand.Rand) {
	for name, wants := range todo {
		w := wants()
		v := b.admits(w)
		if !v.OK() {
			return
		}
		b.Sent(w.key)
		switch random.IntN(4) {
		case 0:
			b.Absent(w.key)
		case 1: // the request is lost
		default:
			if s.live[name] != nil {
				return // the name is taken
			}
			pod := b.small(name, w.total.Cpu().String())
			pod.UID = types.UID(fmt.Sprintf("%s-%d", name, b.version))
			s.live[name] = pod
			s.events = append(s.events, func() { b.Seen(pod) })
			delete(todo, name)
			if random.IntN(3) > 0 {
				b.Created(pod, v)
			}
		}
		return
	}
}

func (s *server) end(b *book, random *rand.Rand) {
	for name, pod := range s.live {
		delete(s.live, name)
		after := pod.DeepCopy()
		after.ResourceVersion = b.next()
		if random.IntN(2) == 0 {
			after.Status.Phase = corev1.PodFailed
			s.events = append(s.events, func() { b.Seen(after) })
		}
		s.events = append(s.events, func() { b.Gone(after, "") })
		return
	}
}

// restart starts a new term from a consistent list. Older events from the cache may follow.
func (b *book) restart(s *server) {
	b.Begin()
	var list []*corev1.Pod
	for _, pod := range s.live {
		list = append(list, pod.DeepCopy())
	}
	b.settle(list)
}
