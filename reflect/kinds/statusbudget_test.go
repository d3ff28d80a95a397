package kinds

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/reasons"
	"github.com/liqod/liqod/reflect/engine"
	"github.com/liqod/liqod/reflect/forge"
)

// fleet is the pods of a virtual node whose provider writes what it likes. It counts the
// bytes that the cluster stores.
type fleet struct {
	pods  *Pods
	clock *clocktesting.FakeClock
	local []*corev1.Pod
	bytes int
}

func newFleet(n int) *fleet {
	f := &fleet{clock: clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))}
	f.pods = &Pods{cfg: PodsConfig{OfNode: OfNode{Target: engine.Target{Recorder: &record.FakeRecorder{}, Env: loop.Env{Clock: f.clock}}}, Refused: func(string) {}}, memos: map[types.UID]*memo{}}
	for i := range n {
		pod := localPod()
		pod.UID = types.UID(fmt.Sprint(i))
		f.local = append(f.local, pod)
	}
	return f
}

// says offers a status to be written, and reports whether it was.
func (f *fleet) says(i int, change func(*corev1.PodStatus)) bool {
	pod := f.local[i]
	want := pod.Status.DeepCopy()
	change(want)
	if f.pods.delay(pod, want) > 0 {
		return false
	}
	pod.Status = *want
	f.bytes += pod.Size()
	return true
}

func becomes(phase corev1.PodPhase, ready bool, message string) func(*corev1.PodStatus) {
	return func(s *corev1.PodStatus) {
		status := corev1.ConditionFalse
		if ready {
			status = corev1.ConditionTrue
		}
		s.Phase, s.Message = phase, message
		s.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
	}
}

// attack lets the provider change every pod twice as often as the limit of a pod allows.
func (f *fleet) attack(d time.Duration, change func(n int) func(*corev1.PodStatus)) (perMinute int) {
	before := f.bytes
	for n := range int(d / (statusInterval / 2)) {
		status := change(n)
		for i := range f.local {
			f.says(i, status)
		}
		f.clock.Step(statusInterval / 2)
	}
	return int(float64(f.bytes-before) / d.Minutes())
}

// TestManyPodsThatChangeAllTheTime: 300 pods, each with the largest status that is written
// and within its own limit, write less than 512 KiB a minute in all once their burst is over.
func TestManyPodsThatChangeAllTheTime(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 32<<10)
	for name, change := range map[string]func(s int) func(*corev1.PodStatus){
		"texts": func(s int) func(*corev1.PodStatus) {
			return becomes(corev1.PodRunning, true, fmt.Sprint(s, long))
		},
		"readiness": func(s int) func(*corev1.PodStatus) { return becomes(corev1.PodRunning, s%2 == 0, long) },
		"phases": func(s int) func(*corev1.PodStatus) {
			return becomes([]corev1.PodPhase{corev1.PodPending, corev1.PodRunning}[s%2], false, long)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(300)
			f.attack(15*time.Minute, change) // what is free for each pod, and the burst
			require.Less(t, f.bytes, 300*(podBytes+nodeBytesBurstOfPod)+nodeBytesBurst+15*(512<<10))
			require.Less(t, f.attack(10*time.Minute, change), 512<<10)
		})
	}
}

// TestNoiseLeavesRoomForReadiness: while other pods change their texts all the time, a pod
// becomes ready, and a new one starts, without waiting.
func TestNoiseLeavesRoomForReadiness(t *testing.T) {
	t.Parallel()
	f := newFleet(300)
	quiet := f.local[0]
	f.local = f.local[1:]
	noisy := func(s int) func(*corev1.PodStatus) {
		return becomes(corev1.PodRunning, true, fmt.Sprint(s, strings.Repeat("x", 32<<10)))
	}
	f.attack(15*time.Minute, noisy)
	f.local = append(f.local, quiet)
	last := len(f.local) - 1
	for range statusBurst / 2 {
		require.True(t, f.says(last, becomes(corev1.PodRunning, true, "")))
		require.True(t, f.says(last, becomes(corev1.PodRunning, false, "")))
	}
	f.local = append(f.local, localPod())
	last++
	require.True(t, f.says(last, becomes(corev1.PodPending, false, "pulling")))
	require.True(t, f.says(last, becomes(corev1.PodRunning, true, "")))
	require.True(t, f.says(last, becomes(corev1.PodSucceeded, false, "")))
}

// TestAnHonestProviderIsNotDelayed: 1000 pods start together, are lost three times with their
// provider, and end.
func TestAnHonestProviderIsNotDelayed(t *testing.T) {
	t.Parallel()
	f := newFleet(1000)
	all := func(change func(*corev1.PodStatus)) {
		for i := range f.local {
			require.True(t, f.says(i, change), "%d after %d bytes", i, f.bytes)
		}
		f.clock.Step(10 * time.Second)
	}
	all(becomes(corev1.PodPending, false, "scheduled"))
	all(becomes(corev1.PodPending, false, "pulling"))
	all(becomes(corev1.PodRunning, true, ""))
	for range 3 {
		all(becomes(corev1.PodRunning, false, strings.Repeat("x", 4<<10)))
		all(becomes(corev1.PodRunning, true, strings.Repeat("x", 4<<10)))
	}
	all(becomes(corev1.PodSucceeded, false, ""))
}

// TestLargePodsAreNotDelayed: what the users of this cluster made large does not count. Forty pods
// with a spec of 120 KB, or with forty containers, start, are lost three times, and end.
func TestLargePodsAreNotDelayed(t *testing.T) {
	t.Parallel()
	for name, large := range map[string]func(*corev1.Pod){
		"variables": func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: strings.Repeat("a", 60<<10)}, {Name: "B", Value: strings.Repeat("b", 60<<10)}}
		},
		"annotations": func(p *corev1.Pod) { p.Annotations = map[string]string{"a": strings.Repeat("a", 120<<10)} },
		"containers": func(p *corev1.Pod) {
			p.Spec.Containers = nil
			for i := range 40 {
				p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", i), Image: "registry.example.com/team/image:1"})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(40)
			for _, pod := range f.local {
				large(pod)
			}
			all := func(phase corev1.PodPhase, ready bool, waiting string) {
				for i := range f.local {
					require.True(t, f.says(i, func(s *corev1.PodStatus) {
						becomes(phase, ready, "")(s)
						s.ContainerStatuses = nil
						for _, c := range f.local[i].Spec.Containers {
							s.ContainerStatuses = append(s.ContainerStatuses, corev1.ContainerStatus{
								Name: c.Name, Image: c.Image, ImageID: c.Image + "@sha256:" + strings.Repeat("0", 64), ContainerID: "containerd://" + strings.Repeat("0", 64),
								State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: waiting}},
							})
						}
					}), "pod %d, %s", i, waiting)
				}
				f.clock.Step(time.Second)
			}
			all(corev1.PodPending, false, "ContainerCreating")
			all(corev1.PodPending, false, "PodInitializing")
			for range 3 {
				all(corev1.PodRunning, false, "Started")
				all(corev1.PodRunning, true, "Ready")
			}
			all(corev1.PodSucceeded, false, "Completed")
		})
	}
}

// TestABudgetGrowsWithThePods: one pod uses up what is there for it, and many others come
// later. They may use what is there for them.
func TestABudgetGrowsWithThePods(t *testing.T) {
	t.Parallel()
	f := newFleet(1)
	f.attack(10*time.Minute, func(n int) func(*corev1.PodStatus) {
		return becomes(corev1.PodRunning, true, fmt.Sprint(n, strings.Repeat("x", 32<<10)))
	})
	f.local = append(f.local, newFleet(1000).local[1:]...)
	for n := range 6 {
		for i := range f.local[1:] {
			require.True(t, f.says(i+1, becomes(corev1.PodRunning, true, fmt.Sprint(n, strings.Repeat("x", 12<<10)))), "%d of %d", i, n)
		}
		f.clock.Step(statusInterval)
	}
}

func TestSpent(t *testing.T) {
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
