package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
)

var key = cache.ObjectName{Namespace: "ns", Name: "a"}

func pod(uid, version string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: types.UID(uid), ResourceVersion: version}}
}

func TestLatest(t *testing.T) {
	for name, tc := range map[string]struct {
		cached  *corev1.Pod
		later   time.Duration
		want    string
		missing bool
	}{
		"the cache is behind":              {cached: pod("1", "5"), want: "9"},
		"the cache has caught up":          {cached: pod("1", "9"), want: "9"},
		"the cache is ahead":               {cached: pod("1", "10"), want: "10"},
		"not in the cache yet":             {want: "9"},
		"another object took the name":     {cached: pod("2", "5"), want: "5"},
		"versions that cannot be compared": {cached: pod("1", "x"), want: "x"},
		"the memory is old":                {cached: pod("1", "5"), later: time.Minute, want: "5"},
		"old, and gone":                    {later: time.Minute, missing: true},
	} {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakePassiveClock(time.Now())
			w := NewWrites[*corev1.Pod](clock)
			w.Wrote(pod("1", "9"))
			clock.SetTime(clock.Now().Add(tc.later))
			got := w.Latest(key, tc.cached)
			require.Equal(t, tc.missing, got == nil)
			if got != nil {
				require.Equal(t, tc.want, got.ResourceVersion)
			}
		})
	}
}

func TestGoneForgets(t *testing.T) {
	w := NewWrites[*corev1.Pod](clocktesting.NewFakePassiveClock(time.Now()))
	w.Wrote(pod("1", "9"))
	w.Deleted("1")
	require.True(t, w.WasDeleted("1"))
	w.Gone(pod("1", "9"))
	require.True(t, w.WasDeleted("1"), "for who holds an older copy")
	require.Nil(t, w.Latest(key, nil))
}

// TestAnswerLaterThanTheEnd: the watch may show the end of an object before the answer to the
// last write of it has come.
func TestAnswerLaterThanTheEnd(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	w := NewWrites[*corev1.Pod](clock)
	w.Gone(pod("1", "10"))
	w.Wrote(pod("1", "9"))
	require.Nil(t, w.Latest(key, nil))
	w.Gone(pod("2", ""))
	w.Wrote(pod("2", ""))
	require.Nil(t, w.Latest(key, nil), "versions that cannot be compared")
	w.Wrote(pod("1", "11"))
	require.NotNil(t, w.Latest(key, nil), "it had only left what is watched")
	clock.SetTime(clock.Now().Add(time.Minute))
	for i := range 1001 {
		w.Gone(pod(fmt.Sprint("other-", i), "12"))
	}
	require.Len(t, w.gone, 1001, "what is old is forgotten")
}

// countingClock counts the ages that are looked at.
type countingClock struct {
	*clocktesting.FakePassiveClock
	asked int
}

func (c *countingClock) Since(t time.Time) time.Duration {
	c.asked++
	return c.FakePassiveClock.Since(t)
}

// TestARecordCostsTheSameHoweverManyThereAre: 10,000 pods are deleted within seconds, so that
// no record expires. Later all of them are removed.
func TestARecordCostsTheSameHoweverManyThereAre(t *testing.T) {
	const pods = 10_000
	clock := &countingClock{FakePassiveClock: clocktesting.NewFakePassiveClock(time.Now())}
	w := NewWrites[*corev1.Pod](clock)
	all := func(round string) {
		for i := range pods {
			uid := fmt.Sprint(round, i)
			w.Deleted(types.UID(uid))
			w.Gone(pod(uid, "9"))
		}
	}
	all("a")
	require.Less(t, clock.asked, 10*pods)
	clock.SetTime(clock.Now().Add(time.Minute))
	all("b")
	all("c")
	require.Less(t, clock.asked, 30*pods)
	require.LessOrEqual(t, len(w.deleted), 2*pods)
	require.LessOrEqual(t, len(w.gone), 2*pods)
}

func TestBefore(t *testing.T) {
	for name, c := range map[string]struct {
		a, b string
		want bool
	}{
		"before":          {"99", "100", true},
		"the same":        {"100", "100", false},
		"after":           {"200", "100", false},
		"not known":       {"", "100", false},
		"not told":        {"100", "", false},
		"not a number":    {"a1", "b2", false},
		"more than int64": {"18446744073709551614", "18446744073709551615", true},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, OlderVersion(c.a, c.b)) })
	}
}

func TestHead(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	h := NewHead(clock)
	for _, version := range []string{"5", "7", "7", "30"} {
		h.Saw(version)
		require.Zero(t, h.Lost())
	}
	h.Saw("8")
	require.Equal(t, time.Unix(1000, 0), h.Lost())
	clock.SetTime(time.Unix(2000, 0))
	h.Saw("31")
	require.Equal(t, time.Unix(1000, 0), h.Lost(), "what was lost is not back")
	h.Saw("9")
	require.Equal(t, time.Unix(2000, 0), h.Lost())
	clock.SetTime(time.Unix(3000, 0))
	h.WentBack()
	require.Equal(t, time.Unix(3000, 0), h.Lost())
}
