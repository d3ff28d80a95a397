package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

const ingressClassAnnotation = "kubernetes.io/ingress.class"

// PeerInHosts stands for the id of the peer in the patterns of IngressBounds.
const PeerInHosts = "{peer}"

// IngressBounds are the hosts that this cluster accepts in the Ingresses of peers.
type IngressBounds struct {
	// Hosts are the accepted hosts: *.example.com stands for any host below example.com, and
	// PeerInHosts for the id of the peer. If the list is empty, each host is accepted.
	Hosts []string
}

// Refuse returns the reason for which a peer may not write an Ingress, or "", and the fields of the hosts
// that are refused; none: all of it is. others are the Ingresses of this cluster; those that the peer
// has reflected itself take no host from it.
func (b IngressBounds) Refuse(ing *networkingv1.Ingress, peer string, others []*networkingv1.Ingress) (fields []string, why string) {
	for _, s := range configured(&ing.Spec) {
		if endsDirective(s) || strings.ContainsFunc(s, unicode.IsSpace) {
			return nil, fmt.Sprintf("%.80q in spec: this cluster accepts in Ingresses of peers no spaces, control characters, quotes, backslashes, and none of { } ; #, because a proxy would take what follows for its own configuration", s)
		}
	}
	for _, host := range ingressHosts(ing) {
		if refused := b.refuseHost(host, ingressClass(ing), peer, others); refused != "" {
			fields, why = append(fields, offloadingv1beta1.IngressHostField(host)), cmp.Or(why, refused)
		}
	}
	return fields, why
}

// refuseHost returns the reason for which an Ingress of a class and of a peer may not have a host, or "".
func (b IngressBounds) refuseHost(host, class, peer string, others []*networkingv1.Ingress) string {
	if len(b.Hosts) > 0 && !slices.ContainsFunc(b.Hosts, func(pattern string) bool { return covers(strings.ReplaceAll(pattern, PeerInHosts, peer), host) }) {
		return fmt.Sprintf("%s is not among the hosts that this cluster accepts from peers: %s (its setting sharing.ingressHosts)", named(host), strings.Join(b.Hosts, ", "))
	}
	for _, other := range others {
		if other.Labels[offloadingv1beta1.OriginLabel] == peer || host == "" && class != ingressClass(other) {
			continue // other controllers serve requests for all hosts of another class
		}
		if slices.ContainsFunc(ingressHosts(other), func(taken string) bool { return overlap(host, taken) }) {
			return fmt.Sprintf("%s is used by another Ingress of this cluster: a peer may use only hosts that no Ingress of others uses", named(host))
		}
	}
	return ""
}

// ingressHosts are the hosts that an Ingress serves, sorted. "" stands for requests that no
// other host takes: a rule without a host, and the default backend.
func ingressHosts(ing *networkingv1.Ingress) (hosts []string) {
	if ing.Spec.DefaultBackend != nil {
		hosts = append(hosts, "")
	}
	for _, rule := range ing.Spec.Rules {
		hosts = append(hosts, rule.Host)
	}
	for _, tls := range ing.Spec.TLS {
		hosts = append(hosts, tls.Hosts...)
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// configured returns the strings of an Ingress that a controller may write into the
// configuration of its proxy.
func configured(spec *networkingv1.IngressSpec) (out []string) {
	backend := func(b *networkingv1.IngressBackend) {
		switch {
		case b == nil:
		case b.Service != nil:
			out = append(out, b.Service.Name, b.Service.Port.Name)
		case b.Resource != nil:
			out = append(out, b.Resource.Kind, b.Resource.Name, ptr.Deref(b.Resource.APIGroup, ""))
		}
	}
	out = append(out, ptr.Deref(spec.IngressClassName, ""))
	backend(spec.DefaultBackend)
	for _, tls := range spec.TLS {
		out = append(append(out, tls.SecretName), tls.Hosts...)
	}
	for _, rule := range spec.Rules {
		out = append(out, rule.Host)
		if rule.HTTP == nil {
			continue
		}
		for i := range rule.HTTP.Paths {
			out = append(out, rule.HTTP.Paths[i].Path)
			backend(&rule.HTTP.Paths[i].Backend)
		}
	}
	return out
}

// ingressClass is the class of an Ingress, by its field or its annotation; "": the default one.
func ingressClass(ing *networkingv1.Ingress) string {
	return ptr.Deref(ing.Spec.IngressClassName, ing.Annotations[ingressClassAnnotation])
}

// overlap reports whether there are requests for both hosts.
func overlap(a, b string) bool { return covers(a, b) || covers(b, a) }

// covers reports whether a pattern stands for a host, or for each host of another pattern. In
// an Ingress the star stands for one label; here it stands for any number, as some
// controllers have it.
func covers(pattern, host string) bool {
	suffix, wild := strings.CutPrefix(pattern, "*.")
	return pattern == host || wild && strings.HasSuffix(strings.TrimPrefix(host, "*"), "."+suffix)
}

func named(host string) string {
	if host == "" {
		return "a rule for all hosts (without host, or defaultBackend)"
	}
	return "host " + host
}
