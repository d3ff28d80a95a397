package report

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/reasons"
)

// peerFix says what to do about a condition of a peer, whose reason may be that of its Connection.
func (c *checker) peerFix(fc *corev1beta1.ForeignCluster, condition *metav1.Condition) string {
	const kind = "ForeignCluster"
	if condition.Type == corev1beta1.ConditionNetwork {
		return c.networkFix(fc, condition)
	}
	fix := cmp.Or(reasons.Fix(kind, condition.Reason), reasons.Fix("Connection", condition.Reason), reasons.Fix(kind, "*"+condition.Type), reasons.Fix(kind, "*"))
	return os.Expand(fix, func(name string) string { return c.peerArgument(fc, condition, name) })
}

// peerArgument returns an argument of the fixes of peers.
func (c *checker) peerArgument(fc *corev1beta1.ForeignCluster, condition *metav1.Condition, name string) string {
	switch peer := fc.Spec.ClusterID; name {
	case "program":
		return c.Program
	case "peer":
		return peer
	case "name":
		return fc.Name
	case "tenant":
		return corev1beta1.TenantNamespace(peer)
	case "token":
		return c.tokenFix(peer)
	case "endpoint":
		return c.endpointFix(peer)
	case "apiserver":
		return apiServerFix(fc)
	case "offers":
		return c.offersFix(peer, condition)
	}
	return "?" + name // TestArgumentsOfFixes finds it
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
	return fmt.Sprintf("curl --insecure --globoff --max-time 10 %s/readyz\nIf it does not answer, cluster %s is down, or a firewall is between. If it answers, this cluster's pods do not reach it: docs/networking.md#ports-and-reachability. "+
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
	return fmt.Sprintf("see whether the URL leads to Service liqod-auth of cluster %s, from this cluster's pods (docs/networking.md#ports-and-reachability). If it is another URL:\n"+
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
