package forge

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// ephemeralContainers returns those of the pod's ephemeral containers that the provider
// shall start: the ones that have not begun, as far as is known here. Kubernetes starts
// none twice, so what has begun is asked for no more, and a pod that the provider has to
// make again comes without it.
func ephemeralContainers(local *corev1.Pod) []corev1.EphemeralContainer {
	var injected []string
	for i := range local.Spec.Volumes {
		if injectedToken(&local.Spec.Volumes[i]) {
			injected = append(injected, local.Spec.Volumes[i].Name)
		}
	}
	var out []corev1.EphemeralContainer
	for i := range local.Spec.EphemeralContainers {
		c := local.Spec.EphemeralContainers[i].DeepCopy()
		if s := findStatus(local.Status.EphemeralContainerStatuses, c.Name); s != nil && begun(s) {
			continue
		}
		c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			return slices.Contains(injected, m.Name)
		})
		out = append(out, *c)
	}
	return out
}

// begun tells whether a container has been started.
func begun(s *corev1.ContainerStatus) bool {
	return s.State.Running != nil || s.State.Terminated != nil || s.ContainerID != ""
}

// endEphemeral ends, among the statuses, the ephemeral containers of an earlier pod: the
// one that the provider made instead does not get them.
func (in *StatusInput) endEphemeral(statuses []corev1.ContainerStatus) {
	if in.Remote == nil || in.Shadow == nil || in.Shadow.Status.Replaced == "" {
		return
	}
	for i := range statuses {
		there := slices.ContainsFunc(in.Remote.Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool {
			return c.Name == statuses[i].Name
		})
		if !there && begun(&statuses[i]) {
			end(&statuses[i], in.Now)
		}
	}
}
