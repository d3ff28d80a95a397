// Package virtualnode keeps virtual nodes. In the controller, Lifecycle creates the
// vkubelet of every VirtualNode (Deployment, ServiceAccount, bindings) and shows the state
// of the vkubelet and the Node in the VirtualNode's status. It removes a deleted
// VirtualNode in bounded time, even without the provider: it drains the pods first, and
// deletes the Node before the vkubelet's rights. Approver approves the serving certificates
// of these vkubelets, and no others. In the vkubelet, Keeper keeps the Node that represents the
// provider, and its heartbeat Lease; WantNode is pure and returns the wanted Node.
package virtualnode

import (
	"context"
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	policyinformers "k8s.io/client-go/informers/policy/v1"
	rbacinformers "k8s.io/client-go/informers/rbac/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned"
	offloadinginformers "github.com/liqod/liqod/api/generated/informers/externalversions/offloading/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
)

// Base is what the loops of virtual nodes in the controller have in common.
type Base struct {
	loop.Env

	// Kube writes objects, and reads live where a cache may be stale.
	Kube kubernetes.Interface
	// VirtualNodes covers all namespaces, Nodes all Nodes.
	VirtualNodes offloadinginformers.VirtualNodeInformer
	Nodes        coreinformers.NodeInformer
	// Events records events on VirtualNodes.
	Events record.EventRecorder
}

// Config is the input of NewLifecycle. All fields are required unless their comment says
// otherwise.
type Config struct {
	Base

	// Liqo writes objects, and reads live where a cache may be stale.
	Liqo versioned.Interface

	// NamespaceMaps covers all namespaces.
	NamespaceMaps offloadinginformers.NamespaceMapInformer
	// Deployments, Budgets, ServiceAccounts, RoleBindings and ClusterRoleBindings cover all
	// namespaces. The informers may be restricted to objects with the label
	// liqo.io/virtual-node.
	Deployments         appsinformers.DeploymentInformer
	Budgets             policyinformers.PodDisruptionBudgetInformer
	ServiceAccounts     coreinformers.ServiceAccountInformer
	RoleBindings        rbacinformers.RoleBindingInformer
	ClusterRoleBindings rbacinformers.ClusterRoleBindingInformer

	// VirtualKubelet has the defaults for spec.virtualKubelet of VirtualNodes.
	VirtualKubelet VirtualKubeletDefaults
	// NotReflected has the label and annotation keys that the vkubelets do not reflect.
	// Lifecycle writes it into the status of each VirtualNode, where the vkubelets read it.
	NotReflected offloadingv1beta1.NotReflected
	// Drain limits the duration of a VirtualNode's deletion.
	Drain DrainConfig
	// Wanted reports, by a live read, whether this cluster uses the capacity that a provider
	// offers; nil: never.
	Wanted func(ctx context.Context, clusterID string) (bool, error)
}

// VirtualKubeletDefaults describes the vkubelets that the controller deploys.
type VirtualKubeletDefaults struct {
	// Image is the vkubelet's image, unless the VirtualNode names one. Required.
	Image string
	// ImagePullPolicy and ImagePullSecrets may be empty.
	ImagePullPolicy  corev1.PullPolicy
	ImagePullSecrets []corev1.LocalObjectReference
	// Replicas is the number of replicas, unless the VirtualNode has one.
	Replicas int32
	// PriorityClassName of the pods; it may be empty.
	PriorityClassName string
	// NodeSelector and Tolerations of the pods; they may be empty.
	NodeSelector map[string]string
	Tolerations  []corev1.Toleration
	// Spread are keys of labels of nodes. The replicas are spread over the values of each.
	Spread []string
	// Resources are the container's resources, unless the VirtualNode has some.
	Resources corev1.ResourceRequirements
	// Args are added to the command line of every vkubelet, before the VirtualNode's own
	// arguments: the cluster id, the log level and the like.
	Args []string
}

// DrainConfig limits the duration of a VirtualNode's deletion.
type DrainConfig struct {
	// Timeout is how long pods are evicted through the Eviction API, counted from the
	// VirtualNode's deletion. After it, they are deleted.
	Timeout time.Duration
	// ForceAfter is how long deleted pods may take to terminate, counted from the end of
	// Timeout. After it, they are force-deleted without waiting for the provider. It also
	// limits the wait for the vkubelet's own pods.
	ForceAfter time.Duration
}

// drainPoll is the poll interval for the remaining pods.
const drainPoll = 2 * time.Second

var errNoImage = errors.New("virtual kubelet image is empty: name the image that the vkubelets run")

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
	namespace, account, err := serviceaccount.SplitUsername(userName)
	name, ok := strings.CutPrefix(account, vkubeletPrefix)
	if err != nil || !ok || name == "" || !strings.HasPrefix(namespace, corev1beta1.TenantNamespacePrefix) {
		return loop.Key{}, false
	}
	return loop.Key{Namespace: namespace, Name: name}, true
}
