package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ForeignCluster is the record of one peer: who it is, how well it is reached and
// what role it has towards this cluster. Its name is the cluster id of the peer.
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
// +kubebuilder:printcolumn:name="Network",type=string,JSONPath=`.status.conditions[?(@.type=="NetworkStatus")].status`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="ClusterID",type=string,priority=1,JSONPath=`.spec.clusterID`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == self.spec.clusterID",message="metadata.name and spec.clusterID must be equal: the name of a ForeignCluster is the cluster id of its peer"
type ForeignCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ForeignClusterSpec   `json:"spec"`
	Status ForeignClusterStatus `json:"status,omitempty"`
}

// ForeignClusterSpec is what is wanted of a peer.
type ForeignClusterSpec struct {
	// ClusterID is the peer's id: a DNS label, unique among the clusters that meet. It is
	// also the name of the ForeignCluster.
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

	// ClusterName is a name of the peer for people. Empty: its id.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ClusterName string `json:"clusterName,omitempty"`

	// AuthURL is where the peer's controller hands out identities: https, host and port. It
	// is needed where this cluster is to get one there by itself.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="size(self) == 0 || (isURL(self) && url(self).getScheme() == 'https')",message="authUrl must be an https URL, as https://auth.milan.example:8443"
	AuthURL string `json:"authUrl,omitempty"`
	// AuthCA are the certificates, as PEM, that the one served at authUrl must be issued by.
	// Empty: what the token says, else the certificate authorities of the image.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	AuthCA string `json:"authCA,omitempty"`
	// TokenSecretRef names the Secret, in the namespace of liqod, whose key `token` the peer
	// has given for the first identity. Empty: the controller refers to peer-<clusterID>-token
	// as soon as that Secret exists and this cluster is going to use the peer.
	// +optional
	TokenSecretRef *SecretReference `json:"tokenSecretRef,omitempty"`
	// APIServer overrides how the peer says that its API server is reached.
	// +optional
	APIServer APIServerOverride `json:"apiServer,omitempty"`

	// OutgoingPeeringEnabled says whether this cluster uses capacity of the peer. Auto:
	// it follows the configuration of this cluster (peering.outgoing).
	// +optional
	// +kubebuilder:default=Auto
	OutgoingPeeringEnabled PeeringEnabled `json:"outgoingPeeringEnabled,omitempty"`
	// IncomingPeeringEnabled says whether the peer may use capacity of this cluster. Auto:
	// it follows the configuration of this cluster (peering.incoming).
	// +optional
	// +kubebuilder:default=Auto
	IncomingPeeringEnabled PeeringEnabled `json:"incomingPeeringEnabled,omitempty"`
	// Trust is how far this cluster trusts the peer: what the peer may do in this cluster by
	// default. Not set: as sharing.trust says in the configuration of this cluster.
	// +optional
	Trust Trust `json:"trust,omitempty"`
	// Request is what this cluster asks the peer for, where it uses its capacity.
	// +optional
	Request CapacityRequest `json:"request,omitempty"`
	// NetworkingEnabled says whether the network fabric connects the two clusters. Not set:
	// where networking.enabled is set in the configuration of this cluster. False: their
	// networks reach each other by themselves, and addresses are not translated.
	// +optional
	NetworkingEnabled *bool `json:"networkingEnabled,omitempty"`
}

// PeeringEnabled says whether one direction of a peering is wanted.
// +kubebuilder:validation:Enum=Auto;Yes;No
type PeeringEnabled string

// Values of PeeringEnabled.
const (
	PeeringAuto PeeringEnabled = "Auto"
	PeeringYes  PeeringEnabled = "Yes"
	PeeringNo   PeeringEnabled = "No"
)

// Trust says how far a cluster trusts a peer.
// +kubebuilder:validation:Enum=Strict;Organisation
type Trust string

// Values of Trust.
const (
	// TrustStrict is for a peer that is another organisation.
	TrustStrict Trust = "Strict"
	// TrustOrganisation is for a peer that belongs to one organisation with this cluster.
	TrustOrganisation Trust = "Organisation"
)

// SecretReference names a Secret.
type SecretReference struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// APIServerOverride says how a peer's API server is reached, where that is not as the
// peer itself says.
type APIServerOverride struct {
	// URL of the API server: https.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="size(self) == 0 || (isURL(self) && url(self).getScheme() == 'https')",message="url must be an https URL, as https://203.0.113.7:6443"
	URL string `json:"url,omitempty"`
	// CA are the certificates, as PEM, that its serving certificate must be issued by.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	CA string `json:"ca,omitempty"`
	// ServerName is the name that its serving certificate is for, where that is not the
	// host of the URL.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServerName string `json:"serverName,omitempty"`
	// ProxyURL is the proxy that leads there: http, https or socks5.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="size(self) == 0 || (isURL(self) && url(self).getScheme() in ['http', 'https', 'socks5'])",message="proxyUrl must be an http, https or socks5 URL"
	ProxyURL string `json:"proxyUrl,omitempty"`
}

// CapacityRequest is what is asked of a peer.
type CapacityRequest struct {
	// Resources of all virtual nodes together. Empty: what the peer wants to give.
	// +optional
	Resources corev1.ResourceList `json:"resources,omitempty"`
	// VirtualNodes is how many virtual nodes the capacity is divided into. Default: 1.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=16
	VirtualNodes int32 `json:"virtualNodes,omitempty"`
	// NodeSelector picks nodes of the peer: only they count, and pods run on them only.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// StorageClasses, IngressClasses and LoadBalancerClasses are those of the peer that are
	// asked for, the default first. Empty: those that the peer wants to give.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	StorageClasses []string `json:"storageClasses,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxItems=64
	IngressClasses []string `json:"ingressClasses,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxItems=64
	LoadBalancerClasses []string `json:"loadBalancerClasses,omitempty"`
	// Labels are asked for on the virtual nodes.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Labels map[string]string `json:"labels,omitempty"`
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
	// Version of liqod in the peer, as it said last.
	Version string `json:"version,omitempty"`
	// Conditions: Ready, APIServerStatus, NetworkStatus, Authenticated, OutgoingPeering,
	// IncomingPeering.
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
