package namespace

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/store"
)

// choice is the decision whether a namespace is offloaded to a cluster.
type choice int

const (
	// notSelected: no virtual node of the cluster matches.
	notSelected choice = iota
	// undecided: no virtual node is known to match, but one of their Nodes does not exist
	// at present, and may have had labels that are recorded nowhere else. An existing entry
	// stays.
	undecided
	// selected: at least one virtual node matches.
	selected
)

// choose applies a cluster selector to the virtual nodes of every cluster. It matches the
// labels of their Nodes; for a missing Node, it also matches the labels that the Node is
// going to have. node returns nil for a missing Node. An error means that the selector is
// invalid.
func choose(selector *corev1.NodeSelector, nodes []*offloadingv1beta1.VirtualNode, node func(name string) *corev1.Node) (map[string]choice, error) {
	matches := func(*corev1.Node) bool { return true }
	if len(selector.NodeSelectorTerms) > 0 {
		parsed, err := nodeaffinity.NewNodeSelector(selector)
		if err != nil {
			return nil, fmt.Errorf("spec.clusterSelector: %w", err)
		}
		matches = parsed.Match
	}
	out := map[string]choice{}
	for _, vn := range nodes {
		found := notSelected
		n := node(vn.Name)
		switch {
		case n != nil && matches(n), n == nil && matches(forgeNode(vn)):
			found = selected
		case n == nil:
			found = undecided
		}
		out[vn.Spec.ClusterID] = max(out[vn.Spec.ClusterID], found)
	}
	return out, nil
}

// forgeNode returns the Node that a virtual node is going to have, with the fields that
// selectors use.
func forgeNode(vn *offloadingv1beta1.VirtualNode) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: vn.Name, Labels: vn.Spec.Labels}}
	store.AddLabels(node, &metav1.ObjectMeta{Labels: map[string]string{
		offloadingv1beta1.TypeLabel:           offloadingv1beta1.TypeVirtualNode,
		offloadingv1beta1.VirtualKubeletLabel: offloadingv1beta1.VirtualKubelet,
		corev1beta1.RemoteClusterIDLabel:      vn.Spec.ClusterID,
		corev1.LabelHostname:                  vn.Name,
	}})
	return node
}
