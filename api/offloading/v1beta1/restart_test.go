package v1beta1

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestRestartPolicy(t *testing.T) {
	t.Parallel()
	const always, onFailure, never, none = corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyOnFailure, corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicy("")
	for name, tc := range map[string]struct {
		pod        corev1.RestartPolicy
		containers []corev1.ContainerRestartPolicy
		want       corev1.RestartPolicy
	}{
		"its own":                    {corev1.RestartPolicyOnFailure, []corev1.ContainerRestartPolicy{always}, corev1.RestartPolicyOnFailure},
		"none":                       {"", []corev1.ContainerRestartPolicy{none}, corev1.RestartPolicyAlways},
		"a container without":        {corev1.RestartPolicyAlways, []corev1.ContainerRestartPolicy{never, none}, corev1.RestartPolicyAlways},
		"a container that runs on":   {corev1.RestartPolicyAlways, []corev1.ContainerRestartPolicy{never, always}, corev1.RestartPolicyAlways},
		"containers that end":        {corev1.RestartPolicyAlways, []corev1.ContainerRestartPolicy{never, never}, corev1.RestartPolicyNever},
		"the strictest":              {corev1.RestartPolicyAlways, []corev1.ContainerRestartPolicy{onFailure, never}, corev1.RestartPolicyNever},
		"containers that may repeat": {corev1.RestartPolicyAlways, []corev1.ContainerRestartPolicy{onFailure, onFailure}, corev1.RestartPolicyOnFailure},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := corev1.PodSpec{RestartPolicy: tc.pod}
			for _, policy := range tc.containers {
				c := corev1.Container{}
				if policy != none {
					c.RestartPolicy = &policy
				}
				spec.Containers = append(spec.Containers, c)
			}
			require.Equal(t, tc.want, RestartPolicy(&spec))
		})
	}
}
