package report

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/shadow/rules"
)

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
			out.Peers = append(out.Peers, peerStatus(s, id, findings))
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
		out.Namespaces = append(out.Namespaces, namespaceStatus(&s.Offloadings[i], pods))
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

func peerStatus(s *Snapshot, id string, findings []Finding) Peer {
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

func namespaceStatus(o *offloadingv1beta1.NamespaceOffloading, pods map[place][]placedPod) Namespace {
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
