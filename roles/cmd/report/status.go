package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/shadow/rules"
)

// Installation is liqod in a cluster.
type Installation struct {
	// Cluster is this cluster's id; empty if it could not be found.
	Cluster string `json:"cluster,omitempty"`
	// Version and Namespace of the installation.
	Version   string `json:"version,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	// Kubernetes is the version of the API server.
	Kubernetes string `json:"kubernetes,omitempty"`
	// Roles of liqod in this cluster.
	Roles []Role `json:"roles"`
}

// Status is how a cluster and its peerings are.
type Status struct {
	Installation
	// Only is the namespace that alone was read. Roles and peers are unknown then.
	Only string `json:"only,omitempty"`
	// Health of everything that is in here.
	Health Level `json:"health"`
	// Problems are the findings that are problems, or that could not be found out; the
	// worst first.
	Problems []Finding `json:"problems"`
	// Warnings are the findings about peers, offloaded namespaces, pods and volumes that may become
	// problems.
	Warnings []Finding `json:"warnings,omitempty"`
	// Unread names what could not be read. The state of it is unknown.
	Unread []string `json:"unread,omitempty"`
	// Differences say what of Only does not follow its pods into providers.
	Differences []string `json:"differences,omitempty"`
	// Peers, by cluster id.
	Peers []Peer `json:"peers"`
	// Namespaces that are offloaded.
	Namespaces []Namespace `json:"namespaces"`
	// Left counts the pods of Only that are on virtual nodes although it is not offloaded. It is empty without such pods.
	Left string `json:"left,omitempty"`
	// Kept says how much data is kept without a claim.
	Kept string `json:"kept,omitempty"`
	// Moves are those of data to another cluster.
	Moves []Move `json:"moves,omitempty"`
}

// Role is a Deployment or DaemonSet of a role of liqod.
type Role struct {
	Name string `json:"name"`
	// Object is its namespace and name.
	Object string `json:"object"`
	Level  Level  `json:"level"`
	// Message says how well it runs.
	Message string `json:"message"`
	Ready   int32  `json:"ready"`
	Want    int32  `json:"want"`
	// Leader is the replica that leads, empty if there is none.
	Leader  string `json:"leader,omitempty"`
	Version string `json:"version,omitempty"`
	Image   string `json:"image"`
	// Restarts of the containers of its pods.
	Restarts int32 `json:"restarts"`

	fix string
}

// Peer is how a peering is.
type Peer struct {
	ClusterID string               `json:"clusterID"`
	Role      corev1beta1.RoleType `json:"role"`
	Health    Level                `json:"health"`
	// Message of the peer's ForeignCluster.
	Message string `json:"message,omitempty"`
	// APIServer is the address of the peer's API server, if it is asked.
	APIServer string `json:"apiServer,omitempty"`
	// Trust in the peer, if it is not that of the setting sharing.trust.
	Trust corev1beta1.Trust `json:"trust,omitempty"`
	// Refused are packets of the peer that the network fabric of this cluster has dropped lately.
	Refused Refused `json:"refused,omitzero"`
	// Version of liqod in the peer, as it has said.
	Version string `json:"version,omitempty"`
	// Conditions of the peer's ForeignCluster, but for Ready, in the order in which they
	// explain each other.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Offers of capacity, in both directions.
	Offers []Offer `json:"offers,omitempty"`
	// VirtualNodes that stand for the peer, and what runs on them.
	VirtualNodes []VirtualNode `json:"virtualNodes"`
	// Given is what the Quotas of this cluster give the peer, and what its pods here ask for. Limit
	// says in words what bounds it.
	Given Room   `json:"given,omitzero"`
	Limit string `json:"limit,omitempty"`
	// Hosted is what the peer runs here.
	Hosted Hosted `json:"hosted"`
}

// Refused counts packets that the hosts of this cluster have dropped. Each host records its number
// when it has doubled, so there may be more of them.
type Refused struct {
	Packets int64 `json:"packets"`
	Hosts   int   `json:"hosts"`
}

// String writes r as a part of a sentence, and nothing without packets.
func (r Refused) String() string {
	if r == (Refused{}) {
		return ""
	}
	return fmt.Sprintf("at least %s, on %s", Count(int(r.Packets), "packet"), Count(r.Hosts, "host"))
}

// Offer is capacity that one cluster offers the other.
type Offer struct {
	Name string `json:"name"`
	// Incoming is capacity of the peer for this cluster; else it is the reverse.
	Incoming bool                       `json:"incoming"`
	Approved bool                       `json:"approved"`
	Phase    sharingv1alpha1.OfferPhase `json:"phase,omitempty"`
	Message  string                     `json:"message,omitempty"`
	Capacity corev1.ResourceList        `json:"capacity"`
}

// VirtualNode is how a virtual node is, and how much of it is used.
type VirtualNode struct {
	Name    string `json:"name"`
	Health  Level  `json:"health"`
	Message string `json:"message,omitempty"`
	Room
	Pods int `json:"pods"`
	// Ready is the number of pods that are ready.
	Ready int `json:"ready"`
	// Removing says that the virtual node is being removed.
	Removing bool `json:"removing,omitempty"`
}

// Room is how much of a capacity is used.
type Room struct {
	// Capacity is what pods may ask for, Used is what they ask for.
	Capacity corev1.ResourceList `json:"capacity"`
	Used     corev1.ResourceList `json:"used"`
}

func (r *Room) use(pod *corev1.Pod) {
	rules.AddResources(r.Used, resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}))
	rules.AddResources(r.Used, corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(1, resource.DecimalSI)})
}

// Hosted counts what a peer runs in this cluster.
type Hosted struct {
	Namespaces int `json:"namespaces"`
	Pods       int `json:"pods"`
}

// Namespace is an offloaded namespace.
type Namespace struct {
	Name     string                                  `json:"name"`
	Strategy offloadingv1beta1.PodOffloadingStrategy `json:"strategy"`
	Phase    offloadingv1beta1.OffloadingPhase       `json:"phase"`
	Message  string                                  `json:"message,omitempty"`
	// RemoteName is the name of its twins.
	RemoteName string `json:"remoteName,omitempty"`
	// Peers that are selected, and whether each has the twin.
	Peers []NamespacePeer `json:"peers"`
	// NoNode are the pods that wait for a node of this cluster, of which some are virtual.
	NoNode PodCounts `json:"noNode,omitzero"`
}

// NamespacePeer is an offloaded namespace in one peer.
type NamespacePeer struct {
	ClusterID string `json:"clusterID"`
	Ready     bool   `json:"ready"`
	Message   string `json:"message,omitempty"`
	// Pods of the namespace that are on virtual nodes of the peer, and have not ended.
	Pods int `json:"pods"`
	// PodCounts has these pods by state.
	PodCounts PodCounts `json:"podCounts"`
}

// Summarize makes a status of a snapshot.
func Summarize(s *Snapshot) *Status {
	findings := Check(s)
	out := &Status{
		Installation: s.installation(), Only: s.Only, Health: OK,
		Problems: []Finding{}, Peers: []Peer{}, Namespaces: []Namespace{},
	}
	for _, f := range findings {
		switch {
		case f.Level == Problem || f.Level == Unknown:
			out.Problems = append(out.Problems, f)
		case f.Level == Warning && (f.Peer != "" || f.Section == sectionOffloading || f.Section == sectionPods || f.Section == sectionVolumes):
			out.Warnings = append(out.Warnings, f)
		}
	}
	out.Unread, out.Differences, out.Moves = s.unreadNames(), s.Differences(s.Only), s.moves()
	slices.SortStableFunc(out.Problems, func(a, b Finding) int { return cmp.Compare(b.Level.Rank(), a.Level.Rank()) })
	out.Health = Worst(out.Problems)
	if s.Only == "" {
		out.Kept = s.kept()
		for _, id := range s.peerIDs() {
			out.Peers = append(out.Peers, peer(s, id, findings))
		}
	}
	pods := map[place][]placedPod{}
	var left []placedPod
	for _, pod := range s.workloads() {
		pods[pod.at] = append(pods[pod.at], pod)
		if pod.at.peer != "" {
			left = append(left, pod)
		}
	}
	if s.Only != "" && len(s.Offloadings) == 0 && len(left) > 0 {
		out.Left = countPods(left).String()
	}
	for i := range s.Offloadings {
		out.Namespaces = append(out.Namespaces, namespace(&s.Offloadings[i], pods))
	}
	return out
}

func (s *Snapshot) installation() Installation {
	out := Installation{Cluster: s.ClusterID, Namespace: s.Namespace, Kubernetes: s.Kubernetes, Roles: []Role{}}
	if s.Only == "" {
		out.Roles = append(out.Roles, s.allRoles()...)
	}
	if d := s.deployment(Controller); d != nil {
		out.Version = d.Labels["app.kubernetes.io/version"]
	}
	return out
}

// Of returns the part of a status that is about some peers, or an error that says which
// there are.
func (s *Status) Of(ids ...string) (*Status, error) {
	if len(ids) == 0 {
		return s, nil
	}
	out := *s
	other := func(f Finding) bool { return !slices.Contains(ids, f.Peer) }
	out.Problems = slices.DeleteFunc(slices.Clone(s.Problems), func(f Finding) bool { return f.Section != sectionInstallation && other(f) })
	out.Warnings, out.Peers, out.Namespaces = slices.DeleteFunc(slices.Clone(s.Warnings), other), nil, []Namespace{}
	for _, id := range ids {
		i := slices.IndexFunc(s.Peers, func(p Peer) bool { return p.ClusterID == id })
		switch {
		case i < 0 && slices.Contains(s.Unread, ReadForeignClusters):
			return nil, fmt.Errorf("there is no peer %q: the peers are not known, as ForeignClusters cannot be read", id)
		case i < 0:
			return nil, NoPeer(id, Names(s.Peers, func(p *Peer) string { return p.ClusterID }))
		}
		out.Peers = append(out.Peers, s.Peers[i])
	}
	for _, ns := range s.Namespaces {
		ns.Peers = slices.DeleteFunc(slices.Clone(ns.Peers), func(p NamespacePeer) bool { return !slices.Contains(ids, p.ClusterID) })
		if len(ns.Peers) > 0 {
			out.Namespaces = append(out.Namespaces, ns)
		}
	}
	out.Health = Worst(out.Problems)
	return &out, nil
}

// NoPeer is the error for a peer that this cluster does not have, with the peers that it has.
func NoPeer(id string, peers []string) error {
	return fmt.Errorf("there is no peer %q: %s", id, KnownPeers(peers))
}

// KnownPeers names the peers of this cluster.
func KnownPeers(peers []string) string {
	if len(peers) == 0 {
		return "this cluster has no peers"
	}
	return Listed("the only peer is", "the peers are", peers)
}

func conditions(fc *corev1beta1.ForeignCluster) (out []metav1.Condition) {
	for _, check := range checks {
		if c := meta.FindStatusCondition(fc.Status.Conditions, check.kind); c != nil {
			out = append(out, *c)
		}
	}
	return out
}

// offers are those between this cluster and a peer.
func (s *Snapshot) offers(id string) (out []Offer) {
	for _, o := range where(s.Offers, func(o *sharingv1alpha1.ResourceOffer) bool { return o.Namespace == corev1beta1.TenantNamespace(id) }) {
		out = append(out, Offer{Name: o.Name, Incoming: o.Spec.ProviderClusterID == id, Approved: o.Spec.Approved,
			Phase: o.Status.Phase, Message: o.Status.Message, Capacity: o.Spec.ResourceQuota.Hard})
	}
	return out
}

// refused adds up the events about the Connection with a peer.
func (s *Snapshot) refused(id string) (out Refused) {
	for _, e := range s.Refusals {
		if e.Reason == networkingv1beta1.ReasonPacketsRefused && e.Namespace == corev1beta1.TenantNamespace(id) {
			out.Packets, out.Hosts = out.Packets+int64(e.Count), out.Hosts+1
		}
	}
	return out
}

func peer(s *Snapshot, id string, findings []Finding) Peer {
	out := Peer{ClusterID: id, Role: s.roleOf(id), Health: OK, VirtualNodes: []VirtualNode{}}
	for _, f := range findings {
		if f.Peer == id && f.Level != Warning && f.Section != sectionPods {
			out.Health = Worse(out.Health, f.Level)
		}
	}
	if fc := s.record(id); fc != nil {
		out.APIServer = fc.Status.APIServerURL
		out.Message = conditionMessage(fc.Status.Conditions, corev1beta1.ConditionReady)
		out.Version = fc.Status.Version
		out.Conditions = conditions(fc)
	}
	out.Offers, out.Trust, out.Refused = s.offers(id), s.trustApart(id), s.refused(id)
	for _, vn := range s.virtualNodes(id) {
		out.VirtualNodes = append(out.VirtualNodes, virtualNode(s, vn))
	}
	out.Hosted = hosted(s, id)
	if Consumes(out.Role) || out.Hosted != (Hosted{}) {
		out.Given, out.Limit = s.given(id)
	}
	return out
}

// quotas are those that bound a peer in this cluster.
func (s *Snapshot) quotas(id string) []*offloadingv1beta1.Quota {
	return where(s.Quotas, func(q *offloadingv1beta1.Quota) bool { return q.Namespace == corev1beta1.TenantNamespace(id) })
}

// hostedPods are the pods that a peer runs in this cluster.
func (s *Snapshot) hostedPods(id string) []*corev1.Pod {
	return where(s.Pods, func(pod *corev1.Pod) bool { return origin(pod) == id && !ended(pod) })
}

// given returns what this cluster gives a peer, and what the pods of the peer here ask for. The
// capacity is nil if nothing bounds it, or if it is not known.
func (s *Snapshot) given(id string) (out Room, limit string) {
	out.Used = corev1.ResourceList{}
	for _, pod := range s.hostedPods(id) {
		out.use(pod)
	}
	switch bound := rules.SumQuotas(s.quotas(id)); {
	case s.Unread[ReadQuotas] != nil:
		return out, "Quotas cannot be read: its limit is unknown"
	case bound.Quotas == 0:
		return out, "no Quota bounds it"
	case bound.Cordoned:
		out.Capacity, limit = bound.Resources, "its Quotas are cordoned: nothing new begins"
	default:
		out.Capacity, limit = bound.Resources, "bounded by "+Count(bound.Quotas, "Quota")
	}
	return out, limit
}

// origin is the peer that has a pod of this cluster; empty for other pods.
func origin(pod *corev1.Pod) string {
	if pod.Labels[offloadingv1beta1.ManagedByLabel] != offloadingv1beta1.ManagedByShadowPod {
		return ""
	}
	return pod.Labels[offloadingv1beta1.OriginLabel]
}

func virtualNode(s *Snapshot, vn *offloadingv1beta1.VirtualNode) VirtualNode {
	out := VirtualNode{Name: vn.Name, Health: Unknown, Room: Room{Used: corev1.ResourceList{corev1.ResourcePods: {}}}, Removing: vn.DeletionTimestamp != nil}
	node := s.node(vn.Name)
	if node == nil {
		if s.Unread[ReadNodes] == nil {
			out.Health = Problem
		}
		out.Message = conditionMessage(vn.Status.Conditions, offloadingv1beta1.VirtualNodeReady)
	} else {
		out.Health, out.Message, out.Capacity = nodeState(node), nodeMessage(node), node.Status.Allocatable
	}
	for _, pod := range s.podsOn(vn) {
		out.Pods++
		if s.judge(pod).state == podReady {
			out.Ready++
		}
		out.use(pod)
	}
	return out
}

// podsOn returns the pods on a virtual node that have not ended.
func (s *Snapshot) podsOn(vn *offloadingv1beta1.VirtualNode) []*corev1.Pod {
	return where(s.Pods, func(pod *corev1.Pod) bool { return pod.Spec.NodeName == vn.Name && !ended(pod) })
}

func ended(pod *corev1.Pod) bool {
	return offloadingv1beta1.Ended(pod.Status.Phase)
}

// Twin is a namespace of this cluster in which a peer runs pods.
type Twin struct {
	Peer      string `json:"peer"`
	Namespace string `json:"namespace"`
	Original  string `json:"original"`
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

func hosted(s *Snapshot, id string) Hosted {
	namespaces := where(s.Twins(), func(t *Twin) bool { return t.Peer == id })
	return Hosted{Namespaces: len(namespaces), Pods: len(s.hostedPods(id))}
}

func namespace(o *offloadingv1beta1.NamespaceOffloading, pods map[place][]placedPod) Namespace {
	out := Namespace{
		Name: o.Namespace, Strategy: o.Spec.PodOffloadingStrategy, Phase: o.Status.OffloadingPhase, RemoteName: o.Status.RemoteNamespaceName,
		Message: conditionMessage(o.Status.Conditions, offloadingv1beta1.RemoteNamespaceReady), Peers: []NamespacePeer{},
		NoNode: countPods(pods[place{o.Namespace, ""}]),
	}
	if o.DeletionTimestamp != nil {
		out.Phase = offloadingv1beta1.PhaseTerminating
	}
	for id, ready := range Selected(o) {
		counts := countPods(pods[place{o.Namespace, id}])
		out.Peers = append(out.Peers, NamespacePeer{ClusterID: id, Ready: conditionLevel(ready.Status) == OK, Message: ready.Message, Pods: counts.Pods, PodCounts: counts})
	}
	return out
}

// Selected yields the providers that an offloading selects, sorted, each with the condition of its twin.
func Selected(o *offloadingv1beta1.NamespaceOffloading) iter.Seq2[string, *metav1.Condition] {
	return func(yield func(string, *metav1.Condition) bool) {
		for _, id := range slices.Sorted(maps.Keys(o.Status.RemoteNamespacesConditions)) {
			conditions := o.Status.RemoteNamespacesConditions[id]
			ready := meta.FindStatusCondition(conditions, offloadingv1beta1.RemoteNamespaceReady)
			if ready != nil && !meta.IsStatusConditionFalse(conditions, offloadingv1beta1.RemoteNamespaceOffloadingRequired) && !yield(id, ready) {
				return
			}
		}
	}
}

// Key changes when the status changes in more than its messages and how far moves of data are: these change while only
// time passes.
func (s *Status) Key() string {
	out, finding := *s, func(f *Finding) { f.Message, f.Fix = "", "" }
	out.Kept, out.Problems, out.Warnings = "", textless(s.Problems, finding), textless(s.Warnings, finding)
	out.Roles = textless(s.Roles, func(r *Role) { r.Message = "" })
	out.Moves = textless(s.Moves, func(m *Move) { m.State = "" })
	out.Peers = textless(s.Peers, func(p *Peer) {
		p.Message, p.Conditions = "", textless(p.Conditions, func(c *metav1.Condition) { c.Message = "" })
		p.Offers = textless(p.Offers, func(o *Offer) { o.Message = "" })
		p.VirtualNodes = textless(p.VirtualNodes, func(n *VirtualNode) { n.Message = "" })
	})
	out.Namespaces = textless(s.Namespaces, func(n *Namespace) {
		n.Message, n.NoNode.Cause = "", ""
		n.Peers = textless(n.Peers, func(p *NamespacePeer) { p.Message, p.PodCounts.Cause = "", "" })
	})
	text, _ := json.Marshal(out) // of texts and numbers
	return string(text)
}

// textless returns a copy of items, each without the texts that drop clears.
func textless[T any](items []T, drop func(*T)) []T {
	out := slices.Clone(items)
	for i := range out {
		drop(&out[i])
	}
	return out
}
