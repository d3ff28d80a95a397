package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Quota bounds what one consumer may run in this cluster. It lives in the consumer's
// tenant namespace; all Quotas there count together. Without one nothing is bounded.
//
// +genclient
// +genclient:noStatus
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=qt,categories=liqo
// +kubebuilder:printcolumn:name="Enforcement",type=string,JSONPath=`.spec.limitsEnforcement`
// +kubebuilder:printcolumn:name="Cordoned",type=boolean,JSONPath=`.spec.cordoned`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="User",type=string,priority=1,JSONPath=`.spec.user`
type Quota struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec QuotaSpec `json:"spec"`
}

// LimitsEnforcement says how exactly pods must declare what they use, to be counted.
// +kubebuilder:validation:Enum=None;Soft;Hard
type LimitsEnforcement string

// How pods must declare what they use.
const (
	// EnforcementNone counts what pods request, and lets those run that request nothing.
	EnforcementNone LimitsEnforcement = "None"
	// EnforcementSoft: each container requests CPU and memory.
	EnforcementSoft LimitsEnforcement = "Soft"
	// EnforcementHard: each container's limits equal its requests, too.
	EnforcementHard LimitsEnforcement = "Hard"
)

// QuotaSpec is what a consumer may use.
type QuotaSpec struct {
	// User is the name that the consumer authenticates as, for people: rights are bound by
	// ForeignCluster.spec.userName.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	User string `json:"user,omitempty"`
	// LimitsEnforcement says how exactly pods must declare what they use.
	// +optional
	// +kubebuilder:default=None
	LimitsEnforcement LimitsEnforcement `json:"limitsEnforcement,omitempty"`
	// Resources are the most that its pods that have not ended may request together. What
	// is not listed is not given. But what no Quota of the consumer lists is not limited, if
	// none of them comes from an offer.
	Resources corev1.ResourceList `json:"resources"`
	// NodeSelector picks the nodes of this cluster that its pods run on: what each pod gets
	// when it is created. Those of several Quotas hold together, and no pod begins that asks
	// for another value of a label.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// Cordoned lets nothing new begin.
	// +optional
	Cordoned *bool `json:"cordoned,omitempty"`
}

// QuotaList is a list of Quotas.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type QuotaList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Quota `json:"items"`
}
