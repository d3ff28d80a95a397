package report

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/reasons"
	"github.com/liqod/liqod/shadow/rules"
)

// mostCauses limits the findings about the pods of one namespace.
const mostCauses = 8

// place is a namespace and the peer that its pods are in. The peer is empty for pods without a
// node.
type place struct{ namespace, peer string }

// placedPod is a pod and where it is.
type placedPod struct {
	*corev1.Pod
	at      place
	verdict podVerdict
}

// workloads returns the pods that providers run or are to run, the oldest first.
func (s *Snapshot) workloads() []placedPod {
	var out []placedPod
	for _, pod := range where(s.Pods, func(pod *corev1.Pod) bool { return !ended(pod) && s.concerns(pod) }) {
		out = append(out, placedPod{pod, place{pod.Namespace, s.providerOf(pod.Spec.NodeName)}, s.judge(pod)})
	}
	slices.SortStableFunc(out, func(a, b placedPod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.at.peer, b.at.peer),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// concerns reports whether a pod is on a virtual node, or waits for a node and may get a virtual
// one. Pods of DaemonSets in namespaces that are not offloaded are reported with their DaemonSet.
func (s *Snapshot) concerns(pod *corev1.Pod) bool {
	o := s.offloadingOf(pod.Namespace)
	if pod.Spec.NodeName == "" {
		return pod.DeletionTimestamp == nil && (selectsVirtualNodes(pod) || o != nil && o.Spec.PodOffloadingStrategy != offloadingv1beta1.PodsLocal)
	}
	if s.providerOf(pod.Spec.NodeName) == "" {
		return false
	}
	owner := metav1.GetControllerOf(pod)
	return o != nil || owner == nil || owner.Kind != "DaemonSet"
}

func (s *Snapshot) offloadingOf(namespace string) *offloadingv1beta1.NamespaceOffloading {
	return first(s.Offloadings, func(o *offloadingv1beta1.NamespaceOffloading) bool { return o.Namespace == namespace })
}

// pods adds a finding for each cause for which pods of a namespace are not ready.
func (c *checker) pods() {
	all := c.workloads()
	counts := map[place]int{}
	for _, pod := range all {
		counts[pod.at]++
	}
	type cause struct {
		at     place
		state  podState
		reason string
	}
	var order []cause
	groups := map[cause][]placedPod{}
	early := c.earlier(all)
	for _, pod := range all {
		if pod.verdict.level == OK || early[pod.UID] {
			continue
		}
		key := cause{pod.at, pod.verdict.state, pod.verdict.reason}
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], pod)
	}
	told := map[place]int{}
	for _, key := range order {
		if told[key.at]++; told[key.at] <= mostCauses {
			c.unready(groups[key], counts[key.at])
		} else if told[key.at] == mostCauses+1 {
			c.Peer = key.at.peer
			c.Add(idPods, Problem, "pods of namespace "+key.at.namespace, "pods are not ready for further reasons", fmt.Sprintf("kubectl -n %s get pods -o wide", key.at.namespace))
		}
	}
	c.Peer = ""
	if len(all) > 0 && len(order) == 0 && len(early) == 0 {
		c.Add(idPods, OK, "pods", settled(all), "")
	}
}

// settled describes pods of which none has a problem.
func settled(all []placedPod) string {
	counts := countPods(all)
	if counts.Ready == counts.Pods {
		return counts.String() + ": all are ready"
	}
	return counts.String()
}

// unready adds the finding about pods that have the same cause.
func (c *checker) unready(pods []placedPod, total int) {
	// The first of the worst.
	first := slices.MaxFunc(pods, func(a, b placedPod) int { return cmp.Compare(a.verdict.level.Rank(), b.verdict.level.Rank()) })
	who := "pod " + first.Name
	if len(pods) > 1 || total > 1 {
		who = fmt.Sprintf("%d of %s", len(pods), Count(total, "pod"))
	}
	message := fmt.Sprintf("%s %s (%s)", who, first.verdict.state.phrase(len(pods), first.at.peer), first.verdict.reason)
	if who != "pod "+first.Name {
		message += "; the first, " + first.Name
	}
	if text := clip(strings.TrimSpace(first.verdict.message)); text != "" && text != first.verdict.reason {
		message += ": " + text
	}
	message += otherCauses(pods, first)
	c.Peer = first.at.peer
	c.Report(Finding{ID: first.verdict.state.checkID(), Level: first.verdict.level, Subject: "pods of namespace " + first.Namespace, Reason: first.verdict.reason, Message: message,
		Fix: c.podFix(first), Because: c.podsBecause(first)})
}

// mostOthers limits the further causes that a finding quotes.
const mostOthers = 3

var (
	digits   = regexp.MustCompile(`\d+`)
	exitCode = regexp.MustCompile(`exit code \d+`)
)

// otherCauses quotes a pod for each cause that has the same reason as that of the first pod, and other
// words. Names, UIDs and numbers, such as of restarts, make no other cause; exit codes do.
func otherCauses(pods []placedPod, first placedPod) (text string) {
	if first.verdict.reason == offloadingv1beta1.ReasonTerminating {
		return ""
	}
	words := func(pod placedPod) string {
		bare := strings.ReplaceAll(strings.ReplaceAll(pod.verdict.message, pod.Name, ""), string(pod.UID), "")
		return digits.ReplaceAllString(bare, "") + exitCode.FindString(pod.verdict.message)
	}
	seen, more := map[string]bool{words(first): true}, 0
	for _, pod := range pods {
		key := words(pod)
		switch {
		case seen[key]:
		case len(seen) > mostOthers:
			more++
		default:
			text += fmt.Sprintf("; %s: %s", pod.Name, clip(strings.TrimSpace(pod.verdict.message)))
		}
		seen[key] = true
	}
	if more > 0 {
		text += fmt.Sprintf("; %s more", Count(more, "cause"))
	}
	return text
}

// longestWords limits the bytes that a finding repeats of a message of another cluster.
const longestWords = 600

// phrase is a state as the rest of a sentence about n pods.
func (p podState) phrase(n int, peer string) string {
	be, wait := "is", "waits"
	if n > 1 {
		be, wait = "are", "wait"
	}
	switch {
	case p == podUnschedulable:
		return fmt.Sprintf("%s unschedulable in cluster %s", be, peer)
	case p == podWaiting && peer == "":
		return wait + " for a node"
	case p == podWaiting:
		return wait
	}
	return fmt.Sprintf("%s %s", be, p)
}

// podsBecause names the finding that explains why a pod is not ready, if there is one.
func (c *checker) podsBecause(pod placedPod) string {
	kind := kindPod
	if pod.Spec.NodeName == "" {
		kind = kindUnplaced
	}
	return cmp.Or(c.revokedBy(pod.at.peer), c.explainedBy(reasons.Entry(kind, pod.verdict.reason), pod.at.peer, pod.Namespace))
}

// checkPeer stands in reasons.yaml for the first check that is not well about a peer.
const checkPeer = "peer"

// explainedBy names the finding about a peer or a namespace that explains a reason, if there is one.
func (c *checker) explainedBy(r reasons.Reason, peer, namespace string) string {
	if r.Because == checkPeer {
		return c.rootOf(peer, Level(r.Least))
	}
	return c.find(func(f Finding) bool {
		return f.ID == ID(r.Because) && f.Level.Rank() >= Level(r.Least).Rank() && (f.Peer == peer && peer != "" || f.Subject == "namespace "+namespace)
	})
}

// rootOf names the first finding about a peer that has the worst level, at least the given one, and is no consequence.
func (c *checker) rootOf(peer string, least Level) string {
	for _, level := range []Level{Problem, Unknown, Warning} {
		if level.Rank() < least.Rank() {
			break
		}
		if name := c.find(func(f Finding) bool {
			return f.Peer == peer && f.Level == level && f.Because == "" && f.Section != sectionPods && f.Subject != subjectIncoming
		}); name != "" {
			return name
		}
		if name := c.find(func(f Finding) bool { return f.Peer == peer && f.Level == level && f.ID == idNetwork }); name != "" {
			return name
		}
	}
	return ""
}

// find names the first finding that a function selects, or the one that this finding follows from.
func (c *checker) find(is func(Finding) bool) string {
	if i := slices.IndexFunc(c.Findings, is); i >= 0 {
		return cmp.Or(c.Findings[i].Because, c.Findings[i].Name())
	}
	return ""
}

// revokedBy names the finding about the rights that a peer has taken back, if it has.
func (c *checker) revokedBy(peer string) string {
	return c.find(func(f Finding) bool { return f.Peer == peer && f.Reason == corev1beta1.ReasonRightsRevoked })
}

// providerOf is the provider that a virtual node stands for; empty for other nodes.
func (s *Snapshot) providerOf(node string) string {
	if node == "" {
		return ""
	}
	if vn := first(s.VirtualNodes, func(vn *offloadingv1beta1.VirtualNode) bool { return vn.Name == node }); vn != nil {
		return vn.Spec.ClusterID
	}
	if n := s.node(node); n != nil {
		return n.Labels[corev1beta1.RemoteClusterIDLabel]
	}
	if s.unread(ReadVirtualNodes) && s.unread(ReadNodes) {
		return s.namedAsProvider(node)
	}
	return ""
}

// namedAsProvider returns the provider of which a node has the name: the usual name of a virtual node.
func (s *Snapshot) namedAsProvider(node string) string {
	for i := range s.Offloadings {
		if _, is := s.Offloadings[i].Status.RemoteNamespacesConditions[node]; is {
			return node
		}
	}
	return ""
}

// drawn returns why a pod without a node waits for the provider that has the data of its claim. It
// is nil if a virtual node of that provider takes pods, or if the data is in this cluster.
func (s *Snapshot) drawn(pod *corev1.Pod, pvc *corev1.PersistentVolumeClaim, of string) *claimCause {
	peer := s.dataOf(pvc)
	if pod.Spec.NodeName != "" || peer == "" {
		return nil
	}
	why := "which has no virtual node here any more"
	for _, vn := range s.virtualNodes(peer) {
		switch node := s.node(vn.Name); {
		case vn.DeletionTimestamp != nil:
			why = fmt.Sprintf("whose virtual node %s is being removed", vn.Name)
		case node == nil || nodeState(node) != OK:
			why = fmt.Sprintf("whose virtual node %s is not Ready", vn.Name)
		case node.Spec.Unschedulable:
			why = fmt.Sprintf("whose virtual node %s is cordoned", vn.Name)
		default:
			return nil
		}
	}
	return &claimCause{reason: reasons.DataElsewhere, message: fmt.Sprintf("%s has its data in cluster %s, %s: the pod waits for it", of, peer, why)}
}

// dataOf returns the provider that has the data of a claim, or "". Without the volumes it is known as
// long as the virtual node of the claim's first pod exists.
func (s *Snapshot) dataOf(pvc *corev1.PersistentVolumeClaim) string {
	volume := s.volumeOf(pvc)
	if volume == nil {
		return s.providerOf(pvc.Annotations[SelectedNode])
	}
	return volume.Labels[corev1beta1.RemoteClusterIDLabel]
}

// nowhere returns a cause if its claim keeps a pod on own nodes, or if it admits virtual nodes only, and no
// volume is made on any of these.
func (s *Snapshot) nowhere(pod *corev1.Pod, of string, own bool) *claimCause {
	if own && unschedulableHere(pod) && mentionsVirtualNodes(pod) && !selectsVirtualNodes(pod) {
		return &claimCause{reason: reasons.ClaimKeepsHome, message: of + " has its volume on nodes of this cluster only, and none takes the pod: " + podCondition(pod, corev1.PodScheduled).Message}
	}
	why, _ := s.withoutStorage(pod)
	if why == "" {
		return nil
	}
	return &claimCause{reason: reasons.NoStorage, message: fmt.Sprintf("%s gets no volume on the virtual nodes that the pod admits: %s", of, why)}
}

// withoutStorage says why no volume is made on the virtual nodes that a pod does not admit only because of that, and what
// makes volumes possible there. It is empty if the pod admits other nodes.
func (s *Snapshot) withoutStorage(pod *corev1.Pod) (why, fix string) {
	if !rules.AsksForVirtualNodes(pod) {
		return "", ""
	}
	var causes, fixes []string
	for _, vn := range s.VirtualNodes {
		node := s.node(vn.Name)
		if node == nil {
			continue
		}
		if admits(pod, node) {
			return "", ""
		}
		node = node.DeepCopy()
		delete(node.Labels, offloadingv1beta1.NoStorageLabel)
		switch {
		case !admits(pod, node):
			continue
		case len(vn.Spec.StorageClasses) > 0:
			why = fmt.Sprintf("virtual node %s makes no volumes (offloading.reflection.persistentvolumeclaim.workers is 0)", vn.Name)
			fix = "set offloading.reflection.persistentvolumeclaim.workers in the values of the chart"
		case vn.Labels[offloadingv1beta1.ManagedByLabel] == sharingv1alpha1.ManagedByOffer:
			why = fmt.Sprintf("cluster %s offers no storage class (its sharing.storageClasses)", vn.Spec.ClusterID)
			fix = fmt.Sprintf("In cluster %s:\nkubectl get storageclasses\nIts sharing.storageClasses has to list one that has a provisioner.", vn.Spec.ClusterID)
		default:
			why = fmt.Sprintf("VirtualNode %s lists none (spec.storageClasses)", vn.Name)
			fix = fmt.Sprintf("kubectl -n %s edit virtualnodes.offloading.liqo.io %s\nList classes of cluster %s in spec.storageClasses.", vn.Namespace, vn.Name, vn.Spec.ClusterID)
		}
		causes, fixes = append(causes, why), append(fixes, fix)
	}
	return strings.Join(causes, "; "), strings.Join(fixes, "\nOr:\n")
}

// selectsVirtualNodes reports whether the node selector or the required affinity of a pod has a term that selects
// virtual nodes. A term that excludes them is what people give to DaemonSets.
func selectsVirtualNodes(pod *corev1.Pod) bool {
	return pod.Spec.NodeSelector[offloadingv1beta1.TypeLabel] == offloadingv1beta1.TypeVirtualNode || pod.Spec.NodeSelector[corev1beta1.RemoteClusterIDLabel] != "" || requires(pod, func(r corev1.NodeSelectorRequirement) bool {
		return r.Key == offloadingv1beta1.TypeLabel && r.Operator == corev1.NodeSelectorOpIn
	})
}

func countPods(pods []placedPod) (out PodCounts) {
	worst, states := OK, map[podState]int{}
	for _, pod := range pods {
		states[pod.verdict.state]++
		if level := pod.verdict.level; level.Rank() > worst.Rank() {
			worst = level
			out.Cause = clip(fmt.Sprintf("%s: %s: %s", pod.Name, pod.verdict.reason, pod.verdict.message))
		}
	}
	out.Pods, out.Ready, out.NotReady = len(pods), states[podReady], states[podNotReady]
	out.Refused, out.Unschedulable, out.Waiting = states[podRefused], states[podUnschedulable], states[podWaiting]
	return out
}
