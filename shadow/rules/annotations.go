package rules

import (
	"slices"
	"strings"
	"unicode"
)

// AnnotationsSetting is the setting that has the Annotations of this cluster.
const AnnotationsSetting = "sharing.annotations"

// AllKeys, among Annotations, stands for every key.
const AllKeys = "*"

// kubeletAnnotations begins the annotations by which kubelets know their static pods: a
// kubelet would take a pod that has them for a mirror of such a one.
const kubeletAnnotations = "kubernetes.io/config."

// directive are characters that end a value in the configuration of a proxy, beside control
// characters. Controllers of Ingresses write strings of an Ingress into it.
const directive = "{};#'\"`\\"

// endsDirective reports whether a string would end a value in the configuration of a proxy.
func endsDirective(s string) bool {
	return strings.ContainsAny(s, directive) || strings.ContainsFunc(s, unicode.IsControl)
}

// Annotations are the annotations that peers may set on objects of this cluster, by their
// keys: AllKeys stands for every key, and a key that ends in /* for every key of that domain.
// Keys without a dot belong to no product, and keys in the domain of liqod are its own: both
// are always accepted.
type Annotations []string

// Allows reports whether a peer may set an annotation.
func (a Annotations) Allows(key, value string) bool {
	domain, _, divided := strings.Cut(key, "/")
	switch {
	case strings.HasPrefix(key, kubeletAnnotations):
		return false
	case slices.Contains(a, AllKeys), !strings.Contains(key, "."), below(domain, "liqo.io"):
		return true
	case below(domain, "ingress.kubernetes.io") && endsDirective(value):
		return false
	}
	return slices.Contains(a, key) || divided && slices.Contains(a, domain+"/*")
}

// below reports whether a domain is another one, or a part of it.
func below(domain, of string) bool { return domain == of || strings.HasSuffix(domain, "."+of) }
