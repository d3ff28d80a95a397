package forge

import (
	networkingv1 "k8s.io/api/networking/v1"
)

// ingressClassAnnotation named the class of an Ingress before there was a field for it.
const ingressClassAnnotation = "kubernetes.io/ingress.class"

// Ingress returns the Ingress in the provider, which offers those classes; without an
// offer the class is left to the provider's default. It is nil for one that stands for an
// Ingress of another cluster. The error is always nil.
func Ingress(local *networkingv1.Ingress, o ObjectOptions, offered []Class) (*networkingv1.Ingress, error) {
	if Foreign(local, o.OriginClusterID) {
		return nil, nil
	}
	out := &networkingv1.Ingress{ObjectMeta: o.meta(&local.ObjectMeta), Spec: *local.Spec.DeepCopy()}
	// The API server refuses an Ingress that has both: the class goes into the field.
	leave(&out.ObjectMeta, nil, []string{ingressClassAnnotation})
	own := orElse(value(local.Spec.IngressClassName), local.Annotations[ingressClassAnnotation])
	out.Spec.IngressClassName = named(remoteClass(own, offered))
	return out, nil
}

// MergeIngress returns have made as wanted. A class that the provider has filled in stays
// where none is wanted.
func MergeIngress(have, want *networkingv1.Ingress) *networkingv1.Ingress {
	out := have.DeepCopy()
	mergeMeta(&out.ObjectMeta, &want.ObjectMeta)
	out.Spec = *want.Spec.DeepCopy()
	if out.Spec.IngressClassName == nil {
		out.Spec.IngressClassName = have.DeepCopy().Spec.IngressClassName
	}
	return out
}
