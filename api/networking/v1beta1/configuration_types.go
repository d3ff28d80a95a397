package v1beta1

import (
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Configuration tells a peer how to reach this cluster: its ranges and its gateways. The
// writer keeps it in its tenant namespace for the peer, under the peer's id, and the peer
// gets a copy. In the copy's status the peer answers with the views: the ranges under
// which it sees those of the writer. The status flows back.
//
// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=conf,categories=liqo
// +kubebuilder:printcolumn:name="Desired Pod CIDR",type=string,JSONPath=`.spec.local.cidr.pod`
// +kubebuilder:printcolumn:name="Remapped Pod CIDR",type=string,JSONPath=`.status.remote.cidr.pod`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Desired External CIDR",type=string,priority=1,JSONPath=`.spec.local.cidr.external`
// +kubebuilder:printcolumn:name="Remapped External CIDR",type=string,priority=1,JSONPath=`.status.remote.cidr.external`
// +kubebuilder:printcolumn:name="Gateways",type=string,priority=1,JSONPath=`.spec.gateways[*].name`
// +kubebuilder:printcolumn:name="ClusterID",type=string,priority=1,JSONPath=`.metadata.labels.liqo\.io/remote-cluster-id`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type Configuration struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ConfigurationSpec   `json:"spec"`
	Status ConfigurationStatus `json:"status,omitempty"`
}

// ConfigurationSpec is what the writer says of itself.
//
// +kubebuilder:validation:XValidation:rule="!has(self.remote)",message="remote is not supported: a Configuration has the ranges of the cluster that writes it, under local; the peer's are in the Configuration that the peer writes"
type ConfigurationSpec struct {
	// Local are the writer's own ranges.
	Local ClusterNetwork `json:"local"`
	// Remote is not supported.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	Remote *Unsupported `json:"remote,omitempty"`
	// Gateways are the writer's gateway replicas. The peer holds a tunnel to each, and sends
	// through one of them.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, b.publicKey == a.publicKey))",message="two gateways have the same publicKey: each gateway has a key of its own"
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, b.number == a.number))",message="two gateways have the same number: each gateway has one of its own"
	Gateways []Gateway `json:"gateways,omitempty"`
	// MTU is the size, in bytes, of the largest packet of a pod that the writer's gateways
	// take into a tunnel. 0: the writer does not say.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == 0 || self >= 576 && self <= 65535",message="mtu must be from 576 to 65535 bytes, or 0"
	MTU int32 `json:"mtu,omitempty"`
	// Behind are the clusters that ranges of transit stand for. The receiver may reach pods of
	// these namespaces of the writer there by a tunnel of its own, where that cluster admits it.
	// +optional
	// +listType=map
	// +listMapKey=clusterID
	// +kubebuilder:validation:MaxItems=16
	Behind []Third `json:"behind,omitempty"`
	// Admits are clusters, not the receiver, that run pods at the writer: the receiver reaches
	// those of these namespaces by its tunnel to the writer, as these clusters want it.
	// +optional
	// +listType=map
	// +listMapKey=clusterID
	// +kubebuilder:validation:MaxItems=16
	Admits []Third `json:"admits,omitempty"`
}

// Third is a third cluster, beside the one that writes a Configuration and the one that
// receives it.
type Third struct {
	// ClusterID is its id.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=51
	ClusterID string `json:"clusterID"`
	// Namespaces are those that are offloaded to two of the three clusters, by their names in the
	// cluster that offloads them.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	Namespaces []string `json:"namespaces"`
	// Ranges maps its own pod ranges to those of transit.
	// +optional
	// +listType=map
	// +listMapKey=own
	// +kubebuilder:validation:MaxItems=8
	Ranges []Mapping `json:"ranges,omitempty"`
}

// Unsupported stands for a field that is refused when it is set.
type Unsupported struct{}

// ClusterNetwork is the network of one cluster.
type ClusterNetwork struct {
	// CIDR are its ranges.
	CIDR ClusterCIDR `json:"cidr"`
}

// ClusterCIDR are the ranges of one cluster.
//
// +kubebuilder:validation:XValidation:rule="(self.pod + self.external).all(r, !isCIDR(r) || cidr(r).ip().isGlobalUnicast() && cidr(r).prefixLength() >= (cidr(r).ip().family() == 4 ? 8 : 16))",message="pod and external take ranges of ordinary addresses: no loopback, link-local or multicast ones, and none larger than an IPv4 /8 or an IPv6 /16"
// +kubebuilder:validation:XValidation:rule="(self.pod + self.external).all(a, !isCIDR(a) || (self.pod + self.external).exists_one(b, isCIDR(b) && (cidr(b).containsCIDR(a) || cidr(a).containsCIDR(b))))",message="two ranges of pod and external overlap: a cluster's own ranges are distinct"
// +kubebuilder:validation:XValidation:rule="self.external.all(r, !isCIDR(r) || cidr(r).prefixLength() <= (cidr(r).ip().family() == 4 ? 27 : 123))",message="a range of external has at least 32 addresses: at most an IPv4 /27 or an IPv6 /123, for the first 16 are the gateways'"
type ClusterCIDR struct {
	// Pod are the ranges of its pods' addresses.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Pod []CIDR `json:"pod"`
	// External are the ranges from which what is outside of pod gets an address for peers:
	// its gateways the first 16 addresses of each, others one by an IP.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	External []CIDR `json:"external"`
	// Transit are the ranges under which the writer sees other peers of its own that share a
	// namespace with the receiver: it forwards packets between the two.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Transit []CIDR `json:"transit,omitempty"`
	// Service are the ranges of its Services, while the receiver runs pods that use them (services
	// Home of a NamespaceOffloading).
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4
	Service []CIDR `json:"service,omitempty"`
}

// WireGuard says where WireGuard runs in a gateway.
// +kubebuilder:validation:Enum=Kernel;Userspace
type WireGuard string

// Where WireGuard runs.
const (
	// WireGuardKernel outlives the gateway's process.
	WireGuardKernel WireGuard = "Kernel"
	// WireGuardUserspace runs in the gateway's process: a restart costs a handshake.
	WireGuardUserspace WireGuard = "Userspace"
)

// Gateway is one gateway replica of a cluster.
type Gateway struct {
	// Name of the replica among those of its cluster.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// Number of the replica, which it keeps while it lives: the address for probes is that
	// many above the gateways' common one in each external range.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=14
	Number int32 `json:"number"`
	// PublicKey is its WireGuard key, in base64.
	// +kubebuilder:validation:MaxLength=44
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$`
	PublicKey string `json:"publicKey"`
	// NextPublicKey is the key that will replace PublicKey, in base64. The peer accepts both, and
	// sends to the one that the gateway has used last. Empty: the key stays.
	// +optional
	// +kubebuilder:validation:MaxLength=44
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$`
	NextPublicKey string `json:"nextPublicKey,omitempty"`
	// Proofs show that the cluster has the private key of PublicKey, and that of NextPublicKey: each
	// is a signature of the cluster's id with it (XEdDSA), in base64. Of two peers with one key, the one
	// that proves it has it.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=88
	Proofs []string `json:"proofs,omitempty"`
	// Endpoints are where it may be reached, the best first. Empty: it can only dial.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Endpoints []Endpoint `json:"endpoints,omitempty"`
	// WireGuard says where WireGuard runs in it.
	// +optional
	WireGuard WireGuard `json:"wireGuard,omitempty"`
}

// Keys returns the WireGuard public keys of the gateway: the one in use, and the next one if it
// has one.
func (g Gateway) Keys() []string {
	if g.NextPublicKey == "" {
		return []string{g.PublicKey}
	}
	return []string{g.PublicKey, g.NextPublicKey}
}

// Endpoint is a UDP address.
type Endpoint struct {
	// Address is an IP address or a DNS name.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="isIP(self) || self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="address must be an IP address or a DNS name, as 203.0.113.7 or gw.milan.example"
	Address string `json:"address"`
	// Port is the UDP port.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
}

// Reasons of ConditionReady of a Configuration.
const (
	// ReasonNetworksAllocated: the receiver has a view of each range.
	ReasonNetworksAllocated = "NetworksAllocated"
	// ReasonAllocating: the receiver has not chosen all views yet.
	ReasonAllocating = "Allocating"
	// ReasonNotAllocated: the receiver has no view for a range, for the reason in the message.
	ReasonNotAllocated = "NotAllocated"
	// ReasonInvalid: the receiver takes over nothing of the spec, for the reason in the
	// message. What it answered before stays in force.
	ReasonInvalid = "Invalid"
	// ReasonReplicationFailed: the receiver did not get the Configuration, for the reason in
	// the message.
	ReasonReplicationFailed = "ReplicationFailed"
)

// ConfigurationStatus is the receiver's answer. Local and Remote are written together: the
// range at each place of Remote is the view of the one at the same place of Local. So a
// view is never taken for that of another range while the spec changes.
//
// +kubebuilder:validation:XValidation:rule="has(self.local) == has(self.remote) && (!has(self.local) || (has(self.local.cidr.pod) ? size(self.local.cidr.pod) : 0) == (has(self.remote.cidr.pod) ? size(self.remote.cidr.pod) : 0) && (has(self.local.cidr.external) ? size(self.local.cidr.external) : 0) == (has(self.remote.cidr.external) ? size(self.remote.cidr.external) : 0))",message="local and remote have the same number of ranges: each range of remote is the view of the one at the same place of local"
type ConfigurationStatus struct {
	// ObservedGeneration is the generation of the spec, in the cluster that the object
	// stands in, that was answered.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Local are the writer's ranges that have a view.
	// +optional
	Local *MappedNetwork `json:"local,omitempty"`
	// Remote are the views: the ranges under which the receiver sees those of the writer.
	// +optional
	Remote *MappedNetwork `json:"remote,omitempty"`
	// Conditions: Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// MappedNetwork is one side of the mapping between a cluster's ranges and their views.
type MappedNetwork struct {
	// CIDR are the ranges.
	CIDR MappedCIDR `json:"cidr"`
}

// MappedCIDR are the ranges of one side of a mapping.
type MappedCIDR struct {
	// Pod are ranges of pods' addresses.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Pod []CIDR `json:"pod,omitempty"`
	// External are ranges of what is outside of pod.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4
	External []CIDR `json:"external,omitempty"`
	// Transit are ranges of clusters behind the writer.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Transit []CIDR `json:"transit,omitempty"`
	// Service are ranges of the writer's Services.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4
	Service []CIDR `json:"service,omitempty"`
}

// ConfigurationList is a list of Configurations.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type ConfigurationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Configuration `json:"items"`
}

// View is a cluster's own range, and the one under which its peer sees it. Both have the
// same size.
//
// +k8s:deepcopy-gen=false
type View struct{ Own, View netip.Prefix }

// Of returns the ranges for a use.
func (c *MappedCIDR) Of(use RangeUse) *[]CIDR {
	switch use {
	case RangePod:
		return &c.Pod
	case RangeExternal:
		return &c.External
	case RangeService:
		return &c.Service
	}
	return &c.Transit
}

// Views returns the views of the ranges for a use that the spec still has, in its order. A
// range without an answer, or with one that is not a range of its size, is left out.
func (c *Configuration) Views(use RangeUse) []View {
	wanted := MappedCIDR(c.Spec.Local.CIDR)
	if c.Status.Local == nil || c.Status.Remote == nil {
		return nil
	}
	return views(*wanted.Of(use), *c.Status.Local.CIDR.Of(use), *c.Status.Remote.CIDR.Of(use))
}

func views(wanted, own, seen []CIDR) (out []View) {
	for _, want := range wanted {
		i := slices.Index(own, want)
		if i < 0 || i >= len(seen) {
			continue
		}
		from, ok := want.Prefix()
		to, valid := seen[i].Prefix()
		if ok && valid && from.Bits() == to.Bits() && from.Addr().BitLen() == to.Addr().BitLen() {
			out = append(out, View{Own: from, View: to})
		}
	}
	return out
}
