package rules

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// operation is one step of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// OffloadPatch returns the JSON patch that makes have into want, where want is what
// Offload returned for have; nil if they are the same. It touches nothing that Offload does not
// set, so that fields which this program does not know survive.
func OffloadPatch(have, want *corev1.Pod) ([]byte, error) {
	operations := tolerationPatch(have.Spec.Tolerations, want.Spec.Tolerations)
	operations = append(operations, affinityPatch(have.Spec.Affinity, want.Spec.Affinity)...)
	if len(operations) == 0 {
		return nil, nil
	}
	out, err := json.Marshal(operations)
	if err != nil {
		return nil, fmt.Errorf("encoding the patch of pod %s: %w", have.Name, err)
	}
	return out, nil
}

func tolerationPatch(have, want []corev1.Toleration) []operation {
	if len(want) == len(have) {
		return nil
	}
	if len(have) == 0 {
		return []operation{{"add", "/spec/tolerations", want}}
	}
	var out []operation
	for _, t := range want[len(have):] {
		out = append(out, operation{"add", "/spec/tolerations/-", t})
	}
	return out
}

// affinityPatch adds at the deepest place whose parent is there.
func affinityPatch(have, want *corev1.Affinity) []operation {
	switch {
	case equality.Semantic.DeepEqual(have, want):
		return nil
	case have == nil:
		return []operation{{"add", "/spec/affinity", want}}
	case have.NodeAffinity == nil:
		return []operation{{"add", "/spec/affinity/nodeAffinity", want.NodeAffinity}}
	default:
		return []operation{{"add", "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution",
			want.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution}}
	}
}
