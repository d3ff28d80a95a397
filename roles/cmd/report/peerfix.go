package report

import (
	"cmp"
	"fmt"
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
	const kind, network = "ForeignCluster", "Connection"
	fix := cmp.Or(reasons.Fix(kind, condition.Reason), reasons.Fix(network, condition.Reason), reasons.Fix(kind, "*"+c.cause(fc, condition)), reasons.Fix(kind, "*"+condition.Type), reasons.Fix(kind, "*"))
	if condition.Type == corev1beta1.ConditionNetwork {
		fix = cmp.Or(reasons.Fix(network, "*"+condition.Reason), reasons.Fix(network, "*"))
	}
	return expanded(fix, c.peerArguments(fc, condition.Type))
}

// cause is the name of a fix that depends on more than a reason. Capacity is not used because a person here or in
// the peer has to approve an offer, or because there is none.
func (c *checker) cause(fc *corev1beta1.ForeignCluster, condition *metav1.Condition) string {
	incoming, outgoing := condition.Type == corev1beta1.ConditionIncomingPeering, condition.Type == corev1beta1.ConditionOutgoingPeering
	approval, refused := condition.Reason == sharingv1alpha1.ReasonApprovalRequired, condition.Reason == sharingv1alpha1.ReasonNotAllowed
	switch {
	case (incoming || outgoing) && c.undecided(fc.Spec.ClusterID, condition.Type) != "":
		return "offers"
	case incoming && !approval && !refused && fc.Spec.IncomingPeeringEnabled == corev1beta1.PeeringNo:
		return condition.Type + " off"
	case outgoing && approval && c.ClusterID == "": // the tenant namespace there is not known
		return condition.Type
	}
	return condition.Type + " " + condition.Reason
}

// peerArguments are the arguments of the fixes of peers.
func (c *checker) peerArguments(fc *corev1beta1.ForeignCluster, condition string) map[string]string {
	peer := fc.Spec.ClusterID
	return map[string]string{
		"program":     c.Program,
		"peer":        peer,
		"name":        fc.Name,
		"liqod":       c.Namespace,
		"tenant":      corev1beta1.TenantNamespace(peer),
		"tenantThere": corev1beta1.TenantNamespace(c.ClusterID),
		"token":       c.tokenFix(peer, ""),
		"tokenOfURL":  c.tokenFix(peer, " --url URL"),
		"apiserver":   apiServerFix(fc),
		"undecided":   c.undecided(peer, condition),
		"outgoingNo":  enabled(peer, "outgoing", corev1beta1.PeeringNo),
		"incomingNo":  enabled(peer, "incoming", corev1beta1.PeeringNo),
		"incomingYes": enabled(peer, "incoming", corev1beta1.PeeringYes),
	}
}

// undecided has a command for each offer that a person in this cluster has to decide about, from the peer or to it.
func (c *checker) undecided(peer, direction string) (approve string) {
	tenant := corev1beta1.TenantNamespace(peer)
	for i := range c.Offers {
		o := &c.Offers[i]
		waits := o.Spec.ProviderClusterID == peer && o.Status.Reason == sharingv1alpha1.ReasonAcceptanceRequired
		if direction == corev1beta1.ConditionIncomingPeering {
			waits = o.Spec.ConsumerClusterID == peer && !o.Spec.Approved
		}
		if waits && o.Namespace == tenant && o.Spec.WithdrawalTimestamp == nil {
			approve += fmt.Sprintf("\n%s offer approve %s -n %s", c.Program, o.Name, tenant)
		}
	}
	return approve
}

// enabled is the command that switches one direction of a peering.
func enabled(peer, direction string, to corev1beta1.PeeringEnabled) string {
	return fmt.Sprintf(`kubectl patch foreigncluster %s --type=merge -p '{"spec":{"%sPeeringEnabled":"%s"}}'`, peer, direction, to)
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

// tokenFix is how this cluster gets another identity in a peer. flags are further ones of token create.
func (c *checker) tokenFix(peer, flags string) string {
	if c.ClusterID != "" {
		flags += " --for " + c.ClusterID
	}
	return fmt.Sprintf("In cluster %s:\n%s token create%s\nIn this cluster:\n%s peer --token TOKEN", peer, c.Program, flags, c.Program)
}

// mapFix is about namespaces that a provider does not give, or still has.
func mapFix(m *offloadingv1beta1.NamespaceMap, reason string) string {
	if reason != offloadingv1beta1.ReasonTerminating {
		return expanded(cmp.Or(reasons.Fix(kindMap, reason), reasons.Fix(kindMap, "*")), map[string]string{"namespace": m.Namespace, "name": m.Name})
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
