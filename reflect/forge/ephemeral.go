package forge

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// ephemeralContainers returns the ephemeral containers that the provider has to start:
// those that have not started according to the local status. Kubernetes never restarts an
// ephemeral container, so one that has started is dropped from the ShadowPod, and a
// replacement of the remote pod does not run it again. volumes are those of the remote
// pod.
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
		common := corev1.Container(c.EphemeralContainerCommon)
		dropMounts(&common, dropped)
		if o.leadsHome(local) {
			o.adaptEnv(&common)
		}
		c.EphemeralContainerCommon = corev1.EphemeralContainerCommon(common)
		out = append(out, *c)
	}
	return out
}

// begun reports whether a container has been started.
func begun(s *corev1.ContainerStatus) bool {
	return s.State.Running != nil || s.State.Terminated != nil || s.ContainerID != ""
}

// ephemeralStatuses translates the statuses of the ephemeral containers. One that the
// provider rejects is Waiting with the reason, which kubectl debug shows.
func (in *StatusInput) ephemeralStatuses(remote []corev1.ContainerStatus) []corev1.ContainerStatus {
	spec, never := in.Local.Spec.EphemeralContainers, corev1.ContainerRestartPolicyNever
	containers := make([]corev1.Container, 0, len(spec))
	for i := range spec {
		// Ephemeral containers are never restarted, whatever the restart policy of the pod.
		containers = append(containers, corev1.Container{Name: spec[i].Name, RestartPolicy: &never, VolumeMounts: spec[i].VolumeMounts})
	}
	known := in.statuses(remote, in.Local.Status.EphemeralContainerStatuses, containers)
	if in.Remote == nil {
		return known
	}
	reason, message, refused := in.refused()
	message = shortened(message, min(longestText, containersTexts/in.containers())/2)
	var out []corev1.ContainerStatus
	for i := range spec {
		s := findStatus(known, spec[i].Name)
		there := slices.ContainsFunc(in.Remote.Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == spec[i].Name })
		switch {
		case s != nil && (there || begun(s)):
			if !there && in.Shadow != nil && in.Shadow.Status.Replaced != "" {
				end(s, in.Now) // it ran in an earlier pod, whose replacement does not get it
			}
			out = append(out, *s)
		case !there && refused:
			out = append(out, corev1.ContainerStatus{Name: spec[i].Name, Image: spec[i].Image,
				State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}})
		}
	}
	return out
}
