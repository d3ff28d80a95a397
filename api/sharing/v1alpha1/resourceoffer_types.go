package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
)

// ResourceOffer is the capacity that a provider gives a consumer as one virtual node. The
// provider writes it in the consumer's tenant namespace; its copy in the consumer's
// cluster, of the same name, becomes a VirtualNode when it is accepted, and the status of
// the copy goes back to the provider.
//
// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=offer,categories=liqo
// +kubebuilder:printcolumn:name="Consumer",type=string,JSONPath=`.spec.consumerClusterID`
// +kubebuilder:printcolumn:name="Provider",type=string,JSONPath=`.spec.providerClusterID`
// +kubebuilder:printcolumn:name="Approved",type=boolean,JSONPath=`.spec.approved`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="CPU",type=string,JSONPath=`.spec.resourceQuota.hard.cpu`
// +kubebuilder:printcolumn:name="Memory",type=string,JSONPath=`.spec.resourceQuota.hard.memory`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ResourceOffer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ResourceOfferSpec   `json:"spec"`
	Status ResourceOfferStatus `json:"status,omitempty"`
}

// ResourceOfferSpec is what is offered, and to whom.
type ResourceOfferSpec struct {
	// ConsumerClusterID is the id of the cluster that it is offered to.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=51
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="consumerClusterID is immutable"
	ConsumerClusterID string `json:"consumerClusterID"`
	// ProviderClusterID is the id of the cluster that offers.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=51
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="providerClusterID is immutable"
	ProviderClusterID string `json:"providerClusterID"`

	// Approved says that the provider stands by the offer: only then the consumer gets it.
	Approved bool `json:"approved,omitempty"`
	// ResourceQuota is the capacity (`hard`).
	// +optional
	ResourceQuota corev1.ResourceQuotaSpec `json:"resourceQuota,omitempty"`
	// Accepts is what the provider accepts of the consumer's objects. It is for people: the provider
	// itself goes by its settings.
	// +optional
	Accepts *Accepts `json:"accepts,omitempty"`
	// Labels of the virtual node.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Labels map[string]string `json:"labels,omitempty"`
	// NodeSelector picks the provider's nodes that pods of this offer run on.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// StorageClasses, IngressClasses and LoadBalancerClasses that may be used, the default
	// first.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	StorageClasses []string `json:"storageClasses,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxItems=64
	IngressClasses []string `json:"ingressClasses,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxItems=64
	LoadBalancerClasses []string `json:"loadBalancerClasses,omitempty"`
	// Images that the provider's nodes have already.
	// +optional
	// +kubebuilder:validation:MaxItems=50
	Images []corev1.ContainerImage `json:"images,omitempty"`
	// Pressures are the conditions that each of these nodes has that would take a pod without
	// them.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:items:Enum=MemoryPressure;DiskPressure;PIDPressure
	Pressures []corev1.NodeConditionType `json:"pressures,omitempty"`
	// Prices per resource, in what the two clusters agree on. Nothing here reads them.
	// +optional
	Prices corev1.ResourceList `json:"prices,omitempty"`
	// ExpirationTime ends the offer: before it the consumer drains and leaves.
	// +optional
	ExpirationTime *metav1.Time `json:"expirationTime,omitempty"`
	// WithdrawalTimestamp is since when the provider wants the capacity back. The consumer
	// cordons and drains the virtual node, and removes it.
	// +optional
	WithdrawalTimestamp *metav1.Time `json:"withdrawalTimestamp,omitempty"`
}

// MostAccepted is the number of entries that a list of Accepts shows.
const MostAccepted = 512

// Accepts has settings of a provider, as they are for one consumer.
type Accepts struct {
	// Trust is how far the provider trusts the consumer.
	// +optional
	Trust corev1beta1.Trust `json:"trust,omitempty"`
	// Annotations is sharing.annotations.
	// +optional
	// +kubebuilder:validation:MaxItems=512
	// +kubebuilder:validation:items:MaxLength=317
	Annotations []string `json:"annotations,omitempty"`
	// LabelsLeftOut is sharing.labelsLeftOut.
	// +optional
	// +kubebuilder:validation:MaxItems=512
	// +kubebuilder:validation:items:MaxLength=317
	LabelsLeftOut []string `json:"labelsLeftOut,omitempty"`
	// ServiceTypes is sharing.serviceTypes.
	// +optional
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=32
	ServiceTypes []string `json:"serviceTypes,omitempty"`
	// ServiceFields is sharing.serviceFields.
	// +optional
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=32
	ServiceFields []string `json:"serviceFields,omitempty"`
	// VolumeTypes is controller.volumeTypes.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	VolumeTypes []string `json:"volumeTypes,omitempty"`
}

// OfferPhase is what has become of a ResourceOffer.
// +kubebuilder:validation:Enum=Pending;ManualActionRequired;Accepted;Refused
type OfferPhase string

// Phases of a ResourceOffer.
const (
	// OfferPending: the consumer has not decided yet.
	OfferPending OfferPhase = "Pending"
	// OfferManualActionRequired: somebody has to approve or accept it.
	OfferManualActionRequired OfferPhase = "ManualActionRequired"
	// OfferAccepted: the consumer uses it.
	OfferAccepted OfferPhase = "Accepted"
	// OfferRefused: the consumer does not want it.
	OfferRefused OfferPhase = "Refused"
)

// ResourceOfferStatus is the consumer's answer.
type ResourceOfferStatus struct {
	// ObservedGeneration is the generation of the spec, in the cluster that the object
	// stands in, that was answered.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Phase tells what has become of the offer.
	Phase OfferPhase `json:"phase,omitempty"`
	// VirtualNode is the name of the virtual node that it has become.
	VirtualNode string `json:"virtualNode,omitempty"`
	// Reason is one word for machines, Message a sentence for people.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// ResourceOfferList is a list of ResourceOffers.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type ResourceOfferList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ResourceOffer `json:"items"`
}
