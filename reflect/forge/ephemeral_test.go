package forge

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

func debugContainers(names ...string) []corev1.EphemeralContainer {
	var out []corev1.EphemeralContainer
	for _, name := range names {
		out = append(out, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name, Image: "tools:1"}})
	}
	return out
}

func TestShadowPodNeverAsksTwiceForADebugContainer(t *testing.T) {
	t.Parallel()
	pod := localPod()
	pod.Spec.EphemeralContainers = debugContainers("old", "new")
	pod.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{terminated("old", 0, 1)}
	shadow, err := ShadowPod(pod, options())
	require.NoError(t, err)
	require.Equal(t, debugContainers("new"), shadow.Spec.Pod.EphemeralContainers)
}

func TestDebugContainersOfALostPod(t *testing.T) {
	t.Parallel()
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
			t.Parallel()
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
	t.Parallel()
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
