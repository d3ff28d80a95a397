package rules

import (
	"cmp"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Requests returns what a pod counts: what it requests of each resource, and itself among
// corev1.ResourcePods. Sidecars, the overhead of its runtime class, the resources of the
// pod as a whole and a resize that its node has not done yet are in it, the larger value of
// each. It counts nothing negative, whatever the pod says.
func Requests(pod *corev1.Pod) corev1.ResourceList {
	out := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	// What its node still gives it, more than is asked for by now. A resize that is not
	// feasible is not left out, as the scheduler does: it may become so.
	raise(out, resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{
		UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true,
	}))
	for name, quantity := range out {
		if quantity.Sign() <= 0 {
			delete(out, name)
		}
	}
	out[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	return out
}

// Predict returns a copy of a pod that is to be created, with the resources that an API
// server gives it: requests that follow from limits, the defaults of the LimitRanges of its
// namespace (the larger one where several differ), and the overhead of its runtime class.
// What webhooks add is not foreseen.
func Predict(pod *corev1.Pod, ranges []*corev1.LimitRange, overhead corev1.ResourceList) *corev1.Pod {
	out := pod.DeepCopy()
	eachContainer(&out.Spec, func(c *corev1.Container) { fill(&c.Resources.Requests, c.Resources.Limits) })
	predictPod(out)
	limits, requests := corev1.ResourceList{}, corev1.ResourceList{}
	for _, r := range ranges {
		for i := range r.Spec.Limits {
			if r.Spec.Limits[i].Type == corev1.LimitTypeContainer {
				raise(limits, r.Spec.Limits[i].Default)
				raise(requests, r.Spec.Limits[i].DefaultRequest)
			}
		}
	}
	eachContainer(&out.Spec, func(c *corev1.Container) {
		fill(&c.Resources.Limits, limits)
		fill(&c.Resources.Requests, requests)
	})
	out.Spec.Overhead = maps.Clone(overhead)
	return out
}

// predictPod is about the resources of the pod as a whole: what its containers request, or
// else its limits.
func predictPod(pod *corev1.Pod) {
	whole := pod.Spec.Resources
	if whole == nil || len(whole.Limits) == 0 {
		return
	}
	supported := func(list corev1.ResourceList) corev1.ResourceList {
		out := corev1.ResourceList{}
		for name, quantity := range list {
			if resourcehelper.IsSupportedPodLevelResource(name) {
				out[name] = quantity
			}
		}
		return out
	}
	fill(&whole.Requests, supported(resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{})))
	fill(&whole.Requests, supported(whole.Limits))
}

// Resized returns a copy of a pod with the resources that want has, where it has any: what
// no resize takes away stays.
func Resized(pod, want *corev1.Pod) *corev1.Pod {
	out := pod.DeepCopy()
	wanted := map[string]corev1.ResourceRequirements{}
	eachContainer(&want.Spec, func(c *corev1.Container) { wanted[c.Name] = c.Resources })
	eachContainer(&out.Spec, func(c *corev1.Container) { overwrite(&c.Resources, wanted[c.Name]) })
	if want.Spec.Resources != nil {
		out.Spec.Resources = cmp.Or(out.Spec.Resources, &corev1.ResourceRequirements{})
		overwrite(out.Spec.Resources, *want.Spec.Resources)
	}
	return out
}

func overwrite(have *corev1.ResourceRequirements, want corev1.ResourceRequirements) {
	set := func(list *corev1.ResourceList, values corev1.ResourceList) {
		if *list == nil && len(values) > 0 {
			*list = corev1.ResourceList{}
		}
		maps.Copy(*list, values)
	}
	set(&have.Requests, want.Requests)
	set(&have.Limits, want.Limits)
}

func eachContainer(spec *corev1.PodSpec, f func(*corev1.Container)) {
	for i := range spec.InitContainers {
		f(&spec.InitContainers[i])
	}
	for i := range spec.Containers {
		f(&spec.Containers[i])
	}
}

// fill adds to list what it lacks.
func fill(list *corev1.ResourceList, defaults corev1.ResourceList) {
	for name, quantity := range defaults {
		if _, has := (*list)[name]; has {
			continue
		}
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[name] = quantity
	}
}

// raise makes each value of list at least that of other.
func raise(list, other corev1.ResourceList) {
	for name, quantity := range other {
		if have, has := list[name]; !has || have.Cmp(quantity) < 0 {
			list[name] = quantity.DeepCopy()
		}
	}
}

// MaxResources returns the larger value of each resource of two lists.
func MaxResources(a, b corev1.ResourceList) corev1.ResourceList {
	out := maps.Clone(a)
	if out == nil {
		out = corev1.ResourceList{}
	}
	raise(out, b)
	return out
}

// AddResources adds the values of other to sum.
func AddResources(sum, other corev1.ResourceList) {
	for name, quantity := range other {
		total := sum[name].DeepCopy()
		total.Add(quantity)
		sum[name] = total
	}
}

// SubResources takes the values of other from sum; what becomes zero is left out.
func SubResources(sum, other corev1.ResourceList) {
	for name, quantity := range other {
		total := sum[name].DeepCopy()
		total.Sub(quantity)
		if total.IsZero() {
			delete(sum, name)
			continue
		}
		sum[name] = total
	}
}

// MoreResources returns by how much want exceeds have, where it does.
func MoreResources(want, have corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, quantity := range want {
		quantity = quantity.DeepCopy()
		quantity.Sub(have[name])
		if quantity.Sign() > 0 {
			out[name] = quantity
		}
	}
	return out
}
