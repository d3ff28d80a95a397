package virtualnode

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/reasons"
)

// refuse checks whether vn may have a vkubelet. namesakes are the VirtualNodes of the same
// name, with or without vn itself. node is the Node of that name, or nil. An empty reason means that vn may have one.
func refuse(vn *offloadingv1beta1.VirtualNode, namesakes []*offloadingv1beta1.VirtualNode, node *corev1.Node) (reason, message string) {
	if want := corev1beta1.TenantNamespace(vn.Spec.ClusterID); vn.Namespace != want {
		return offloadingv1beta1.ReasonInvalid, fmt.Sprintf(
			"VirtualNode %s of cluster %s is in namespace %s: it must be in the tenant namespace %s", vn.Name, vn.Spec.ClusterID, vn.Namespace, want)
	}
	for _, other := range namesakes {
		if valid(other) && older(other, vn) {
			return reasons.NameTaken, fmt.Sprintf(
				"the older VirtualNode %s/%s has the same name, and a Node can stand for one of them only: use another name", other.Namespace, other.Name)
		}
	}
	if node != nil && !Ours(node, vn) {
		return reasons.NameTaken, fmt.Sprintf(
			"a Node %s exists that does not belong to this virtual node (its providerID is %q, not %q): use another name, or delete that Node",
			node.Name, node.Spec.ProviderID, ProviderID(vn.Spec.ClusterID, vn.Name))
	}
	return "", ""
}

func valid(vn *offloadingv1beta1.VirtualNode) bool {
	return vn.Namespace == corev1beta1.TenantNamespace(vn.Spec.ClusterID)
}

// older orders VirtualNodes of the same name in different namespaces by age.
func older(a, b *offloadingv1beta1.VirtualNode) bool {
	if a.Namespace == b.Namespace {
		return false
	}
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Namespace < b.Namespace
}
