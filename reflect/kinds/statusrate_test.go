package kinds

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/liqod/liqod/reasons"
	"github.com/liqod/liqod/reflect/forge"
)

func TestSpent(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var b spent
	take := func(now time.Time) time.Duration {
		wait := b.wait(now, 1, float64(time.Minute/statusInterval), statusBurst)
		if wait == 0 {
			b.amount++
		}
		return wait
	}
	for range statusBurst {
		require.Zero(t, take(now))
	}
	wait := take(now)
	require.InDelta(t, statusInterval.Seconds(), wait.Seconds(), 0.1)
	require.InDelta(t, statusInterval.Seconds()/2, take(now.Add(statusInterval/2)).Seconds(), 0.1)
	require.Zero(t, take(now.Add(wait)))
	require.NotZero(t, take(now.Add(wait)))
	later := now.Add(time.Hour)
	for range statusBurst {
		require.Zero(t, take(later), "it fills again")
	}
	require.NotZero(t, take(later.Add(-time.Minute)), "a clock that goes back gives nothing")
}

// TestAProviderThatChangesAllTheTime: after a burst the status of a pod is written now and
// then, as it is then. Its end, and the end of its readiness, never wait.
func TestAProviderThatChangesAllTheTime(t *testing.T) {
	s := ranAndStopped(t)
	clock := clocktesting.NewFakeClock(time.Now())
	s.pods.cfg.Clock = clock
	counted := map[string]int{}
	s.pods.cfg.Refused = func(reason string) { counted[reason]++ }
	s.pods.memos = map[types.UID]*memo{}
	says := func(n int) error {
		want := *s.local(t).Status.DeepCopy()
		want.Message = fmt.Sprint(n)
		return s.pods.writeStatus(t.Context(), s.local(t), want)
	}
	written := 0
	for n := range 1000 {
		if says(n) == nil {
			written++
		}
	}
	require.Equal(t, statusBurst, written)
	require.Equal(t, 1000-statusBurst, counted[RefusedRate])
	delayed := 0
	for len(s.events.Events) > 0 {
		if strings.Contains(<-s.events.Events, reasons.RemoteStatusDelayed) {
			delayed++
		}
	}
	require.Equal(t, 1, delayed, "the pod says so, once")
	clock.Step(statusInterval + time.Second)
	require.NoError(t, says(1000))
	require.Equal(t, "1000", s.local(t).Status.Message, "the newest")
	require.Error(t, says(1001))

	unready := *s.local(t).Status.DeepCopy()
	ready := false
	for i := range unready.Conditions {
		if unready.Conditions[i].Type == corev1.PodReady {
			ready = unready.Conditions[i].Status == corev1.ConditionTrue
			unready.Conditions[i].Status = corev1.ConditionFalse
		}
	}
	if ready {
		require.NoError(t, s.pods.writeStatus(t.Context(), s.local(t), unready))
	}
	ended := *s.local(t).Status.DeepCopy()
	ended.Phase = corev1.PodSucceeded
	require.NoError(t, s.pods.writeStatus(t.Context(), s.local(t), ended))
	require.Equal(t, corev1.PodSucceeded, s.local(t).Status.Phase)
}

func TestRefusalsAreTold(t *testing.T) {
	s := ranAndStopped(t)
	counted := map[string]int{}
	s.pods.cfg.Refused = func(reason string) { counted[reason]++ }
	pod := s.local(t)
	for range 3 {
		for i := range 2 * mostTold {
			s.pods.tellRefused(pod, forge.RefusedAddress, fmt.Sprintf("10.0.0.%d is a node", i))
		}
	}
	require.Equal(t, mostTold, counted[forge.RefusedAddress])
	told := 0
	for len(s.events.Events) > 0 {
		if strings.Contains(<-s.events.Events, "Warning RemoteStatusRefused 10.0.0.") {
			told++
		}
	}
	require.Equal(t, mostTold, told)
	s.pods.forget(pod.UID)
	require.Empty(t, s.pods.memos)
}
