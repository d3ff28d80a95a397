package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// VirtualNode asks for a Node, of the same name, that stands for (a part of) a
// provider. It lives in the provider's tenant namespace.
//
// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=vn;vnode;virno;vno,categories=liqo
// +kubebuilder:printcolumn:name="ClusterID",type=string,JSONPath=`.spec.clusterID`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="the name becomes a Node's name and a label: it must be a DNS label of at most 63 characters"
type VirtualNode struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   VirtualNodeSpec   `json:"spec"`
	Status VirtualNodeStatus `json:"status,omitempty"`
}

// VirtualNodeSpec is what is wanted of a virtual node.
//
// +kubebuilder:validation:XValidation:rule="!has(self.createNode) || self.createNode",message="createNode: false is not supported: a VirtualNode always has a Node; leave the field out"
// +kubebuilder:validation:XValidation:rule="!has(self.template)",message="template is not supported: set replicas, image, resources and extraArgs under virtualKubelet"
// +kubebuilder:validation:XValidation:rule="!has(self.vkOptionsTemplateRef)",message="vkOptionsTemplateRef is not supported: set replicas, image, resources and extraArgs under virtualKubelet"
type VirtualNodeSpec struct {
	// ClusterID is the provider's id.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=51
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="clusterID is immutable: create another VirtualNode for another provider"
	ClusterID string `json:"clusterID"`
	// KubeconfigSecretRef names the Secret of this namespace whose `kubeconfig` key
	// reaches the provider.
	KubeconfigSecretRef corev1.LocalObjectReference `json:"kubeconfigSecretRef"`
	// ResourceQuota gives the Node's capacity and allocatable resources (`hard`).
	// +optional
	ResourceQuota corev1.ResourceQuotaSpec `json:"resourceQuota,omitempty"`
	// Labels are set on the Node.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations are set on the Node.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
	// Taints are set on the Node, beside the one of virtual nodes (virtualKubelet.nodeTaint).
	// +optional
	// +kubebuilder:validation:MaxItems=64
	Taints []corev1.Taint `json:"taints,omitempty"`
	// Images are listed in the Node's status.
	// +optional
	Images []corev1.ContainerImage `json:"images,omitempty"`
	// Pressures are the conditions MemoryPressure, DiskPressure and PIDPressure that are True in the
	// Node's status.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:items:Enum=MemoryPressure;DiskPressure;PIDPressure
	Pressures []corev1.NodeConditionType `json:"pressures,omitempty"`
	// OffloadingPatch is applied to every pod that is offloaded through this node.
	// +optional
	OffloadingPatch *OffloadingPatch `json:"offloadingPatch,omitempty"`
	// DisableNetworkCheck leaves the network out of the Node's readiness.
	// +optional
	DisableNetworkCheck *bool `json:"disableNetworkCheck,omitempty"`
	// VirtualKubelet configures the vkubelet of this node.
	// +optional
	VirtualKubelet VirtualKubeletSpec `json:"virtualKubelet,omitempty"`

	// CreateNode is accepted when true.
	// +optional
	CreateNode *bool `json:"createNode,omitempty"`
	// Template is not supported.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	Template *Unsupported `json:"template,omitempty"`
	// VkOptionsTemplateRef is not supported.
	// +optional
	VkOptionsTemplateRef *corev1.ObjectReference `json:"vkOptionsTemplateRef,omitempty"`
	// StorageClasses are those that the provider offers. A volume gets the default one, else
	// the first; an entry with an empty name stands for the provider's own default. Without
	// an entry the provider offers no storage.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	StorageClasses []ClassOffer `json:"storageClasses,omitempty"`
	// IngressClasses are those that the provider offers. An Ingress gets the one of its own
	// class's name, else the default one, else none, and the provider chooses.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	IngressClasses []ClassOffer `json:"ingressClasses,omitempty"`
	// LoadBalancerClasses are those that the provider offers, chosen as ingress classes are.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	LoadBalancerClasses []ClassOffer `json:"loadBalancerClasses,omitempty"`
}

// Unsupported stands for a field that is refused when it is set.
type Unsupported struct{}

// ClassOffer names a class of the provider.
type ClassOffer struct {
	// Name of the class, in the field that the existing kinds use for it.
	StorageClassName      string `json:"storageClassName,omitempty"`
	IngressClassName      string `json:"ingressClassName,omitempty"`
	LoadBalancerClassName string `json:"loadBalancerClassName,omitempty"`
	// Default marks the class that is used where none is named.
	Default bool `json:"default,omitempty"`
}

// VirtualKubeletSpec configures the vkubelet of one virtual node. Empty fields take
// the controller's configuration.
type VirtualKubeletSpec struct {
	// Replicas of the vkubelet: one is active, the others stand by.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	Replicas *int32 `json:"replicas,omitempty"`
	// Image of the vkubelet.
	// +optional
	Image string `json:"image,omitempty"`
	// Resources of the vkubelet's container.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
	// ExtraArgs are added to the vkubelet's command line.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	ExtraArgs []string `json:"extraArgs,omitempty"`
	// NodeAddress is the IP address at which the API server reaches the vkubelet, where
	// that is not the vkubelet's own pod address.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="size(self) == 0 || isIP(self)",message="nodeAddress must be an IP address"
	NodeAddress string `json:"nodeAddress,omitempty"`
	// NodeTaint is whether the Node has the taint virtual-node.liqo.io/not-allowed. Without it,
	// pods of any namespace may be scheduled to the Node, as to any other; those of namespaces
	// that are not offloaded wait there. The default is true.
	// +optional
	NodeTaint *bool `json:"nodeTaint,omitempty"`
}

// OffloadingPatch changes pods on their way to the provider.
type OffloadingPatch struct {
	// NodeSelector is added to the pod's (empty) node selector in the provider.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// Tolerations are added to the pod's.
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// Affinity gives the node affinity of offloaded pods.
	// +optional
	Affinity *OffloadingAffinity `json:"affinity,omitempty"`
	// RuntimeClassName is set on pods that name none (or `liqo`).
	// +optional
	RuntimeClassName *string `json:"runtimeClassName,omitempty"`
	// LabelsNotReflected lists keys of labels that stay in this cluster.
	// +optional
	LabelsNotReflected []string `json:"labelsNotReflected,omitempty"`
	// AnnotationsNotReflected lists keys of annotations that stay in this cluster.
	// +optional
	AnnotationsNotReflected []string `json:"annotationsNotReflected,omitempty"`
}

// OffloadingAffinity is the part of an affinity that an OffloadingPatch may set.
type OffloadingAffinity struct {
	// NodeAffinity of offloaded pods in the provider.
	// +optional
	NodeAffinity *corev1.NodeAffinity `json:"nodeAffinity,omitempty"`
}

// Condition types of a VirtualNode.
const (
	// VirtualNodeReady is true while the Node is Ready.
	VirtualNodeReady = "Ready"
	// VirtualNodeVirtualKubelet is true while a vkubelet replica is available.
	VirtualNodeVirtualKubelet = "VirtualKubelet"
	// VirtualNodeNode is true while the Node exists and is Ready.
	VirtualNodeNode = "Node"
	// ReasonAvailable says that at least one replica of the vkubelet is available.
	ReasonAvailable = "Available"
)

// VirtualNodeStatus is what is known of a virtual node.
type VirtualNodeStatus struct {
	// ObservedGeneration is the generation of the spec that this status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Ready, VirtualKubelet, Node.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// NotReflected has the keys that this cluster's configuration keeps at home, beside
	// those of spec.offloadingPatch. The vkubelet follows it.
	// +optional
	NotReflected *NotReflected `json:"notReflected,omitempty"`
	// ForcedIn has the namespaces of the provider, sorted, in which ShadowPods of force-deleted pods may
	// remain. A full list may lack some.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=400
	ForcedIn []string `json:"forcedIn,omitempty"`
}

// MostForcedIn is the greatest length of the list ForcedIn of a VirtualNode.
const MostForcedIn = 400

// NotReflected are keys of labels and annotations that are not carried to the provider.
type NotReflected struct {
	// Labels that stay here.
	// +listType=atomic
	// +optional
	Labels []string `json:"labels,omitempty"`
	// Annotations that stay here.
	// +listType=atomic
	// +optional
	Annotations []string `json:"annotations,omitempty"`
}

// VirtualNodeList is a list of VirtualNodes.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type VirtualNodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VirtualNode `json:"items"`
}
