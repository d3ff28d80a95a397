package v1beta1

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// RestartPolicy returns by which policy a pod as a whole is run again: that of its spec or,
// where that is Always and each of its containers has another one of its own (KEP-5307), the
// strictest of those. Such a pod ends by itself, too.
func RestartPolicy(spec *corev1.PodSpec) corev1.RestartPolicy {
	if spec.RestartPolicy != "" && spec.RestartPolicy != corev1.RestartPolicyAlways {
		return spec.RestartPolicy
	}
	own := func(policy corev1.ContainerRestartPolicy) func(corev1.Container) bool {
		return func(c corev1.Container) bool { return c.RestartPolicy != nil && *c.RestartPolicy == policy }
	}
	always := func(c corev1.Container) bool {
		return c.RestartPolicy == nil || own(corev1.ContainerRestartPolicyAlways)(c)
	}
	switch {
	case slices.ContainsFunc(spec.Containers, always):
		return corev1.RestartPolicyAlways
	case slices.ContainsFunc(spec.Containers, own(corev1.ContainerRestartPolicyNever)):
		return corev1.RestartPolicyNever
	case slices.ContainsFunc(spec.Containers, own(corev1.ContainerRestartPolicyOnFailure)):
		return corev1.RestartPolicyOnFailure
	default:
		return corev1.RestartPolicyAlways
	}
}

// RestartsContainer reports whether a container is started again after an exit: by a
// rule of its own, else by its own policy, else by the pod's.
func RestartsContainer(spec *corev1.PodSpec, c *corev1.Container, exitCode int32) bool {
	policy := corev1.ContainerRestartPolicy(spec.RestartPolicy)
	if c.RestartPolicy != nil {
		policy = *c.RestartPolicy
		if slices.ContainsFunc(c.RestartPolicyRules, func(r corev1.ContainerRestartRule) bool { return ruleMatches(r, exitCode) }) {
			return true
		}
	}
	switch policy {
	case corev1.ContainerRestartPolicyNever:
		return false
	case corev1.ContainerRestartPolicyOnFailure:
		return exitCode != 0
	default:
		return true
	}
}

// MayRunAgain reports whether a pod that was lost while it ran may be created again. With
// the restart policy Always it may. With OnFailure it may unless a container has ended with
// exit code 0. With Never it may only if certainly no container has run. Both clusters decide
// with it, each from the status that it has. docs/pods.md ("When it is lost") describes this for
// users.
func MayRunAgain(pod *corev1.Pod) bool {
	switch RestartPolicy(&pod.Spec) {
	case corev1.RestartPolicyNever:
		return neverStarted(pod)
	case corev1.RestartPolicyOnFailure:
		return !slices.ContainsFunc(pod.Status.ContainerStatuses, succeeded)
	default:
		return true
	}
}

// Ended reports whether a pod in this phase has ended.
func Ended(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

// Collected reports whether a pod is Failed only because its node is gone. The pod garbage
// collector marks such a pod, and then deletes it.
func Collected(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == "DeletionByPodGC"
	})
}

func succeeded(c corev1.ContainerStatus) bool {
	now, last := c.State.Terminated, c.LastTerminationState.Terminated
	return now != nil && now.ExitCode == 0 || last != nil && last.ExitCode == 0
}

// neverStarted reports whether certainly no container of pod ever ran. Without a final
// status of the kubelet, only a pod that was never bound to a node qualifies.
func neverStarted(pod *corev1.Pod) bool {
	if pod.Spec.NodeName == "" {
		return true
	}
	if !Ended(pod.Status.Phase) || Collected(pod) {
		return false
	}
	return !slices.ContainsFunc(pod.Status.ContainerStatuses, ran) && !slices.ContainsFunc(pod.Status.InitContainerStatuses, ran)
}

func ran(c corev1.ContainerStatus) bool {
	end := c.State.Terminated
	return c.ContainerID != "" || c.RestartCount > 0 || c.State.Running != nil || c.LastTerminationState.Terminated != nil ||
		end != nil && (end.ContainerID != "" || !end.StartedAt.IsZero())
}

func ruleMatches(rule corev1.ContainerRestartRule, exitCode int32) bool {
	if rule.ExitCodes == nil {
		return false
	}
	listed := slices.Contains(rule.ExitCodes.Values, exitCode)
	if rule.ExitCodes.Operator == corev1.ContainerRestartRuleOnExitCodesOpNotIn {
		return !listed
	}
	return listed
}
