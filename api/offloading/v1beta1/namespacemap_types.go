package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NamespaceMap asks one provider for twin namespaces. It is named as the provider, in
// both clusters: in the consumer it stands in the provider's tenant namespace, and its
// copy in the provider stands in the consumer's tenant namespace. The consumer writes
// the spec, the provider the status.
//
// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=nm;nsmap,categories=liqo
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NamespaceMap struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   NamespaceMapSpec   `json:"spec,omitempty"`
	Status NamespaceMapStatus `json:"status,omitempty"`
}

// NamespaceMapSpec is what the consumer asks for.
type NamespaceMapSpec struct {
	// DesiredMapping has the twin's name for each namespace of the consumer.
	// +optional
	// +kubebuilder:validation:MaxProperties=2000
	DesiredMapping map[string]string `json:"desiredMapping,omitempty"`
	// Services has the namespaces of the consumer whose pods use its Services and DNS (Home).
	// +optional
	// +kubebuilder:validation:MaxProperties=2000
	Services map[string]ServiceNetwork `json:"services,omitempty"`
}

// MappingPhase is the state of one twin namespace.
// +kubebuilder:validation:Enum=Accepted;CreationLoopBackOff;Terminating
type MappingPhase string

// States of a twin namespace.
const (
	// MappingAccepted says that the twin exists and the consumer's rights in it stand.
	MappingAccepted MappingPhase = "Accepted"
	// MappingCreationLoopBackOff says that the twin cannot be made; the message says why.
	MappingCreationLoopBackOff MappingPhase = "CreationLoopBackOff"
	// MappingTerminating says that the twin is being removed, or that it is no longer asked
	// for and is kept for its volumes; the message says so.
	MappingTerminating MappingPhase = "Terminating"
)

// ReasonReplicationFailed is the reason of a NamespaceMap's condition Ready, in the
// consumer, while the provider refuses the copy or may not be written to. The message
// says why.
const ReasonReplicationFailed = "ReplicationFailed"

// RemoteNamespaceStatus is the state of one twin namespace.
type RemoteNamespaceStatus struct {
	// RemoteNamespace is the twin's name.
	RemoteNamespace string `json:"remoteNamespace,omitempty"`
	// Phase of the twin.
	Phase MappingPhase `json:"phase,omitempty"`
	// Message says why the phase is not Accepted.
	Message string `json:"message,omitempty"`
}

// NamespaceMapStatus is what the provider answers.
type NamespaceMapStatus struct {
	// ObservedGeneration is the generation of the spec, in the cluster that the object
	// stands in, that this status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// CurrentMapping has the state of the twin of each namespace of the consumer.
	// +optional
	CurrentMapping map[string]RemoteNamespaceStatus `json:"currentMapping,omitempty"`
	// Conditions: Ready.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NamespaceMapList is a list of NamespaceMaps.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type NamespaceMapList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NamespaceMap `json:"items"`
}

// AtHome reports whether the pods of a namespace of the consumer use its Services and DNS. m may be nil.
func (m *NamespaceMap) AtHome(namespace string) bool {
	return m != nil && m.Spec.Services[namespace] == ServicesHome
}
