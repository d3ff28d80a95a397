package v1beta1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Connection is what the gateways of this cluster apply for one peer. The controller makes
// it of the Configurations of both directions, in the tenant namespace, under the peer's
// id. It does not leave the cluster.
//
// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=conn,categories=liqo
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.value`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Latency",type=string,priority=1,JSONPath=`.status.latency.value`
// +kubebuilder:printcolumn:name="Peer",type=string,priority=1,JSONPath=`.spec.clusterID`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type Connection struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ConnectionSpec   `json:"spec"`
	Status ConnectionStatus `json:"status,omitempty"`
}

// ConnectionSpec is what the gateways apply.
//
// +kubebuilder:validation:XValidation:rule="!has(self.type)",message="type is not supported: each gateway both dials and listens; leave the field out"
// +kubebuilder:validation:XValidation:rule="!has(self.gatewayRef)",message="gatewayRef is not supported: every gateway of this cluster has the connection; the peer's are under gateways"
type ConnectionSpec struct {
	// ClusterID is the id of the peer.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=51
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="clusterID is immutable: delete the Connection and create another"
	ClusterID string `json:"clusterID"`
	// Local maps this cluster's own ranges, and the ranges of third clusters that it forwards to,
	// to the views that the peer has of them.
	// +listType=map
	// +listMapKey=own
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Local []Mapping `json:"local"`
	// Remote maps the peer's own ranges, and those of clusters behind it, to the views that this
	// cluster has of them.
	// +listType=map
	// +listMapKey=own
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Remote []Mapping `json:"remote"`
	// Gateways are the peer's.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	Gateways []Gateway `json:"gateways,omitempty"`
	// MTU is the size, in bytes, of the largest packet of a pod that the gateways of both
	// clusters take into a tunnel. 0: the gateways find it out.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == 0 || self >= 576 && self <= 65535",message="mtu must be from 576 to 65535 bytes, or 0"
	MTU int32 `json:"mtu,omitempty"`
	// Trust is spec.trust of the peer's ForeignCluster: nodes decide by it which of their pods
	// the peer reaches. Not set: as sharing.trust says in the configuration of this cluster.
	// +optional
	// +kubebuilder:validation:Enum=Strict;Organisation
	Trust string `json:"trust,omitempty"`
	// Behind is spec.behind of the peer's Configuration.
	// +optional
	// +listType=map
	// +listMapKey=clusterID
	// +kubebuilder:validation:MaxItems=16
	Behind []Third `json:"behind,omitempty"`
	// Admits is spec.admits of this cluster's Configuration: nodes let the peer reach these pods.
	// +optional
	// +listType=map
	// +listMapKey=clusterID
	// +kubebuilder:validation:MaxItems=16
	Admits []Third `json:"admits,omitempty"`
	// Admitted is spec.admits of the peer's Configuration.
	// +optional
	// +listType=map
	// +listMapKey=clusterID
	// +kubebuilder:validation:MaxItems=16
	Admitted []Third `json:"admitted,omitempty"`

	// Type is not supported.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Type *string `json:"type,omitempty"`
	// GatewayRef is not supported.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	GatewayRef *Unsupported `json:"gatewayRef,omitempty"`
}

// AdmittedPods returns the ranges of the peer's pods if the peer admits the pods of a namespace of a
// third cluster, or of any of its namespaces if namespace is empty; else none.
func (s *ConnectionSpec) AdmittedPods(cluster, namespace string) []Mapping {
	if !slices.ContainsFunc(s.Admitted, func(t Third) bool {
		return t.ClusterID == cluster && (namespace == "" || slices.Contains(t.Namespaces, namespace))
	}) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(s.Remote), func(m Mapping) bool { return m.Use != RangePod })
}

// RangeUse says what a range of a cluster is for.
// +kubebuilder:validation:Enum=Pod;External;Transit;Service
type RangeUse string

// Uses of a range.
const (
	// RangePod has addresses of pods.
	RangePod RangeUse = "Pod"
	// RangeExternal has the gateways' first address, and addresses of what is no pod.
	RangeExternal RangeUse = "External"
	// RangeTransit has addresses of pods in a third cluster, as the cluster between sees them.
	RangeTransit RangeUse = "Transit"
	// RangeService has addresses of Services, for the pods whose namespaces have services Home.
	RangeService RangeUse = "Service"
)

// RangeUses returns all uses, in the order of the fields of ClusterCIDR.
func RangeUses() []RangeUse { return []RangeUse{RangePod, RangeExternal, RangeTransit, RangeService} }

// Mapping is a range of one cluster, and the one of the same size under which the other
// sees it.
//
// +kubebuilder:validation:XValidation:rule="isCIDR(self.own) && isCIDR(self.view) && cidr(self.own).prefixLength() == cidr(self.view).prefixLength() && cidr(self.own).ip().family() == cidr(self.view).ip().family()",message="own and view are ranges of the same family and size"
type Mapping struct {
	// Own is the range in the cluster that has it.
	Own CIDR `json:"own"`
	// View is the range under which the other cluster sees it.
	View CIDR `json:"view"`
	// Use says what the range is for.
	Use RangeUse `json:"use"`
}

// ConnectionValue sums a connection up in one word.
// +kubebuilder:validation:Enum=Connected;Connecting;Error
type ConnectionValue string

// Values of a connection.
const (
	// Connected: the peer answers probes.
	Connected ConnectionValue = "Connected"
	// Connecting: no probe has been answered yet, or none for a while.
	Connecting ConnectionValue = "Connecting"
	// ConnectionError: the gateways cannot apply the Connection.
	ConnectionError ConnectionValue = "Error"
)

// Reasons of ConditionReady of a Connection, beside those of the probes (ProbesAnswered and
// others), and ReasonInvalid: the gateways apply nothing of it, for the reason in the message.
const (
	// ReasonNotApplied: a gateway could not bring its host to what is planned.
	ReasonNotApplied = "NotApplied"
	// ReasonNoGateway: the peer has announced no gateway.
	ReasonNoGateway = "NoGateway"
	// ReasonGatewayStopped: the gateway has ended, as for an upgrade, so nobody probes.
	ReasonGatewayStopped = "GatewayStopped"
)

// ReasonPacketsRefused is the reason of events about a Connection: a host of the network fabric of
// this cluster has dropped packets of the peer. Their count is the number of packets.
const ReasonPacketsRefused = "PacketsRefused"

// ConditionPeerAPIServer of a Connection is True while the peer's API server answers, as its
// gateway reports through the tunnel. It is Unknown while the tunnel carries no probes.
const ConditionPeerAPIServer = "PeerAPIServer"

// Reasons of ConditionPeerAPIServer, beside ReasonGatewayStopped.
const (
	// ReasonPeerReportsUp: the peer's gateway reports that its API server answers.
	ReasonPeerReportsUp = "PeerReportsUp"
	// ReasonPeerReportsDown: the peer's gateway reports that its API server does not answer.
	ReasonPeerReportsDown = "PeerReportsDown"
	// ReasonPeerReportsNothing: the peer's gateway has no verdict on its API server.
	ReasonPeerReportsNothing = "PeerReportsNothing"
	// ReasonTunnelDown: no probe of the peer comes through the tunnel, so it reports nothing.
	ReasonTunnelDown = "TunnelDown"
)

// ConnectionStatus is what is known of a connection. It is written when something changes,
// never periodically: counters and round trip times are metrics.
type ConnectionStatus struct {
	// ObservedGeneration is the generation of the spec that this status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Value sums the connection up.
	Value ConnectionValue `json:"value,omitempty"`
	// Latency of the path in use.
	// +optional
	Latency *Latency `json:"latency,omitempty"`
	// Gateways has an entry of each gateway of this cluster, which writes its own.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	Gateways []GatewayStatus `json:"gateways,omitempty"`
	// Conditions: Ready, PeerAPIServer.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Latency is a round trip time as it was at some time. It is written with a change of
// something else, and when the round trip time has doubled or halved since.
type Latency struct {
	// Value is the round trip time, as 12ms.
	// +kubebuilder:validation:MaxLength=32
	Value string `json:"value"`
	// Timestamp is when it was measured.
	Timestamp metav1.Time `json:"timestamp"`
}

// GatewayStatus is the view of one gateway of this cluster.
type GatewayStatus struct {
	// Name of the gateway replica of this cluster.
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Value sums up how well it reaches the peer.
	Value ConnectionValue `json:"value"`
	// PeerGateway is the peer's gateway that it sends to.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	PeerGateway string `json:"peerGateway,omitempty"`
	// Endpoint is the address that it sends to, as host:port.
	// +optional
	// +kubebuilder:validation:MaxLength=260
	Endpoint string `json:"endpoint,omitempty"`
	// WireGuard says where WireGuard runs in it.
	// +optional
	WireGuard WireGuard `json:"wireGuard,omitempty"`
	// Since is when Value, PeerGateway or Endpoint changed last.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// Latency of its path.
	// +optional
	Latency *Latency `json:"latency,omitempty"`
	// Message is a sentence for people where Value is not Connected.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// ConnectionList is a list of Connections.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type ConnectionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Connection `json:"items"`
}
