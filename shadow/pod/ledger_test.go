package pod

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
)

// book is a ledger during a term, with a clock and resource versions that the test
// advances.
type book struct {
	*ledger

	t       *testing.T
	now     *clocktesting.FakePassiveClock
	version int
}

func newBook(t *testing.T, limit string) *book {
	now := clocktesting.NewFakePassiveClock(testTime())
	b := &book{ledger: newLedger(now, time.Minute, nil, func(p *corev1.Pod) bool { return p.Labels["again"] != "" }), t: t, now: now, version: 100}
	b.begin()
	b.listQuotas(&offloadingv1beta1.QuotaList{ListMeta: metav1.ListMeta{ResourceVersion: b.next()}})
	if limit != "" {
		b.bound(limit)
	}
	b.listPods(&corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: b.next()}})
	return b
}

func (b *book) next() string { b.version++; return fmt.Sprint(b.version) }

func cpu(n string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(n)}
}

func quotaOf(version, n string) *offloadingv1beta1.Quota {
	return &offloadingv1beta1.Quota{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: "q", UID: "q-1", ResourceVersion: version},
		Spec:       offloadingv1beta1.QuotaSpec{Resources: cpu(n)},
	}
}

func (b *book) bound(n string) []loop.Key { return b.quotaSeen(origin, quotaOf(b.next(), n)) }

func keyOf(name string) loop.Key { return loop.Key{Namespace: testNamespace, Name: name} }

// asks returns the ask for a pod with n CPUs whose ShadowPod has the given age.
func asks(name, n string, age time.Duration) ask {
	need := cpu(n)
	need[corev1.ResourcePods] = resource.MustParse("1")
	return ask{consumer: origin, key: keyOf(name), shadow: types.UID("shadow-" + name), generation: 1, created: testTime().Add(-age), need: need, total: need}
}

func (b *book) admits(w ask) verdict { v, _ := b.admit(w); return v }

// small returns the pod of ShadowPod name with n CPUs, as the API server has it.
func (b *book) small(name, n string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: testNamespace, Name: name, UID: types.UID("pod-" + name), ResourceVersion: b.next(),
			Labels: map[string]string{offloadingv1beta1.OriginLabel: origin},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: offloadingv1beta1.SchemeGroupVersion.String(), Kind: shadowKind, Name: name, UID: types.UID("shadow-" + name), Controller: new(true),
			}},
		},
		Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways, Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: cpu(n)}}}},
	}
}

func (b *book) used() string {
	b.t.Helper()
	for _, a := range b.report() {
		if a.Consumer == origin {
			return a.Used.Cpu().String()
		}
	}
	return "0"
}

func TestLedgerCountsWhatNoCacheHas(t *testing.T) {
	b := newBook(t, "1")
	require.Empty(t, b.admits(asks("a", "600m", 0)).reason)
	require.Equal(t, "600m", b.used(), "reserved")
	require.Equal(t, offloadingv1beta1.ReasonQuotaExceeded, b.admits(asks("b", "500m", 0)).reason)
	require.Empty(t, b.admits(asks("a", "600m", 0)).reason, "asked twice, reserved once")
	require.Equal(t, "600m", b.used())
	b.send(origin, keyOf("a"))
	pod := b.small("a", "600m")
	b.created(pod, nil)
	require.Equal(t, "600m", b.used(), "answered")
	b.seen(pod)
	require.Equal(t, "600m", b.used(), "seen")
	b.created(pod, nil)
	require.Equal(t, "600m", b.used(), "an answer later than the cache")
	pod = pod.DeepCopy()
	pod.ResourceVersion, pod.Status.Phase = b.next(), corev1.PodSucceeded
	require.Equal(t, []loop.Key{keyOf("b")}, b.seen(pod), "ended: the next one's turn")
	require.Equal(t, "500m", b.used(), "for whom it is reserved")
	require.Empty(t, b.gone(pod, false))
	require.Equal(t, "500m", b.used())
}

func TestLedgerAnswers(t *testing.T) {
	for name, tc := range map[string]struct {
		act  func(*book)
		want string
	}{
		"refused":    {func(b *book) { b.refused(origin, keyOf("a")) }, "0"},
		"lost":       {func(*book) {}, "600m"},
		"not wanted": {func(b *book) { b.idle(keyOf("a")) }, "600m"},
		"not there":  {func(b *book) { b.idle(keyOf("a")); b.absent(keyOf("a")) }, "0"},
		"smaller":    {func(b *book) { b.created(b.small("a", "500m"), nil) }, "500m"},
		"larger":     {func(b *book) { b.created(b.small("a", "2"), nil) }, "2"},
		"somebody's": {func(b *book) { p := b.small("a", "1m"); p.OwnerReferences = nil; b.seen(p) }, "601m"},
		"seen":       {func(b *book) { b.seen(b.small("a", "650m")) }, "650m"},
		"seen, gone": {func(b *book) { p := b.small("a", "650m"); b.seen(p); b.gone(p, false) }, "0"},
		"to end":     {func(b *book) { p := b.small("a", "650m"); p.Status.Phase = corev1.PodFailed; b.seen(p) }, "0"},
		"to be made again": {func(b *book) {
			p := b.small("a", "650m")
			p.Status.Phase, p.Labels["again"] = corev1.PodFailed, "yes"
			b.seen(p)
		}, "650m"},
		"to be again":  {func(b *book) { p := b.small("a", "650m"); b.seen(p); b.gone(p, true) }, "650m"},
		"asked larger": {func(b *book) { w := asks("a", "700m", 0); w.generation = 2; b.admits(w) }, "700m"},
		"a new term":   {func(b *book) { b.end(); b.begin() }, "0"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBook(t, "1")
			b.admits(asks("a", "600m", 0))
			b.send(origin, keyOf("a"))
			tc.act(b)
			require.Equal(t, tc.want, b.used())
		})
	}
	b := newBook(t, "1")
	b.admits(asks("a", "600m", 0))
	sent, _ := b.idle(keyOf("a"))
	require.Zero(t, sent, "what was not asked for is not there")
	require.Equal(t, "0", b.used())
}

func TestLedgerLargerThanForeseen(t *testing.T) {
	for name, tc := range map[string]struct {
		made           string
		larger, beyond bool
		seenFirst      bool
	}{
		"as foreseen":           {"500m", false, false, false},
		"larger, within":        {"600m", true, false, false},
		"larger, beyond":        {"601m", true, true, false},
		"the cache was quicker": {"601m", true, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBook(t, "1")
			b.seen(b.small("other", "400m"))
			w := asks("a", "500m", 0)
			w.foreseen = true
			b.admits(w)
			foreseen := b.send(origin, keyOf("a"))
			pod := b.small("a", tc.made)
			if tc.seenFirst {
				b.seen(pod)
			}
			larger, beyond, _ := b.created(pod, foreseen)
			require.Equal(t, tc.larger, larger)
			require.Equal(t, tc.beyond, beyond)
		})
	}
}

func TestLedgerOrder(t *testing.T) {
	b := newBook(t, "1")
	b.seen(b.small("old", "800m"))
	exceeded := offloadingv1beta1.ReasonQuotaExceeded
	require.Equal(t, exceeded, b.admits(asks("young", "300m", time.Second)).reason)
	require.Equal(t, exceeded, b.admits(asks("big", "900m", 50*time.Second)).reason)
	require.Empty(t, b.admits(asks("small", "100m", 0)).reason, "an older one is passed for a while")
	require.Equal(t, exceeded, b.admits(asks("huge", "500m", 2*time.Second)).reason)
	require.Equal(t, offloadingv1beta1.ReasonQuotaTooSmall, b.admits(asks("never", "1001m", time.Hour)).reason)
	require.Empty(t, b.admits(asks("tiny", "50m", 0)).reason, "who is too large holds nobody")
	b.now.SetTime(testTime().Add(20 * time.Second))
	v := b.admits(asks("tiny-2", "50m", 0))
	require.Equal(t, exceeded, v.reason, "and not for ever")
	require.Contains(t, v.message, "longer")
	// 150m are used: the big one does not fit, and no younger ask overtakes it.
	require.Empty(t, b.gone(b.small("old", "800m"), false))
	require.Equal(t, []loop.Key{keyOf("big")}, b.refused(origin, keyOf("tiny")), "its turn")
	require.Equal(t, "1", b.used())
	require.Equal(t, []loop.Key{keyOf("huge"), keyOf("young"), keyOf("tiny-2")}, b.refused(origin, keyOf("big")), "by age")
	require.Equal(t, 1, b.report()[0].Waiting)
	require.ElementsMatch(t, []loop.Key{keyOf("never")}, b.bound("2"))
	require.Zero(t, b.report()[0].Waiting)
}

// TestLedgerRoomOfALostPod: not even an ask that has waited longer gets the room that is
// kept for a replacement.
func TestLedgerRoomOfALostPod(t *testing.T) {
	b := newBook(t, "1")
	lost := b.small("lost", "600m")
	b.seen(lost)
	require.Equal(t, offloadingv1beta1.ReasonQuotaExceeded, b.admits(asks("old", "700m", time.Hour)).reason)
	require.Empty(t, b.gone(lost, true))
	require.Empty(t, b.admits(asks("lost", "600m", 0)).reason)
	require.Equal(t, "600m", b.used())
	require.Equal(t, []loop.Key{keyOf("old")}, b.refused(origin, keyOf("lost")))
}

func TestLedgerResize(t *testing.T) {
	b := newBook(t, "1")
	pod := b.small("a", "500m")
	b.seen(pod)
	b.seen(b.small("b", "300m"))
	grow := func(n string) ask {
		w := asks("a", n, time.Hour)
		w.resize = true
		return w
	}
	require.Equal(t, offloadingv1beta1.ReasonQuotaExceeded, b.grow(pod, grow("701m")).reason)
	require.Equal(t, "800m", b.used())
	require.Empty(t, b.admits(asks("c", "50m", 0)).reason, "who waits to grow holds nobody")
	b.refused(origin, keyOf("c"))
	require.Empty(t, b.grow(pod, grow("700m")).reason)
	require.Equal(t, "1", b.used(), "under way")
	b.resized(pod.UID, nil)
	require.Equal(t, "800m", b.used(), "refused")
	require.Empty(t, b.grow(pod, grow("700m")).reason)
	later := pod.DeepCopy()
	later.ResourceVersion = b.next()
	b.seen(later)
	require.Equal(t, "1", b.used(), "an event that knows nothing of it")
	require.Empty(t, b.grow(pod, grow("600m")).reason)
	require.Equal(t, "1", b.used(), "the resize before may be done, its answer was lost")
	done := b.small("a", "600m")
	b.resized(pod.UID, done)
	require.Equal(t, "900m", b.used())
	b.seen(later)
	require.Equal(t, "900m", b.used(), "an older state is over")
	require.Empty(t, b.grow(done, grow("100m")).reason)
	require.Equal(t, "900m", b.used(), "smaller once it is done")
	b.resized(pod.UID, b.small("a", "100m"))
	require.Equal(t, "400m", b.used())

	require.Equal(t, offloadingv1beta1.ReasonQuotaExceeded, b.grow(done, grow("800m")).reason)
	require.Equal(t, []loop.Key{keyOf("a")}, b.gone(b.small("b", "300m"), false), "there is room now")
}

// TestLedgerResizeEnded: a pod may end while its resize is in flight.
func TestLedgerResizeEnded(t *testing.T) {
	b := newBook(t, "1")
	pod := b.small("a", "500m")
	b.seen(pod)
	w := asks("a", "700m", time.Hour)
	w.resize = true
	require.Empty(t, b.grow(pod, w).reason)
	require.Equal(t, "700m", b.used())
	ended := pod.DeepCopy()
	ended.ResourceVersion, ended.Status.Phase = b.next(), corev1.PodSucceeded
	b.seen(ended)
	require.Equal(t, "0", b.used(), "finished pods are free")
	require.True(t, b.grow(ended, w).parked, "it grows no more")
	require.Equal(t, "0", b.used())
	b.resized(pod.UID, nil)
	require.Equal(t, "0", b.used())
	b.gone(ended, false)
	require.Equal(t, "0", b.used())
}

// TestLedgerTerm: a new leader admits no pod before it has counted the pods of the previous
// leader.
func TestLedgerTerm(t *testing.T) {
	b := newBook(t, "1")
	stale, kept := b.small("stale", "100m"), b.small("kept", "200m")
	b.seen(stale)
	b.seen(kept)
	b.admits(asks("w", "950m", 0))
	b.end()
	require.Empty(t, b.report(), "who does not lead tells nothing")
	b.begin()
	b.listQuotas(&offloadingv1beta1.QuotaList{ListMeta: metav1.ListMeta{ResourceVersion: b.next()}, Items: []offloadingv1beta1.Quota{*quotaOf(b.next(), "600m")}})
	require.True(t, b.admits(asks("a", "100m", 0)).parked)
	require.True(t, b.grow(kept, asks("kept", "300m", 0)).parked)
	require.Len(t, b.needed, 1, "asks for the list")
	late := b.small("late", "300m") // created by the previous leader; no cache shows it
	gone := b.small("gone", "50m")  // deleted since
	woken := b.listPods(&corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: b.next()}, Items: []corev1.Pod{*kept, *late}})
	require.ElementsMatch(t, []loop.Key{keyOf("a"), keyOf("kept")}, woken)
	require.Equal(t, "600m", b.used(), "kept, late, and what was waited for: stale is gone")
	b.seen(gone)
	b.seen(stale)
	require.Equal(t, "600m", b.used(), "a cache that lags")
	b.seen(late)
	require.Equal(t, "600m", b.used(), "counted once")
	require.Equal(t, offloadingv1beta1.ReasonQuotaExceeded, b.admits(asks("b", "1m", 0)).reason)

	require.Empty(t, b.quotaSeen(origin, quotaOf("50", "5")), "a Quota as it was")
	require.NotEmpty(t, b.quotaSeen(origin, quotaOf(b.next(), "5")))
	require.Empty(t, b.admits(asks("b", "1m", 0)).reason)
	b.quotaGone(origin, quotaOf("60", "5"))
	require.Empty(t, b.admits(asks("c", "1k", 0)).reason, "without a Quota nothing is bounded")
}

// TestLedgerStateWentBack: after the cluster's state has gone back, an older resource
// version does not mean that the object is outdated.
func TestLedgerStateWentBack(t *testing.T) {
	b := newBook(t, "1")
	pod := b.small("a", "100m")
	b.seen(pod)
	b.lost = func() time.Time { return testTime().Add(time.Second) }
	pod = pod.DeepCopy()
	pod.ResourceVersion, pod.Spec.Containers[0].Resources.Requests = "7", cpu("300m")
	b.seen(pod)
	require.Equal(t, "300m", b.used())
	other := b.small("b", "200m")
	other.ResourceVersion = "8"
	b.seen(other)
	require.Equal(t, "500m", b.used())
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
	todo := map[string]ask{}
	for i := range 60 {
		name := fmt.Sprintf("p-%02d", i)
		todo[name] = asks(name, fmt.Sprintf("%dm", 50+50*random.IntN(12)), time.Duration(random.IntN(120))*time.Second)
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
func (b *book) begins(todo map[string]ask, s *server, random *rand.Rand) {
	for name, w := range todo {
		v := b.admits(w)
		if v.parked || v.reason != "" {
			return
		}
		b.send(origin, w.key)
		switch random.IntN(4) {
		case 0:
			b.refused(origin, w.key)
		case 1: // the request is lost
		default:
			if s.live[name] != nil {
				return // the name is taken
			}
			pod := b.small(name, w.need.Cpu().String())
			pod.UID = types.UID(fmt.Sprintf("%s-%d", name, b.version))
			s.live[name] = pod
			s.events = append(s.events, func() { b.seen(pod) })
			delete(todo, name)
			if random.IntN(3) > 0 {
				b.created(pod, nil)
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
			s.events = append(s.events, func() { b.seen(after) })
		}
		s.events = append(s.events, func() { b.gone(after, false) })
		return
	}
}

// restart starts a new term from a consistent list. Older events from the cache may follow.
func (b *book) restart(s *server) {
	b.end()
	b.begin()
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: b.next()}}
	for _, pod := range s.live {
		list.Items = append(list.Items, *pod)
	}
	b.listPods(list)
}
