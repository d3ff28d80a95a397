package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/liqod/liqod/reasons"
)

// SingleNode reports whether a label of that key names one node by convention, so that
// no peer may select nodes by it.
func SingleNode(key string) bool {
	name := key[strings.LastIndex(key, "/")+1:]
	return slices.Contains([]string{"hostname", "node", "node-name", "nodename", "node-id", "instance-id", "provider-id", "machine-id", "nodeclaim"}, name)
}

// SelectorAllowed reports whether peers may select nodes by a label. allowed are the keys of
// such labels; AllKeys stands for all that do not name a single node.
func SelectorAllowed(allowed []string, key string) bool {
	return slices.Contains(allowed, key) || slices.Contains(allowed, AllKeys) && !SingleNode(key)
}

// nodeLabel is a label of nodes that a field of a pod names.
type nodeLabel struct{ field, key string }

// selectable judges the labels of nodes that a pod selects its node by. With any label, the
// pod could be led to nodes that are set apart, and its fate would tell which there are.
// kubernetes.io/hostname is not refused: placement removes it.
func selectable(spec *corev1.PodSpec, allowed Allowed) error {
	for _, l := range nodeLabels(spec) {
		if l.key != corev1.LabelHostname && !SelectorAllowed(allowed.SelectorLabels, l.key) {
			return &Refused{reasons.NodeLabelRefused, fmt.Sprintf("%s selects nodes by the label %s: %s", l.field, l.key,
				allowed.accepts(allowed.SelectorLabels, "sharing.selectorLabels"))}
		}
	}
	return nil
}

// nodeLabels returns the labels of nodes that a pod spec names, in a fixed order. A pod
// affinity names them as its topology.
func nodeLabels(spec *corev1.PodSpec) []nodeLabel {
	var out []nodeLabel
	add := func(field string, keys ...string) {
		for _, key := range keys {
			out = append(out, nodeLabel{field, key})
		}
	}
	add("spec.nodeSelector", slices.Sorted(maps.Keys(spec.NodeSelector))...)
	for _, c := range spec.TopologySpreadConstraints {
		add("spec.topologySpreadConstraints", c.TopologyKey)
	}
	a := spec.Affinity
	if a == nil {
		return out
	}
	if n := a.NodeAffinity; n != nil {
		add("spec.affinity.nodeAffinity", nodeAffinityKeys(n)...)
	}
	if p := a.PodAffinity; p != nil {
		add("spec.affinity.podAffinity", topologies(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)...)
	}
	if p := a.PodAntiAffinity; p != nil {
		add("spec.affinity.podAntiAffinity", topologies(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)...)
	}
	return out
}

func nodeAffinityKeys(n *corev1.NodeAffinity) (keys []string) {
	var terms []corev1.NodeSelectorTerm
	if required := n.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		terms = append(terms, required.NodeSelectorTerms...)
	}
	for _, preferred := range n.PreferredDuringSchedulingIgnoredDuringExecution {
		terms = append(terms, preferred.Preference)
	}
	for _, term := range terms {
		for _, r := range term.MatchExpressions {
			keys = append(keys, r.Key)
		}
	}
	return keys
}

// topologies returns the topology keys of the terms that stay: those about pods of other
// namespaces are removed.
func topologies(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) (keys []string) {
	for _, t := range preferred {
		required = append(slices.Clip(required), t.PodAffinityTerm)
	}
	for _, t := range required {
		if !ofOthers(t) {
			keys = append(keys, t.TopologyKey)
		}
	}
	return keys
}

// placement removes from a pod's wishes about nodes those that pick a single one, and
// those about the pods of others: a required anti-affinity to pods of other namespaces
// would keep these off nodes, and an affinity to them leads to the node that they are on.
// Wishes about labels that the provider lists (zone, architecture) are the author's.
func placement(spec *corev1.PodSpec) {
	delete(spec.NodeSelector, corev1.LabelHostname)
	if len(spec.NodeSelector) == 0 {
		spec.NodeSelector = nil
	}
	a := spec.Affinity
	if a == nil {
		return
	}
	a.NodeAffinity = nodeAffinity(a.NodeAffinity)
	if p := a.PodAffinity; p != nil && !own(&p.RequiredDuringSchedulingIgnoredDuringExecution, &p.PreferredDuringSchedulingIgnoredDuringExecution) {
		a.PodAffinity = nil
	}
	if p := a.PodAntiAffinity; p != nil && !own(&p.RequiredDuringSchedulingIgnoredDuringExecution, &p.PreferredDuringSchedulingIgnoredDuringExecution) {
		a.PodAntiAffinity = nil
	}
	if *a == (corev1.Affinity{}) {
		spec.Affinity = nil
	}
}

// ofOthers tells whether a term is about pods of namespaces other than the pod's own. One
// that lists its own namespace by name counts too: at home it has another name.
func ofOthers(t corev1.PodAffinityTerm) bool {
	return len(t.Namespaces) > 0 || t.NamespaceSelector != nil
}

// own removes the terms about pods of other namespaces, and tells whether any is left.
func own(required *[]corev1.PodAffinityTerm, preferred *[]corev1.WeightedPodAffinityTerm) bool {
	*required = slices.DeleteFunc(*required, ofOthers)
	*preferred = slices.DeleteFunc(*preferred, func(t corev1.WeightedPodAffinityTerm) bool { return ofOthers(t.PodAffinityTerm) })
	return len(*required)+len(*preferred) > 0
}

// nodeAffinity returns what is left of a when the requirements on single nodes are
// removed. Of several alternatives those remain that ask for something else too; when
// none does, nothing is required: an empty term would match no node at all.
func nodeAffinity(a *corev1.NodeAffinity) *corev1.NodeAffinity {
	if a == nil {
		return nil
	}
	if required := a.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		required.NodeSelectorTerms = nodeTerms(required.NodeSelectorTerms)
		if len(required.NodeSelectorTerms) == 0 {
			a.RequiredDuringSchedulingIgnoredDuringExecution = nil
		}
	}
	var preferred []corev1.PreferredSchedulingTerm
	for _, t := range a.PreferredDuringSchedulingIgnoredDuringExecution {
		if term, ok := nodeTerm(t.Preference); ok {
			preferred = append(preferred, corev1.PreferredSchedulingTerm{Weight: t.Weight, Preference: term})
		}
	}
	a.PreferredDuringSchedulingIgnoredDuringExecution = preferred
	if a.RequiredDuringSchedulingIgnoredDuringExecution == nil && len(preferred) == 0 {
		return nil
	}
	return a
}

func nodeTerms(in []corev1.NodeSelectorTerm) []corev1.NodeSelectorTerm {
	var out []corev1.NodeSelectorTerm
	for _, t := range in {
		if term, ok := nodeTerm(t); ok {
			out = append(out, term)
		}
	}
	return out
}

// nodeTerm returns a term without its requirements on single nodes, and false if nothing
// else was in it. A field is always the node's name.
func nodeTerm(t corev1.NodeSelectorTerm) (corev1.NodeSelectorTerm, bool) {
	t.MatchFields = nil
	t.MatchExpressions = slices.DeleteFunc(t.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool {
		return r.Key == corev1.LabelHostname
	})
	return t, len(t.MatchExpressions) > 0
}
