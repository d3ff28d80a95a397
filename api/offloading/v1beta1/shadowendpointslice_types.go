package v1beta1

import (
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ShadowEndpointSlice asks the provider for an EndpointSlice of the same name, and for
// its endpoints to count as ready only while the consumer is well (seed 000). Its labels
// and annotations are the EndpointSlice's.
//
// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=seps;shadoweps,categories=liqo
// +kubebuilder:printcolumn:name="AddressType",type=string,JSONPath=`.spec.template.addressType`
// +kubebuilder:printcolumn:name="Enforced",type=string,JSONPath=`.status.conditions[?(@.type=="Enforced")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Enforced")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ShadowEndpointSlice struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ShadowEndpointSliceSpec   `json:"spec,omitempty"`
	Status ShadowEndpointSliceStatus `json:"status,omitempty"`
}

// ShadowEndpointSliceSpec is the EndpointSlice that is wanted.
type ShadowEndpointSliceSpec struct {
	// Template of the EndpointSlice.
	Template EndpointSliceTemplate `json:"template"`
}

// EndpointSliceTemplate is the content of an EndpointSlice. Its addresses are the
// consumer's own: the provider translates them with its own configuration and refuses
// those that are not the consumer's.
type EndpointSliceTemplate struct {
	// AddressType of all addresses.
	// +kubebuilder:validation:Enum=IPv4;IPv6;FQDN
	AddressType discoveryv1.AddressType `json:"addressType"`
	// Endpoints, with the conditions that the consumer gives them. One with a nodeName may be
	// a pod that the provider runs for the consumer: its address is accepted while it is.
	// +listType=atomic
	// +optional
	// +kubebuilder:validation:MaxItems=1000
	Endpoints []discoveryv1.Endpoint `json:"endpoints,omitempty"`
	// Ports that every endpoint has.
	// +listType=atomic
	// +optional
	// +kubebuilder:validation:MaxItems=100
	Ports []discoveryv1.EndpointPort `json:"ports,omitempty"`
}

// Condition type and reasons of a ShadowEndpointSlice.
const (
	// ShadowEndpointSliceEnforced is absent while the EndpointSlice is as wanted, and False
	// with a reason while it cannot be made so, or only without some of its endpoints.
	ShadowEndpointSliceEnforced = "Enforced"
	// ReasonEndpointsRefused says that endpoints are left out: their addresses are neither the
	// consumer's nor of pods that run in the provider for it.
	ReasonEndpointsRefused = "EndpointsRefused"
	// ReasonEndpointSliceRefused says that the provider's API server refuses the EndpointSlice.
	ReasonEndpointSliceRefused = "EndpointSliceRefused"
	// ReasonEndpointSliceCollision says that an EndpointSlice of that name exists that is
	// not ours.
	ReasonEndpointSliceCollision = "EndpointSliceCollision"
)

// ShadowEndpointSliceStatus says why the EndpointSlice is not as wanted. It is empty
// while all is well.
type ShadowEndpointSliceStatus struct {
	// Conditions: Enforced.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ShadowEndpointSliceList is a list of ShadowEndpointSlices.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type ShadowEndpointSliceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ShadowEndpointSlice `json:"items"`
}
