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
