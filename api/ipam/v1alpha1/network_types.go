package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
)

// Network claims a range of addresses in this cluster: the one that it names, or, where
// that is not free, another of the same size. The controller makes one for each range of a
// peer; the range that it gets is this cluster's view of the peer's.
//
// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=net,categories=liqo
// +kubebuilder:printcolumn:name="Desired CIDR",type=string,JSONPath=`.spec.cidr`
// +kubebuilder:printcolumn:name="Remapped CIDR",type=string,JSONPath=`.status.cidr`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type Network struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   NetworkSpec   `json:"spec"`
	Status NetworkStatus `json:"status,omitempty"`
}

// NetworkSpec is the range that is asked for.
type NetworkSpec struct {
	// CIDR is the range that is asked for. Immutable.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cidr is immutable: delete the Network and create another"
	CIDR networkingv1beta1.CIDR `json:"cidr"`
	// PreAllocated is accepted when 0.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == 0",message="preAllocated is not supported: a Network has a range, and addresses are claimed by IPs; leave the field out"
	PreAllocated int64 `json:"preAllocated,omitempty"`
}

// NetworkStatus is the range that was allocated.
type NetworkStatus struct {
	// ObservedGeneration is the generation of the spec that this status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// CIDR is the range that was allocated. It stays the same while the Network exists.
	// +optional
	CIDR networkingv1beta1.CIDR `json:"cidr,omitempty"`
	// Conditions: Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NetworkList is a list of Networks.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type NetworkList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Network `json:"items"`
}
