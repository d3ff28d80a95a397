package v1beta1

import "strings"

// Labels that say which peer an object concerns.
const (
	// RemoteClusterIDLabel carries the id of the peer that an object concerns: on
	// ForeignClusters, tenant namespaces, twin namespaces, virtual nodes and their Nodes.
	RemoteClusterIDLabel = "liqo.io/remote-cluster-id"
	// TenantNamespaceLabel is "true" on tenant namespaces.
	TenantNamespaceLabel = "liqo.io/tenant-namespace"
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
	// VirtualKubeletPrefix followed by the name of a virtual node is the name of its
	// vkubelet's ServiceAccount, in the provider's tenant namespace.
	VirtualKubeletPrefix = "vk-"
)

// Condition types and reasons of a ForeignCluster.
const (
	// ConditionReady is true when every check that applies to the peer passes.
	ConditionReady = "Ready"
	// ConditionAPIServer tells whether the peer's API server answers. It is absent
	// while there are no credentials to ask it with.
	ConditionAPIServer = "APIServerStatus"
	// ConditionNetwork tells whether the tunnel to the peer carries packets. It is
	// absent while the network is off for the peer.
	ConditionNetwork = "NetworkStatus"

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
	// ReasonProbing says that no verdict has been reached yet.
	ReasonProbing = "Probing"
	// ReasonInvalidCredentials says that the Secret with the peer's kubeconfig cannot be used.
	ReasonInvalidCredentials = "InvalidCredentials"
	// ReasonAllChecksPassed and ReasonCheckFailed explain ConditionReady.
	ReasonAllChecksPassed = "AllChecksPassed"
	ReasonCheckFailed     = "CheckFailed"
	// ReasonNoCredentials says that nothing can be checked from this side, and that the
	// peer has no rights here that would do without.
	ReasonNoCredentials = "NoCredentials"
)

// TenantNamespace returns the name of the namespace that holds what concerns a peer.
func TenantNamespace(clusterID string) string { return TenantNamespacePrefix + clusterID }

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
	account, ok := strings.CutPrefix(userName, "system:serviceaccount:"+TenantNamespace(clusterID)+":")
	return ok && account != "" && !strings.HasPrefix(account, VirtualKubeletPrefix)
}
