package agent

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// isVirtual reports whether a Node stands for a peer.
func isVirtual(n *corev1.Node) bool {
	return n.Labels[offloadingv1beta1.TypeLabel] == offloadingv1beta1.TypeVirtualNode
}

// addresses are those at which a Node is reached, the internal ones first.
func addresses(n *corev1.Node) (out []netip.Addr) {
	for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
		for _, a := range n.Status.Addresses {
			if addr, err := netip.ParseAddr(a.Address); err == nil && a.Type == kind && addr.Zone() == "" {
				out = append(out, addr.Unmap())
			}
		}
	}
	return out
}

// podRanges are the ranges of a Node's pods, as Kubernetes has given them.
func podRanges(n *corev1.Node) (out []netip.Prefix) {
	for _, text := range n.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(text); err == nil && !p.Addr().Is4In6() {
			out = append(out, p.Masked())
		}
	}
	return out
}
