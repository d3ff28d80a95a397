package forge

import (
	"cmp"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// ingressClassAnnotation is the deprecated annotation for the class, from before
// spec.ingressClassName existed.
const ingressClassAnnotation = "kubernetes.io/ingress.class"

// Ingress returns the Ingress in the provider. offered are the provider's classes;
// without a matching one the class is left to the provider's default.
func Ingress(local *networkingv1.Ingress, o ObjectOptions, offered []Class) *networkingv1.Ingress {
	out := &networkingv1.Ingress{ObjectMeta: o.meta(&local.ObjectMeta), Spec: *local.Spec.DeepCopy()}
	// The API server rejects an Ingress with both the annotation and the field, so the
	// class is sent in the field only.
	leave(&out.ObjectMeta, nil, []string{ingressClassAnnotation})
	own := cmp.Or(value(local.Spec.IngressClassName), local.Annotations[ingressClassAnnotation])
	out.Spec.IngressClassName = named(remoteClass(own, offered))
	return out
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

// RestOfIngress returns want without the hosts that the provider refuses, or nil if it has none of them or no
// other one.
func RestOfIngress(want *networkingv1.Ingress, refused []string) *networkingv1.Ingress {
	out := want.DeepCopy()
	s := &out.Spec
	refuses := func(host string) bool { return slices.Contains(refused, offloadingv1beta1.IngressHostField(host)) }
	s.Rules = slices.DeleteFunc(s.Rules, func(r networkingv1.IngressRule) bool { return refuses(r.Host) })
	s.TLS = slices.DeleteFunc(s.TLS, func(t networkingv1.IngressTLS) bool {
		return len(t.Hosts) > 0 && !slices.ContainsFunc(t.Hosts, func(host string) bool { return !refuses(host) })
	})
	for i := range s.TLS {
		s.TLS[i].Hosts = slices.DeleteFunc(s.TLS[i].Hosts, refuses)
	}
	if refuses("") {
		s.DefaultBackend = nil
	}
	if len(s.Rules) == 0 && s.DefaultBackend == nil || equality.Semantic.DeepEqual(out, want) {
		return nil
	}
	return out
}

// MisleadsIngress reports whether have leads requests somewhere where want does not, or with
// another certificate. One more host or path alone does not mislead.
func MisleadsIngress(have, want *networkingv1.Ingress) bool {
	h, w := &have.Spec, &want.Spec
	return value(h.IngressClassName) != value(w.IngressClassName) ||
		h.DefaultBackend != nil && !equality.Semantic.DeepEqual(h.DefaultBackend, w.DefaultBackend) ||
		lacks(singlePaths(w.Rules), singlePaths(h.Rules)) || lacks(singleHosts(w.TLS), singleHosts(h.TLS))
}

// singlePaths returns one rule for each path.
func singlePaths(rules []networkingv1.IngressRule) (out []networkingv1.IngressRule) {
	for _, rule := range rules {
		if rule.HTTP == nil {
			out = append(out, rule)
			continue
		}
		for _, path := range rule.HTTP.Paths {
			one := networkingv1.IngressRule{Host: rule.Host}
			one.HTTP = &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{path}}
			out = append(out, one)
		}
	}
	return out
}

// singleHosts returns one certificate for each host.
func singleHosts(certificates []networkingv1.IngressTLS) (out []networkingv1.IngressTLS) {
	for _, tls := range certificates {
		for _, host := range tls.Hosts {
			out = append(out, networkingv1.IngressTLS{Hosts: []string{host}, SecretName: tls.SecretName})
		}
	}
	return out
}
