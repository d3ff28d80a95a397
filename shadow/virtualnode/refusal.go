package virtualnode

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	shadownode "github.com/liqod/liqod/shadow/node"
)

// Reasons of the conditions of a VirtualNode.
const (
	// ReasonInvalid says that the VirtualNode stands in the wrong namespace.
	ReasonInvalid = "Invalid"
	// ReasonNameTaken says that something else has the name that the VirtualNode needs: a
	// Node, another VirtualNode, a Deployment.
	ReasonNameTaken = "NameTaken"
	// ReasonCreating says that the vkubelet or its Node is not there yet.
	ReasonCreating = "Creating"
	// ReasonScaledToZero says that no vkubelet is wanted.
	ReasonScaledToZero = "ScaledToZero"
	// ReasonAvailable says that at least one vkubelet replica is available.
	ReasonAvailable = "Available"
	// ReasonNotAvailable says that no vkubelet replica is available.
	ReasonNotAvailable = "NotAvailable"
	// ReasonDraining says that the pods of the node are being removed.
	ReasonDraining = "Draining"
	// ReasonDeleting says that the Node, the vkubelet and its rights are being removed.
	ReasonDeleting = "Deleting"
	// ReasonForcedDeletion is the reason of the event that names pods which were removed
	// without waiting for the provider.
	ReasonForcedDeletion = "ForcedDeletion"
)

// refusal says why a VirtualNode gets no vkubelet. The zero value refuses nothing.
type refusal struct {
	reason, message string
}

func (r refusal) refused() bool { return r.reason != "" }

// refuse judges vn. namesakes are the VirtualNodes of the same name, vn among them or
// not; node is the Node of that name, or nil.
func refuse(vn *offloadingv1beta1.VirtualNode, namesakes []*offloadingv1beta1.VirtualNode, node *corev1.Node) refusal {
	if want := corev1beta1.TenantNamespace(vn.Spec.ClusterID); vn.Namespace != want {
		return refusal{ReasonInvalid, fmt.Sprintf(
			"VirtualNode %s of cluster %s is in namespace %s: it must be in the tenant namespace %s", vn.Name, vn.Spec.ClusterID, vn.Namespace, want)}
	}
	for _, other := range namesakes {
		if valid(other) && older(other, vn) {
			return refusal{ReasonNameTaken, fmt.Sprintf(
				"the older VirtualNode %s/%s has the same name, and a Node can stand for one of them only: use another name", other.Namespace, other.Name)}
		}
	}
	if node != nil && !isNodeOf(vn, node) {
		return refusal{ReasonNameTaken, fmt.Sprintf(
			"a Node %s exists that is not this virtual node's (its providerID is %q, not %q): use another name, or delete that Node",
			node.Name, node.Spec.ProviderID, shadownode.ProviderID(vn.Spec.ClusterID, vn.Name))}
	}
	return refusal{}
}

func valid(vn *offloadingv1beta1.VirtualNode) bool {
	return vn.Namespace == corev1beta1.TenantNamespace(vn.Spec.ClusterID)
}

// older orders VirtualNodes of one name; one is never older than itself.
func older(a, b *offloadingv1beta1.VirtualNode) bool {
	if a.Namespace == b.Namespace {
		return false
	}
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Namespace < b.Namespace
}
