package virtualnode

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
)

const (
	fieldManager = "liqod-controller"
	// hashAnnotation on a Deployment is a digest of the wanted spec. It reveals a field
	// that an earlier version of the spec set.
	hashAnnotation = "offloading.liqo.io/vkubelet-hash"

	tenantClusterRole    = "liqod-vkubelet-tenant"
	clusterClusterRole   = "liqod-vkubelet-cluster"
	namespaceClusterRole = "liqod-vkubelet-namespace"
	// authReaderRole is a Role of Kubernetes that allows to read the client CA of the API
	// server.
	authReaderRole = "extension-apiserver-authentication-reader"

	vkubeletPrefix = corev1beta1.VirtualKubeletPrefix
)

// VirtualKubeletName returns the name of the Deployment, ServiceAccount and Lease of the
// vkubelet for the VirtualNode called name.
func VirtualKubeletName(name string) string { return vkubeletPrefix + name }

func namespaceBindingName(vn *offloadingv1beta1.VirtualNode) string {
	return NamespaceBindingName(vn.Namespace, vn.Name)
}

// NamespaceBindingName returns the name of the RoleBinding that grants the vkubelet of a
// VirtualNode its rights in an offloaded namespace.
func NamespaceBindingName(tenantNamespace, name string) string {
	return namespaceClusterRole + ":" + tenantNamespace + ":" + name
}

// ownLabels returns the labels of every object that the controller creates for a
// VirtualNode.
func ownLabels(vn *offloadingv1beta1.VirtualNode) map[string]string {
	return map[string]string{
		offloadingv1beta1.VirtualNodeLabel: vn.Name,
		corev1beta1.RemoteClusterIDLabel:   vn.Spec.ClusterID,
	}
}

// owned reports whether obj was created for vn.
func owned(vn *offloadingv1beta1.VirtualNode, obj metav1.Object) bool {
	labels := obj.GetLabels()
	for k, v := range ownLabels(vn) {
		if labels[k] != v {
			return false
		}
	}
	return true
}

// ownerKeys maps an object that the controller created to its VirtualNode.
func ownerKeys(m metav1.Object) []loop.Key {
	labels := m.GetLabels()
	name, clusterID := labels[offloadingv1beta1.VirtualNodeLabel], labels[corev1beta1.RemoteClusterIDLabel]
	if name == "" || clusterID == "" {
		return nil
	}
	return []loop.Key{{Namespace: corev1beta1.TenantNamespace(clusterID), Name: name}}
}

// Requestor returns the namespace and name of the VirtualNode whose vkubelet has the given
// user name. It returns false if the user name is not that of a vkubelet's ServiceAccount.
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
