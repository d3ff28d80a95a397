package virtualnode

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	shadownode "github.com/liqod/liqod/shadow/node"
)

const (
	fieldManager = "liqod-controller"
	// hashAnnotation on a Deployment is a digest of what was asked for, so that a field
	// that is no longer wanted is noticed.
	hashAnnotation = "offloading.liqo.io/vkubelet-hash"

	tenantClusterRole    = "liqod-vkubelet-tenant"
	clusterClusterRole   = "liqod-vkubelet-cluster"
	namespaceClusterRole = "liqod-vkubelet-namespace"
	// authReaderRole is the Role of Kubernetes itself that reads the client CA.
	authReaderRole = "extension-apiserver-authentication-reader"

	vkubeletPrefix = corev1beta1.VirtualKubeletPrefix
)

// VirtualKubeletName is the name of the Deployment, ServiceAccount and Lease of the
// vkubelet of the VirtualNode called name.
func VirtualKubeletName(name string) string { return vkubeletPrefix + name }

func tenantBindingName(vn *offloadingv1beta1.VirtualNode) string {
	return tenantClusterRole + ":" + vn.Name
}

func clusterBindingName(vn *offloadingv1beta1.VirtualNode) string {
	return clusterClusterRole + ":" + vn.Namespace + ":" + vn.Name
}

func namespaceBindingName(vn *offloadingv1beta1.VirtualNode) string {
	return NamespaceBindingName(vn.Namespace, vn.Name)
}

// NamespaceBindingName is the name of the RoleBinding, in each offloaded namespace, that
// gives the vkubelet of a VirtualNode its rights there.
func NamespaceBindingName(tenantNamespace, name string) string {
	return namespaceClusterRole + ":" + tenantNamespace + ":" + name
}

func authReaderBindingName(vn *offloadingv1beta1.VirtualNode) string {
	return "liqod-vkubelet-authentication-reader:" + vn.Namespace + ":" + vn.Name
}

// ownLabels are on everything that the controller makes for a VirtualNode.
func ownLabels(vn *offloadingv1beta1.VirtualNode) map[string]string {
	return map[string]string{
		offloadingv1beta1.VirtualNodeLabel: vn.Name,
		corev1beta1.RemoteClusterIDLabel:   vn.Spec.ClusterID,
	}
}

// owned reports whether obj was made for vn.
func owned(vn *offloadingv1beta1.VirtualNode, obj metav1.Object) bool {
	labels := obj.GetLabels()
	for k, v := range ownLabels(vn) {
		if labels[k] != v {
			return false
		}
	}
	return true
}

// isNodeOf reports whether node is the one that vn's vkubelet keeps. Labels do not
// count: anybody may edit them, and the providerID is immutable.
func isNodeOf(vn *offloadingv1beta1.VirtualNode, node *corev1.Node) bool {
	return shadownode.Ours(node, vn)
}

// ownerKeys maps an object that the controller made to its VirtualNode.
func ownerKeys(obj any) []loop.Key {
	m, ok := obj.(metav1.Object)
	if !ok {
		return nil
	}
	labels := m.GetLabels()
	name, clusterID := labels[offloadingv1beta1.VirtualNodeLabel], labels[corev1beta1.RemoteClusterIDLabel]
	if name == "" || clusterID == "" {
		return nil
	}
	return []loop.Key{{Namespace: corev1beta1.TenantNamespace(clusterID), Name: name}}
}

// Requestor returns the namespace and name of the VirtualNode whose vkubelet bears
// the user name, if it is the name of such a ServiceAccount at all.
func Requestor(userName string) (loop.Key, bool) {
	rest, ok := strings.CutPrefix(userName, "system:serviceaccount:")
	if !ok {
		return loop.Key{}, false
	}
	namespace, account, ok := strings.Cut(rest, ":")
	if !ok || !strings.HasPrefix(namespace, corev1beta1.TenantNamespacePrefix) {
		return loop.Key{}, false
	}
	name, ok := strings.CutPrefix(account, vkubeletPrefix)
	if !ok || name == "" {
		return loop.Key{}, false
	}
	return loop.Key{Namespace: namespace, Name: name}, true
}
