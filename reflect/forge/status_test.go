package forge

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// at returns a fixed past time plus the given seconds.
func at(seconds int) metav1.Time {
	return metav1.NewTime(time.Date(2026, 1, 1, 0, 0, seconds, 0, time.UTC))
}

func condition(t corev1.PodConditionType, s corev1.ConditionStatus, transition int) corev1.PodCondition {
	return corev1.PodCondition{Type: t, Status: s, LastTransitionTime: at(transition)}
}

func running(name string, restarts int32) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, Ready: true, RestartCount: restarts,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(1)}}}
}

func terminated(name string, restarts, exitCode int32) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, RestartCount: restarts,
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: exitCode}}}
}

func waiting(name string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}
}

// scene returns a pod bound to the virtual node, its ShadowPod, and its remote pod, which
// is running and ready. The local pod has no status yet.
func scene() StatusInput {
	local := localPod()
	local.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: corev1.PodQOSBurstable,
		Conditions: []corev1.PodCondition{condition(corev1.PodScheduled, corev1.ConditionTrue, 0)}}
	shadow, _ := ShadowPod(local, options())
	start := at(1)
	remote := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-1", Namespace: "shop-rome", UID: "remote", Labels: shadow.Labels, Generation: 1},
		Spec:       shadow.Spec.Pod,
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, QOSClass: corev1.PodQOSGuaranteed, ObservedGeneration: 1, StartTime: &start,
			HostIP: "192.0.2.9", HostIPs: []corev1.HostIP{{IP: "192.0.2.9"}},
			PodIP: "10.2.0.7", PodIPs: []corev1.PodIP{{IP: "10.2.0.7"}, {IP: "fd00::7"}},
			Conditions: []corev1.PodCondition{
				condition(corev1.PodReadyToStartContainers, corev1.ConditionTrue, 2),
				condition(corev1.PodInitialized, corev1.ConditionTrue, 3),
				condition(corev1.PodReady, corev1.ConditionTrue, 4),
				condition(corev1.ContainersReady, corev1.ConditionTrue, 4),
				condition(corev1.PodScheduled, corev1.ConditionTrue, 1),
			},
			ContainerStatuses:     []corev1.ContainerStatus{running("web", 0)},
			InitContainerStatuses: []corev1.ContainerStatus{running("mesh", 0)},
		},
	}
	return StatusInput{Local: local, Shadow: shadow, Remote: remote, NodeReady: true,
		HostIPs: []netip.Addr{netip.MustParseAddr("10.1.0.4")}, Remapper: untranslated{}, Now: at(100)}
}

// published returns a scene in which the status was written to the local pod.
func published() StatusInput {
	in := scene()
	in.Local.Status = Status(in)
	in.Now = at(200)
	return in
}

func TestStatusOfARunningPod(t *testing.T) {
	in := scene()
	before := in.Remote.DeepCopy()
	got := Status(in)
	require.Equal(t, before, in.Remote)
	start := at(1)
	withGeneration := func(c corev1.PodCondition) corev1.PodCondition { c.ObservedGeneration = 3; return c }
	require.Equal(t, corev1.PodStatus{
		Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable, ObservedGeneration: 3, StartTime: &start,
		HostIP: "10.1.0.4", HostIPs: []corev1.HostIP{{IP: "10.1.0.4"}},
		PodIP: "10.2.0.7", PodIPs: []corev1.PodIP{{IP: "10.2.0.7"}, {IP: "fd00::7"}},
		Conditions: []corev1.PodCondition{
			withGeneration(condition(corev1.ContainersReady, corev1.ConditionTrue, 4)),
			withGeneration(condition(corev1.PodInitialized, corev1.ConditionTrue, 3)),
			withGeneration(condition(corev1.PodReadyToStartContainers, corev1.ConditionTrue, 2)),
			condition(corev1.PodScheduled, corev1.ConditionTrue, 0),
			withGeneration(condition(corev1.PodReady, corev1.ConditionTrue, 4)),
		},
		ContainerStatuses:     []corev1.ContainerStatus{running("web", 0)},
		InitContainerStatuses: []corev1.ContainerStatus{running("mesh", 0)},
	}, got)
}

// ready returns the status and reason of a condition, "" if there is none.
func ready(s corev1.PodStatus, t corev1.PodConditionType) string {
	c := findCondition(s.Conditions, t)
	if c == nil {
		return ""
	}
	if c.Reason == "" {
		return string(c.Status)
	}
	return string(c.Status) + " " + c.Reason
}

func TestReady(t *testing.T) {
	deleted := at(150)
	setReady := func(in *StatusInput, s corev1.ConditionStatus, reason string) {
		c := findCondition(in.Remote.Status.Conditions, corev1.PodReady)
		c.Status, c.Reason, c.LastTransitionTime = s, reason, at(160)
	}
	gate := func(in *StatusInput, s corev1.ConditionStatus) {
		in.Local.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "lb.example.org/ready"}}
		if s != "" {
			in.Local.Status.Conditions = append(in.Local.Status.Conditions, condition("lb.example.org/ready", s, 1))
		}
	}
	for name, tc := range map[string]struct {
		change     func(*StatusInput)
		ready      string
		containers string
		transition metav1.Time
	}{
		"remote not ready":         {func(in *StatusInput) { setReady(in, "False", "ContainersNotReady") }, "False ContainersNotReady", "True", at(160)},
		"node not ready":           {func(in *StatusInput) { in.NodeReady = false }, "False NodeNotReady", "True", at(200)},
		"network down":             {func(in *StatusInput) { in.NetworkUnavailable = true }, "False NetworkUnavailable", "True", at(200)},
		"node and network down":    {func(in *StatusInput) { in.NodeReady = false; in.NetworkUnavailable = true }, "False NodeNotReady", "True", at(200)},
		"node and pod not ready":   {func(in *StatusInput) { in.NodeReady = false; setReady(in, "False", "ContainersNotReady") }, "False ContainersNotReady", "True", at(160)},
		"remote being removed":     {func(in *StatusInput) { in.Remote.DeletionTimestamp = &deleted }, "False RemotePodTerminating", "True", at(200)},
		"removed on both sides":    {func(in *StatusInput) { in.Remote.DeletionTimestamp = &deleted; in.Local.DeletionTimestamp = &deleted }, "True", "True", at(4)},
		"remote missing":           {func(in *StatusInput) { in.Remote = nil }, "False RemotePodMissing", "False RemotePodMissing", at(200)},
		"another's remote pod":     {func(in *StatusInput) { in.Remote.Labels = map[string]string{"offloading.liqo.io/local-pod-uid": "x"} }, "False RemotePodMissing", "False RemotePodMissing", at(200)},
		"remote made again":        {func(in *StatusInput) { in.Remote.Status = corev1.PodStatus{Phase: corev1.PodPending} }, "False", "False", at(200)},
		"gate without condition":   {func(in *StatusInput) { gate(in, "") }, "False ReadinessGatesNotReady", "True", at(200)},
		"gate open":                {func(in *StatusInput) { gate(in, "True") }, "True", "True", at(4)},
		"gate open, pod not ready": {func(in *StatusInput) { gate(in, "True"); setReady(in, "False", "ContainersNotReady") }, "False ContainersNotReady", "True", at(160)},
		"marked by the node controller, node ready again": {func(in *StatusInput) {
			c := findCondition(in.Local.Status.Conditions, corev1.PodReady)
			c.Status, c.LastTransitionTime = corev1.ConditionFalse, at(180)
		}, "True", "True", at(200)},
		"marked by the node controller, node not ready": {func(in *StatusInput) {
			c := findCondition(in.Local.Status.Conditions, corev1.PodReady)
			c.Status, c.LastTransitionTime = corev1.ConditionFalse, at(180)
			in.NodeReady = false
		}, "False NodeNotReady", "True", at(180)},
	} {
		t.Run(name, func(t *testing.T) {
			in := published()
			tc.change(&in)
			got := statusOf(t, in)
			require.Equal(t, tc.ready, ready(got, corev1.PodReady))
			require.Equal(t, tc.containers, ready(got, corev1.ContainersReady))
			require.Equal(t, tc.transition, findCondition(got.Conditions, corev1.PodReady).LastTransitionTime)
		})
	}
}

func TestPhaseAndReason(t *testing.T) {
	deleted := at(150)
	enforced := func(in *StatusInput, reason string) {
		in.Shadow.Status.Conditions = []metav1.Condition{{Type: "Enforced", Status: metav1.ConditionFalse, Reason: reason, Message: "told by the provider"}}
	}
	finish := func(in *StatusInput, phase corev1.PodPhase, code int32) {
		in.Remote.Status.Phase = phase
		in.Remote.Status.ContainerStatuses = []corev1.ContainerStatus{terminated("web", 0, code)}
	}
	for name, tc := range map[string]struct {
		start  func() StatusInput
		change func(*StatusInput)
		phase  corev1.PodPhase
		reason string
		ready  string
	}{
		"nothing in the provider yet":        {scene, func(in *StatusInput) { in.Remote = nil }, corev1.PodPending, "", ""},
		"created there, nothing known yet":   {scene, func(in *StatusInput) { in.Remote.Status = corev1.PodStatus{Phase: corev1.PodPending} }, corev1.PodPending, "", ""},
		"refused there":                      {scene, func(in *StatusInput) { in.Remote = nil; enforced(in, "PodRefused") }, corev1.PodPending, "PodRefused", "False PodRefused"},
		"another pod's refusal":              {scene, func(in *StatusInput) { in.Remote = nil; enforced(in, "PodRefused"); in.Shadow.Labels = nil }, corev1.PodPending, "", ""},
		"replacement refused":                {published, func(in *StatusInput) { in.Remote = nil; enforced(in, "PodRefused") }, corev1.PodPending, "PodRefused", "False PodRefused"},
		"update refused while it runs":       {published, func(in *StatusInput) { enforced(in, "PodRefused") }, corev1.PodRunning, "", "True"},
		"missing":                            {published, func(in *StatusInput) { in.Remote, in.Shadow = nil, nil }, corev1.PodRunning, "", "False RemotePodMissing"},
		"no controller there":                {scene, func(in *StatusInput) { in.Remote, in.Silent = nil, "it is silent" }, corev1.PodPending, "ProviderControllerSilent", "False ProviderControllerSilent"},
		"no controller there, no ShadowPod":  {scene, func(in *StatusInput) { in.Remote, in.Shadow, in.Silent = nil, nil, "it is silent" }, corev1.PodPending, "", ""},
		"no controller there, it runs":       {published, func(in *StatusInput) { in.Silent = "it is silent" }, corev1.PodRunning, "", "True"},
		"evicted by the kubelet there":       {published, func(in *StatusInput) { finish(in, corev1.PodFailed, 137); in.Remote.Status.Reason = "Evicted" }, corev1.PodFailed, "Evicted", "True"},
		"ending because it is removed there": {published, func(in *StatusInput) { finish(in, corev1.PodFailed, 137); in.Remote.DeletionTimestamp = &deleted }, corev1.PodRunning, "", "False RemotePodTerminating"},
		"ending because it is removed here": {published, func(in *StatusInput) {
			finish(in, corev1.PodSucceeded, 0)
			in.Remote.DeletionTimestamp, in.Local.DeletionTimestamp = &deleted, &deleted
		}, corev1.PodSucceeded, "", "True"},
		"end recorded, pod gone": {published, func(in *StatusInput) { in.Shadow.Status.Phase, in.Remote = corev1.PodFailed, nil }, corev1.PodFailed, "", "False"},
		"end recorded, pod being removed": {published, func(in *StatusInput) {
			in.Shadow.Status.Phase, in.Remote.DeletionTimestamp = corev1.PodFailed, &deleted
			in.Shadow.Status.PodStatus = &corev1.PodStatus{Reason: "RemotePodLost"}
		}, corev1.PodFailed, "RemotePodLost", "False"},
		"another pod's end": {published, func(in *StatusInput) {
			in.Shadow.Status.Phase, in.Remote, in.Shadow.Labels = corev1.PodFailed, nil, nil
		}, corev1.PodRunning, "", "False RemotePodMissing"},
		"ended here: what runs there is ignored": {published, func(in *StatusInput) {
			in.Local.Status.Phase, in.Local.Status.Reason = corev1.PodFailed, "DeadlineExceeded"
		}, corev1.PodFailed, "DeadlineExceeded", "True"},
	} {
		t.Run(name, func(t *testing.T) {
			in := tc.start()
			tc.change(&in)
			got := statusOf(t, in)
			require.Equal(t, tc.phase, got.Phase)
			require.Equal(t, tc.reason, got.Reason)
			require.Equal(t, tc.ready, ready(got, corev1.PodReady))
		})
	}
}

func TestUnschedulableInTheProvider(t *testing.T) {
	in := scene()
	in.Remote.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/3 nodes are available"}}}
	got := Status(in)
	require.Equal(t, "False Unschedulable", ready(got, corev1.PodReady))
	require.Equal(t, "False Unschedulable", ready(got, corev1.ContainersReady))
	require.Equal(t, "True", ready(got, corev1.PodScheduled), "it is scheduled here")
	require.Equal(t, "in the provider: 0/3 nodes are available", findCondition(got.Conditions, corev1.PodReady).Message)

	in.Local.Status = got
	in.Remote.Status.Conditions[0] = condition(corev1.PodScheduled, corev1.ConditionTrue, 5)
	require.Equal(t, "False", ready(Status(in), corev1.PodReady), "the reason goes with its cause")
}

func TestRefusalIsForgottenOnceThePodIsThere(t *testing.T) {
	in := scene()
	in.Local.Status = PendingStatus(in.Local, "OffloadingBackOff", "namespace shop is not offloaded", at(50))
	require.Equal(t, "False OffloadingBackOff", ready(in.Local.Status, corev1.PodReady))
	remote := in.Remote
	in.Remote = nil
	got := Status(in)
	require.Empty(t, got.Reason)
	require.Equal(t, "False RemotePodMissing", ready(got, corev1.PodReady))
	in.Local.Status, in.Remote = got, remote
	require.Equal(t, "True", ready(Status(in), corev1.PodReady))
}

func TestConditionsHaveOneOwner(t *testing.T) {
	in := published()
	in.Local.Status.Conditions = append(in.Local.Status.Conditions,
		condition("home.example.org/x", corev1.ConditionTrue, 9), condition(corev1.PodResizePending, corev1.ConditionTrue, 9))
	in.Remote.Status.Conditions = append(in.Remote.Status.Conditions,
		condition("provider.example.org/y", corev1.ConditionTrue, 9), condition(corev1.DisruptionTarget, corev1.ConditionTrue, 9),
		condition(corev1.PodResizeInProgress, corev1.ConditionTrue, 9))
	got := Status(in)
	require.Equal(t, "True", ready(got, "home.example.org/x"))
	require.Empty(t, ready(got, "provider.example.org/y"))
	require.Empty(t, ready(got, corev1.DisruptionTarget), "not an end: it may pass")
	require.Empty(t, ready(got, corev1.PodResizePending), "the provider's kubelet has dropped it")
	require.Equal(t, "True", ready(got, corev1.PodResizeInProgress))

	in.Remote.Status.Phase = corev1.PodFailed
	require.Equal(t, "True", ready(Status(in), corev1.DisruptionTarget))
}

func TestTransitionsAreNotInTheFuture(t *testing.T) {
	for name, tc := range map[string]struct {
		in   StatusInput
		want metav1.Time
	}{
		"the first status": {scene(), at(100)},
		"a change":         {published(), at(200)},
	} {
		t.Run(name, func(t *testing.T) {
			in := tc.in
			in.Remote = in.Remote.DeepCopy()
			*findCondition(in.Remote.Status.Conditions, corev1.PodReady) = condition(corev1.PodReady, corev1.ConditionFalse, 3600)
			got := Status(in)
			require.Equal(t, tc.want, findCondition(got.Conditions, corev1.PodReady).LastTransitionTime)
			requireIdempotent(t, in, got)
		})
	}
}

// TestTimesAreNotInTheFuture: a provider whose clock is an hour ahead. What was shown once
// stays when the hour has passed.
func TestTimesAreNotInTheFuture(t *testing.T) {
	runs := func(status corev1.PodStatus) []metav1.Time {
		state := status.ContainerStatuses[0]
		out := []metav1.Time{*status.StartTime}
		for _, s := range []corev1.ContainerState{state.LastTerminationState, state.State} {
			switch {
			case s.Running != nil:
				out = append(out, s.Running.StartedAt)
			case s.Terminated != nil:
				out = append(out, s.Terminated.StartedAt, s.Terminated.FinishedAt)
			}
		}
		return out
	}
	ended := func(started, finished int) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ContainerID: "a", ExitCode: 1, StartedAt: at(started), FinishedAt: at(finished)}}
	}
	steps := []struct {
		now   int
		state corev1.ContainerStatus
		want  []metav1.Time
	}{
		{now: 10, state: corev1.ContainerStatus{ContainerID: "a", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(3605)}}},
			want: []metav1.Time{at(10), at(10)}},
		{now: 30, state: corev1.ContainerStatus{ContainerID: "a", State: ended(3605, 3620)}, want: []metav1.Time{at(10), at(10), at(30)}},
		{now: 50, state: corev1.ContainerStatus{
			ContainerID: "b", RestartCount: 1, LastTerminationState: ended(3605, 3620),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(3640)}},
		}, want: []metav1.Time{at(10), at(10), at(30), at(50)}},
	}
	in := scene()
	in.Remote = in.Remote.DeepCopy()
	start := at(3601)
	in.Remote.Status.StartTime = &start
	for _, step := range steps {
		in.Now = at(step.now)
		state := *step.state.DeepCopy()
		state.Name = in.Local.Spec.Containers[0].Name
		in.Remote.Status.ContainerStatuses = []corev1.ContainerStatus{state}
		got := Status(in)
		require.Equal(t, step.want, runs(got))
		in.Local = in.Local.DeepCopy()
		in.Local.Status = got
		in.Now = at(step.now + 5)
		require.Equal(t, got, Status(in), "nothing is written again")
	}
	in.Now = at(7200)
	require.Equal(t, steps[2].want[1:], runs(Status(in))[1:], "also when the hour has passed")
}

// TestTimesOfAnotherRemotePod: a provider whose clock is ahead lost the pod and runs it in
// another one, whose container has the ID of the lost one, or none.
func TestTimesOfAnotherRemotePod(t *testing.T) {
	for _, id := range []string{"a", ""} {
		in := scene()
		in.Remote, in.Shadow = in.Remote.DeepCopy(), in.Shadow.DeepCopy()
		name := in.Local.Spec.Containers[0].Name
		begun := func(second int) metav1.Time {
			in.Remote.Status.ContainerStatuses = []corev1.ContainerStatus{{
				Name: name, ContainerID: id, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(second)}},
			}}
			got := Status(in)
			in.Local = in.Local.DeepCopy()
			in.Local.Status = got
			return got.ContainerStatuses[0].State.Running.StartedAt
		}
		in.Now = at(10)
		require.Equal(t, at(10), begun(3605))
		in.Remote.UID, in.Now = "another", at(100)
		in.Shadow.Status.Restarts = []offloadingv1beta1.ContainerRestarts{{Name: name, Count: 1}}
		require.Equal(t, at(100), begun(3690), "ID %q", id)
		in.Now = at(105)
		require.Equal(t, at(100), begun(3690), "ID %q: nothing is written again", id)
	}
}

// subnet maps 10.2.0.0/16 to 10.72.0.0/16 and has no translation for other addresses.
type subnet struct{}

func (subnet) Remap(a netip.Addr) (netip.Addr, string, bool) {
	if !netip.MustParsePrefix("10.2.0.0/16").Contains(a) {
		return netip.Addr{}, "", false
	}
	b := a.As4()
	b[1] = 72
	return netip.AddrFrom4(b), "", true
}

func TestAddresses(t *testing.T) {
	addrs := func(s ...string) []netip.Addr {
		var out []netip.Addr
		for _, a := range s {
			out = append(out, netip.MustParseAddr(a))
		}
		return out
	}
	for name, tc := range map[string]struct {
		remote []string
		host   []netip.Addr
		pods   []string
		hosts  []string
	}{
		"unknown is left out": {[]string{"169.254.169.254", "10.2.3.4"}, addrs("10.1.0.4"), []string{"10.72.3.4"}, []string{"10.1.0.4"}},
		"nonsense":            {[]string{"x", ""}, addrs("10.1.0.4"), nil, []string{"10.1.0.4"}},
		"one of each family":  {[]string{"10.2.3.4", "10.2.3.5"}, addrs("10.1.0.4", "10.1.0.5", "fd00::4", "fd00::5"), []string{"10.72.3.4"}, []string{"10.1.0.4", "fd00::4"}},
		"host unknown":        {[]string{"10.2.3.4"}, nil, []string{"10.72.3.4"}, []string{"192.0.2.1"}},
	} {
		t.Run(name, func(t *testing.T) {
			in := scene()
			in.Local.Status.HostIP, in.Local.Status.HostIPs = "192.0.2.1", []corev1.HostIP{{IP: "192.0.2.1"}}
			in.Remapper, in.HostIPs = subnet{}, tc.host
			in.Remote.Status.PodIPs = nil
			for _, ip := range tc.remote {
				in.Remote.Status.PodIPs = append(in.Remote.Status.PodIPs, corev1.PodIP{IP: ip})
			}
			got := statusOf(t, in)
			pods, hosts := addressesOf(got)
			require.Equal(t, tc.pods, pods)
			require.Equal(t, tc.hosts, hosts)
		})
	}
	gone := published()
	gone.Remote = nil
	require.Empty(t, Status(gone).PodIPs, "the address may be another pod's by now")
}

func TestRefusedResize(t *testing.T) {
	cpu := func(n string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(n)}}
	}
	refused := []metav1.Condition{{Type: offloadingv1beta1.ShadowPodEnforced, Status: metav1.ConditionFalse, Reason: "UpdateRefused", Message: "no room"}}
	for name, tc := range map[string]struct {
		refused []metav1.Condition
		change  func(*StatusInput)
		want    string
	}{
		"nothing refused":          {nil, func(in *StatusInput) { in.Shadow.Spec.Pod.Containers[0].Resources = cpu("2") }, " "},
		"refused":                  {refused, func(in *StatusInput) { in.Shadow.Spec.Pod.Containers[0].Resources = cpu("2") }, "Deferred the provider refuses it: no room"},
		"of the whole pod refused": {refused, func(in *StatusInput) { in.Shadow.Spec.Pod.Resources = new(cpu("2")) }, "Deferred the provider refuses it: no room"},
		"something else refused":   {refused, func(*StatusInput) {}, " "},
		"the kubelet has a word": {refused, func(in *StatusInput) {
			in.Shadow.Spec.Pod.Containers[0].Resources = cpu("2")
			in.Remote.Status.Conditions = append(in.Remote.Status.Conditions, corev1.PodCondition{
				Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible, Message: "never"})
		}, "Infeasible never"},
	} {
		t.Run(name, func(t *testing.T) {
			in := published()
			in.Remote = in.Remote.DeepCopy()
			in.Shadow.Status.Conditions = tc.refused
			tc.change(&in)
			got := statusOf(t, in)
			var pending corev1.PodCondition
			if c := findCondition(got.Conditions, corev1.PodResizePending); c != nil {
				pending = *c
			}
			require.Equal(t, tc.want, pending.Reason+" "+pending.Message)
		})
	}
}

func TestObservedGeneration(t *testing.T) {
	cpu := func(n string) corev1.ResourceList { return corev1.ResourceList{"cpu": resource.MustParse(n)} }
	for name, tc := range map[string]struct {
		shadow int64 // the generation of the pod that the ShadowPod is made of
		change func(*StatusInput)
		want   int64
	}{
		"shadow not yet followed":  {3, func(in *StatusInput) { in.Local.Generation = 4 }, 3},
		"shadow ahead of the pod":  {4, func(in *StatusInput) { in.Shadow.Spec.Pod.Containers[0].Image = "web:2" }, 3},
		"pod ahead of the kubelet": {4, func(in *StatusInput) { in.Remote.Generation = 2 }, 3},
		"all caught up":            {4, func(in *StatusInput) { in.Remote.Generation, in.Remote.Status.ObservedGeneration = 2, 2 }, 4},
		"limits added there":       {4, func(in *StatusInput) { in.Remote.Spec.Containers[0].Resources.Limits = cpu("1") }, 4},
		"resize not yet applied":   {4, func(in *StatusInput) { in.Shadow.Spec.Pod.Containers[0].Resources.Requests = cpu("1") }, 3},
		"resize of the whole pod not yet applied": {4, func(in *StatusInput) {
			in.Shadow.Spec.Pod.Resources = &corev1.ResourceRequirements{Requests: cpu("1")}
		}, 3},
		"resize of the whole pod applied": {4, func(in *StatusInput) {
			in.Shadow.Spec.Pod.Resources = &corev1.ResourceRequirements{Requests: cpu("1")}
			in.Remote.Spec.Resources = &corev1.ResourceRequirements{Requests: cpu("1000m")}
			in.Remote.Spec.Resources.Requests["memory"] = resource.MustParse("1Gi")
		}, 4},
		"never backwards": {1, func(*StatusInput) {}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			in := published()
			in.Remote = in.Remote.DeepCopy()
			in.Shadow.Spec.LocalGeneration = tc.shadow
			tc.change(&in)
			got := Status(in)
			require.Equal(t, tc.want, got.ObservedGeneration)
			require.Equal(t, tc.want, findCondition(got.Conditions, corev1.PodReady).ObservedGeneration)
		})
	}
}

// untranslated is the Remapper for a peer whose addresses need no translation.
type untranslated struct{}

func (untranslated) Remap(addr netip.Addr) (netip.Addr, string, bool) { return addr, "", true }

func TestFinalStatus(t *testing.T) {
	for name, tc := range map[string]struct {
		local []corev1.ContainerStatus
		phase corev1.PodPhase
		code  int32
	}{
		"never started":     {nil, corev1.PodFailed, 137},
		"end not seen":      {[]corev1.ContainerStatus{running("web", 2)}, corev1.PodFailed, 137},
		"end seen, success": {[]corev1.ContainerStatus{terminated("web", 2, 0)}, corev1.PodSucceeded, 0},
	} {
		t.Run(name, func(t *testing.T) {
			in := published()
			deleted := at(150)
			in.Local.DeletionTimestamp = &deleted
			in.Local.Status.ContainerStatuses = tc.local
			in.Remote, in.Shadow = nil, nil
			got := FinalStatus(in)
			require.Equal(t, tc.phase, got.Phase)
			require.Equal(t, tc.code, got.ContainerStatuses[0].State.Terminated.ExitCode)
			require.Contains(t, ready(got, corev1.PodReady), "False Pod")
			requireLegal(t, in.Local, got)
			in.Local.Status = got
			require.Equal(t, got, FinalStatus(in))
			require.Equal(t, got, Status(in))
		})
	}
}

func TestEqualStatus(t *testing.T) {
	a := published().Local.Status
	b := *a.DeepCopy()
	b.Conditions[0], b.Conditions[1] = b.Conditions[1], b.Conditions[0]
	require.True(t, EqualStatus(&a, &b, false))
	b.HostIP = "10.9.9.9"
	require.False(t, EqualStatus(&a, &b, false))
	require.True(t, EqualStatus(&a, &b, true))
	require.Equal(t, "10.9.9.9", b.HostIP, "the argument is not changed")
	b.Phase = corev1.PodFailed
	require.False(t, EqualStatus(&a, &b, true))
}
