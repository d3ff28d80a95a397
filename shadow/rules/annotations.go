package rules

import (
	"fmt"
	"slices"
	"strings"
)

// AnnotationsSetting is the setting that has the Annotations of this cluster.
const AnnotationsSetting = "sharing.annotations"

// AllKeys, among Annotations, stands for every key.
const AllKeys = "*"

// kubeletAnnotations begins the annotations by which kubelets know their static pods: a
// kubelet would take a pod that has them for a mirror of such a one.
const kubeletAnnotations = "kubernetes.io/config."

// directive are characters that end a value in the configuration of a proxy. Controllers of
// Ingresses write values of annotations into it.
const directive = "{};#'\"`\\\r\n"

// steering are domains of keys that command this cluster's infrastructure; those below them
// count too. A peer's endpoints have no labels with such keys.
var steering = []string{
	"v1.cni.cncf.io",                   // multus: networks beside the cluster's
	"v1.multus-cni.io",                 // multus: another default network
	"cni.projectcalico.org",            // Calico: addresses, pools, floating addresses
	"ovn.kubernetes.io",                // Kube-OVN: subnets, addresses
	"ovn.org",                          // OVN-Kubernetes: networks, addresses
	"cluster-autoscaler.kubernetes.io", // keeps nodes from being scaled down
	"karpenter.sh",                     // keeps nodes from being replaced
	"descheduler.alpha.kubernetes.io",  // evictions of this and other pods
}

// Annotations are the annotations that peers may set on pods, EndpointSlices, Services and
// Ingresses in this cluster, by their keys: AllKeys stands for every key, and a key that
// ends in /* for every key of that domain. Keys without a dot belong to no product, and keys
// in the domain of liqod are its own: both are always accepted.
type Annotations []string

// Allows reports whether a peer may set an annotation.
func (a Annotations) Allows(key, value string) bool {
	domain, _, divided := strings.Cut(key, "/")
	switch {
	case strings.HasPrefix(key, kubeletAnnotations):
		return false
	case slices.Contains(a, AllKeys), !strings.Contains(key, "."), below(domain, "liqo.io"):
		return true
	case below(domain, "ingress.kubernetes.io") && strings.ContainsAny(value, directive):
		return false
	}
	return slices.Contains(a, key) || divided && slices.Contains(a, domain+"/*")
}

// Keep returns the annotations that an object of a peer may have, and the sorted keys of
// those that it may not. old are the annotations that the object has already: these stay, and
// with their values.
func (a Annotations) Keep(given, old map[string]string) (kept map[string]string, leftOut []string) {
	kept = map[string]string{}
	for key, value := range given {
		before, had := old[key]
		switch {
		case had && before == value, a.Allows(key, value):
			kept[key] = value
			continue
		case had:
			kept[key] = before
		}
		leftOut = append(leftOut, key)
	}
	slices.Sort(leftOut)
	return kept, leftOut
}

// mostNamed is the number of keys that a message names.
const mostNamed = 10

// NamedKeys returns a list of keys for people.
func NamedKeys(keys []string) string {
	if len(keys) <= mostNamed {
		return strings.Join(keys, ", ")
	}
	return fmt.Sprintf("%s, … (%d)", strings.Join(keys[:mostNamed], ", "), len(keys))
}

// LabelAllowed reports whether a peer's EndpointSlice may have a label with the given key
// here.
func LabelAllowed(key string) bool {
	domain, _, ok := strings.Cut(key, "/")
	return !ok || !slices.ContainsFunc(steering, func(s string) bool { return below(domain, s) })
}

// below reports whether a domain is another one, or a part of it.
func below(domain, of string) bool { return domain == of || strings.HasSuffix(domain, "."+of) }
