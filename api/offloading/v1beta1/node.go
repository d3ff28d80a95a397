package v1beta1

import (
	"net"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// IsVirtual reports whether a Node stands for a peer.
func IsVirtual(n *corev1.Node) bool { return n.Labels[TypeLabel] == TypeVirtualNode }

// NodePorts returns the ports in the NodePortsAnnotation of a virtual Node, at its internal addresses, and the
// id of the peer that reaches them. The id is that in spec.providerID: a policy of the chart keeps each
// vkubelet from Nodes of other peers by it, and nobody can change it.
func NodePorts(n *corev1.Node) (peer string, ports []netip.AddrPort) {
	_, id, _ := strings.Cut(n.Spec.ProviderID, "://")
	peer, _, _ = strings.Cut(id, "/")
	for _, address := range n.Status.Addresses {
		for port := range strings.SplitSeq(n.Annotations[NodePortsAnnotation], ",") {
			at, err := netip.ParseAddrPort(net.JoinHostPort(address.Address, port))
			if err == nil && at.Port() != 0 && address.Type == corev1.NodeInternalIP {
				ports = append(ports, at)
			}
		}
	}
	return peer, ports
}
