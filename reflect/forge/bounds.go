package forge

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Limits of what a provider may write into the status of a pod, in bytes. The provider is
// a different organisation, and the status is stored in this cluster.
const (
	// longestText is the limit of one text. Kubelets limit a termination message to as much.
	longestText = 4 << 10
	// podTexts is the limit of all texts of a pod but those of its containers, and
	// containersTexts that of the texts of all its containers. A kubelet limits the
	// termination messages of all containers to half of the latter.
	podTexts        = 8 << 10
	containersTexts = 24 << 10
	// shortestText is the smallest limit of a text before all of them are dropped.
	shortestText = 32
	// mostAddresses is the number of addresses of a pod that are looked at.
	mostAddresses = 8
	// mostHealth and longestHealthID limit the devices whose health a container reports.
	mostHealth      = 16
	longestHealthID = 128
)

// Reasons with which StatusInput.Refused is called.
const (
	// RefusedStatus means that a part of the status was too large or not valid, and was cut.
	RefusedStatus = "status"
	// RefusedAddress means that an address of the pod was left out.
	RefusedAddress = "address"
)

// bounded returns a copy of the provider's status in which everything but the containers
// has a limit, as containerStatuses limits those.
func (in *StatusInput) bounded(source *corev1.PodStatus) *corev1.PodStatus {
	out := source.DeepCopy()
	switch out.Phase {
	case "", corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed, corev1.PodUnknown:
	default:
		out.Phase = corev1.PodUnknown
	}
	if out.StartTime != nil && !plausible(*out.StartTime) {
		out.StartTime = nil
	}
	if !isWord(string(out.Resize), shortestText) {
		out.Resize = ""
	}
	out.Conditions = boundedConditions(out.Conditions)
	texts := []*string{&out.Reason, &out.Message}
	for i := range out.Conditions {
		texts = append(texts, &out.Conditions[i].Reason, &out.Conditions[i].Message)
	}
	spec, old := cmp.Or(in.Local.Spec.Resources, &corev1.ResourceRequirements{}), &in.Local.Status
	top := ceilings(spec, old.AllocatedResources, old.Resources)
	out.AllocatedResources, out.Resources = atMost(out.AllocatedResources, top), requirementsAtMost(out.Resources, spec.Claims, top)
	in.fit(texts, podTexts)
	return out
}

// boundedConditions returns the conditions of which Status makes use, one of each type.
func boundedConditions(conditions []corev1.PodCondition) []corev1.PodCondition {
	var out []corev1.PodCondition
	for _, c := range conditions {
		used := kubelets(c.Type) || c.Type == corev1.PodScheduled || c.Type == corev1.DisruptionTarget
		if !used || findCondition(out, c.Type) != nil {
			continue
		}
		if c.Status != corev1.ConditionTrue && c.Status != corev1.ConditionFalse {
			c.Status = corev1.ConditionUnknown
		}
		out = append(out, c)
	}
	for i := range out {
		dropImplausible(&out[i].LastProbeTime, &out[i].LastTransitionTime)
	}
	return out
}

// boundContainer limits the status of one container in place. c is the container of the
// local pod, and old its local status; nil if there is none.
func (in *StatusInput) boundContainer(s, old *corev1.ContainerStatus, c *corev1.Container) {
	s.RestartCount = max(s.RestartCount, 0)
	texts := []*string{&s.Image, &s.ImageID, &s.ContainerID}
	for _, state := range []*corev1.ContainerState{&s.State, &s.LastTerminationState} {
		if state.Waiting != nil {
			texts = append(texts, &state.Waiting.Reason, &state.Waiting.Message)
		}
		if state.Running != nil {
			dropImplausible(&state.Running.StartedAt)
		}
		if t := state.Terminated; t != nil {
			dropImplausible(&t.StartedAt, &t.FinishedAt)
			texts = append(texts, &t.Reason, &t.Message, &t.ContainerID)
		}
	}
	old = cmp.Or(old, &corev1.ContainerStatus{})
	top := ceilings(&c.Resources, old.AllocatedResources, old.Resources)
	s.AllocatedResources, s.Resources = atMost(s.AllocatedResources, top), requirementsAtMost(s.Resources, c.Resources.Claims, top)
	if s.StopSignal != nil && !isWord(string(*s.StopSignal), shortestText) {
		s.StopSignal = nil
	}
	if s.User != nil && s.User.Linux != nil && len(s.User.Linux.SupplementalGroups) > mostHealth*shortestText {
		s.User = nil
	}
	texts = append(texts, boundMounts(s, c)...)
	texts = append(texts, boundHealth(s, top)...)
	in.fit(texts, containersTexts/in.containers())
}

// containers returns the number of containers of the local pod, and 1 for none.
func (in *StatusInput) containers() int {
	spec := &in.Local.Spec
	return max(1, len(spec.Containers)+len(spec.InitContainers)+len(spec.EphemeralContainers))
}

// boundMounts leaves out mounts that the local container does not have. It returns the
// texts of the others.
func boundMounts(s *corev1.ContainerStatus, c *corev1.Container) (texts []*string) {
	var mounts []corev1.VolumeMountStatus
	for _, m := range s.VolumeMounts {
		known := slices.IndexFunc(c.VolumeMounts, func(l corev1.VolumeMount) bool { return l.MountPath == m.MountPath })
		if known < 0 || slices.ContainsFunc(mounts, func(have corev1.VolumeMountStatus) bool { return have.MountPath == m.MountPath }) {
			continue
		}
		m.Name = c.VolumeMounts[known].Name
		if m.RecursiveReadOnly != nil && !isWord(string(*m.RecursiveReadOnly), shortestText) {
			m.RecursiveReadOnly = nil
		}
		mounts = append(mounts, m)
	}
	for i := range mounts {
		if v := mounts[i].VolumeStatus; v != nil && v.Image != nil {
			texts = append(texts, &v.Image.ImageRef)
		}
	}
	s.VolumeMounts = mounts
	return texts
}

// boundHealth leaves out the health of resources that the local container does not ask
// for. It returns the texts of the others.
func boundHealth(s *corev1.ContainerStatus, asked corev1.ResourceList) (texts []*string) {
	var out []corev1.ResourceStatus
	left := mostHealth
	for _, r := range s.AllocatedResourcesStatus {
		if _, known := asked[r.Name]; !known || slices.ContainsFunc(out, func(have corev1.ResourceStatus) bool { return have.Name == r.Name }) {
			continue
		}
		r.Resources = slices.DeleteFunc(r.Resources, func(h corev1.ResourceHealth) bool {
			left--
			return left < 0 || !isWord(string(h.ResourceID), longestHealthID) || !isWord(string(h.Health), shortestText)
		})
		for i := range r.Resources {
			if r.Resources[i].Message != nil {
				texts = append(texts, r.Resources[i].Message)
			}
		}
		out = append(out, r)
	}
	s.AllocatedResourcesStatus = out
	return texts
}

// ceilings returns the resources of which the provider may report no more: the most of those of
// the local spec, and of those that it has reported, as a resize takes time. The scheduler and
// the quotas of this cluster count what is reported.
func ceilings(spec *corev1.ResourceRequirements, allocated corev1.ResourceList, reported *corev1.ResourceRequirements) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, list := range []corev1.ResourceList{spec.Requests, spec.Limits, allocated, value(reported).Requests, value(reported).Limits} {
		for name, quantity := range list {
			if top, known := out[name]; !known || quantity.Cmp(top) > 0 {
				out[name] = quantity
			}
		}
	}
	return out
}

// atMost limits the quantities of list. A resource without a ceiling is left out.
func atMost(list, ceilings corev1.ResourceList) corev1.ResourceList {
	if list == nil {
		return nil
	}
	out := corev1.ResourceList{}
	for name, quantity := range list {
		switch top, known := ceilings[name]; {
		case !known || quantity.Sign() < 0:
		case quantity.Cmp(top) > 0:
			out[name] = top.DeepCopy()
		default:
			out[name] = quantity
		}
	}
	return out
}

// requirementsAtMost is atMost for both lists. Of the claims it keeps those in claims.
func requirementsAtMost(r *corev1.ResourceRequirements, claims []corev1.ResourceClaim, ceilings corev1.ResourceList) *corev1.ResourceRequirements {
	if r == nil {
		return nil
	}
	out := &corev1.ResourceRequirements{Limits: atMost(r.Limits, ceilings), Requests: atMost(r.Requests, ceilings)}
	for _, c := range claims {
		if slices.Contains(r.Claims, c) {
			out.Claims = append(out.Claims, c)
		}
	}
	return out
}

// fit cuts texts so that each has at most longestText bytes, and all of them have at most
// budget bytes. The longest ones are cut first.
func (in *StatusInput) fit(texts []*string, budget int) {
	for _, t := range texts {
		*t = strings.ToValidUTF8(*t, "\uFFFD")
	}
	limit := longestText
	for limit >= shortestText && total(texts, limit) > budget {
		limit /= 2
	}
	if limit < shortestText {
		limit = 0
	}
	for _, t := range texts {
		if len(*t) > limit {
			*t = shortened(*t, limit)
			in.refuse(RefusedStatus, "the provider's status of the pod is too large, and texts in it are cut")
		}
	}
}

// isWord reports whether s is valid text of at most limit bytes.
func isWord(s string, limit int) bool { return len(s) <= limit && utf8.ValidString(s) }

// total returns the size of texts if each is cut to limit.
func total(texts []*string, limit int) (sum int) {
	for _, t := range texts {
		sum += min(len(*t), limit)
	}
	return sum
}

// shortened returns at most limit bytes of s, and marks that something is missing.
func shortened(s string, limit int) string {
	const more = "…"
	if len(s) <= limit || limit < len(more) {
		return clip(s, limit)
	}
	return clip(s, limit-len(more)) + more
}

// refuse reports that a part of what the provider has sent is left out.
func (in *StatusInput) refuse(reason, message string) {
	if in.Refused != nil {
		in.Refused(reason, message)
	}
}

// plausible reports whether JSON has a form for the time (RFC 3339) that a clock can show.
func plausible(t metav1.Time) bool {
	return t.IsZero() || t.Year() >= 1970 && t.Year() <= 9999
}

// dropImplausible sets times that no clock can show to zero.
func dropImplausible(times ...*metav1.Time) {
	for _, t := range times {
		if !plausible(*t) {
			*t = metav1.Time{}
		}
	}
}

// sumRestarts adds restart counts of different pods.
func sumRestarts(a, b int32) int32 {
	return int32(min(int64(a)+int64(max(b, 0)), math.MaxInt32))
}
