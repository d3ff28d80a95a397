package rules

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// virtualNodes returns the terms that select the virtual nodes which the selector
// selects; without terms it selects all.
func virtualNodes(selector corev1.NodeSelector) []corev1.NodeSelectorTerm {
	is := []corev1.NodeSelectorTerm{typeTerm(corev1.NodeSelectorOpIn)}
	if len(selector.NodeSelectorTerms) == 0 {
		return is
	}
	var out []corev1.NodeSelectorTerm
	for _, term := range selector.NodeSelectorTerms {
		out = append(out, and(term, is[0]))
	}
	return out
}

// ownNodes returns the term that selects the nodes that are not virtual.
func ownNodes() corev1.NodeSelectorTerm { return typeTerm(corev1.NodeSelectorOpNotIn) }

func typeTerm(op corev1.NodeSelectorOperator) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: offloadingv1beta1.TypeLabel, Operator: op, Values: []string{offloadingv1beta1.TypeVirtualNode}}}}
}

// both returns terms that match exactly the nodes which a term of each list matches.
// If the first list implies the second it is returned as it is.
func both(own, rule []corev1.NodeSelectorTerm) ([]corev1.NodeSelectorTerm, error) {
	if len(own)*len(rule) > maxTerms {
		return nil, fmt.Errorf("%d terms of the pod and %d of the namespace make more than the %d accepted: use fewer",
			len(own), len(rule), maxTerms)
	}
	implied := func(o corev1.NodeSelectorTerm) bool {
		return empty(o) || slices.ContainsFunc(rule, func(r corev1.NodeSelectorTerm) bool { return !empty(r) && implies(o, r) })
	}
	if !slices.ContainsFunc(own, func(o corev1.NodeSelectorTerm) bool { return !implied(o) }) {
		return own, nil
	}
	var out []corev1.NodeSelectorTerm
	for _, o := range own {
		for _, r := range rule {
			if term := and(o, r); !empty(term) {
				out = append(out, term)
			}
		}
	}
	if len(out) == 0 {
		// A list of no terms is invalid; an empty term matches no node.
		out = []corev1.NodeSelectorTerm{{}}
	}
	return out, nil
}

// and returns the term that matches where both match. An empty term matches no node,
// and so does what it is combined with.
func and(a, b corev1.NodeSelectorTerm) corev1.NodeSelectorTerm {
	if empty(a) || empty(b) {
		return corev1.NodeSelectorTerm{}
	}
	return corev1.NodeSelectorTerm{
		MatchExpressions: union(a.MatchExpressions, b.MatchExpressions),
		MatchFields:      union(a.MatchFields, b.MatchFields),
	}
}

func empty(t corev1.NodeSelectorTerm) bool {
	return len(t.MatchExpressions) == 0 && len(t.MatchFields) == 0
}

// implies tells whether a has every requirement of b.
func implies(a, b corev1.NodeSelectorTerm) bool {
	return len(union(a.MatchExpressions, b.MatchExpressions)) == len(a.MatchExpressions) &&
		len(union(a.MatchFields, b.MatchFields)) == len(a.MatchFields)
}

// union returns the requirements of a, and those of b that a does not have.
func union(a, b []corev1.NodeSelectorRequirement) []corev1.NodeSelectorRequirement {
	out := slices.Clone(a)
	for _, r := range b {
		same := func(o corev1.NodeSelectorRequirement) bool { return equality.Semantic.DeepEqual(o, r) }
		if !slices.ContainsFunc(a, same) {
			out = append(out, *r.DeepCopy())
		}
	}
	return out
}
