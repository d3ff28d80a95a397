package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ShadowPod asks the provider for a pod of the same name and keeps it there, with
// the consumer gone too (seed 000). Its labels and annotations are the pod's.
//
// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=shp;shpod,categories=liqo
// +kubebuilder:printcolumn:name="Ended",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Enforced",type=string,JSONPath=`.status.conditions[?(@.type=="Enforced")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Enforced")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ShadowPod struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ShadowPodSpec   `json:"spec,omitempty"`
	Status ShadowPodStatus `json:"status,omitempty"`
}

// ShadowPodSpec is the pod that is wanted.
type ShadowPodSpec struct {
	// Pod is the spec of the pod. It is stored without a schema of its own: the
	// provider's API server judges the pod. Its fields have one owner together: the API server
	// otherwise records one for each of them.
	// +structType=atomic
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	Pod corev1.PodSpec `json:"pod,omitempty"`
	// LocalGeneration is the generation of the consumer's pod that this was made from.
	LocalGeneration int64 `json:"localGeneration,omitempty"`
	// LocalResourceVersion is the resource version of the consumer's pod when it was
	// offloaded. It does not change: a consumer whose API server is behind it has lost what
	// it knew of the pod, which is not to say that the pod was deleted.
	// +optional
	LocalResourceVersion string `json:"localResourceVersion,omitempty"`
	// EarlierRestarts has, for each container, what the pods of earlier ShadowPods of the same
	// pod of the consumer add to its restart count: these were deleted with their ShadowPod.
	// +optional
	// +listType=map
	// +listMapKey=name
	EarlierRestarts []ContainerRestarts `json:"earlierRestarts,omitempty"`
}

// Condition type and reasons of a ShadowPod.
const (
	// ShadowPodEnforced is absent while the pod is as wanted, and False with a reason
	// while it cannot be made so.
	ShadowPodEnforced = "Enforced"
	// ReasonPodReplaced is the reason of the event for a lost pod that is created again.
	ReasonPodReplaced = "PodReplaced"
	// ReasonPodRefused says that the provider's API server refuses the pod.
	ReasonPodRefused = "PodRefused"
	// ReasonPodCollision says that a pod of that name exists that is not ours.
	ReasonPodCollision = "PodCollision"
	// ReasonQuotaExceeded says that the pod waits for room in the consumer's Quotas. It is
	// created when its turn comes.
	ReasonQuotaExceeded = "QuotaExceeded"
	// ReasonQuotaTooSmall says that the pod alone is larger than what the Quotas allow.
	ReasonQuotaTooSmall = "QuotaTooSmall"
	// ReasonQuotaCordoned says that nothing new begins under the consumer's Quotas.
	ReasonQuotaCordoned = "QuotaCordoned"
	// ReasonQuotaUndeclared says that the pod does not declare what it uses as the Quotas'
	// limitsEnforcement asks for.
	ReasonQuotaUndeclared = "QuotaUndeclared"
	// ReasonQuotaNodeSelector says that the pod asks for other nodes than those that the
	// Quotas pick.
	ReasonQuotaNodeSelector = "QuotaNodeSelector"
)

// ShadowPodStatus is what must outlive the pod: its end, and what its replacements
// cost. It is not written while the pod merely runs.
type ShadowPodStatus struct {
	// Phase is Succeeded or Failed once the pod has ended. An ended pod stays ended: it is
	// never created again. Empty before.
	// +optional
	Phase corev1.PodPhase `json:"phase,omitempty"`
	// PodStatus is the pod's status at its end.
	// +optional
	// +structType=atomic
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	PodStatus *corev1.PodStatus `json:"podStatus,omitempty"`
	// Replaced is the UID of the last pod that was lost and made again.
	// +optional
	Replaced types.UID `json:"replaced,omitempty"`
	// Restarts has, for each container, what earlier pods of this ShadowPod add to its
	// restart count: the sum of their counts, and one for each of them.
	// +optional
	// +listType=map
	// +listMapKey=name
	Restarts []ContainerRestarts `json:"restarts,omitempty"`
	// Conditions: Enforced.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ContainerRestarts is what earlier pods add to the restart count of a container.
type ContainerRestarts struct {
	// Name of the container or init container; unique in a pod.
	Name string `json:"name"`
	// Count is added to the count that the present pod reports.
	Count int32 `json:"count"`
}

// ShadowPodList is a list of ShadowPods.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type ShadowPodList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ShadowPod `json:"items"`
}
