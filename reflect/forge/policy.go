package forge

import (
	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// Policy says which objects of a kind are reflected (seed 004).
type Policy string

// Reflection policies.
const (
	// DenyList reflects all objects but those with the annotation liqo.io/skip-reflection.
	DenyList Policy = "DenyList"
	// AllowList reflects those objects only that have the annotation liqo.io/allow-reflection.
	AllowList Policy = "AllowList"
)

// Reflects tells whether an object with those annotations is reflected under the policy,
// and whether the annotations contradict each other: then it is not.
func Reflects(p Policy, annotations map[string]string) (reflects, conflict bool) {
	skip, allow := asked(annotations)
	switch {
	case skip && allow:
		return false, true
	case p == AllowList:
		return allow, false
	default:
		return !skip, false
	}
}

// ReflectsSlice does for an EndpointSlice what Reflects does for other kinds: its own
// annotations decide under any policy, and where it has none the Service that it belongs
// to. A nil Service is one that does not exist, and is not reflected either.
func ReflectsSlice(p Policy, annotations map[string]string, service *corev1.Service) (reflects, conflict bool) {
	skip, allow := asked(annotations)
	switch {
	case skip || allow:
		return !skip, skip && allow
	case service == nil:
		return false, false
	default:
		// The contradiction, if any, is the Service's, and told of it.
		reflects, _ = Reflects(p, service.Annotations)
		return reflects, false
	}
}

// asked tells which annotations are there; the value "false" takes one back.
func asked(annotations map[string]string) (skip, allow bool) {
	value, skip := annotations[offloadingv1beta1.SkipReflectionAnnotation]
	skip = skip && value != "false"
	value, allow = annotations[offloadingv1beta1.AllowReflectionAnnotation]
	return skip, allow && value != "false"
}
