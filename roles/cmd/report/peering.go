package report

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
)

// peerIDs are the clusters that there is something about, sorted.
func (s *Snapshot) peerIDs() []string {
	ids := map[string]bool{}
	for _, fc := range s.ForeignClusters {
		ids[fc.Spec.ClusterID] = true
	}
	for _, vn := range s.VirtualNodes {
		ids[vn.Spec.ClusterID] = true
	}
	return slices.Sorted(maps.Keys(ids))
}

// record returns the ForeignCluster of a peer, or nil.
func (s *Snapshot) record(id string) *corev1beta1.ForeignCluster {
	i := slices.IndexFunc(s.ForeignClusters, func(fc corev1beta1.ForeignCluster) bool { return fc.Name == id })
	if i < 0 {
		return nil
	}
	return &s.ForeignClusters[i]
}

func (s *Snapshot) virtualNodes(id string) (out []*offloadingv1beta1.VirtualNode) {
	for i := range s.VirtualNodes {
		if s.VirtualNodes[i].Spec.ClusterID == id {
			out = append(out, &s.VirtualNodes[i])
		}
	}
	return out
}

// roleOf is the role of a peer towards this cluster.
func (s *Snapshot) roleOf(id string) corev1beta1.RoleType {
	if fc := s.record(id); fc != nil && fc.Status.Role != "" {
		return fc.Status.Role
	}
	if len(s.virtualNodes(id)) > 0 {
		return corev1beta1.RoleProvider
	}
	return corev1beta1.RoleUnknown
}

func provides(role corev1beta1.RoleType) bool {
	return role == corev1beta1.RoleProvider || role == corev1beta1.RoleConsumerAndProvider
}

func consumes(role corev1beta1.RoleType) bool {
	return role == corev1beta1.RoleConsumer || role == corev1beta1.RoleConsumerAndProvider
}

func (c *checker) peering(id string) {
	fc := c.record(id)
	switch {
	case fc == nil && !c.unread(ReadForeignClusters):
		c.add(idForeignCluster, Problem, "ForeignCluster", "there is none: the peer is not checked", "use "+c.Program+" peer, or create it as docs/peering.md says")
	case fc == nil:
	case c.onlyFound(fc):
		c.add(idForeignCluster, OK, "ForeignCluster", "found by discovery, and not used", "")
		return
	case !c.stale() && c.readyReason(fc) == corev1beta1.ReasonAwaitsEnrolment:
		c.add(idForeignCluster, Warning, "ForeignCluster", message(fc.Status.Conditions, corev1beta1.ConditionReady), fmt.Sprintf("%s token create --for %s, for the people of that cluster", c.Program, id))
		return
	default:
		c.foreignCluster(fc)
	}
	role := c.roleOf(id)
	c.tenant(id)
	c.network(id)
	if fc != nil && consumes(role) {
		c.consumer(fc)
	}
	if trust := c.trustApart(id); trust != "" {
		c.add(idTrust, OK, "trust", fmt.Sprintf("%s, by spec.trust of ForeignCluster %s; without it sharing.trust of this cluster counts", trust, fc.Name), "")
	}
	if provides(role) {
		c.provider(id)
	}
	c.revoked()
}

// revoked makes all that is wrong with a peer a consequence of the rights that it has taken back.
func (c *checker) revoked() {
	cause := c.find(func(f Finding) bool { return f.Peer == c.peer && f.Reason == corev1beta1.ReasonRightsRevoked })
	if cause == "" {
		return
	}
	for i := range c.findings {
		f := &c.findings[i]
		theirs := slices.Contains([]ID{idIdentity, idUniqueID, idIncoming, idConsumerRights, idConsumerRanges}, f.ID)
		if f.Peer == c.peer && f.Level != OK && f.Name() != cause && !theirs {
			f.Because, f.Fix = cause, ""
		}
	}
}

// trustApart returns the trust in a peer if it is not that of the setting, else "".
func (s *Snapshot) trustApart(id string) corev1beta1.Trust {
	if fc := s.record(id); fc != nil && fc.Spec.Trust != s.Trust {
		return fc.Spec.Trust
	}
	return ""
}

// onlyFound reports whether a peer is none yet: discovery has found it, and that is all.
func (s *Snapshot) onlyFound(fc *corev1beta1.ForeignCluster) bool {
	return s.readyReason(fc) == corev1beta1.ReasonNotPeered && len(s.virtualNodes(fc.Spec.ClusterID)) == 0
}

// readyReason is the reason of a peer's condition Ready; empty if it has none.
func (s *Snapshot) readyReason(fc *corev1beta1.ForeignCluster) string {
	if ready := meta.FindStatusCondition(fc.Status.Conditions, corev1beta1.ConditionReady); ready != nil {
		return ready.Reason
	}
	return ""
}

// subjectIncoming is the subject of the check of the capacity that a peer uses here.
const subjectIncoming = "capacity used here"

// checks are the conditions of a peer that are told, in the order in which they explain each
// other.
var checks = []struct {
	id            ID
	kind, subject string
}{
	{idIdentity, corev1beta1.ConditionAuthenticated, "identity"},
	{idUniqueID, corev1beta1.ConditionUniqueID, "id"},
	{idAPIServer, corev1beta1.ConditionAPIServer, "API server"},
	{idNetwork, corev1beta1.ConditionNetwork, "network"},
	{idOutgoing, corev1beta1.ConditionOutgoingPeering, "capacity used there"},
	{idIncoming, corev1beta1.ConditionIncomingPeering, subjectIncoming},
}

// foreignCluster tells what the conditions of a peer say.
func (c *checker) foreignCluster(fc *corev1beta1.ForeignCluster) {
	checked, told := false, false
	for _, check := range checks {
		if condition := meta.FindStatusCondition(fc.Status.Conditions, check.kind); condition != nil {
			checked = true
			if check.id == idIncoming && fc.Spec.IncomingPeeringEnabled == corev1beta1.PeeringNo && condition.Reason == sharingv1alpha1.ReasonNotAllowed && !c.stale() {
				told = true
				c.add(idIncoming, OK, check.subject, fmt.Sprintf("none: spec.incomingPeeringEnabled of ForeignCluster %s is No, and the peer asks for some", fc.Name), "")
				continue
			}
			told = c.condition(check.id, check.subject, fc.Generation, condition, c.peerFix(fc, condition)) != OK || told
			if check.id == idOutgoing {
				c.withoutIdentity(fc, condition.Reason)
			}
		}
	}
	ready := meta.FindStatusCondition(fc.Status.Conditions, corev1beta1.ConditionReady)
	switch {
	case ready == nil:
		c.unprocessed(idForeignCluster, "ForeignCluster", "liqod's controller has not processed it yet")
	case !told && !(checked && ready.Status == metav1.ConditionTrue):
		c.condition(idForeignCluster, "ForeignCluster", fc.Generation, ready, c.peerFix(fc, ready))
	}
}

// withoutIdentity makes the last finding, about the capacity of a peer, a consequence of the lack
// of an identity there: without it nothing is requested.
func (c *checker) withoutIdentity(fc *corev1beta1.ForeignCluster, reason string) {
	outgoing := &c.findings[len(c.findings)-1]
	if outgoing.Level == OK || outgoing.Because != "" {
		return
	}
	notAsked, refused := reason == sharingv1alpha1.ReasonNotAsked, meta.IsStatusConditionFalse(fc.Status.Conditions, corev1beta1.ConditionAuthenticated)
	outgoing.Because = c.find(func(f Finding) bool {
		return f.ID == idIdentity && f.Peer == c.peer && (notAsked && f.Level != OK || refused && f.Level == Problem)
	})
}

// condition tells what a condition that the controller keeps says now. What was said by a
// controller that is gone is not known now, and what was said of an earlier generation is not
// either.
func (c *checker) condition(id ID, subject string, generation int64, condition *metav1.Condition, fix string) Level {
	level, message, because := conditionLevel(condition.Status), condition.Message, ""
	switch {
	case level == Problem && condition.Reason == offloadingv1beta1.ReasonTerminating && c.Taken.Sub(condition.LastTransitionTime.Time) < settling:
		level = OK
	case level == Problem && c.passing(condition):
		level = Warning
	case condition.Reason == corev1beta1.ReasonRightsRevoked:
		level = Problem // it is known: the peer says so
	case condition.Reason == corev1beta1.ReasonEndedByPeer:
		level = Warning
	}
	if level != OK {
		// The time is that of the status: the reason may be newer.
		message = fmt.Sprintf("%s (%s; %s for %s)", condition.Message, condition.Reason, condition.Status, duration.HumanDuration(c.Taken.Sub(condition.LastTransitionTime.Time)))
	}
	switch {
	case c.stale():
		level, message = Unknown, fmt.Sprintf("liqod's controller does not run; its last result was %s: %s", condition.Status, condition.Message)
		because, fix = "role "+Controller, ""
	case condition.ObservedGeneration != 0 && condition.ObservedGeneration != generation:
		level, message = Unknown, "liqod's controller has not processed the last change yet"
		fix = "look again in a moment"
	}
	if level == OK {
		fix = ""
	}
	reason := condition.Reason
	if level == OK {
		reason = ""
	}
	c.report(Finding{ID: id, Level: level, Subject: subject, Reason: reason, Message: message, Fix: fix, Because: because})
	return level
}

// unprocessed adds a finding about an object that has no condition yet.
func (c *checker) unprocessed(id ID, subject, text string) {
	f := Finding{ID: id, Level: Unknown, Subject: subject, Message: text, Fix: fmt.Sprintf("see whether it runs: kubectl -n %s get pods", c.Namespace)}
	if c.stale() {
		f.Because, f.Fix = "role "+Controller, ""
	}
	c.report(f)
}

// slow is how long something may take that passes by itself.
const slow = 5 * time.Minute

// passing says that a condition is of a state that is on the way to another, or that is
// meant to last (twins that are kept for their volumes).
func (s *Snapshot) passing(condition *metav1.Condition) bool {
	switch condition.Reason {
	case offloadingv1beta1.ReasonTerminating:
		return true
	case string(offloadingv1beta1.PhaseInProgress), offloadingv1beta1.ReasonCreating:
		return s.Taken.Sub(condition.LastTransitionTime.Time) < slow
	}
	return false
}

func conditionLevel(status metav1.ConditionStatus) Level {
	switch status {
	case metav1.ConditionTrue:
		return OK
	case metav1.ConditionFalse:
		return Problem
	}
	return Unknown
}

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

func (c *checker) tenant(id string) {
	if c.unread(ReadTenants) {
		return
	}
	name := corev1beta1.TenantNamespace(id)
	i := slices.IndexFunc(c.Tenants, func(ns corev1.Namespace) bool { return ns.Name == name })
	switch {
	case i < 0:
		c.add(idTenant, Problem, "tenant namespace", fmt.Sprintf("there is no namespace %s with the label %s=true", name, corev1beta1.TenantNamespaceLabel),
			"use "+c.Program+" peer, or create and label it as docs/peering.md says")
	case c.Tenants[i].Labels[corev1beta1.RemoteClusterIDLabel] != id:
		c.add(idTenant, Problem, "tenant namespace", fmt.Sprintf("namespace %s lacks the label %s=%s", name, corev1beta1.RemoteClusterIDLabel, id),
			fmt.Sprintf("kubectl label namespace %s --overwrite %s=%s", name, corev1beta1.RemoteClusterIDLabel, id))
	case c.Tenants[i].DeletionTimestamp != nil:
		c.add(idTenant, Problem, "tenant namespace", fmt.Sprintf("namespace %s is being deleted", name), "wait until it is gone, and peer again")
	default:
		c.add(idTenant, OK, "tenant namespace", name, "")
	}
}

// consumer looks at what a peer needs that uses this cluster.
func (c *checker) consumer(fc *corev1beta1.ForeignCluster) {
	id := fc.Spec.ClusterID
	if !corev1beta1.ValidPeerUser(id, fc.Spec.UserName) {
		c.add(idConsumerRights, Problem, "rights of the consumer", fmt.Sprintf("spec.userName %q of ForeignCluster %s is not a user of %s: it has no rights here", fc.Spec.UserName, fc.Name, id),
			"set it as docs/peering.md says")
	} else {
		c.add(idConsumerRights, OK, "rights of the consumer", "bound to "+fc.Spec.UserName, "")
	}
	incoming := meta.FindStatusCondition(fc.Status.Conditions, corev1beta1.ConditionIncomingPeering)
	if ended := incoming != nil && incoming.Reason == corev1beta1.ReasonEndedByPeer; !ended && len(fc.Spec.AddressRanges) == 0 && !c.fabric(fc) {
		c.add(idConsumerRanges, Warning, "addresses of the consumer", "spec.addressRanges is empty: no endpoint of its Services is used here",
			fmt.Sprintf("kubectl patch foreigncluster %s --type=merge -p '{\"spec\":{\"addressRanges\":[\"RANGE\"]}}'\nRANGE is the range of its pods, such as 10.1.0.0/16.", fc.Name))
	}
}

// fabric reports whether the network fabric connects this cluster with a peer, or is about to.
// The ranges of the peer are then those of its Connection, and nobody writes them.
func (c *checker) fabric(fc *corev1beta1.ForeignCluster) bool {
	if enabled := fc.Spec.NetworkingEnabled; enabled != nil && !*enabled {
		return false
	}
	if network := meta.FindStatusCondition(fc.Status.Conditions, corev1beta1.ConditionNetwork); network != nil {
		return network.Reason != corev1beta1.ReasonNetworkingDisabled
	}
	return slices.ContainsFunc(c.Connections, func(conn networkingv1beta1.Connection) bool {
		return conn.Namespace == corev1beta1.TenantNamespace(fc.Spec.ClusterID) && conn.Name == fc.Spec.ClusterID
	})
}

// provider looks at what this cluster uses of a peer.
func (c *checker) provider(id string) {
	c.namespaceMap(id)
	if c.unread(ReadVirtualNodes) {
		return
	}
	nodes, fc := c.virtualNodes(id), c.record(id)
	switch {
	case len(nodes) > 0:
	case fc != nil && fc.Spec.OutgoingPeeringEnabled == corev1beta1.PeeringNo:
		c.add(idVirtualNodes, OK, "virtual nodes", fmt.Sprintf("none: spec.outgoingPeeringEnabled of ForeignCluster %s is No", fc.Name), "")
	default:
		c.add(idVirtualNodes, Warning, "virtual nodes", "there is none: nothing can be offloaded to "+id, "use "+c.Program+" peer, or create a VirtualNode in namespace "+corev1beta1.TenantNamespace(id)+" as docs/peering.md says")
	}
	for _, vn := range nodes {
		c.virtualNode(vn)
	}
}

// ownMap returns the NamespaceMap that asks a provider for namespaces, or nil.
func (s *Snapshot) ownMap(id string) *offloadingv1beta1.NamespaceMap {
	for i := range s.Maps {
		m := &s.Maps[i]
		if m.Name == id && m.Namespace == corev1beta1.TenantNamespace(id) && m.Labels[offloadingv1beta1.ReplicatedLabel] != "true" {
			return m
		}
	}
	return nil
}

func (c *checker) namespaceMap(id string) {
	if c.unread(ReadMaps) {
		return
	}
	m := c.ownMap(id)
	switch {
	case m == nil:
		return // nothing is offloaded to it
	case m.Status.ObservedGeneration != m.Generation:
		c.add(idNamespaceMap, Unknown, "namespaces asked for", "the peer has not answered to the last change yet", "look again in a moment; if it stays so, see what else is said of the peer")
		return
	}
	if ready := meta.FindStatusCondition(m.Status.Conditions, offloadingv1beta1.RemoteNamespaceReady); ready != nil {
		c.condition(idNamespaceMap, "namespaces asked for", m.Generation, ready, mapFix(m, ready.Reason))
	}
}

func (c *checker) virtualNode(vn *offloadingv1beta1.VirtualNode) {
	subject := "virtual node " + vn.Name
	tenant := vn.Namespace
	if vn.DeletionTimestamp != nil {
		c.removal(vn)
		return
	}
	kubelet := meta.FindStatusCondition(vn.Status.Conditions, offloadingv1beta1.VirtualNodeVirtualKubelet)
	logs := fmt.Sprintf("kubectl -n %s get pods; kubectl -n %s logs deployment/%s%s", tenant, tenant, corev1beta1.VirtualKubeletPrefix, vn.Name)
	if kubelet != nil && kubelet.Status != metav1.ConditionTrue {
		c.condition(idVKubelet, subject+", vkubelet", vn.Generation, kubelet, logs)
	}
	node := c.node(vn.Name)
	if node == nil {
		if c.Unread[ReadNodes] == nil {
			c.add(idVirtualNode, Problem, subject, "it has no Node: "+message(vn.Status.Conditions, offloadingv1beta1.VirtualNodeReady), logs)
		}
		return
	}
	level, text, because, reason := nodeState(node), nodeMessage(node), "", ""
	fix := fmt.Sprintf("%s\nIf the vkubelet does not answer its own cluster, replace its pod; the pods in cluster %s run on:\nkubectl -n %s delete pods -l %s=%s",
		logs, vn.Spec.ClusterID, tenant, offloadingv1beta1.VirtualNodeLabel, vn.Name)
	if level != OK && c.peerDown(vn.Spec.ClusterID) {
		because = c.rootOf(vn.Spec.ClusterID, Problem)
		if because != "" || level == Problem {
			fix = "this changes once the peer is reachable again"
		}
	}
	if level == OK {
		fix = ""
		if silent := nodeCondition(node, offloadingv1beta1.ReasonControllerSilent); silent != nil && silent.Status == corev1.ConditionTrue {
			level, text, reason, fix = Problem, "it is Ready, but "+silent.Message, silent.Reason, c.silentFix(vn.Spec.ClusterID)
		} else if node.Spec.Unschedulable {
			level, text, fix = Warning, "it is Ready, but cordoned: it gets no more pods", "kubectl uncordon "+node.Name
		} else if pods := node.Status.Allocatable[corev1.ResourcePods]; pods.IsZero() {
			level, text, fix = Warning, "it is Ready, but has no room for pods", fmt.Sprintf("kubectl -n %s patch virtualnode %s --type=merge -p '{\"spec\":{\"resourceQuota\":{\"hard\":{\"cpu\":\"CPU\",\"memory\":\"MEMORY\",\"pods\":\"PODS\"}}}}'", tenant, vn.Name)
		}
	}
	c.report(Finding{ID: idVirtualNode, Level: level, Subject: subject, Reason: reason, Message: text, Fix: fix, Because: because})
}

// silentFix is about a provider whose controller does not run.
func (c *checker) silentFix(peer string) string {
	return fmt.Sprintf("In cluster %s:\n%s check\nshows what is wrong with its controller. New pods start once it runs.", peer, c.Program)
}

func (s *Snapshot) peerDown(id string) bool {
	fc := s.record(id)
	return fc != nil && !meta.IsStatusConditionTrue(fc.Status.Conditions, corev1beta1.ConditionReady)
}

func message(conditions []metav1.Condition, kind string) string {
	if c := meta.FindStatusCondition(conditions, kind); c != nil {
		return c.Message
	}
	return "liqod's controller has not processed it yet"
}

func (s *Snapshot) node(name string) *corev1.Node {
	for i := range s.Nodes {
		if s.Nodes[i].Name == name {
			return &s.Nodes[i]
		}
	}
	return nil
}

func readyOf(node *corev1.Node) *corev1.NodeCondition { return nodeCondition(node, corev1.NodeReady) }

func nodeCondition(node *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == kind {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

// nodeState is how well a Node is. Kubernetes itself makes Unknown of what a kubelet that is
// gone has said.
func nodeState(node *corev1.Node) Level {
	if ready := readyOf(node); ready != nil {
		return conditionLevel(metav1.ConditionStatus(ready.Status))
	}
	return Unknown
}

func nodeMessage(node *corev1.Node) string {
	ready := readyOf(node)
	switch {
	case ready == nil:
		return "the Node does not say whether it is ready"
	case ready.Status == corev1.ConditionTrue:
		return "Ready"
	}
	return fmt.Sprintf("the Node is not Ready: %s (%s)", ready.Message, ready.Reason)
}
