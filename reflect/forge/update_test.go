package forge

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

func TestUpdateShadowPod(t *testing.T) {
	t.Parallel()
	cpu := func(s string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(s)}}
	}
	n := func(i int64) *int64 { return &i }
	cases := map[string]struct {
		change func(*corev1.Pod)
		want   func(*offloadingv1beta1.ShadowPod) // nil: no update
	}{
		"nothing":              {change: func(*corev1.Pod) {}},
		"something immutable":  {change: func(p *corev1.Pod) { p.Spec.Hostname = "other" }},
		"an owner":             {change: func(p *corev1.Pod) { p.OwnerReferences = nil }},
		"a quantity respelled": {change: func(p *corev1.Pod) { p.Spec.Containers[0].Resources = cpu("1000m") }},
		"a preset, too late":   {change: func(p *corev1.Pod) { p.Annotations["liqo.io/anti-affinity-preset"] = "hard" }, want: func(s *offloadingv1beta1.ShadowPod) { s.Annotations["liqo.io/anti-affinity-preset"] = "hard" }},
		"a label":              {change: func(p *corev1.Pod) { p.Labels["a"] = "b" }, want: func(s *offloadingv1beta1.ShadowPod) { s.Labels["a"] = "b" }},
		"a label removed":      {change: func(p *corev1.Pod) { delete(p.Labels, "app") }, want: func(s *offloadingv1beta1.ShadowPod) { delete(s.Labels, "app") }},
		"no annotation left":   {change: func(p *corev1.Pod) { p.Annotations = nil }, want: func(s *offloadingv1beta1.ShadowPod) { s.Annotations = nil }},
		"an image": {
			change: func(p *corev1.Pod) { p.Spec.Containers[0].Image = "web:2"; p.Generation = 4 },
			want: func(s *offloadingv1beta1.ShadowPod) {
				s.Spec.Pod.Containers[0].Image = "web:2"
				s.Spec.LocalGeneration = 4
			},
		},
		"a sidecar's image": {
			change: func(p *corev1.Pod) { p.Spec.InitContainers[0].Image = "mesh:2" },
			want:   func(s *offloadingv1beta1.ShadowPod) { s.Spec.Pod.InitContainers[0].Image = "mesh:2" },
		},
		"a resize": {
			change: func(p *corev1.Pod) { p.Spec.Containers[0].Resources = cpu("2") },
			want:   func(s *offloadingv1beta1.ShadowPod) { s.Spec.Pod.Containers[0].Resources = cpu("2") },
		},
		"a resize of the pod": {
			change: func(p *corev1.Pod) { r := cpu("3"); p.Spec.Resources = &r },
			want:   func(s *offloadingv1beta1.ShadowPod) { r := cpu("3"); s.Spec.Pod.Resources = &r },
		},
		"a toleration added": {
			change: func(p *corev1.Pod) { p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: "k"}) },
			want: func(s *offloadingv1beta1.ShadowPod) {
				s.Spec.Pod.Tolerations = append(s.Spec.Pod.Tolerations, corev1.Toleration{Key: "k"})
			},
		},
		"a toleration removed, which the provider would refuse": {change: func(p *corev1.Pod) { p.Spec.Tolerations = nil }},
		"deadlines": {
			change: func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds, p.Spec.TerminationGracePeriodSeconds = n(5), n(6) },
			want: func(s *offloadingv1beta1.ShadowPod) {
				s.Spec.Pod.ActiveDeadlineSeconds, s.Spec.Pod.TerminationGracePeriodSeconds = n(5), n(6)
			},
		},
		"a debug container": {
			change: func(p *corev1.Pod) { p.Spec.EphemeralContainers = debugContainers("one"); p.Generation = 4 },
			want: func(s *offloadingv1beta1.ShadowPod) {
				s.Spec.LocalGeneration, s.Spec.Pod.EphemeralContainers = 4, debugContainers("one")
			},
		},
		"one debug container that has begun, one that waits, one of which nothing is known": {
			change: func(p *corev1.Pod) {
				p.Spec.EphemeralContainers = debugContainers("begun", "waits", "new")
				p.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{running("begun", 0), {
					Name: "waits", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}}
			},
			want: func(s *offloadingv1beta1.ShadowPod) { s.Spec.Pod.EphemeralContainers = debugContainers("waits", "new") },
		},
		"a debug container with the injected token": {
			change: func(p *corev1.Pod) {
				p.Spec.EphemeralContainers = debugContainers("one")
				p.Spec.EphemeralContainers[0].VolumeMounts = []corev1.VolumeMount{{Name: "kube-api-access-x"}, {Name: "data"}}
				p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "kube-api-access-x", VolumeSource: corev1.VolumeSource{
					Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}}}}}})
			},
			want: func(s *offloadingv1beta1.ShadowPod) {
				s.Spec.Pod.EphemeralContainers = debugContainers("one")
				s.Spec.Pod.EphemeralContainers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data"}}
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := localPod()
			pod.Spec.Containers[0].Resources = cpu("1")
			have, err := ShadowPod(pod, options())
			require.NoError(t, err)
			have.ResourceVersion, have.Status.Phase = "9", corev1.PodFailed
			before := have.DeepCopy()
			tc.change(pod)
			got, changed := UpdateShadowPod(have, pod, options())
			require.Equal(t, before, have, "the argument is not changed")
			if tc.want == nil {
				require.False(t, changed)
				return
			}
			want := have.DeepCopy()
			tc.want(want)
			require.True(t, changed)
			require.Equal(t, want, got)
		})
	}
}
