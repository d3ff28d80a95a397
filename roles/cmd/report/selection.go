package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// noneSelected explains why no virtual node is selected for a namespace: there is none, all are
// being removed, or the selector matches none. It returns no message if the selector matches one:
// the status of the NamespaceOffloading is outdated.
func (c *checker) noneSelected(o *offloadingv1beta1.NamespaceOffloading) (message, fix string) {
	stay := where(c.VirtualNodes, func(vn *offloadingv1beta1.VirtualNode) bool { return vn.DeletionTimestamp == nil })
	switch {
	case len(c.VirtualNodes) == 0:
		return "there is no virtual node: this cluster uses no provider", c.firstPeerFix()
	case len(stay) == 0:
		return "all virtual nodes are being removed", fmt.Sprintf("%s unoffload namespace %s\nor peer with another cluster.", c.Program, o.Namespace)
	}
	if c.anySelected(stay, o) {
		return "", "look again in a moment; if it stays so, see the check of role controller"
	}
	message = fmt.Sprintf("spec.clusterSelector (%s) matches none of the virtual nodes: %s", selectorText(&o.Spec.ClusterSelector), c.labelled(stay, o))
	return message, c.offloadCommand(o, c.nearest(stay, o))
}

// firstPeerFix is how a cluster without providers gets one.
func (c *checker) firstPeerFix() string {
	return fmt.Sprintf("In the cluster that is to be the provider:\n%s token create\nIn this cluster:\n%s peer --token TOKEN", c.Program, c.Program)
}

// anySelected reports whether the selector of an offloading matches a virtual node.
func (s *Snapshot) anySelected(nodes []*offloadingv1beta1.VirtualNode, o *offloadingv1beta1.NamespaceOffloading) bool {
	if len(o.Spec.ClusterSelector.NodeSelectorTerms) == 0 {
		return true
	}
	selector, err := nodeaffinity.NewNodeSelector(&o.Spec.ClusterSelector)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(nodes, func(vn *offloadingv1beta1.VirtualNode) bool {
		return selector.Match(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: vn.Name, Labels: s.nodeLabels(vn)}})
	})
}

// selectorText writes a selector as the flag --selector has it.
func selectorText(selector *corev1.NodeSelector) string {
	return strings.Join(terms(selector), "; or ")
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
		var have []string
		labels := s.nodeLabels(vn)
		for _, key := range selectorKeys(o) {
			if value, ok := labels[key]; ok {
				have = append(have, key+"="+value)
			} else {
				have = append(have, "no "+key)
			}
		}
		out = append(out, fmt.Sprintf("%s (%s)", vn.Name, strings.Join(have, ", ")))
	}
	return strings.Join(out, ", ")
}

func selectorKeys(o *offloadingv1beta1.NamespaceOffloading) []string {
	keys := map[string]bool{}
	for _, term := range o.Spec.ClusterSelector.NodeSelectorTerms {
		for _, r := range term.MatchExpressions {
			keys[r.Key] = true
		}
	}
	return slices.Sorted(maps.Keys(keys))
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
		var parts []string
		labels := s.nodeLabels(vn)
		for _, key := range selectorKeys(o) {
			if value, ok := labels[key]; ok {
				parts = append(parts, key+"="+value)
			}
		}
		if len(parts) > 0 {
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
