package report

import (
	"fmt"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
)

// peerFix says what to do about a condition of a peer.
func (c *checker) peerFix(fc *corev1beta1.ForeignCluster, condition *metav1.Condition) string {
	tenant := corev1beta1.TenantNamespace(fc.Spec.ClusterID)
	if condition.Type == corev1beta1.ConditionNetwork {
		return c.networkFix(fc, condition)
	}
	switch condition.Reason {
	case corev1beta1.ReasonAPIServerNotReady:
		return apiServerFix(fc)
	case corev1beta1.ReasonInvalidCredentials, corev1beta1.ReasonNoCredentials:
		return fmt.Sprintf("%s\nor give namespace %s the Secret with its kubeconfig, as docs/peering.md says", c.tokenFix(fc.Spec.ClusterID), tenant)
	case networkingv1beta1.ReasonPeerReportsDown:
		return fmt.Sprintf("In cluster %s:\nkubectl get --raw '/readyz?verbose'\nWhat runs here for it goes on running.", fc.Spec.ClusterID)
	case corev1beta1.ReasonHeartbeatMissed:
		return fmt.Sprintf("In cluster %s:\n%s check\nshows whether its controller runs. The setting health.heartbeat must be the same in both clusters. What runs here for it goes on running.", fc.Spec.ClusterID, c.Program)
	case networkingv1beta1.ReasonTunnelDown, networkingv1beta1.ReasonGatewayStopped, corev1beta1.ReasonNoGateway:
		return "see the check of the network"
	case corev1beta1.ReasonNoController:
		return "see the check of role controller"
	case corev1beta1.ReasonNothingChecked:
		return "nothing, if the peer is not in use; the network fabric (docs/networking.md) or health.heartbeat (docs/peering.md) in both clusters would tell of its API server"
	case corev1beta1.ReasonClusterReplaced:
		return "another cluster answers at that address: correct the kubeconfig of the peer, or make the ForeignCluster anew if the peer was made anew"
	case corev1beta1.ReasonIdentityUnknown:
		return "the peer has to let this cluster read its namespace kube-system: see the ClusterRole liqod-peer-cluster there, and ForeignCluster.spec.userName"
	case corev1beta1.ReasonRightsRevoked:
		return fmt.Sprintf("%s\nIf its administrators have ended the peering:\n%s unpeer %s", c.tokenFix(fc.Spec.ClusterID), c.Program, fc.Spec.ClusterID)
	case corev1beta1.ReasonEndedByPeer:
		return fmt.Sprintf("%s unpeer %s\nends it here, too. If cluster %s is to use this one again, its people enable that there.", c.Program, fc.Spec.ClusterID, fc.Spec.ClusterID)
	case corev1beta1.ReasonPeerUnreachable:
		return c.endpointFix(fc.Spec.ClusterID)
	case corev1beta1.ReasonTenantAwaited:
		return fmt.Sprintf("nothing: liqod makes it. If this lasts:\nkubectl describe namespace %s", tenant)
	case corev1beta1.ReasonProbing, corev1beta1.ReasonHeartbeatAwaited:
		return "look again in a moment"
	case corev1beta1.ReasonSelfPeering, corev1beta1.ReasonSameCluster:
		return fmt.Sprintf("kubectl get foreignclusters\nshows all of them. If %s is the one too many:\nkubectl delete foreigncluster %s", fc.Name, fc.Name)
	case corev1beta1.ReasonInvalidUser:
		return fmt.Sprintf("kubectl patch foreigncluster %s --type=merge -p '{\"spec\":{\"userName\":null}}'\n%s token create --for %s\nfor the people of cluster %s: it gets an identity with the token.", fc.Name, c.Program, fc.Spec.ClusterID, fc.Spec.ClusterID)
	}
	switch condition.Type {
	case corev1beta1.ConditionAuthenticated:
		return c.tokenFix(fc.Spec.ClusterID) + "\nif the message asks for another token; docs/peering.md says more."
	case corev1beta1.ConditionUniqueID:
		return "the message lists all solutions; the enrolled peer is not affected"
	case corev1beta1.ConditionOutgoingPeering, corev1beta1.ConditionIncomingPeering:
		return c.offersFix(fc.Spec.ClusterID, condition)
	}
	return fmt.Sprintf("kubectl describe foreigncluster %s\nsays more.", fc.Name)
}

// offersFix is about capacity that is not used: a person here or in the peer has to approve an offer, or
// there is none.
func (c *checker) offersFix(peer string, condition *metav1.Condition) string {
	tenant, approve := corev1beta1.TenantNamespace(peer), ""
	for i := range c.Offers {
		if o := &c.Offers[i]; o.Namespace == tenant && undecided(o, peer, condition.Type) {
			approve += fmt.Sprintf("\n%s offer approve %s -n %s", c.Program, o.Name, tenant)
		}
	}
	list := c.Program + " offer list\nshows what is asked and offered. To approve an offer:"
	switch {
	case approve != "":
		return list + approve
	case condition.Type == corev1beta1.ConditionIncomingPeering && condition.Reason == sharingv1alpha1.ReasonNotAllowed:
		return fmt.Sprintf("%s\nlets cluster %s use this one. If it is not to:\n%s", enabled(peer, "incoming", corev1beta1.PeeringYes), peer, enabled(peer, "incoming", corev1beta1.PeeringNo))
	case condition.Type == corev1beta1.ConditionIncomingPeering:
		return c.incomingFix(peer, tenant, list, condition.Reason)
	case condition.Reason == sharingv1alpha1.ReasonNoCapacity:
		return fmt.Sprintf("In cluster %s:\n%s offer list\nshows who has its capacity. It offers some by itself once another consumer asks for less (spec.request.resources of its ForeignCluster), "+
			"pods there end, or its sharing.* give more. To ask no longer:\n%s", peer, c.Program, enabled(peer, "outgoing", corev1beta1.PeeringNo))
	case condition.Reason == sharingv1alpha1.ReasonApprovalRequired && c.ClusterID != "":
		return fmt.Sprintf("In cluster %s:\n%s\n%s offer approve NAME -n %s", peer, list, c.Program, corev1beta1.TenantNamespace(c.ClusterID))
	}
	return fmt.Sprintf("kubectl -n %s get resourcerequests,resourceoffers\nshows what has been asked and offered; the peer's people decide about it. To ask no longer:\n%s",
		tenant, enabled(peer, "outgoing", corev1beta1.PeeringNo))
}

// incomingFix is about a peer that does not get the capacity that it asks for.
func (c *checker) incomingFix(peer, tenant, list, reason string) string {
	switch fc := c.record(peer); {
	case reason == sharingv1alpha1.ReasonApprovalRequired:
		return fmt.Sprintf("%s\n%s offer approve NAME -n %s", list, c.Program, tenant)
	case fc != nil && fc.Spec.IncomingPeeringEnabled == corev1beta1.PeeringNo:
		return fmt.Sprintf("nothing to do here: cluster %s drains its pods, and returns the offer", peer)
	}
	return fmt.Sprintf("kubectl -n %s get resourcerequests,resourceoffers\nshows what cluster %s asks for, and what it gets. The settings sharing.* decide: docs/negotiation.md. If it is to get nothing:\n%s",
		tenant, peer, enabled(peer, "incoming", corev1beta1.PeeringNo))
}

// enabled is the command that switches one direction of a peering.
func enabled(peer, direction string, to corev1beta1.PeeringEnabled) string {
	return fmt.Sprintf(`kubectl patch foreigncluster %s --type=merge -p '{"spec":{"%sPeeringEnabled":"%s"}}'`, peer, direction, to)
}

// undecided reports whether a person in this cluster has to decide about an offer, from the peer or to it.
func undecided(o *sharingv1alpha1.ResourceOffer, peer, direction string) bool {
	switch {
	case o.Spec.WithdrawalTimestamp != nil:
		return false
	case direction == corev1beta1.ConditionIncomingPeering:
		return o.Spec.ConsumerClusterID == peer && !o.Spec.Approved
	}
	return o.Spec.ProviderClusterID == peer && o.Status.Reason == sharingv1alpha1.ReasonAcceptanceRequired
}

// plainURL is a URL that can stand in a command as it is: a peer has written it.
var plainURL = regexp.MustCompile(`^https://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._/-]*)?$`)

// apiServerFix is about a peer whose API server does not answer.
func apiServerFix(fc *corev1beta1.ForeignCluster) string {
	if !plainURL.MatchString(fc.Status.APIServerURL) {
		return fmt.Sprintf("see whether %s can be reached from this cluster's pods and whether that cluster is up; what runs there goes on running", fc.Status.APIServerURL)
	}
	return fmt.Sprintf("curl --insecure --globoff --max-time 10 %s/readyz\nIf it does not answer, cluster %s is down, or a firewall is between. If it answers, this cluster's pods do not reach it: docs/ports.md. "+
		"What runs there goes on running.", strings.TrimSuffix(fc.Status.APIServerURL, "/"), fc.Spec.ClusterID)
}

// tokenFix is how this cluster gets another identity in a peer.
func (c *checker) tokenFix(peer string) string {
	create := c.Program + " token create"
	if c.ClusterID != "" {
		create += " --for " + c.ClusterID
	}
	return fmt.Sprintf("In cluster %s:\n%s\nIn this cluster:\n%s peer --token TOKEN", peer, create, c.Program)
}

// endpointFix is about a peer whose authentication endpoint does not answer to this cluster.
func (c *checker) endpointFix(peer string) string {
	create := c.Program + " token create --url URL"
	if c.ClusterID != "" {
		create += " --for " + c.ClusterID
	}
	return fmt.Sprintf("see whether the URL leads to Service liqod-auth of cluster %s, from this cluster's pods (docs/ports.md). If it is another URL:\n"+
		"In cluster %s:\n%s\nIn this cluster:\n%s peer --token TOKEN", peer, peer, create, c.Program)
}

// mapFix is about namespaces that a provider does not give, or still has.
func mapFix(m *offloadingv1beta1.NamespaceMap, reason string) string {
	switch reason {
	case offloadingv1beta1.ReasonTerminating:
	case offloadingv1beta1.ReasonReplicationFailed:
		return fmt.Sprintf("kubectl -n %s describe namespacemap %s\nsays more. Once the peer is reachable and allows it, this resolves by itself.", m.Namespace, m.Name)
	default:
		return fmt.Sprintf("kubectl -n %s describe namespacemap %s\nsays more of each namespace.", m.Namespace, m.Name)
	}
	var claims, deletes []string
	for _, name := range keptIn(m) {
		if len(claims) == mostNames {
			break
		}
		claims = append(claims, fmt.Sprintf("kubectl -n %s get pvc", name))
		deletes = append(deletes, fmt.Sprintf("kubectl annotate namespace %s %s=%s", name, offloadingv1beta1.DeleteVolumesAnnotation, name))
	}
	if len(claims) == 0 {
		return fmt.Sprintf("nothing to do: cluster %s is deleting the namespaces", m.Name)
	}
	return fmt.Sprintf("In cluster %s:\n%s\nshows what a namespace is kept for. If the data is to stay, there is nothing to do. To delete it with its namespace:\n%s",
		m.Name, strings.Join(claims, "\n"), strings.Join(deletes, "\n"))
}
