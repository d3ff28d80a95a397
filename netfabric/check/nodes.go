package check

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// Addresses returns the addresses at which a Node is reached, the internal ones first.
func Addresses(n *corev1.Node) []netip.Addr {
	return AddressesOf(n, corev1.NodeInternalIP, corev1.NodeExternalIP)
}

// AddressesOf returns the addresses of a Node of these types, one type after the other.
func AddressesOf(n *corev1.Node, types ...corev1.NodeAddressType) (out []netip.Addr) {
	for _, kind := range types {
		for _, a := range n.Status.Addresses {
			if addr, err := netip.ParseAddr(a.Address); err == nil && a.Type == kind && addr.Zone() == "" {
				out = append(out, addr.Unmap())
			}
		}
	}
	return out
}

// ReflectedAddresses returns the addresses in an EndpointSlice, unless its author keeps it from being
// reflected.
func ReflectedAddresses(s *discoveryv1.EndpointSlice) []netip.Addr {
	if v, ok := s.Annotations[offloadingv1beta1.SkipReflectionAnnotation]; ok && v != "false" {
		return nil
	}
	return EndpointAddresses(s)
}

// EndpointAddresses returns the addresses in an EndpointSlice.
func EndpointAddresses(s *discoveryv1.EndpointSlice) (out []netip.Addr) {
	for i := range s.Endpoints {
		for _, text := range s.Endpoints[i].Addresses {
			if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
				out = append(out, addr.Unmap())
			}
		}
	}
	return out
}

// PodRanges returns the podCIDRs of a Node.
func PodRanges(n *corev1.Node) (out []netip.Prefix) {
	for _, text := range n.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(text); err == nil && !p.Addr().Is4In6() {
			out = append(out, p.Masked())
		}
	}
	return out
}

// SameNode reports whether two states of a Node have the same addresses, podCIDRs and node ports for a peer.
func SameNode(a, b *corev1.Node) bool {
	return slices.Equal(a.Status.Addresses, b.Status.Addresses) && slices.Equal(a.Spec.PodCIDRs, b.Spec.PodCIDRs) &&
		a.Annotations[offloadingv1beta1.NodePortsAnnotation] == b.Annotations[offloadingv1beta1.NodePortsAnnotation]
}

// TrimNode is a transform for informers: each host holds all Nodes, and the fabric needs few
// of their fields.
func TrimNode(obj any) (any, error) {
	n, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion, Labels: n.Labels, DeletionTimestamp: n.DeletionTimestamp,
			Annotations: Only(n.Annotations, offloadingv1beta1.NodePortsAnnotation),
		},
		Spec:   corev1.NodeSpec{PodCIDRs: n.Spec.PodCIDRs, ProviderID: n.Spec.ProviderID},
		Status: corev1.NodeStatus{Addresses: n.Status.Addresses},
	}, nil
}

// Only returns the entries of m with these keys. It shares nothing with m.
func Only(m map[string]string, keys ...string) map[string]string {
	out := map[string]string{}
	for _, key := range keys {
		if value, ok := m[key]; ok {
			out[key] = value
		}
	}
	return out
}
