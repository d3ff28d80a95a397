package forge

import (
	networkingv1 "k8s.io/api/networking/v1"
)

// ingressClassAnnotation is the deprecated annotation for the class, from before
// spec.ingressClassName existed.
const ingressClassAnnotation = "kubernetes.io/ingress.class"

// Ingress returns the Ingress in the provider. offered are the provider's classes;
// without a matching one the class is left to the provider's default. The result is nil
// if local was itself reflected from another cluster. The error is always nil.
func Ingress(local *networkingv1.Ingress, o ObjectOptions, offered []Class) (*networkingv1.Ingress, error) {
	if Foreign(local, o.OriginClusterID) {
		return nil, nil
	}
	out := &networkingv1.Ingress{ObjectMeta: o.meta(&local.ObjectMeta), Spec: *local.Spec.DeepCopy()}
	// The API server rejects an Ingress with both the annotation and the field, so the
	// class is sent in the field only.
	leave(&out.ObjectMeta, nil, []string{ingressClassAnnotation})
	own := orElse(value(local.Spec.IngressClassName), local.Annotations[ingressClassAnnotation])
	out.Spec.IngressClassName = named(remoteClass(own, offered))
	return out, nil
}

// MergeIngress returns a copy of have that is as wanted. If want has no class, the class
// that the provider has filled in is kept.
func MergeIngress(have, want *networkingv1.Ingress) *networkingv1.Ingress {
	out := have.DeepCopy()
	mergeMeta(&out.ObjectMeta, &want.ObjectMeta)
	out.Spec = *want.Spec.DeepCopy()
	if out.Spec.IngressClassName == nil {
		out.Spec.IngressClassName = have.DeepCopy().Spec.IngressClassName
	}
	return out
}
