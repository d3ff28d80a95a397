package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/reasons"
)

// peerIDs are the clusters that there is something about, sorted.
func (s *Snapshot) peerIDs() []string {
	ids := append(Names(s.ForeignClusters, func(fc *corev1beta1.ForeignCluster) string { return fc.Spec.ClusterID }),
		Names(s.VirtualNodes, func(vn *offloadingv1beta1.VirtualNode) string { return vn.Spec.ClusterID })...)
	slices.Sort(ids)
	return slices.Compact(ids)
}

// record returns the ForeignCluster of a peer, or nil.
func (s *Snapshot) record(id string) *corev1beta1.ForeignCluster {
	return first(s.ForeignClusters, func(fc *corev1beta1.ForeignCluster) bool { return fc.Name == id })
}

func (s *Snapshot) virtualNodes(id string) []*offloadingv1beta1.VirtualNode {
	return where(s.VirtualNodes, func(vn *offloadingv1beta1.VirtualNode) bool { return vn.Spec.ClusterID == id })
}

// Connection returns the Connection with a peer, or nil.
func (s *Snapshot) Connection(id string) *networkingv1beta1.Connection {
	return first(s.Connections, func(c *networkingv1beta1.Connection) bool {
		return c.Namespace == corev1beta1.TenantNamespace(id) && c.Name == id
	})
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

// Provides reports whether a peer with a role runs pods of this cluster.
func Provides(role corev1beta1.RoleType) bool {
	return role == corev1beta1.RoleProvider || role == corev1beta1.RoleConsumerAndProvider
}

// Consumes reports whether a peer with a role has pods run in this cluster.
func Consumes(role corev1beta1.RoleType) bool {
	return role == corev1beta1.RoleConsumer || role == corev1beta1.RoleConsumerAndProvider
}

func (c *checker) peering(id string) {
	fc := c.record(id)
	switch {
	case fc == nil && !c.unread(ReadForeignClusters):
		c.Add(idForeignCluster, Problem, "ForeignCluster", "there is none: the peer is not checked", "use "+c.Program+" peer, or create it as docs/peering.md says")
	case fc == nil:
	case c.readyReason(fc) == corev1beta1.ReasonNotPeered && len(c.virtualNodes(id)) == 0:
		c.Add(idForeignCluster, OK, "ForeignCluster", "found by discovery, and not used", "")
		return
	case !c.stale() && c.readyReason(fc) == corev1beta1.ReasonAwaitsEnrolment:
		c.Add(idForeignCluster, Warning, "ForeignCluster", conditionMessage(fc.Status.Conditions, corev1beta1.ConditionReady), fmt.Sprintf("%s token create --for %s\nfor the people of that cluster", c.Program, id))
		return
	default:
		c.foreignCluster(fc)
	}
	role := c.roleOf(id)
	c.tenant(id)
	c.network(id)
	if fc != nil && Consumes(role) {
		c.consumer(fc)
	}
	c.cordonedQuotas(id)
	if trust := c.trustApart(id); trust != "" {
		c.Add(idTrust, OK, "trust", fmt.Sprintf("%s, by spec.trust of ForeignCluster %s; without it sharing.trust of this cluster counts", trust, fc.Name), "")
	}
	if Provides(role) {
		c.provider(id)
	}
	c.revoked()
}

// revoked makes all that is wrong with a peer a consequence of the rights that it has taken back.
func (c *checker) revoked() {
	cause, theirs := c.revokedBy(c.Peer), []ID{idIdentity, idUniqueID, idIncoming, idConsumerRights, idConsumerRanges}
	c.follow(cause, func(f *Finding) bool {
		return f.Peer == c.Peer && f.Level != OK && f.Name() != cause && !slices.Contains(theirs, f.ID)
	})
}

// follow makes findings that a function selects consequences of another one; of none if the name of that is empty.
func (c *checker) follow(cause string, is func(*Finding) bool) {
	if cause == "" {
		return
	}
	for _, f := range where(c.Findings, is) {
		f.Because, f.Fix = cause, ""
	}
}

// cordonedQuotas adds a finding for each Quota of a peer that gives nothing to its new pods. Only people cordon one.
func (c *checker) cordonedQuotas(id string) {
	for _, q := range c.quotas(id) {
		if q.Spec.Cordoned != nil && *q.Spec.Cordoned {
			c.Add(idQuota, Warning, "Quota "+q.Name, fmt.Sprintf("spec.cordoned is true: it gives nothing to new pods of cluster %s, which wait (%s) unless another Quota has room", id, offloadingv1beta1.ReasonQuotaCordoned),
				fmt.Sprintf("kubectl -n %s patch quotas.offloading.liqo.io %s --type=merge -p '{\"spec\":{\"cordoned\":false}}'", q.Namespace, q.Name))
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

// readyReason is the reason of a peer's condition Ready; empty if it has none.
func (s *Snapshot) readyReason(fc *corev1beta1.ForeignCluster) string {
	return cmp.Or(meta.FindStatusCondition(fc.Status.Conditions, corev1beta1.ConditionReady), &metav1.Condition{}).Reason
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
				c.Add(idIncoming, OK, check.subject, fmt.Sprintf("none: spec.incomingPeeringEnabled of ForeignCluster %s is No, and the peer asks for some", fc.Name), "")
				continue
			}
			if (check.id == idIncoming || check.id == idNetwork) && condition.Status != metav1.ConditionTrue {
				condition = condition.DeepCopy()
				if n := hosted(c.Snapshot, fc.Spec.ClusterID).Pods; n > 0 {
					condition.Message += fmt.Sprintf("; %s of it here", Count(n, "pod"))
				}
			}
			f := Finding{ID: check.id, Subject: check.subject, Fix: c.peerFix(fc, condition)}
			told = c.condition(f, reasons.Entry(peerKind(check.kind), condition.Reason), fc.Generation, condition) != OK || told
		}
	}
	c.consequences()
	ready := meta.FindStatusCondition(fc.Status.Conditions, corev1beta1.ConditionReady)
	switch {
	case ready == nil:
		c.unprocessed(idForeignCluster, "ForeignCluster", "liqod's controller has not processed it yet")
	case !told && !(checked && ready.Status == metav1.ConditionTrue):
		c.condition(Finding{ID: idForeignCluster, Subject: "ForeignCluster", Fix: c.peerFix(fc, ready)}, reasons.Entry(kindPeer, ready.Reason), fc.Generation, ready)
	}
}

// consequences makes what is wrong with a peer consequences of what explains it: without an identity there no capacity
// is used, without a gateway there is no network. reasons.yaml has what explains a reason.
func (c *checker) consequences() {
	explain := func(id ID, cause string) {
		c.follow(cause, func(f *Finding) bool { return f.Peer == c.Peer && f.ID == id && f.Level != OK && f.Because == "" })
	}
	explain(idOutgoing, c.find(func(f Finding) bool { return f.Peer == c.Peer && f.ID == idIdentity && f.Level == Problem }))
	if !slices.ContainsFunc(c.allRoles(), func(r Role) bool { return r.Name == Gateway && r.Ready > 0 }) {
		explain(idNetwork, c.find(func(f Finding) bool { return f.ID == idGateway && f.Level == Problem }))
	}
	for _, f := range where(c.Findings, func(f *Finding) bool { return f.Peer == c.Peer && f.ID != idNetwork }) {
		explain(f.ID, c.explainedBy(reasons.Entry(kindPeer, f.Reason), c.Peer, ""))
	}
}

// condition adds a finding with what a condition that the controller keeps says now. What was said by a
// controller that is gone is not known now, and what was said of an earlier generation is not
// either.
func (c *checker) condition(f Finding, r reasons.Reason, generation int64, condition *metav1.Condition) Level {
	since := condition.LastTransitionTime.Time
	f.Level, f.Message, f.Reason = conditionLevel(condition.Status), condition.Message, condition.Reason
	if f.Level != OK {
		f.Level = c.levelSince(since, f.Level, r)
	}
	if f.Level != OK {
		// The time is that of the status: the reason may be newer.
		f.Message = fmt.Sprintf("%s (%s; %s for %s)", condition.Message, condition.Reason, condition.Status, duration.HumanDuration(c.Taken.Sub(since)))
	}
	switch {
	case c.stale():
		f.Level, f.Message = Unknown, fmt.Sprintf("liqod's controller does not run; its last result was %s: %s", condition.Status, condition.Message)
		f.Because, f.Fix = "role "+Controller, ""
	case condition.ObservedGeneration != 0 && condition.ObservedGeneration != generation:
		f.Level, f.Message = Unknown, "liqod's controller has not processed the last change yet"
		f.Fix = "look again in a moment"
	}
	if f.Level == OK {
		f.Fix, f.Reason = "", ""
	}
	c.Report(f)
	return f.Level
}

// unprocessed adds a finding about an object that has no condition yet.
func (c *checker) unprocessed(id ID, subject, text string) {
	f := Finding{ID: id, Level: Unknown, Subject: subject, Message: text, Fix: fmt.Sprintf("kubectl -n %s get pods\nshows whether it runs.", c.Namespace)}
	if c.stale() {
		f.Because, f.Fix = "role "+Controller, ""
	}
	c.Report(f)
}

// levelSince returns the level of what began at a time, by the first of its reasons that has levels; else the usual one.
func (s *Snapshot) levelSince(since time.Time, usual Level, of ...reasons.Reason) Level {
	age := max(1, s.Taken.Sub(since)) // of another clock
	for _, r := range of {
		switch {
		case r.Warning == r.Problem:
		case age > r.Problem:
			return Problem
		case age > r.Warning:
			return Warning
		default:
			return OK
		}
	}
	return usual
}

func conditionLevel(status metav1.ConditionStatus) Level {
	return cmp.Or(map[metav1.ConditionStatus]Level{metav1.ConditionTrue: OK, metav1.ConditionFalse: Problem}[status], Unknown)
}

func (c *checker) tenant(id string) {
	if c.unread(ReadTenants) {
		return
	}
	name := corev1beta1.TenantNamespace(id)
	tenant := first(c.Tenants, func(ns *corev1.Namespace) bool { return ns.Name == name })
	switch {
	case tenant == nil:
		c.Add(idTenant, Problem, "tenant namespace", fmt.Sprintf("there is no namespace %s with the label %s=true", name, corev1beta1.TenantNamespaceLabel),
			"nothing: liqod makes it in a moment if the peer has rights here, or this cluster uses it by a token. For a peering that people made, create and label it as docs/peering.md#connecting-two-clusters-by-hand says")
	case tenant.Labels[corev1beta1.RemoteClusterIDLabel] != id:
		c.Add(idTenant, Problem, "tenant namespace", fmt.Sprintf("namespace %s lacks the label %s=%s", name, corev1beta1.RemoteClusterIDLabel, id),
			fmt.Sprintf("kubectl label namespace %s --overwrite %s=%s", name, corev1beta1.RemoteClusterIDLabel, id))
	case tenant.DeletionTimestamp != nil:
		c.Add(idTenant, Problem, "tenant namespace", fmt.Sprintf("namespace %s is being deleted", name), "nothing: liqod makes it again once it is gone. If something holds it up:\nkubectl describe namespace "+name)
	default:
		c.Add(idTenant, OK, "tenant namespace", name, "")
	}
}

// consumer looks at what a peer needs that uses this cluster.
func (c *checker) consumer(fc *corev1beta1.ForeignCluster) {
	id := fc.Spec.ClusterID
	if !corev1beta1.ValidPeerUser(id, fc.Spec.UserName) {
		c.Add(idConsumerRights, Problem, "rights of the consumer", fmt.Sprintf("spec.userName %q of ForeignCluster %s is not a user of %s: it has no rights here", fc.Spec.UserName, fc.Name, id),
			"set it as docs/peering.md says")
	} else {
		c.Add(idConsumerRights, OK, "rights of the consumer", "bound to "+fc.Spec.UserName, "")
	}
	incoming := meta.FindStatusCondition(fc.Status.Conditions, corev1beta1.ConditionIncomingPeering)
	if ended := incoming != nil && incoming.Reason == corev1beta1.ReasonEndedByPeer; !ended && len(fc.Spec.AddressRanges) == 0 && !c.fabric(fc) {
		c.Add(idConsumerRanges, Warning, "addresses of the consumer", "spec.addressRanges is empty: no endpoint of its Services is used here",
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
	return c.deployment("ipam") != nil || c.Connection(fc.Spec.ClusterID) != nil
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
		c.Add(idVirtualNodes, OK, "virtual nodes", fmt.Sprintf("none: spec.outgoingPeeringEnabled of ForeignCluster %s is No", fc.Name), "")
	default:
		c.Add(idVirtualNodes, Warning, "virtual nodes", "there is none: nothing can be offloaded to "+id, "use "+c.Program+" peer, or create a VirtualNode in namespace "+corev1beta1.TenantNamespace(id)+" as docs/peering.md says")
	}
	for _, vn := range nodes {
		c.virtualNode(vn)
	}
}

// ownMap returns the NamespaceMap that asks a provider for namespaces, or nil.
func (s *Snapshot) ownMap(id string) *offloadingv1beta1.NamespaceMap {
	return first(s.Maps, func(m *offloadingv1beta1.NamespaceMap) bool {
		return m.Name == id && m.Namespace == corev1beta1.TenantNamespace(id) && m.Labels[offloadingv1beta1.ReplicatedLabel] != "true"
	})
}

func (c *checker) namespaceMap(id string) {
	if c.unread(ReadMaps) {
		return
	}
	m := c.ownMap(id)
	if m == nil {
		return // nothing is offloaded to it
	}
	switch ready := meta.FindStatusCondition(m.Status.Conditions, offloadingv1beta1.RemoteNamespaceReady); {
	case m.Status.ObservedGeneration != m.Generation:
		c.Add(idNamespaceMap, Unknown, "namespaces asked for", "the peer has not answered to the last change yet", "look again in a moment; if it stays so, see what else is said of the peer")
	case ready != nil:
		c.condition(Finding{ID: idNamespaceMap, Subject: "namespaces asked for", Fix: mapFix(m, ready.Reason)}, reasons.Entry(kindMap, ready.Reason), m.Generation, ready)
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
		c.condition(Finding{ID: idVKubelet, Subject: subject + ", vkubelet", Fix: logs}, reasons.Entry(kindVirtualNode, kubelet.Reason), vn.Generation, kubelet)
	}
	node := c.node(vn.Name)
	if node == nil {
		if c.Unread[ReadNodes] == nil {
			c.Add(idVirtualNode, Problem, subject, "it has no Node: "+conditionMessage(vn.Status.Conditions, offloadingv1beta1.VirtualNodeReady), logs)
		}
		return
	}
	level, text, because, reason := nodeState(node), nodeMessage(node), "", ""
	fix := fmt.Sprintf("%s\nIf the vkubelet does not answer its own cluster, replace its pod; the pods in cluster %s run on:\nkubectl -n %s delete pods -l %s=%s",
		logs, vn.Spec.ClusterID, tenant, offloadingv1beta1.VirtualNodeLabel, vn.Name)
	if fc := c.record(vn.Spec.ClusterID); level != OK && fc != nil && !meta.IsStatusConditionTrue(fc.Status.Conditions, corev1beta1.ConditionReady) {
		because = c.rootOf(vn.Spec.ClusterID, Problem)
		if because != "" || level == Problem {
			fix = "this changes once the peer is reachable again"
		}
	}
	if level == OK {
		fix = ""
		if silent := nodeCondition(node, offloadingv1beta1.ReasonControllerSilent); silent.Status == corev1.ConditionTrue {
			level, text, reason, fix = Problem, "it is Ready, but "+silent.Message, silent.Reason, Expanded(reasons.Entry(kindPod, silent.Reason).Fix, map[string]string{"peer": vn.Spec.ClusterID, "program": c.Program})
		} else if node.Spec.Unschedulable {
			level, text, fix = Warning, "it is Ready, but cordoned: it gets no more pods", "kubectl uncordon "+node.Name
		} else if pods := node.Status.Allocatable[corev1.ResourcePods]; pods.IsZero() {
			level, text, fix = Warning, "it is Ready, but has no room for pods", fmt.Sprintf("kubectl -n %s patch virtualnode %s --type=merge -p '{\"spec\":{\"resourceQuota\":{\"hard\":{\"cpu\":\"CPU\",\"memory\":\"MEMORY\",\"pods\":\"PODS\"}}}}'", tenant, vn.Name)
		}
	}
	c.Report(Finding{ID: idVirtualNode, Level: level, Subject: subject, Reason: reason, Message: text, Fix: fix, Because: because})
}

func conditionMessage(conditions []metav1.Condition, kind string) string {
	return cmp.Or(meta.FindStatusCondition(conditions, kind), &metav1.Condition{Message: "liqod's controller has not processed it yet"}).Message
}

func (s *Snapshot) node(name string) *corev1.Node {
	return first(s.Nodes, func(n *corev1.Node) bool { return n.Name == name })
}

// nodeCondition returns a condition of a Node; an empty one if it has none.
func nodeCondition(node *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	return cmp.Or(first(node.Status.Conditions, func(c *corev1.NodeCondition) bool { return c.Type == kind }), &corev1.NodeCondition{})
}

// nodeState is how well a Node is. Kubernetes itself makes Unknown of what a kubelet that is
// gone has said.
func nodeState(node *corev1.Node) Level {
	return conditionLevel(metav1.ConditionStatus(nodeCondition(node, corev1.NodeReady).Status))
}

// NodeReady reports whether a Node is Ready.
func NodeReady(node *corev1.Node) bool { return nodeState(node) == OK }

func nodeMessage(node *corev1.Node) string {
	ready := nodeCondition(node, corev1.NodeReady)
	switch {
	case ready.Type == "":
		return "the Node does not say whether it is ready"
	case ready.Status == corev1.ConditionTrue:
		return "Ready"
	}
	return fmt.Sprintf("the Node is not Ready: %s (%s)", ready.Message, ready.Reason)
}

// overlays warns of hosts that take packets of the overlay from every address.
func (c *checker) overlays() {
	for _, role := range c.OpenOverlays {
		c.Add(idOverlay, Warning, "overlay", fmt.Sprintf("%s.anyOverlaySender is true: any pod of this cluster can send packets into the fabric with an address that is not its own", role),
			fmt.Sprintf("unset config.%s.anyOverlaySender in the values of the chart, and see whether packets still arrive: docs/networking.md#what-the-overlay-trusts", role))
	}
}

// network reports the ranges of a peer that have a view here, and those that have none. The conditions
// of its ForeignCluster report whether packets pass.
func (c *checker) network(id string) {
	if c.unread(ReadNetworks) {
		return
	}
	for _, n := range where(c.Networks, func(n *ipamv1alpha1.Network) bool { return n.Namespace == corev1beta1.TenantNamespace(id) }) {
		c.claim(n)
	}
	if conn := c.Connection(id); conn != nil {
		c.Add(idAddresses, OK, "addresses", fmt.Sprintf("%s of %s; %s of this cluster there", mapped(conn.Spec.Remote), id, mapped(conn.Spec.Local)), "")
	}
}

// mapped lists ranges, and under which they are seen where that is another.
func mapped(ranges []networkingv1beta1.Mapping) string {
	var out []string
	for _, m := range ranges {
		if m.Own == m.View {
			out = append(out, string(m.Own))
		} else {
			out = append(out, fmt.Sprintf("%s as %s", m.Own, m.View))
		}
	}
	return strings.Join(out, ", ")
}

// slow is how long role ipam may take to answer.
const slow = 5 * time.Minute

// claim reports a range of a peer that has no view here.
func (c *checker) claim(n *ipamv1alpha1.Network) {
	ready := meta.FindStatusCondition(n.Status.Conditions, ipamv1alpha1.ConditionReady)
	subject := fmt.Sprintf("range %s", n.Spec.CIDR)
	switch {
	case ready == nil && c.Taken.Sub(n.CreationTimestamp.Time) < slow:
	case ready == nil:
		c.Add(idRange, Unknown, subject, fmt.Sprintf("Network %s has no answer yet", n.Name), fmt.Sprintf("kubectl -n %s get pods -l %s=ipam\nshows whether role ipam runs.", c.Namespace, ComponentLabel))
	case ready.Status == metav1.ConditionFalse:
		c.Add(idRange, Problem, subject, ready.Message, "docs/networking.md#addresses-between-clusters says what to do about "+ready.Reason)
	}
}

func conditions(fc *corev1beta1.ForeignCluster) (out []metav1.Condition) {
	for _, check := range checks {
		if c := meta.FindStatusCondition(fc.Status.Conditions, check.kind); c != nil {
			out = append(out, *c)
		}
	}
	return out
}

// quotas are those that bound a peer in this cluster.
func (s *Snapshot) quotas(id string) []*offloadingv1beta1.Quota {
	return where(s.Quotas, func(q *offloadingv1beta1.Quota) bool { return q.Namespace == corev1beta1.TenantNamespace(id) })
}

func hosted(s *Snapshot, id string) Hosted {
	namespaces := where(s.Twins(), func(t *Twin) bool { return t.Peer == id })
	return Hosted{Namespaces: len(namespaces), Pods: len(s.hostedPods(id))}
}

// hostedPods are the pods that a peer runs in this cluster.
func (s *Snapshot) hostedPods(id string) []*corev1.Pod {
	return where(s.Pods, func(pod *corev1.Pod) bool { return origin(pod) == id && !ended(pod) })
}

// Twins returns the namespaces that this cluster has for peers.
func (s *Snapshot) Twins() (out []Twin) {
	for _, m := range s.Maps {
		origin := m.Labels[offloadingv1beta1.OriginIDLabel]
		for name, twin := range m.Status.CurrentMapping {
			if origin != "" && m.Labels[offloadingv1beta1.ReplicatedLabel] == "true" && twin.Phase == offloadingv1beta1.MappingAccepted {
				out = append(out, Twin{origin, twin.RemoteNamespace, name})
			}
		}
	}
	return out
}
