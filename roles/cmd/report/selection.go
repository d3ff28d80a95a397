package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/reasons"
	"github.com/liqod/liqod/shadow/rules"
)

// noneSelected explains why no virtual node is selected for a namespace: there is none, all are
// being removed, or the selector matches none. It returns no message if the selector matches one:
// the status of the NamespaceOffloading is outdated.
func (c *checker) noneSelected(o *offloadingv1beta1.NamespaceOffloading) (message, fix string) {
	stay := where(c.VirtualNodes, func(vn *offloadingv1beta1.VirtualNode) bool { return vn.DeletionTimestamp == nil })
	switch {
	case len(c.VirtualNodes) == 0:
		return "there is no virtual node: this cluster uses no provider", c.enrolFix("the cluster that is to be the provider", "")
	case len(stay) == 0:
		return "all virtual nodes are being removed", fmt.Sprintf("%s unoffload namespace %s\nor peer with another cluster.", c.Program, o.Namespace)
	}
	if c.anySelected(stay, o) {
		return "", "look again in a moment; if it stays so, see the check of role controller"
	}
	message = fmt.Sprintf("spec.clusterSelector (%s) matches none of the virtual nodes: %s", strings.Join(terms(&o.Spec.ClusterSelector), "; or "), c.labelled(stay, o))
	return message, c.offloadCommand(o, c.nearest(stay, o))
}

// anySelected reports whether the selector of an offloading matches a virtual node.
func (s *Snapshot) anySelected(nodes []*offloadingv1beta1.VirtualNode, o *offloadingv1beta1.NamespaceOffloading) bool {
	if len(o.Spec.ClusterSelector.NodeSelectorTerms) == 0 {
		return true
	}
	selector, err := nodeaffinity.NewNodeSelector(&o.Spec.ClusterSelector)
	return err == nil && slices.ContainsFunc(nodes, func(vn *offloadingv1beta1.VirtualNode) bool {
		return selector.Match(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: vn.Name, Labels: s.nodeLabels(vn)}})
	})
}

// terms are the terms of a selector, each as the flag --selector has it.
func terms(selector *corev1.NodeSelector) (out []string) {
	for _, term := range selector.NodeSelectorTerms {
		var parts []string
		for _, r := range slices.Concat(term.MatchExpressions, term.MatchFields) {
			parts = append(parts, requirementText(r))
		}
		out = append(out, strings.Join(parts, ","))
	}
	return out
}

func requirementText(r corev1.NodeSelectorRequirement) string {
	values := strings.Join(r.Values, ",")
	switch r.Operator {
	case corev1.NodeSelectorOpIn:
		return fmt.Sprintf("%s in (%s)", r.Key, values)
	case corev1.NodeSelectorOpNotIn:
		return fmt.Sprintf("%s notin (%s)", r.Key, values)
	case corev1.NodeSelectorOpExists:
		return r.Key
	case corev1.NodeSelectorOpDoesNotExist:
		return "!" + r.Key
	case corev1.NodeSelectorOpGt:
		return r.Key + ">" + values
	}
	return r.Key + "<" + values
}

// labelled lists virtual nodes with their values of the keys of a selector.
func (s *Snapshot) labelled(nodes []*offloadingv1beta1.VirtualNode, o *offloadingv1beta1.NamespaceOffloading) string {
	var out []string
	for _, vn := range nodes {
		out = append(out, fmt.Sprintf("%s (%s)", vn.Name, strings.Join(s.valuesOf(vn, o, "no "), ", ")))
	}
	return strings.Join(out, ", ")
}

// valuesOf returns the values of a virtual node for the keys of a selector. lacks precedes a key that it lacks; such keys
// are left out if it is empty.
func (s *Snapshot) valuesOf(vn *offloadingv1beta1.VirtualNode, o *offloadingv1beta1.NamespaceOffloading, lacks string) (out []string) {
	labels := s.nodeLabels(vn)
	for _, key := range selectorKeys(o) {
		if value, ok := labels[key]; ok {
			out = append(out, key+"="+value)
		} else if lacks != "" {
			out = append(out, lacks+key)
		}
	}
	return out
}

func selectorKeys(o *offloadingv1beta1.NamespaceOffloading) []string {
	var all []corev1.NodeSelectorRequirement
	for _, term := range o.Spec.ClusterSelector.NodeSelectorTerms {
		all = append(all, term.MatchExpressions...)
	}
	return Names(all, func(r *corev1.NodeSelectorRequirement) string { return r.Key })
}

// nodeLabels returns the labels of the Node, or those that it is going to have.
func (s *Snapshot) nodeLabels(vn *offloadingv1beta1.VirtualNode) map[string]string {
	if node := s.node(vn.Name); node != nil {
		return node.Labels
	}
	out := map[string]string{offloadingv1beta1.TypeLabel: offloadingv1beta1.TypeVirtualNode, corev1beta1.RemoteClusterIDLabel: vn.Spec.ClusterID}
	maps.Copy(out, vn.Spec.Labels)
	return out
}

// nearest returns a selector that matches the first virtual node by the keys of the present
// selector; if the node has none of them, by the id of its cluster.
func (s *Snapshot) nearest(nodes []*offloadingv1beta1.VirtualNode, o *offloadingv1beta1.NamespaceOffloading) string {
	for _, vn := range nodes {
		if parts := s.valuesOf(vn, o, ""); len(parts) > 0 {
			return strings.Join(parts, ",")
		}
	}
	return corev1beta1.RemoteClusterIDLabel + "=" + nodes[0].Spec.ClusterID
}

// offloadCommand is the command that changes the selector of an offloading and nothing else.
func (c *checker) offloadCommand(o *offloadingv1beta1.NamespaceOffloading, selector string) string {
	command := fmt.Sprintf("%s offload namespace %s", c.Program, o.Namespace)
	if selector != "" {
		command += " --selector " + selector
	}
	if strategy := cmp.Or(o.Spec.PodOffloadingStrategy, offloadingv1beta1.PodsLocalAndRemote); strategy != offloadingv1beta1.PodsLocalAndRemote {
		command += " --pod-offloading-strategy " + string(strategy)
	}
	if mapping := cmp.Or(o.Spec.NamespaceMappingStrategy, offloadingv1beta1.DefaultName); mapping != offloadingv1beta1.DefaultName {
		command += " --namespace-mapping-strategy " + string(mapping)
	}
	if o.Spec.RemoteNamespaceName != "" {
		command += " --remote-namespace-name " + o.Spec.RemoteNamespaceName
	}
	if o.Spec.Services == offloadingv1beta1.ServicesHome {
		command += " --services " + string(o.Spec.Services)
	}
	return command
}

// mostNames limits the names in one command.
const mostNames = 20

// Owner is the controller of a waiting pod.
type Owner struct {
	Namespace, Kind, Name string
	UID                   types.UID
}

// Owners returns the controllers of pods that find no node. Their templates show which part
// of a pod's affinity came from a NamespaceOffloading.
func (s *Snapshot) Owners() []Owner {
	found := map[types.UID]Owner{}
	for _, pod := range where(s.Pods, unschedulableHere) {
		owner := metav1.GetControllerOf(pod)
		if owner == nil || !s.concerns(pod) {
			continue
		}
		switch owner.Kind {
		case "ReplicaSet", "StatefulSet", "Job":
			found[owner.UID] = Owner{pod.Namespace, owner.Kind, owner.Name, owner.UID}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b Owner) int {
		return strings.Compare(a.Namespace+"/"+a.Name+"/"+a.Kind, b.Namespace+"/"+b.Name+"/"+b.Kind)
	})
}

func unschedulableHere(pod *corev1.Pod) bool {
	c := podCondition(pod, corev1.PodScheduled)
	return pod.Spec.NodeName == "" && !ended(pod) && pod.DeletionTimestamp == nil &&
		c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
}

// earlier adds a finding for each namespace with pods that find no node because of an affinity
// that its NamespaceOffloading no longer asks for. It returns the UIDs of these pods.
func (c *checker) earlier(all []placedPod) map[types.UID]bool {
	out := map[types.UID]bool{}
	byNamespace := map[string][]*corev1.Pod{}
	for _, pod := range all {
		if c.outdated(pod.Pod) {
			out[pod.UID] = true
			byNamespace[pod.Namespace] = append(byNamespace[pod.Namespace], pod.Pod)
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(byNamespace)) {
		c.outdatedPods(namespace, byNamespace[namespace])
	}
	return out
}

func (c *checker) outdatedPods(namespace string, pods []*corev1.Pod) {
	why := "with the affinity of an earlier NamespaceOffloading; "
	if !mentionsVirtualNodes(pods[0]) {
		why = "created before the present NamespaceOffloading; "
	}
	if o := c.offloadingOf(namespace); o != nil && o.DeletionTimestamp == nil {
		why += "pods created now get another affinity"
	} else {
		why += "the namespace is not offloaded now"
	}
	var names []string
	owned := false
	for _, pod := range pods {
		names = append(names, pod.Name)
		owned = owned || metav1.GetControllerOf(pod) != nil
	}
	fix := fmt.Sprintf("kubectl -n %s delete pod %s", namespace, strings.Join(names[:min(len(names), mostNames)], " "))
	if len(names) > mostNames {
		fix += fmt.Sprintf("\nthen the same for the other %d", len(names)-mostNames)
	}
	if owned {
		fix += "\nThe controllers of the pods create them anew, with the present affinity. No container of these pods has run."
	} else {
		fix += "\nCreate them anew from their manifests: no controller does it. No container of these pods has run."
	}
	who := "pod " + names[0] + " waits"
	if len(names) > 1 {
		who = fmt.Sprintf("%d pods (%s, …) wait", len(names), names[0])
	}
	c.Report(Finding{ID: idEarlier, Level: Problem, Subject: "pods of namespace " + namespace, Reason: reasons.EarlierAffinity, Fix: fix,
		Message: fmt.Sprintf("%s for a node, %s", who, why)})
}

// outdated reports whether a pod finds no node because of an affinity that a pod created now
// would not have. A pod whose controller's template could not be read is outdated if the present
// offloading does not account for a term about virtual nodes.
func (s *Snapshot) outdated(pod *corev1.Pod) bool {
	if !unschedulableHere(pod) {
		return false
	}
	strategy, selector := offloadingv1beta1.PodsLocal, corev1.NodeSelector{}
	if o := s.offloadingOf(pod.Namespace); o != nil && o.DeletionTimestamp == nil {
		strategy, selector = o.Spec.PodOffloadingStrategy, o.Spec.ClusterSelector
	}
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return s.leftover(pod, strategy, selector)
	}
	template, read := s.Templates[owner.UID]
	if !read {
		return s.leftover(pod, strategy, selector)
	}
	fresh := &corev1.Pod{Spec: template.Spec}
	want, err := rules.Offload(fresh, strategy, selector)
	if err != nil || like(pod, want) || forClaims(pod, fresh, want, strategy) {
		return false
	}
	return (mentionsVirtualNodes(pod) || mentionsVirtualNodes(want) || tolerates(want)) && s.fitsSome(want)
}

// like reports whether a pod is scheduled as one that is created now.
func like(pod, created *corev1.Pod) bool {
	return equality.Semantic.DeepEqual(required(pod), required(created)) && (tolerates(pod) || !tolerates(created))
}

// forClaims reports whether a pod is as the webhook creates it now for the sake of its claims: on own
// nodes, or off virtual nodes that make no volumes.
func forClaims(pod, fresh, want *corev1.Pod, strategy offloadingv1beta1.PodOffloadingStrategy) bool {
	atHome, err := rules.KeepHome(fresh)
	if err == nil && strategy == offloadingv1beta1.PodsLocalAndRemote && like(pod, atHome) {
		return true
	}
	return slices.ContainsFunc([]bool{true, false}, func(onOwnNodes bool) bool {
		created, err := rules.WithStorage(want, onOwnNodes)
		return err == nil && like(pod, created)
	})
}

// tolerates reports whether a pod has the toleration that the webhook adds.
func tolerates(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return t.Key == offloadingv1beta1.VirtualNodeTaintKey })
}

// leftover judges a pod without a known template: the webhook would change the pod, or the pod
// selects virtual nodes that the offloading does not ask for.
func (s *Snapshot) leftover(pod *corev1.Pod, strategy offloadingv1beta1.PodOffloadingStrategy, selector corev1.NodeSelector) bool {
	if !mentionsVirtualNodes(pod) || s.fitsSome(pod) {
		return false
	}
	want, err := rules.Offload(pod, strategy, selector)
	changed := err == nil && !equality.Semantic.DeepEqual(required(pod), required(want))
	again := corev1.PodSpec{RuntimeClassName: pod.Spec.RuntimeClassName, NodeSelector: pod.Spec.NodeSelector}
	fresh, err := rules.Offload(&corev1.Pod{Spec: again}, strategy, selector)
	return changed || (err == nil && !equality.Semantic.DeepEqual(required(pod), required(fresh)) && s.fitsSome(fresh))
}

// fitsSome reports whether the affinity of a pod admits a node: one of the virtual nodes, or one
// of this cluster's own, which the snapshot does not have.
func (s *Snapshot) fitsSome(pod *corev1.Pod) bool {
	away := func(r corev1.NodeSelectorRequirement) bool {
		return r.Key == offloadingv1beta1.TypeLabel && r.Operator != corev1.NodeSelectorOpIn
	}
	return !mentionsVirtualNodes(pod) || requires(pod, away) || slices.ContainsFunc(s.Nodes, func(node corev1.Node) bool { return admits(pod, &node) })
}

// admits reports whether the node selector and the required affinity of a pod admit a node.
func admits(pod *corev1.Pod, node *corev1.Node) bool {
	fits, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	return err == nil && fits
}

// required returns the node selector of a pod's required affinity, or an empty one.
func required(pod *corev1.Pod) *corev1.NodeSelector {
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		return a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return &corev1.NodeSelector{}
}

// mentionsVirtualNodes reports whether the required affinity of a pod has a term about the type
// of nodes, as the webhook adds it.
func mentionsVirtualNodes(pod *corev1.Pod) bool {
	return requires(pod, func(r corev1.NodeSelectorRequirement) bool { return r.Key == offloadingv1beta1.TypeLabel })
}

func requires(pod *corev1.Pod, is func(corev1.NodeSelectorRequirement) bool) bool {
	return slices.ContainsFunc(required(pod).NodeSelectorTerms, func(term corev1.NodeSelectorTerm) bool {
		return slices.ContainsFunc(term.MatchExpressions, is)
	})
}
