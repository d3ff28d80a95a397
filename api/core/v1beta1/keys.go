package v1beta1

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
)

// Labels that say which peer an object concerns.
const (
	// RemoteClusterIDLabel carries the id of the peer that an object concerns: on
	// ForeignClusters, tenant namespaces, twin namespaces, virtual nodes and their Nodes.
	RemoteClusterIDLabel = "liqo.io/remote-cluster-id"
	// TenantNamespaceLabel is "true" on tenant namespaces.
	TenantNamespaceLabel = "liqo.io/tenant-namespace"
	// PodSecurityLabel is a label of Kubernetes: the pod-security level that a namespace
	// enforces. PodSecurityRestricted is the level of tenant namespaces.
	PodSecurityLabel      = "pod-security.kubernetes.io/enforce"
	PodSecurityRestricted = "restricted"
	// IdentityTypeLabel marks a Secret that holds credentials for a peer.
	IdentityTypeLabel = "liqo.io/identity-type"
	// IdentityControlPlane is the IdentityTypeLabel value of the Secret whose
	// `kubeconfig` key reaches the peer's API server.
	IdentityControlPlane = "ControlPlane"
	// KubeconfigSecretKey is the key of a kubeconfig in a Secret.
	KubeconfigSecretKey = "kubeconfig"
	// TenantNamespacePrefix followed by a peer's id is the name of its tenant namespace.
	TenantNamespacePrefix = "liqo-tenant-"
	// PeerUserPrefix begins the user name of a peer's certificate; the peer's id and a
	// serial unique to the enrolment follow, separated by colons.
	PeerUserPrefix = "liqo.io:peer:"
	// PeersGroup is the group in the certificates of all peers. It gives no rights: by it the
	// API server bounds their requests (FlowSchema liqod-peers of the chart).
	PeersGroup = "liqo.io:peers"
	// DiscoveredLabel on a ForeignCluster that discovery made says how: DiscoveredByDNS
	// (a domain that was configured) or DiscoveredByMulticast (the local network).
	DiscoveredLabel       = "liqo.io/discovered"
	DiscoveredByDNS       = "dns"
	DiscoveredByMulticast = "mdns"
	// DiscoveredFromAnnotation on such a ForeignCluster names the record that it was made
	// from: a DNS-SD service instance.
	DiscoveredFromAnnotation = "liqo.io/discovered-from"
	// PeerVersionAnnotation on a ForeignCluster is the version of liqod that the peer has
	// said it runs. It is shown as status.version.
	PeerVersionAnnotation = "liqo.io/peer-version"
	// ForeignClusterFinalizer is on the records of peers that have been enrolled, in either
	// direction: it keeps one that is deleted until nothing of the peering is left.
	ForeignClusterFinalizer = "foreigncluster-controller.liqo.io/finalizer"
	// VirtualKubeletPrefix followed by the name of a virtual node is the name of its
	// vkubelet's ServiceAccount, in the provider's tenant namespace.
	VirtualKubeletPrefix = "vk-"
)

// Names of what the authentication of peers is made of, in liqod's namespace.
const (
	// MadeByLabel with the value MadeByLiqod is on what liqod makes for a peering beside its
	// own kinds, and may delete: the label that Kubernetes recommends.
	MadeByLabel = "app.kubernetes.io/managed-by"
	MadeByLiqod = "liqod"
	// PeeringTokenType is the type of a Secret that holds a token for peers. Its name is
	// PeeringTokenPrefix and the token's id, and its label PeeringTokenLabel is "true".
	PeeringTokenType   = "liqo.io/peering-token"
	PeeringTokenPrefix = "token-"
	PeeringTokenLabel  = "liqo.io/peering-token"
	// BackTokenType is the type of a Secret that holds a token which a peer has sent along
	// with its enrolment, for an identity there in return. Its key is TokenSecretKey, and
	// SentTokenAnnotation on it is the hash of what was sent: what people write there stays.
	BackTokenType       = "liqo.io/back-token"
	SentTokenAnnotation = "liqo.io/sent-token"
	// AuthCertificatesName is the name of the Secret with the certificates of the
	// authentication endpoint.
	AuthCertificatesName = "liqod-auth-certs"
	// PeerAccountPrefix and the serial of an enrolment are the name of the ServiceAccount
	// that a peer authenticates as where it has no certificate, in its tenant namespace.
	PeerAccountPrefix = "peer-"
	// PeerRequestPrefix begins the names of the certificate requests made for peers.
	PeerRequestPrefix = "liqod-peer-"
)

// Annotations of a ForeignCluster that has been enrolled in this cluster.
const (
	// EnrolmentAnnotation is the serial of the latest enrolment. It stays when the rights of
	// the peer are taken away, so that the same key does not get them back.
	EnrolmentAnnotation = "liqo.io/enrolment"
	// EnrolledUIDAnnotation is the UID of the kube-system namespace that the peer has said
	// to be its own: another cluster of the same id is refused.
	EnrolledUIDAnnotation = "liqo.io/enrolled-cluster-uid"
	// EnrolledRangesAnnotation has, with commas, the ranges of spec.addressRanges that the peer
	// has named at its enrolment. As long as both are equal, people have not confirmed them:
	// they accept endpoints, but open no egress to pods of the peer.
	EnrolledRangesAnnotation = "liqo.io/enrolled-ranges"
	// RivalUIDAnnotation is the UID of the kube-system namespace of another cluster that has
	// asked to be this peer, with a good token, and was refused. It goes when that cluster is
	// enrolled under an id of its own.
	RivalUIDAnnotation = "liqo.io/rival-cluster-uid"
)

// Condition types and reasons of a ForeignCluster.
const (
	// ConditionReady is true when every check that applies to the peer passes.
	ConditionReady = "Ready"
	// ConditionAPIServer tells whether the peer's API server answers. Without credentials to
	// ask it with, the peer's gateway reports that through the tunnel, and without a tunnel the
	// peer renews a Lease here (HeartbeatLease). It is absent where there is none of these.
	ConditionAPIServer = "APIServerStatus"
	// ConditionNetwork tells whether the tunnel to the peer carries packets. It is
	// absent while the network is off for the peer, and while no offer between the two is in
	// use. Its reasons are those of the Connection and the Configurations, and the following.
	ConditionNetwork = "NetworkStatus"
	// ConditionAuthenticated tells whether this cluster has an identity in the peer. It is
	// absent where none is wanted.
	ConditionAuthenticated = "Authenticated"
	// ConditionOutgoingPeering tells whether this cluster uses capacity of the peer, and
	// ConditionIncomingPeering whether the peer uses capacity of this cluster. Each is
	// absent where its direction is not wanted.
	ConditionOutgoingPeering = "OutgoingPeering"
	ConditionIncomingPeering = "IncomingPeering"
	// ConditionUniqueID is False while another cluster claims the peer's id. It is absent
	// otherwise, and no part of ConditionReady: the peer itself is not disturbed.
	ConditionUniqueID = "UniqueID"

	// ReasonNetworkingDisabled says that the ForeignCluster asks for the network fabric, which
	// this cluster does not have.
	ReasonNetworkingDisabled = "NetworkingDisabled"
	// ReasonNegotiating says that the two clusters have not agreed on their ranges yet.
	ReasonNegotiating = "Negotiating"
	// ReasonConnecting says that the gateways have not reported yet.
	ReasonConnecting = "Connecting"
	// ReasonNoGateway says that no gateway of this cluster runs that could report.
	ReasonNoGateway = "NoGateway"
	// ReasonNoController says that no controller of this cluster runs that could check. Role
	// webhook writes it.
	ReasonNoController = "NoController"

	// ReasonAPIServerReady says that the API server answered enough of the last probes.
	ReasonAPIServerReady = "APIServerReady"
	// ReasonAPIServerNotReady says that it failed too many of them.
	ReasonAPIServerNotReady = "APIServerNotReady"
	// ReasonClusterReplaced says that another cluster answers at the peer's address: its
	// kube-system namespace has another UID than the recorded one. It is not written to.
	ReasonClusterReplaced = "ClusterReplaced"
	// ReasonIdentityUnknown says that the API server answers, and that it cannot be read
	// which cluster it is.
	ReasonIdentityUnknown = "IdentityUnknown"
	// ReasonRightsRevoked says of the use of a peer that it answers, and that this cluster
	// has no rights there any more.
	ReasonRightsRevoked = "RightsRevoked"
	// ReasonEndedByPeer says of the use by a peer that the peer has withdrawn its request and
	// has nothing here any more, or that it has deleted its credentials for this cluster.
	ReasonEndedByPeer = "EndedByPeer"
	// ReasonProbing says that no verdict has been reached yet.
	ReasonProbing = "Probing"
	// ReasonInvalidCredentials says that the Secret with the peer's kubeconfig cannot be used.
	ReasonInvalidCredentials = "InvalidCredentials"
	// ReasonAllChecksPassed explains ConditionReady when it is true. When it is not, its
	// reason is that of the check that does not pass, or one of the following.
	ReasonAllChecksPassed = "AllChecksPassed"
	// ReasonNotPeered says that discovery has found the cluster, and that nothing is wanted
	// of it yet.
	ReasonNotPeered = "NotPeered"
	// ReasonAwaitsEnrolment says that the cluster may use this one, and has no identity here
	// yet.
	ReasonAwaitsEnrolment = "AwaitsEnrolment"
	// ReasonSelfPeering says that the ForeignCluster is of this cluster itself, by its id or
	// by what answers at its address.
	ReasonSelfPeering = "SelfPeering"
	// ReasonSameCluster says that another ForeignCluster, of another id, is of the same
	// cluster.
	ReasonSameCluster = "SameCluster"
	// ReasonClaimedByAnother says that another cluster claims the peer's id.
	ReasonClaimedByAnother = "ClaimedByAnother"
	// ReasonInvalidUser says that spec.userName is not one of the peer's.
	ReasonInvalidUser = "InvalidUser"
	// ReasonNoCredentials says that nothing can be checked from this side, and that the
	// peer has no rights here that would do without.
	ReasonNoCredentials = "NoCredentials"
	// ReasonNothingChecked says that the peer has rights here, and that no check applies to it.
	ReasonNothingChecked = "NothingChecked"

	// ReasonHeartbeatSeen says that the peer renews its heartbeat Lease here.
	ReasonHeartbeatSeen = "HeartbeatSeen"
	// ReasonHeartbeatMissed says that it has missed several renewals.
	ReasonHeartbeatMissed = "HeartbeatMissed"
	// ReasonHeartbeatAwaited says that the Lease has not been watched for long enough.
	ReasonHeartbeatAwaited = "HeartbeatAwaited"
)

// HeartbeatLease is the name of the Lease by which a consumer that its provider cannot reach
// shows that its API server serves. It is in the consumer's tenant namespace in the provider,
// whose controller makes and deletes it. The consumer renews it.
const HeartbeatLease = "liqod-heartbeat"

// ControllerLease is the name of the Lease by which a provider shows a consumer that its
// controller runs. It is in the consumer's tenant namespace in the provider, and the active
// controller there renews it. The consumer reads it.
const ControllerLease = "liqod-provider"

// TenantNamespace returns the name of the namespace that holds what concerns a peer.
func TenantNamespace(clusterID string) string { return TenantNamespacePrefix + clusterID }

// PeerOfNamespace returns the id of the peer whose TenantNamespace has the name, or "".
func PeerOfNamespace(name string) string {
	id, tenant := strings.CutPrefix(name, TenantNamespacePrefix)
	if !tenant {
		return ""
	}
	return id
}

// PeerAccountUser returns the user that a ServiceAccount of a peer's tenant namespace
// authenticates as.
func PeerAccountUser(clusterID, account string) string {
	return "system:serviceaccount:" + TenantNamespace(clusterID) + ":" + account
}

// Enrolled reports whether the peer has its rights in this cluster by a token. Then it is to
// ask for what it may use; who was let in by hand may use all that people give it.
func Enrolled(fc *ForeignCluster) bool {
	serial := fc.Annotations[EnrolmentAnnotation]
	return serial != "" && (fc.Spec.UserName == PeerUserPrefix+fc.Spec.ClusterID+":"+serial ||
		fc.Spec.UserName == PeerAccountUser(fc.Spec.ClusterID, PeerAccountPrefix+serial))
}

// Reached reports whether this cluster reaches the API server of a peer with credentials of
// its own. An API server is not reached because the peer's gateway or its heartbeats report
// that it answers.
func Reached(fc *ForeignCluster) bool {
	return fc.Status.TenantNamespace.Remote != "" && meta.IsStatusConditionTrue(fc.Status.Conditions, ConditionAPIServer)
}

// ValidPeerUser reports whether a peer's rights may be bound to a user: to that of one of
// its certificates (PeerUserPrefix, its id, a colon and a serial) or to a ServiceAccount
// of its tenant namespace, but not to that of a vkubelet there, which is this cluster's
// own. The user of another peer must never be given this one's rights.
func ValidPeerUser(clusterID, userName string) bool {
	if clusterID == "" {
		return false
	}
	if serial, ok := strings.CutPrefix(userName, PeerUserPrefix+clusterID+":"); ok {
		return serial != ""
	}
	account, ok := strings.CutPrefix(userName, PeerAccountUser(clusterID, ""))
	return ok && account != "" && !strings.HasPrefix(account, VirtualKubeletPrefix)
}

// TrustOf returns how far this cluster trusts a peer. fc is the record of the peer, or nil if
// there is none; setting is sharing.trust of this cluster's configuration.
func TrustOf(fc *ForeignCluster, setting Trust) Trust {
	switch {
	case fc == nil || fc.Spec.Trust == "":
		return setting
	case fc.Spec.Trust == TrustOrganisation:
		return TrustOrganisation
	}
	return TrustStrict
}

// PeerOfUser returns the id of the peer whose user this is, as ValidPeerUser has it, or "".
func PeerOfUser(userName string) string {
	for _, prefix := range []string{PeerUserPrefix, "system:serviceaccount:" + TenantNamespacePrefix} {
		rest, ok := strings.CutPrefix(userName, prefix)
		if id, _, _ := strings.Cut(rest, ":"); ok && ValidPeerUser(id, userName) {
			return id
		}
	}
	return ""
}
