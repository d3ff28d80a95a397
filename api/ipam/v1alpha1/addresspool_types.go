package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AddressPool is the record of the allocator: who has what. There are two: PoolNetworks and
// PoolIPs. Every change is written with the resource version that it was decided by, and
// before the claim's status says anything: so two allocators never give the same twice.
//
// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=apool,categories=liqo
// +kubebuilder:printcolumn:name="Allocated",type=integer,JSONPath=`.status.allocated`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="self.metadata.name in ['networks', 'ips']",message="an AddressPool must be named networks or ips: liqod keeps these two by itself"
type AddressPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec   AddressPoolSpec   `json:"spec,omitempty"`
	Status AddressPoolStatus `json:"status,omitempty"`
}

// AddressPoolSpec is the record. It is no status: a backup has to keep it.
type AddressPoolSpec struct {
	// Allocations, in the order of their ranges. The list is atomic: its owner is one, and
	// the bookkeeping of fields would be larger than the record.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4096
	Allocations []Allocation `json:"allocations,omitempty"`
}

// Allocation is what one claim has.
type Allocation struct {
	// CIDR is the range that the claim has; an address is a range of one.
	// +kubebuilder:validation:MaxLength=43
	CIDR string `json:"cidr"`
	// For is the range, or the address as a range of one, that the claim asked for.
	// +kubebuilder:validation:MaxLength=43
	For string `json:"for"`
	// Namespace, Name and UID are those of the claim: a Network in the pool of networks, an
	// IP in that of ips. The UID decides; the names say where to look.
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid"`
}

// AddressPoolStatus says how the pool is.
type AddressPoolStatus struct {
	// ObservedGeneration is the generation of the spec that this status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Allocated is the number of allocations.
	Allocated int32 `json:"allocated"`
	// Conditions: Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// AddressPoolList is a list of AddressPools.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type AddressPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []AddressPool `json:"items"`
}
