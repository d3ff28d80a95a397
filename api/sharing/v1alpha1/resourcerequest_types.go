package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
)

// ResourceRequest asks a provider for capacity. The consumer writes it in the provider's
// tenant namespace, under the provider's id; its copy in the consumer's tenant namespace of
// the provider has the same name, and its status comes back from there.
//
// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=rr;request,categories=liqo
// +kubebuilder:printcolumn:name="Consumer",type=string,JSONPath=`.spec.consumerClusterID`
// +kubebuilder:printcolumn:name="Provider",type=string,JSONPath=`.spec.providerClusterID`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ResourceRequest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ResourceRequestSpec   `json:"spec"`
	Status ResourceRequestStatus `json:"status,omitempty"`
}

// ResourceRequestSpec is what is asked for, and by whom.
type ResourceRequestSpec struct {
	// ConsumerClusterID is the id of the cluster that asks.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=51
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="consumerClusterID is immutable"
	ConsumerClusterID string `json:"consumerClusterID"`
	// ProviderClusterID is the id of the cluster that is asked.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=51
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="providerClusterID is immutable"
	ProviderClusterID string `json:"providerClusterID"`

	corev1beta1.CapacityRequest `json:",inline"`
}

// RequestPhase is what has become of a ResourceRequest.
// +kubebuilder:validation:Enum=Pending;ManualActionRequired;Offered;Refused
type RequestPhase string

// Phases of a ResourceRequest.
const (
	// RequestPending: the provider has not decided yet.
	RequestPending RequestPhase = "Pending"
	// RequestManualActionRequired: somebody in the provider has to approve the offer.
	RequestManualActionRequired RequestPhase = "ManualActionRequired"
	// RequestOffered: there are ResourceOffers for it.
	RequestOffered RequestPhase = "Offered"
	// RequestRefused: the provider does not give anything, for the reason in the message.
	RequestRefused RequestPhase = "Refused"
)

// ResourceRequestStatus is the provider's answer.
type ResourceRequestStatus struct {
	// ObservedGeneration is the generation of the spec, in the cluster that the object
	// stands in, that was answered.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Phase tells what has become of the request.
	Phase RequestPhase `json:"phase,omitempty"`
	// Reason is one word for machines, Message a sentence for people.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// ResourceRequestList is a list of ResourceRequests.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type ResourceRequestList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ResourceRequest `json:"items"`
}
