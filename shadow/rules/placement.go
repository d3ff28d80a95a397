package rules

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// placement removes from a pod's wishes about nodes those that pick a single one, and
// those about the pods of others: a required anti-affinity to pods of other namespaces
// would keep these off nodes, and an affinity to them leads to the node that they are on.
// Wishes about what nodes have in common (zone, architecture, pool) are the author's.
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
