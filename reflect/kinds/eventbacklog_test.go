package kinds

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqod/liqod/kube/loop"
)

var dawn = time.Date(2026, 5, 4, 6, 0, 0, 0, time.UTC)

// occurred returns the local copy of an event in the namespace shop that has occurred
// count times.
func occurred(name string, count int32, change ...func(*corev1.Event)) *corev1.Event {
	e := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Type: corev1.EventTypeNormal,
		Count: count, LastTimestamp: metav1.NewTime(dawn),
	}
	for _, c := range change {
		c(e)
	}
	return e
}

func testBacklog(limit int) (*backlog, map[string]int) {
	dropped := map[string]int{}
	return newBacklog(backlogConfig{
		limit: limit, kept: 12, stays: time.Hour, interval: 5 * time.Second, tooOld: time.Minute, dropped: func(reason string) { dropped[reason]++ },
	}), dropped
}

// names takes all due events from the queue and returns their names.
func (b *backlog) names(now time.Time) (names []string) {
	for {
		j, _, ok := b.next(now)
		if !ok {
			return names
		}
		names = append(names, j.key.Name)
	}
}

func TestBacklogOrder(t *testing.T) {
	b, _ := testBacklog(10)
	b.put(occurred("first", 1), false, dawn)
	b.put(occurred("second", 1), false, dawn.Add(time.Second))
	b.put(occurred("warning", 1, warning), false, dawn.Add(2*time.Second))
	require.Equal(t, []string{"warning", "first", "second"}, b.names(dawn.Add(3*time.Second)))
	_, wait, ok := b.next(dawn)
	require.False(t, ok)
	require.Zero(t, wait, "nothing waits")
}

// TestBacklogSpares requires that events of another process do not displace those of this
// one.
func TestBacklogSpares(t *testing.T) {
	b, _ := testBacklog(4)
	for _, name := range []string{"a", "b", "c"} {
		b.put(occurred(name, 1), false, dawn)
		j, _, ok := b.next(dawn)
		require.True(t, ok)
		b.spare(j, dawn.Add(time.Minute))
	}
	require.Len(t, b.waiting, 2)
	require.Len(t, b.entries, 2)
	require.Equal(t, []string{"a", "b"}, slices.Sorted(slices.Values(b.names(dawn.Add(time.Minute)))))
}

func TestBacklogIsBounded(t *testing.T) {
	for name, tc := range map[string]struct {
		put  []*corev1.Event
		want []string
		lost int
	}{
		"within the limit":                     {[]*corev1.Event{occurred("a", 1), occurred("b", 1)}, []string{"a", "b"}, 0},
		"one too many":                         {[]*corev1.Event{occurred("a", 1), occurred("b", 1), occurred("c", 1)}, []string{"b", "c"}, 1},
		"again is no more":                     {[]*corev1.Event{occurred("a", 1), occurred("b", 1), occurred("b", 2)}, []string{"a", "b"}, 0},
		"a warning takes the place of another": {[]*corev1.Event{occurred("a", 1, warning), occurred("b", 1), occurred("c", 1, warning)}, []string{"a", "c"}, 1},
		"a warning among warnings":             {[]*corev1.Event{occurred("a", 1, warning), occurred("b", 1, warning), occurred("c", 1, warning)}, []string{"b", "c"}, 1},
		"another has no place among warnings":  {[]*corev1.Event{occurred("a", 1, warning), occurred("b", 1, warning), occurred("c", 1)}, []string{"a", "b"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b, dropped := testBacklog(2)
			for i, e := range tc.put {
				b.put(e, false, dawn.Add(time.Duration(i)*time.Second))
			}
			require.ElementsMatch(t, tc.want, b.names(dawn.Add(time.Minute)))
			require.Equal(t, tc.lost, dropped[droppedOverflow])
			require.Len(t, b.entries, len(tc.want), "of what is dropped nothing is kept")
		})
	}
}

// TestBacklogAfterARestart requires that a restart does not write events that the
// previous process had dropped: those older than the newest copy, and without a copy.
// Newer events and newer states of copied events must be written.
func TestBacklogAfterARestart(t *testing.T) {
	at := func(second int, more ...func(*corev1.Event)) func(*corev1.Event) {
		return func(e *corev1.Event) {
			e.LastTimestamp = metav1.NewTime(dawn.Add(time.Duration(second) * time.Second))
			for _, change := range more {
				change(e)
			}
		}
	}
	b, dropped := testBacklog(10)
	b.seed(occurred("told", 1, at(10)), dawn)
	b.seed(occurred("told often", 2, at(5)), dawn)
	b.seed(occurred("told late", 2, at(5)), dawn)
	b.replace("shop", []*corev1.Event{
		occurred("told", 1, at(10)), occurred("told often", 3, at(6)), occurred("told late", 2, at(5)), occurred("dropped", 1, at(9)),
		occurred("same second", 1, at(10)), occurred("missed", 1, at(11)), occurred("first warning", 1, at(1, warning)),
	}, dawn.Add(time.Minute))
	require.ElementsMatch(t, []string{"same second", "missed", "first warning", "told often"}, b.names(dawn.Add(time.Minute)))
	require.Empty(t, dropped, "it was counted when it was dropped")
	b.put(occurred("told late", 3, at(7)), false, dawn.Add(time.Minute))
	require.Equal(t, []string{"told late"}, b.names(dawn.Add(time.Minute)), "what a watch shows has just happened, whatever the clock there says")
}

func TestBacklogWhileAWorkerHasTheEvent(t *testing.T) {
	for name, tc := range map[string]struct {
		meanwhile func(*backlog)
		finish    func(*backlog, job)
		// want is the count that is written next, 0 for none; kept tells whether the event is
		// remembered then.
		want int32
		kept bool
	}{
		"it is written":                      {nil, func(b *backlog, j job) { b.wrote(j, dawn) }, 0, true},
		"it is given up":                     {nil, func(b *backlog, j job) { b.drop(j, dawn) }, 0, false},
		"it fails":                           {nil, func(b *backlog, j job) { b.again(j, false, dawn) }, 1, true},
		"it happens again and is written":    {func(b *backlog) { b.put(occurred("e", 2), false, dawn) }, func(b *backlog, j job) { b.wrote(j, dawn) }, 2, true},
		"it happens again and fails":         {func(b *backlog) { b.put(occurred("e", 2), false, dawn) }, func(b *backlog, j job) { b.again(j, false, dawn) }, 2, true},
		"it happens again and is given up":   {func(b *backlog) { b.put(occurred("e", 2), false, dawn) }, func(b *backlog, j job) { b.drop(j, dawn) }, 2, true},
		"it is seen twice":                   {func(b *backlog) { b.put(occurred("e", 1), false, dawn) }, func(b *backlog, j job) { b.wrote(j, dawn) }, 0, true},
		"the provider forgets it":            {func(b *backlog) { b.remove(loop.Key{Namespace: "shop", Name: "e"}) }, func(b *backlog, j job) { b.wrote(j, dawn) }, 0, true},
		"the provider forgets it, it fails":  {func(b *backlog) { b.remove(loop.Key{Namespace: "shop", Name: "e"}) }, func(b *backlog, j job) { b.again(j, false, dawn) }, 1, true},
		"the namespace is closed":            {func(b *backlog) { b.forget("shop") }, func(b *backlog, j job) { b.wrote(j, dawn) }, 0, false},
		"the namespace is closed, it fails":  {func(b *backlog) { b.forget("shop") }, func(b *backlog, j job) { b.again(j, true, dawn) }, 0, false},
		"another namespace is closed":        {func(b *backlog) { b.forget("bank") }, func(b *backlog, j job) { b.wrote(j, dawn) }, 0, true},
		"all is listed, and it is there":     {func(b *backlog) { b.replace("shop", []*corev1.Event{occurred("e", 1)}, dawn) }, func(b *backlog, j job) { b.wrote(j, dawn) }, 0, true},
		"all is listed, and it is not there": {func(b *backlog) { b.replace("shop", nil, dawn) }, func(b *backlog, j job) { b.wrote(j, dawn) }, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			b, _ := testBacklog(10)
			b.put(occurred("e", 1), false, dawn)
			j, _, ok := b.next(dawn)
			require.True(t, ok)
			if tc.meanwhile != nil {
				tc.meanwhile(b)
			}
			require.Empty(t, b.names(dawn.Add(time.Hour)), "one worker at a time")
			tc.finish(b, j)
			again, _, ok := b.next(dawn.Add(time.Hour))
			require.Equal(t, tc.want != 0, ok)
			if ok {
				require.Equal(t, tc.want, again.want.Count)
			}
			require.Equal(t, tc.kept, len(b.entries) == 1)
		})
	}
}

func TestBacklogKeepsNoMoreThanItMay(t *testing.T) {
	b, dropped := testBacklog(10)
	for i := range 20 {
		b.put(occurred(strconv.Itoa(i), 1), false, dawn)
		if j, _, ok := b.next(dawn); ok {
			b.wrote(j, dawn)
		}
	}
	require.Len(t, b.entries, 12)
	require.Equal(t, 8, dropped[droppedOverflow])
	b.put(occurred("0", 2), false, dawn)
	require.Equal(t, []string{"0"}, b.names(dawn.Add(time.Hour)), "what is known goes on")
	b.remove(loop.Key{Namespace: "shop", Name: "1"})
	b.put(occurred("new", 1), false, dawn)
	require.Empty(t, b.names(dawn), "home has it still")
	b.put(occurred("new", 1), false, dawn.Add(time.Hour))
	require.Equal(t, []string{"new"}, b.names(dawn.Add(time.Hour)), "there is room again")
}

// TestBacklogCountsWhatHomeHas requires that a provider does not gain space in the
// consumer by deleting its own events after they were copied.
func TestBacklogCountsWhatHomeHas(t *testing.T) {
	for name, again := range map[string]func(*backlog){
		"one by one":              func(*backlog) {},
		"the list lacks them":     func(b *backlog) { b.replace("shop", nil, dawn) },
		"the namespace is closed": func(b *backlog) { reopen(b, dawn) },
	} {
		t.Run(name, func(t *testing.T) {
			b, dropped := testBacklog(10)
			round := func(i int, now time.Time) (created int) {
				b.put(occurred(strconv.Itoa(i), 1), false, now)
				if j, _, ok := b.next(now); ok {
					require.False(t, j.written)
					created++
					b.wrote(j, now)
				}
				b.remove(loop.Key{Namespace: "shop", Name: strconv.Itoa(i)})
				again(b)
				return created
			}
			created := 0
			for i := range 20 {
				created += round(i, dawn.Add(time.Duration(i)*time.Second))
			}
			require.Equal(t, 12, created)
			require.Equal(t, 8, dropped[droppedOverflow])
			require.Equal(t, 0, round(20, dawn.Add(59*time.Minute)))
			created = 0
			for i := range 20 {
				created += round(100+i, dawn.Add(61*time.Minute))
			}
			require.Equal(t, 12, created, "home has forgotten them by now")
			require.Len(t, b.entries, 12)
		})
	}
}

// TestBacklogCountsWhatClosedNamespacesHave requires that a provider does not gain space
// by closing one namespace after another.
func TestBacklogCountsWhatClosedNamespacesHave(t *testing.T) {
	b, dropped := testBacklog(10)
	tell := func(namespace string, now time.Time) (created int) {
		for i := range 12 {
			event := occurred(strconv.Itoa(i), 1)
			event.Namespace = namespace
			b.put(event, false, now)
			if j, _, ok := b.next(now); ok {
				created++
				b.wrote(j, now)
			}
		}
		b.forget(namespace)
		return created
	}
	require.Equal(t, 12, tell("shop", dawn))
	require.Zero(t, tell("bank", dawn.Add(time.Minute)))
	require.Equal(t, 12, dropped[droppedOverflow])
	require.Equal(t, 12, tell("bank", dawn.Add(61*time.Minute)), "home has forgotten them by now")
	require.Len(t, b.entries, 12)
}

// reopen closes the namespace and opens it again with the events that were written.
func reopen(b *backlog, now time.Time) {
	var home []*corev1.Event
	for key, e := range b.entries {
		if e.written {
			home = append(home, occurred(key.Name, 1))
		}
	}
	b.forget("shop")
	for _, have := range home {
		b.seed(have, now)
	}
	b.replace("shop", nil, now)
}

// TestBacklogForgetsWhatHomeNeverHad requires that an event that was never written does
// not occupy space.
func TestBacklogForgetsWhatHomeNeverHad(t *testing.T) {
	b, _ := testBacklog(10)
	for i := range 20 {
		b.put(occurred(strconv.Itoa(i), 1), false, dawn)
		j, _, ok := b.next(dawn)
		require.True(t, ok)
		b.remove(j.key)
		b.drop(j, dawn)
	}
	require.Empty(t, b.entries)
}
