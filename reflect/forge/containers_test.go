package forge

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/reasons"
)

func TestContainerStatuses(t *testing.T) {
	deleted := at(150)
	restarts := func(n int32) []offloadingv1beta1.ContainerRestarts {
		return []offloadingv1beta1.ContainerRestarts{{Name: "web", Count: n}}
	}
	never, onFailure, always := corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure, corev1.RestartPolicyAlways
	for name, tc := range map[string]struct {
		policy      corev1.RestartPolicy
		local       corev1.ContainerStatus
		remote      corev1.ContainerStatus
		earlier     int32
		terminating bool
		want        corev1.ContainerStatus
		before      int32 // in pods of earlier ShadowPods
	}{
		"pods of earlier ShadowPods count":   {always, running("web", 4), running("web", 1), 5, false, running("web", 9), 3},
		"counts never fall":                  {always, running("web", 4), running("web", 0), 0, false, running("web", 4), 0},
		"made again, Always":                 {always, terminated("web", 0, 0), waiting("web"), 0, false, waiting("web"), 0},
		"made again, OnFailure after 1":      {onFailure, terminated("web", 0, 1), waiting("web"), 0, false, waiting("web"), 0},
		"made again, OnFailure after 0":      {onFailure, terminated("web", 0, 0), waiting("web"), 0, false, terminated("web", 0, 0), 0},
		"made again, Never":                  {never, terminated("web", 0, 1), running("web", 0), 1, false, terminated("web", 1, 1), 0},
		"ended, Never":                       {never, running("web", 0), terminated("web", 0, 1), 0, false, terminated("web", 0, 1), 0},
		"ended again, Never":                 {never, terminated("web", 0, 1), terminated("web", 0, 0), 0, false, terminated("web", 0, 0), 0},
		"ending with the pod, Never":         {never, running("web", 0), terminated("web", 0, 143), 0, true, notReadyYet(running("web", 0)), 0},
		"ending with the pod, Always":        {always, running("web", 0), terminated("web", 0, 143), 0, true, awaited(terminated("web", 0, 143), reasons.RemotePodTerminating), 0},
		"ending with the pod, OnFailure 143": {onFailure, running("web", 0), terminated("web", 0, 143), 0, true, terminated("web", 0, 143), 0},
		"ending with the pod, OnFailure 0":   {onFailure, running("web", 0), terminated("web", 0, 0), 0, true, notReadyYet(running("web", 0)), 0},
	} {
		t.Run(name, func(t *testing.T) {
			in := published()
			in.Local.Spec.RestartPolicy = tc.policy
			in.Local.Status.ContainerStatuses = []corev1.ContainerStatus{tc.local}
			in.Remote.Status.ContainerStatuses = []corev1.ContainerStatus{tc.remote, running("injected-there", 0)}
			in.Shadow.Status.Restarts = restarts(tc.earlier)
			in.Shadow.Spec.EarlierRestarts = restarts(tc.before)
			if tc.terminating {
				in.Remote.DeletionTimestamp = &deleted
			}
			got := statusOf(t, in)
			require.Equal(t, []corev1.ContainerStatus{tc.want}, got.ContainerStatuses)
		})
	}
}

// awaited returns the status of a container that is to be started again after an end.
func awaited(ended corev1.ContainerStatus, reason string) corev1.ContainerStatus {
	ended.LastTerminationState, ended.Started, ended.Ready = ended.State, new(bool), false
	ended.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
	return ended
}

// TestWaitingContainers: what kubectl shows as the STATUS of a pod that waits in the provider
// is why it waits, and not the end that its containers had in an earlier pod there.
func TestWaitingContainers(t *testing.T) {
	deleted := at(150)
	completed := func(in *StatusInput) {
		in.Remote.DeletionTimestamp = &deleted
		in.Remote.Status.ContainerStatuses = []corev1.ContainerStatus{terminated("web", 0, 0)}
		notReady(&in.Remote.Status, "PodCompleted", "", at(150))
	}
	unplaced := func(in *StatusInput) {
		in.Remote.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/3 nodes are available"}}}
	}
	lost := terminated("web", 0, unknownExitCode)
	lost.State.Terminated.Reason, lost.State.Terminated.FinishedAt, lost.State.Terminated.StartedAt = reasons.ContainerStatusUnknown, at(200), at(1)
	lost.State.Terminated.Message = "the end of the container was not observed before its pod was gone"
	always, onFailure, never := corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever
	for name, tc := range map[string]struct {
		policy corev1.RestartPolicy
		local  corev1.ContainerStatus
		change func(*StatusInput)
		want   corev1.ContainerStatus
	}{
		"leaving, its kubelet says so": {always, running("web", 0), completed, awaited(terminated("web", 0, 0), reasons.RemotePodTerminating)},
		"drained":                      {always, terminated("web", 0, 0), unplaced, awaited(terminated("web", 0, 0), "Unschedulable")},
		"drained, it waited before":    {always, awaited(terminated("web", 0, 0), reasons.RemotePodTerminating), unplaced, awaited(terminated("web", 0, 0), "Unschedulable")},
		"drained, OnFailure":           {onFailure, terminated("web", 0, 1), unplaced, terminated("web", 0, 1)},
		"drained, OnFailure, it ended": {onFailure, terminated("web", 0, 0), unplaced, terminated("web", 0, 0)},
		"drained, Never":               {never, running("web", 0), unplaced, notReadyYet(running("web", 0))},
		"its node there was lost":      {always, running("web", 0), unplaced, awaited(lost, "Unschedulable")},
		"missing":                      {always, terminated("web", 0, 0), func(in *StatusInput) { in.Remote = nil }, awaited(terminated("web", 0, 0), reasons.RemotePodMissing)},
		"refused": {always, terminated("web", 0, 0), func(in *StatusInput) {
			in.Remote = nil
			in.Shadow.Status.Conditions = []metav1.Condition{{Type: offloadingv1beta1.ShadowPodEnforced, Status: metav1.ConditionFalse, Reason: offloadingv1beta1.ReasonQuotaExceeded}}
		}, awaited(terminated("web", 0, 0), offloadingv1beta1.ReasonQuotaExceeded)},
		"deleted here": {always, terminated("web", 0, 0), func(in *StatusInput) { in.Remote, in.Local.DeletionTimestamp = nil, &deleted }, terminated("web", 0, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			in := published()
			in.Local.Spec.RestartPolicy = tc.policy
			in.Local.Status.ContainerStatuses = []corev1.ContainerStatus{tc.local}
			tc.change(&in)
			got := statusOf(t, in)
			require.Equal(t, []corev1.ContainerStatus{tc.want}, got.ContainerStatuses)
		})
	}
}

func notReadyYet(s corev1.ContainerStatus) corev1.ContainerStatus {
	s.Ready = false
	return s
}

func TestContainersThatMayRestart(t *testing.T) {
	policy := func(p corev1.ContainerRestartPolicy) *corev1.ContainerRestartPolicy { return &p }
	rule := func(action corev1.ContainerRestartRuleAction, op corev1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) []corev1.ContainerRestartRule {
		return []corev1.ContainerRestartRule{{Action: action, ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: op, Values: codes}}}
	}
	restart, in, notIn := corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn
	for name, tc := range map[string]struct {
		pod       corev1.RestartPolicy
		container corev1.Container
		code      int32
		want      bool
	}{
		"sidecar of a Never pod":        {pod: "Never", container: corev1.Container{RestartPolicy: policy("Always")}, want: true},
		"Never container, Always pod":   {pod: "Always", container: corev1.Container{RestartPolicy: policy("Never")}, code: 1, want: false},
		"rule for the code":             {pod: "Never", container: corev1.Container{RestartPolicy: policy("Never"), RestartPolicyRules: rule(restart, in, 42)}, code: 42, want: true},
		"rule for another code":         {pod: "Never", container: corev1.Container{RestartPolicy: policy("Never"), RestartPolicyRules: rule(restart, in, 42)}, code: 41, want: false},
		"rule for all but another code": {pod: "Never", container: corev1.Container{RestartPolicy: policy("Never"), RestartPolicyRules: rule(restart, notIn, 42)}, code: 41, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &corev1.PodSpec{RestartPolicy: tc.pod, Containers: []corev1.Container{tc.container}}
			status := terminated("", 0, tc.code)
			require.Equal(t, !tc.want, stuck(spec, &tc.container, &status))
		})
	}
	all := corev1.Container{RestartPolicy: policy("Never"), RestartPolicyRules: rule(corev1.ContainerRestartRuleActionRestartAllContainers, in, 1)}
	status := terminated("", 0, 0)
	require.False(t, stuck(&corev1.PodSpec{RestartPolicy: "Never", InitContainers: []corev1.Container{all}}, &corev1.Container{}, &status))
}

func TestDebugContainersStayEnded(t *testing.T) {
	in := published()
	in.Local.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}}
	in.Local.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{terminated("debug", 0, 1)}
	in.Remote.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{running("debug", 0), running("theirs", 0)}
	require.Equal(t, []corev1.ContainerStatus{terminated("debug", 0, 1)}, Status(in).EphemeralContainerStatuses)
}

func debugContainers(names ...string) []corev1.EphemeralContainer {
	var out []corev1.EphemeralContainer
	for _, name := range names {
		out = append(out, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name, Image: "tools:1"}})
	}
	return out
}

func TestShadowPodNeverAsksTwiceForADebugContainer(t *testing.T) {
	pod := localPod()
	pod.Spec.EphemeralContainers = debugContainers("old", "new")
	pod.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{terminated("old", 0, 1)}
	shadow, err := ShadowPod(pod, options())
	require.NoError(t, err)
	require.Equal(t, debugContainers("new"), shadow.Spec.Pod.EphemeralContainers)
}

func TestDebugContainersOfALostPod(t *testing.T) {
	for name, tc := range map[string]struct {
		replaced bool
		there    []corev1.EphemeralContainer
		ended    bool
	}{
		"the pod has them":                      {true, debugContainers("debug"), false},
		"the pod is another":                    {true, nil, true},
		"the cache may be behind: nothing lost": {false, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			in := published()
			in.Local.Spec.EphemeralContainers = debugContainers("debug", "waits")
			in.Local.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{running("debug", 0), {Name: "waits"}}
			in.Remote.Spec.EphemeralContainers = tc.there
			if in.Shadow == nil {
				in.Shadow = &offloadingv1beta1.ShadowPod{}
				in.Shadow.Labels = map[string]string{offloadingv1beta1.LocalPodUIDLabel: string(in.Local.UID)}
			}
			if tc.replaced {
				in.Shadow.Status.Replaced = "before"
			}
			got := Status(in)
			require.Equal(t, tc.ended, got.EphemeralContainerStatuses[0].State.Terminated != nil)
			require.Len(t, got.EphemeralContainerStatuses, 1, "what has not begun is asked for again")
			in.Local.Status = got
			require.Equal(t, got, Status(in))
		})
	}
}

func TestARefusedDebugContainerWaits(t *testing.T) {
	in := published()
	in.Local.Spec.EphemeralContainers = debugContainers("old", "debug")
	in.Local.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{terminated("old", 0, 0)}
	in.Remote.Spec.EphemeralContainers = debugContainers("old")
	in.Remote.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{terminated("old", 0, 0)}
	in.Shadow = &offloadingv1beta1.ShadowPod{}
	in.Shadow.Labels = map[string]string{offloadingv1beta1.LocalPodUIDLabel: string(in.Local.UID)}
	in.Shadow.Status.Conditions = []metav1.Condition{{
		Type: offloadingv1beta1.ShadowPodEnforced, Status: metav1.ConditionFalse, Reason: "UpdateRefused", Message: "violates PodSecurity"}}
	got := Status(in)
	require.Len(t, got.EphemeralContainerStatuses, 2)
	require.Equal(t, &corev1.ContainerStateWaiting{Reason: "UpdateRefused", Message: "violates PodSecurity"}, got.EphemeralContainerStatuses[1].State.Waiting)
	in.Local.Status = got
	require.Equal(t, got, Status(in))
	in.Shadow.Status.Conditions = nil
	require.Len(t, Status(in).EphemeralContainerStatuses, 1, "no longer refused, and not yet heard of")
}
