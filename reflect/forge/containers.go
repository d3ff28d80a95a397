package forge

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// containerStatuses translates the container statuses. The result has only the containers
// of the local pod, in the order of its spec.
func (in *StatusInput) containerStatuses(out *corev1.PodStatus) {
	spec, old := &in.Local.Spec, &in.Local.Status
	out.ContainerStatuses = in.statuses(out.ContainerStatuses, old.ContainerStatuses, spec.Containers)
	out.InitContainerStatuses = in.statuses(out.InitContainerStatuses, old.InitContainerStatuses, spec.InitContainers)
	out.EphemeralContainerStatuses = in.ephemeralStatuses(out.EphemeralContainerStatuses)
}

func (in *StatusInput) statuses(remote, old []corev1.ContainerStatus, containers []corev1.Container) []corev1.ContainerStatus {
	var out []corev1.ContainerStatus
	for i := range containers {
		name := containers[i].Name
		r, o := findStatus(remote, name), findStatus(old, name)
		switch {
		case r == nil && o == nil:
		case r == nil:
			kept := *o.DeepCopy()
			kept.Ready = false
			out = append(out, kept)
		default:
			out = append(out, in.status(r, o, &containers[i]))
		}
	}
	return out
}

// status returns the status of one container. old may be nil.
func (in *StatusInput) status(remote, old *corev1.ContainerStatus, c *corev1.Container) corev1.ContainerStatus {
	out := *remote.DeepCopy()
	in.boundContainer(&out, old, c)
	out.RestartCount = sumRestarts(out.RestartCount, in.earlierRestarts(c.Name))
	if old == nil {
		return out
	}
	count := max(out.RestartCount, old.RestartCount)
	switch {
	case stuck(&in.Local.Spec, c, old) && out.State.Terminated == nil:
		out = *old.DeepCopy()
	case in.losing() && old.State.Terminated == nil && stuck(&in.Local.Spec, c, &out):
		// The provider may restart the container, but the API server would not accept a
		// status that leaves this terminated state.
		out = *old.DeepCopy()
		out.Ready = false
	}
	out.RestartCount = count
	return out
}

// earlierRestarts returns the restarts in the pods that the provider ran for this pod
// before the current one.
func (in *StatusInput) earlierRestarts(name string) int32 {
	if in.Shadow == nil {
		return 0
	}
	for _, r := range in.Shadow.Status.Restarts {
		if r.Name == name {
			return r.Count
		}
	}
	return 0
}

// stuck reports whether the API server rejects a status in which the container leaves its
// terminated state.
func stuck(spec *corev1.PodSpec, c *corev1.Container, status *corev1.ContainerStatus) bool {
	if status.State.Terminated == nil || mayRestartAll(spec) {
		return false
	}
	return !offloadingv1beta1.RestartsContainer(spec, c, status.State.Terminated.ExitCode)
}

// mayRestartAll reports whether the exit of a container may restart all containers of the
// pod.
func mayRestartAll(spec *corev1.PodSpec) bool {
	restartsAll := func(c corev1.Container) bool {
		return slices.ContainsFunc(c.RestartPolicyRules, func(r corev1.ContainerRestartRule) bool {
			return r.Action == corev1.ContainerRestartRuleActionRestartAllContainers
		})
	}
	return slices.ContainsFunc(spec.Containers, restartsAll) || slices.ContainsFunc(spec.InitContainers, restartsAll)
}

func findStatus(statuses []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	for i := range statuses {
		if statuses[i].Name == name {
			return &statuses[i]
		}
	}
	return nil
}
