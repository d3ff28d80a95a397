package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ForeignCluster is the record of one peer: who it is, how well it is reached and
// what role it has towards this cluster.
//
// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=fc,categories=liqo
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Role",type=string,JSONPath=`.status.role`
// +kubebuilder:printcolumn:name="API",type=string,JSONPath=`.status.conditions[?(@.type=="APIServerStatus")].status`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="ClusterID",type=string,priority=1,JSONPath=`.spec.clusterID`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ForeignCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ForeignClusterSpec   `json:"spec"`
	Status ForeignClusterStatus `json:"status,omitempty"`
}

// ForeignClusterSpec is what is wanted of a peer.
type ForeignClusterSpec struct {
	// ClusterID is the peer's id: a DNS label, unique among the clusters that meet.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=51
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="clusterID is immutable: another id is another cluster; create another ForeignCluster"
	ClusterID string `json:"clusterID"`

	// UserName is the user that the peer authenticates as in this cluster. The
	// controller binds the peer's rights to it: in its tenant namespace and in the twin
	// namespaces of what it offloads. It is unique to one enrolment
	// (liqo.io:peer:<id>:<serial>, or the full name of a ServiceAccount in the peer's
	// tenant namespace), so that old credentials do not revive. Empty: the peer has no
	// rights here.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="size(self) == 0 || self.startsWith('liqo.io:peer:') || self.startsWith('system:serviceaccount:liqo-tenant-')",message="userName must be liqo.io:peer:<id>:<serial> or system:serviceaccount:liqo-tenant-<id>:<name>: rights of a peer are never bound to another user"
	UserName string `json:"userName,omitempty"`

	// AddressRanges are the ranges of the peer's own addresses that its endpoints may have
	// in this cluster, as CIDRs: its pods', most often. Endpoints outside of them are
	// refused. Empty: all of them are.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="self.all(r, isCIDR(r) && cidr(r).masked() == cidr(r))",message="addressRanges takes CIDRs without host bits, as 10.42.0.0/16"
	AddressRanges []string `json:"addressRanges,omitempty"`
}

// RoleType is the role of a peer towards this cluster.
// +kubebuilder:validation:Enum=Consumer;Provider;ConsumerAndProvider;Unknown
type RoleType string

// Roles of a peer.
const (
	RoleConsumer            RoleType = "Consumer"
	RoleProvider            RoleType = "Provider"
	RoleConsumerAndProvider RoleType = "ConsumerAndProvider"
	RoleUnknown             RoleType = "Unknown"
)

// ForeignClusterStatus is what is known of a peer. It is written only when it changes.
type ForeignClusterStatus struct {
	// ObservedGeneration is the generation of the spec that this status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Role of the peer towards this cluster.
	Role RoleType `json:"role,omitempty"`
	// APIServerURL is the address of the peer's API server, from its kubeconfig.
	APIServerURL string `json:"apiServerUrl,omitempty"`
	// ClusterUID is the UID of the peer's kube-system namespace, recorded at the first
	// contact. A cluster that answers with another one is not written to.
	ClusterUID types.UID `json:"clusterUID,omitempty"`
	// TenantNamespace names the namespaces that hold what concerns this peering.
	TenantNamespace TenantNamespaces `json:"tenantNamespace,omitempty"`
	// Conditions: Ready, APIServerStatus, NetworkStatus.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// TenantNamespaces are the tenant namespace in this cluster and in the peer.
type TenantNamespaces struct {
	// Local is the name of the tenant namespace in this cluster.
	Local string `json:"local,omitempty"`
	// Remote is the name of the tenant namespace in the peer.
	Remote string `json:"remote,omitempty"`
}

// ForeignClusterList is a list of ForeignClusters.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type ForeignClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ForeignCluster `json:"items"`
}
