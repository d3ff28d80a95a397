package forge

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// mostNameServers is how many name servers Kubernetes accepts for a pod.
const mostNameServers = 3

// DNS is how pods of this cluster resolve names.
type DNS struct {
	// Servers are the addresses of its name servers.
	Servers []string
	// Domain is that of Services, usually cluster.local.
	Domain string
}

// resolveAtHome gives a pod that uses the Services of this cluster its DNS, as a kubelet of this cluster
// gives it. A pod with another policy than that of the cluster keeps it.
func (o PodOptions) resolveAtHome(spec *corev1.PodSpec, local *corev1.Pod) {
	switch policy := local.Spec.DNSPolicy; {
	case !o.Home, policy == corev1.DNSDefault, policy == corev1.DNSNone, policy == corev1.DNSClusterFirst && local.Spec.HostNetwork:
		return
	}
	asked := cmp.Or(local.Spec.DNSConfig, &corev1.PodDNSConfig{})
	services := "svc." + o.DNS.Domain
	out := &corev1.PodDNSConfig{
		Nameservers: unique(o.DNS.Servers, asked.Nameservers),
		Searches:    unique([]string{local.Namespace + "." + services, services, o.DNS.Domain}, asked.Searches),
		Options:     slices.Clone(asked.Options),
	}
	out.Nameservers = out.Nameservers[:min(len(out.Nameservers), mostNameServers)]
	if !slices.ContainsFunc(out.Options, func(option corev1.PodDNSConfigOption) bool { return option.Name == "ndots" }) {
		out.Options = append(out.Options, corev1.PodDNSConfigOption{Name: "ndots", Value: ptr.To("5")})
	}
	spec.DNSPolicy, spec.DNSConfig = corev1.DNSNone, out
}

// unique returns the elements of the lists, each once.
func unique(lists ...[]string) (out []string) {
	for _, one := range slices.Concat(lists...) {
		if !slices.Contains(out, one) {
			out = append(out, one)
		}
	}
	return out
}
