package rules

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// Operation is one step of a JSON patch.
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// OffloadPatch returns the JSON patch that makes have into want, where want is what
// Offload and KeepOnLoss returned for have; nil if they are the same. It touches nothing that
// they do not set, so that fields which this program does not know survive.
func OffloadPatch(have, want *corev1.Pod) []Operation {
	operations := lossPatch(have.Annotations, want.Annotations)
	operations = append(operations, tolerationPatch(have.Spec.Tolerations, want.Spec.Tolerations)...)
	return append(operations, affinityPatch(have.Spec.Affinity, want.Spec.Affinity)...)
}

// lossPatch adds the annotation of KeepOnLoss.
func lossPatch(have, want map[string]string) []Operation {
	const key = offloadingv1beta1.OnProviderLossAnnotation
	switch {
	case have[key] == want[key]:
		return nil
	case have == nil:
		return []Operation{{"add", "/metadata/annotations", map[string]string{key: want[key]}}}
	default:
		return []Operation{{"add", "/metadata/annotations/" + strings.ReplaceAll(key, "/", "~1"), want[key]}}
	}
}

// tolerationPatch adds what want has before and after the tolerations of have.
func tolerationPatch(have, want []corev1.Toleration) []Operation {
	if len(want) == len(have) {
		return nil
	}
	if len(have) == 0 {
		return []Operation{{"add", "/spec/tolerations", want}}
	}
	before := 0
	for before < len(want)-len(have) && !equality.Semantic.DeepEqual(want[before:before+len(have)], have) {
		before++
	}
	var out []Operation
	for i, t := range want[:before] {
		out = append(out, Operation{"add", fmt.Sprintf("/spec/tolerations/%d", i), t})
	}
	for _, t := range want[before+len(have):] {
		out = append(out, Operation{"add", "/spec/tolerations/-", t})
	}
	return out
}

// affinityPatch adds at the deepest place whose parent is there.
func affinityPatch(have, want *corev1.Affinity) []Operation {
	switch {
	case equality.Semantic.DeepEqual(have, want):
		return nil
	case have == nil:
		return []Operation{{"add", "/spec/affinity", want}}
	case have.NodeAffinity == nil:
		return []Operation{{"add", "/spec/affinity/nodeAffinity", want.NodeAffinity}}
	default:
		return []Operation{{"add", "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution",
			want.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution}}
	}
}
