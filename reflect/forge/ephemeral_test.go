package forge

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

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
			require.Nil(t, got.EphemeralContainerStatuses[1].State.Terminated, "what has not begun is asked for again")
			in.Local.Status = got
			require.Equal(t, got, Status(in))
		})
	}
}
