package v1beta1

import corev1 "k8s.io/api/core/v1"

// IsVirtual reports whether a Node stands for a peer.
func IsVirtual(n *corev1.Node) bool { return n.Labels[TypeLabel] == TypeVirtualNode }
