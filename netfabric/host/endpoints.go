package host

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/netfabric/check"
)

// serviceEndpoints are the addresses by which other clusters reach a gateway through its UDP
// Service, the best first. own is the node of the gateway: where the Service is one of type
// NodePort, the others only lead to it, and with externalTrafficPolicy Local do not.
func serviceEndpoints(service *corev1.Service, nodes []*corev1.Node, own string) (out []networkingv1beta1.Endpoint) {
	i := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Protocol == corev1.ProtocolUDP })
	if i < 0 {
		return nil
	}
	port := service.Spec.Ports[i]
	switch service.Spec.Type {
	case corev1.ServiceTypeLoadBalancer:
		for _, ingress := range service.Status.LoadBalancer.Ingress {
			for _, address := range []string{ingress.IP, strings.ToLower(strings.TrimSuffix(ingress.Hostname, "."))} {
				out = addEndpoint(out, address, port.Port)
			}
		}
	case corev1.ServiceTypeNodePort:
		if port.NodePort == 0 {
			return nil
		}
		local := service.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
		for _, n := range ownFirst(nodes, own) {
			if offloadingv1beta1.IsVirtual(n) || local && n.Name != own {
				continue
			}
			for _, addr := range check.AddressesOf(n, corev1.NodeExternalIP, corev1.NodeInternalIP) { // those for the world outside first
				if serves(service, addr) {
					out = addEndpoint(out, addr.String(), port.NodePort)
				}
			}
		}
	}
	return out
}

// serves reports whether nodes take packets to an address of theirs for a Service: it has the family.
func serves(service *corev1.Service, addr netip.Addr) bool {
	family := corev1.IPv6Protocol
	if addr.Is4() {
		family = corev1.IPv4Protocol
	}
	return slices.Contains(service.Spec.IPFamilies, family)
}

// addEndpoint adds an address that a peer would accept.
func addEndpoint(list []networkingv1beta1.Endpoint, address string, port int32) []networkingv1beta1.Endpoint {
	e := networkingv1beta1.Endpoint{Address: address, Port: port}
	if address == "" || len(list) >= check.MaxEndpoints || slices.Contains(list, e) || (check.Surroundings{}).CheckEndpoint(e) != nil {
		return list
	}
	return append(list, e)
}

// ownFirst sorts nodes by name, behind the own one.
func ownFirst(nodes []*corev1.Node, own string) []*corev1.Node {
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(a, b *corev1.Node) int {
		switch {
		case a.Name == own:
			return -1
		case b.Name == own:
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	return nodes
}

// ParseEndpoints reads endpoints that somebody has written as host:port. The error names the
// first one that peers would not accept.
func ParseEndpoints(texts []string) (out []networkingv1beta1.Endpoint, err error) {
	if len(texts) > check.MaxEndpoints {
		return nil, fmt.Errorf("%d endpoints: at most %d are accepted", len(texts), check.MaxEndpoints)
	}
	for _, text := range texts {
		host, number, err := net.SplitHostPort(text)
		if err != nil {
			return nil, fmt.Errorf("endpoint %q: host:port is accepted: %w", text, err)
		}
		port, err := strconv.ParseInt(number, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("endpoint %q: a port from 1 to 65535 is accepted", text)
		}
		e := networkingv1beta1.Endpoint{Address: strings.ToLower(host), Port: int32(port)}
		if err := (check.Surroundings{ClusterID: "a cluster"}).CheckEndpoint(e); err != nil {
			return nil, fmt.Errorf("endpoint %q: %w", text, err)
		}
		out = append(out, e)
	}
	return out, nil
}
