package forge

import (
	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// Policy decides which objects of a kind are reflected. docs/reflection.md ("What is not
// reflected") has the rules for users.
type Policy string

// The two policies.
const (
	// DenyList reflects all objects except those with the annotation
	// liqo.io/skip-reflection.
	DenyList Policy = "DenyList"
	// AllowList reflects only objects with the annotation liqo.io/allow-reflection.
	AllowList Policy = "AllowList"
)

// Reflects reports whether an object with these annotations is reflected under the
// policy. conflict is true if both annotations are set; then it is not reflected.
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

// ReflectsSlice is Reflects for an EndpointSlice. Its own annotations decide under any
// policy. Without them the annotations of its Service decide. service is nil if it does
// not exist; then the slice is not reflected. The slices of an ExternalName Service are never
// reflected: Kubernetes leaves those of its former selector as they were.
func ReflectsSlice(p Policy, annotations map[string]string, service *corev1.Service) (reflects, conflict bool) {
	skip, allow := asked(annotations)
	switch {
	case service != nil && service.Spec.Type == corev1.ServiceTypeExternalName:
		return false, false
	case skip || allow:
		return !skip, skip && allow
	case service == nil:
		return false, false
	default:
		// A conflict between the Service's annotations is reported for the Service.
		reflects, _ = Reflects(p, service.Annotations)
		return reflects, false
	}
}

// asked reports which of the two annotations are set. The value "false" counts as not
// set.
func asked(annotations map[string]string) (skip, allow bool) {
	value, skip := annotations[offloadingv1beta1.SkipReflectionAnnotation]
	skip = skip && value != "false"
	value, allow = annotations[offloadingv1beta1.AllowReflectionAnnotation]
	return skip, allow && value != "false"
}
