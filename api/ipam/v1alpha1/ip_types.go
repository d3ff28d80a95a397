package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
)

// IP claims an address of this cluster's external range for something that is no pod, such
// as a host outside of the cluster. Peers reach it there, at the same place of their view
// of the external range. An IP in a tenant namespace is for that peer only, one in any other
// namespace is for all peers.
//
// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=liqo
// +kubebuilder:printcolumn:name="Local IP",type=string,JSONPath=`.spec.ip`
// +kubebuilder:printcolumn:name="Remapped IP",type=string,JSONPath=`.status.ip`
// +kubebuilder:printcolumn:name="Remapped IP CIDR",type=string,JSONPath=`.status.cidr`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type IP struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   IPSpec   `json:"spec"`
	Status IPStatus `json:"status,omitempty"`
}

// IPSpec is the address that peers shall reach.
//
// +kubebuilder:validation:XValidation:rule="!has(self.networkRef)",message="networkRef is not supported: the address comes from this cluster's external range; leave the field out"
// +kubebuilder:validation:XValidation:rule="!has(self.serviceTemplate)",message="serviceTemplate is not supported: create a Service without selector and an EndpointSlice with spec.ip"
type IPSpec struct {
	// IP is the address that peers shall reach. Immutable.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="ip is immutable: delete the IP and create another"
	// +kubebuilder:validation:XValidation:rule="isIP(self) && ip(self).isGlobalUnicast()",message="ip must be an ordinary address: no loopback, link-local or multicast one"
	IP networkingv1beta1.IP `json:"ip"`
	// Masquerade says that hosts outside of the cluster see packets of peers from the address
	// of the gateway's host, so that they need no route back to the peers. This is so for all
	// IPs: false is refused.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self",message="masquerade: false is not supported, because hosts outside of the cluster have no route back to peers: true is accepted, and leaving it out, which is the same"
	Masquerade *bool `json:"masquerade,omitempty"`
	// Ports are what peers reach of the address; without them all ports by all protocols. Ports
	// of several IPs of one address add up. Connections that the address begins need none.
	// +optional
	// +listType=map
	// +listMapKey=protocol
	// +listMapKey=port
	// +kubebuilder:validation:MaxItems=16
	Ports []IPPort `json:"ports,omitempty"`

	// NetworkRef is not supported.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	NetworkRef *networkingv1beta1.Unsupported `json:"networkRef,omitempty"`
	// ServiceTemplate is not supported.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	ServiceTemplate *networkingv1beta1.Unsupported `json:"serviceTemplate,omitempty"`
}

// IPPort is a port that peers reach.
type IPPort struct {
	// Protocol is TCP or UDP.
	// +kubebuilder:default=TCP
	// +kubebuilder:validation:Enum=TCP;UDP
	Protocol corev1.Protocol `json:"protocol,omitempty"`
	// Port is the number of the port.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
}

// IPStatus is the address that was allocated.
type IPStatus struct {
	// ObservedGeneration is the generation of the spec that this status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// IP is the address that was allocated. It stays the same while the IP exists.
	// +optional
	IP networkingv1beta1.IP `json:"ip,omitempty"`
	// CIDR is the external range that the address is of.
	// +optional
	CIDR networkingv1beta1.CIDR `json:"cidr,omitempty"`
	// Conditions: Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// IPList is a list of IPs.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type IPList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []IP `json:"items"`
}
