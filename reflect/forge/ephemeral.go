package forge

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// ephemeralContainers returns those of the pod's ephemeral containers that the provider
// shall start: the ones that have not begun, as far as is known here. Kubernetes starts
// none twice, so what has begun is asked for no more, and a pod that the provider has to
// make again comes without it. volumes are those of the provider's pod.
func (o PodOptions) ephemeralContainers(local *corev1.Pod, volumes []corev1.Volume) []corev1.EphemeralContainer {
	var dropped []string
	for i := range local.Spec.Volumes {
		name := local.Spec.Volumes[i].Name
		if injectedToken(&local.Spec.Volumes[i]) && !slices.ContainsFunc(volumes, func(v corev1.Volume) bool { return v.Name == name }) {
			dropped = append(dropped, name)
		}
	}
	var out []corev1.EphemeralContainer
	for i := range local.Spec.EphemeralContainers {
		c := local.Spec.EphemeralContainers[i].DeepCopy()
		if s := findStatus(local.Status.EphemeralContainerStatuses, c.Name); s != nil && begun(s) {
			continue
		}
		c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			return slices.Contains(dropped, m.Name)
		})
		if o.leadsHome(local) {
			common := corev1.Container(c.EphemeralContainerCommon)
			o.adaptEnv(&common)
			c.EphemeralContainerCommon = corev1.EphemeralContainerCommon(common)
		}
		out = append(out, *c)
	}
	return out
}

// begun tells whether a container has been started.
func begun(s *corev1.ContainerStatus) bool {
	return s.State.Running != nil || s.State.Terminated != nil || s.ContainerID != ""
}

// ephemeralStatuses brings the statuses of the ephemeral containers home. One that the
// provider refuses waits with its reason: that is what kubectl debug shows.
func (in *StatusInput) ephemeralStatuses(remote []corev1.ContainerStatus) []corev1.ContainerStatus {
	spec, never := in.Local.Spec.EphemeralContainers, corev1.ContainerRestartPolicyNever
	containers := make([]corev1.Container, 0, len(spec))
	for i := range spec {
		// It is never started again, whatever the pod's policy.
		containers = append(containers, corev1.Container{Name: spec[i].Name, RestartPolicy: &never})
	}
	known := in.statuses(remote, in.Local.Status.EphemeralContainerStatuses, containers)
	if in.Remote == nil {
		return known
	}
	reason, message, refused := in.refused()
	var out []corev1.ContainerStatus
	for i := range spec {
		s := findStatus(known, spec[i].Name)
		there := slices.ContainsFunc(in.Remote.Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == spec[i].Name })
		switch {
		case s != nil && (there || begun(s)):
			if !there && in.Shadow != nil && in.Shadow.Status.Replaced != "" {
				end(s, in.Now) // of an earlier pod: the one made instead does not get it
			}
			out = append(out, *s)
		case !there && refused:
			out = append(out, corev1.ContainerStatus{Name: spec[i].Name, Image: spec[i].Image,
				State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}})
		}
	}
	return out
}
