package forge

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestFinalStatus(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		local []corev1.ContainerStatus
		phase corev1.PodPhase
		code  int32
	}{
		"never started":        {nil, corev1.PodFailed, 137},
		"end not seen":         {[]corev1.ContainerStatus{running("web", 2)}, corev1.PodFailed, 137},
		"end seen, success":    {[]corev1.ContainerStatus{terminated("web", 2, 0)}, corev1.PodSucceeded, 0},
		"end seen, no success": {[]corev1.ContainerStatus{terminated("web", 2, 3)}, corev1.PodFailed, 3},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
	t.Parallel()
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
