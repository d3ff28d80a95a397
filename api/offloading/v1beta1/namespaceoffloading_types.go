package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NamespaceOffloading offloads the namespace that it stands in: it must be named
// `offloading`.
//
// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=nso;nsof;nsoff;nsoffloading,categories=liqo
// +kubebuilder:printcolumn:name="NamespaceMappingStrategy",type=string,JSONPath=`.spec.namespaceMappingStrategy`
// +kubebuilder:printcolumn:name="PodOffloadingStrategy",type=string,JSONPath=`.spec.podOffloadingStrategy`
// +kubebuilder:printcolumn:name="OffloadingPhase",type=string,JSONPath=`.status.offloadingPhase`
// +kubebuilder:printcolumn:name="RemoteNamespaceName",type=string,priority=1,JSONPath=`.status.remoteNamespaceName`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'offloading'",message="a NamespaceOffloading must be named offloading: there is one per namespace"
type NamespaceOffloading struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +kubebuilder:default={}
	Spec   NamespaceOffloadingSpec   `json:"spec,omitempty"`
	Status NamespaceOffloadingStatus `json:"status,omitempty"`
}

// NamespaceMappingStrategy says how twin namespaces are named.
// +kubebuilder:validation:Enum=EnforceSameName;DefaultName;SelectedName
type NamespaceMappingStrategy string

// Namespace mapping strategies.
const (
	// EnforceSameName gives the twin the namespace's own name.
	EnforceSameName NamespaceMappingStrategy = "EnforceSameName"
	// DefaultName gives the twin the namespace's name, a dash and this cluster's id.
	DefaultName NamespaceMappingStrategy = "DefaultName"
	// SelectedName gives the twin the name in remoteNamespaceName.
	SelectedName NamespaceMappingStrategy = "SelectedName"
)

// PodOffloadingStrategy says where the pods of a namespace may run.
// +kubebuilder:validation:Enum=Local;Remote;LocalAndRemote
type PodOffloadingStrategy string

// Pod offloading strategies.
const (
	// PodsLocal keeps pods in this cluster.
	PodsLocal PodOffloadingStrategy = "Local"
	// PodsRemote sends every pod to a provider.
	PodsRemote PodOffloadingStrategy = "Remote"
	// PodsLocalAndRemote leaves the choice to the scheduler.
	PodsLocalAndRemote PodOffloadingStrategy = "LocalAndRemote"
)

// ServiceNetwork says whose Services and DNS offloaded pods use.
// +kubebuilder:validation:Enum=Twin;Home
type ServiceNetwork string

// Service networks.
const (
	// ServicesTwin gives pods the DNS of the provider, and the reflected Services there.
	ServicesTwin ServiceNetwork = "Twin"
	// ServicesHome gives pods the DNS, the names and the addresses of this cluster. They need it for
	// each call by name.
	ServicesHome ServiceNetwork = "Home"
)

// NamespaceOffloadingSpec is what is wanted of an offloaded namespace.
//
// +kubebuilder:validation:XValidation:rule="!has(self.namespaceMappingStrategy) || self.namespaceMappingStrategy != 'SelectedName' || (has(self.remoteNamespaceName) && size(self.remoteNamespaceName) > 0)",message="namespaceMappingStrategy SelectedName needs remoteNamespaceName"
// +kubebuilder:validation:XValidation:rule="(has(self.namespaceMappingStrategy) && self.namespaceMappingStrategy == 'SelectedName') || !has(self.remoteNamespaceName) || size(self.remoteNamespaceName) == 0",message="remoteNamespaceName is used with namespaceMappingStrategy SelectedName only"
// +kubebuilder:validation:XValidation:rule="(has(self.namespaceMappingStrategy) ? self.namespaceMappingStrategy : 'DefaultName') == (has(oldSelf.namespaceMappingStrategy) ? oldSelf.namespaceMappingStrategy : 'DefaultName')",message="namespaceMappingStrategy is immutable: delete the NamespaceOffloading and create another"
// +kubebuilder:validation:XValidation:rule="has(self.remoteNamespaceName) == has(oldSelf.remoteNamespaceName) && (!has(self.remoteNamespaceName) || self.remoteNamespaceName == oldSelf.remoteNamespaceName)",message="remoteNamespaceName is immutable: delete the NamespaceOffloading and create another"
// +kubebuilder:validation:XValidation:rule="(has(self.services) ? self.services : 'Twin') == (has(oldSelf.services) ? oldSelf.services : 'Twin')",message="services is immutable, because the pods that run have the DNS that they began with: delete the NamespaceOffloading and create another"
type NamespaceOffloadingSpec struct {
	// NamespaceMappingStrategy says how twin namespaces are named. Immutable.
	// +optional
	// +kubebuilder:default=DefaultName
	NamespaceMappingStrategy NamespaceMappingStrategy `json:"namespaceMappingStrategy,omitempty"`
	// RemoteNamespaceName is the name of the twins under SelectedName. Immutable.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$`
	RemoteNamespaceName string `json:"remoteNamespaceName,omitempty"`
	// PodOffloadingStrategy says where pods may run.
	// +optional
	// +kubebuilder:default=LocalAndRemote
	PodOffloadingStrategy PodOffloadingStrategy `json:"podOffloadingStrategy,omitempty"`
	// Services says whose Services and DNS the pods in providers use. Immutable.
	// +optional
	// +kubebuilder:default=Twin
	Services ServiceNetwork `json:"services,omitempty"`
	// ClusterSelector selects virtual nodes by their labels. Empty selects all.
	// +optional
	ClusterSelector corev1.NodeSelector `json:"clusterSelector,omitzero"`
}

// OffloadingPhase sums the state of a namespace's twins up.
type OffloadingPhase string

// Phases of an offloaded namespace.
const (
	PhaseReady             OffloadingPhase = "Ready"
	PhaseNoClusterSelected OffloadingPhase = "NoClusterSelected"
	PhaseInProgress        OffloadingPhase = "InProgress"
	PhaseSomeFailed        OffloadingPhase = "SomeFailed"
	PhaseAllFailed         OffloadingPhase = "AllFailed"
	PhaseTerminating       OffloadingPhase = "Terminating"
)

// Types and reasons of the conditions of one remote namespace.
const (
	// RemoteNamespaceOffloadingRequired is true for selected clusters.
	RemoteNamespaceOffloadingRequired = "OffloadingRequired"
	// RemoteNamespaceReady is true while the twin namespace is usable.
	RemoteNamespaceReady = "Ready"

	ReasonClusterSelected     = "ClusterSelected"
	ReasonClusterNotSelected  = "ClusterNotSelected"
	ReasonNamespaceCreated    = "NamespaceCreated"
	ReasonCreationLoopBackOff = "CreationLoopBackOff"
	ReasonTerminating         = "Terminating"
	ReasonCreating            = "Creating"
	// ReasonInvalid says that the offloading cannot be done as it is written.
	ReasonInvalid = "Invalid"
)

// NamespaceOffloadingStatus is what is known of an offloaded namespace.
type NamespaceOffloadingStatus struct {
	// ObservedGeneration is the generation of the spec that this status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// RemoteNamespaceName is the name of the twin namespaces.
	RemoteNamespaceName string `json:"remoteNamespaceName,omitempty"`
	// OffloadingPhase sums remoteNamespacesConditions up.
	OffloadingPhase OffloadingPhase `json:"offloadingPhase,omitempty"`
	// RemoteNamespacesConditions has, for each cluster id, the conditions
	// OffloadingRequired and Ready.
	// +optional
	RemoteNamespacesConditions map[string][]metav1.Condition `json:"remoteNamespacesConditions,omitempty"`
	// Conditions: Ready.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NamespaceOffloadingList is a list of NamespaceOffloadings.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type NamespaceOffloadingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NamespaceOffloading `json:"items"`
}
