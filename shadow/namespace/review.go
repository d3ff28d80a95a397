package namespace

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// Review is the input of the webhook's decision on a write of a NamespaceOffloading.
type Review struct {
	// New is the object being written. Old is the existing one, nil at creation.
	New, Old *offloadingv1beta1.NamespaceOffloading
	// Namespace is the namespace of the NamespaceOffloading.
	Namespace *corev1.Namespace
	// OwnNamespace is the namespace that liqod runs in. ClusterID is this cluster's id.
	OwnNamespace, ClusterID string
	// VirtualNodes are all VirtualNodes of this cluster.
	VirtualNodes []*offloadingv1beta1.VirtualNode
}

// Judge returns the reason to refuse the write, or "", and the warnings for its author. It
// is pure. It refuses nothing that Offloading accepts.
func (r Review) Judge() (refused string, warnings []string) {
	spec := &r.New.Spec
	if why := refusal(r.Namespace, r.OwnNamespace); why != "" {
		return why, nil
	}
	name, err := remoteName(spec, r.New.Namespace, r.ClusterID)
	if err != nil {
		return err.Error(), nil
	}
	chosen, err := r.chosen(spec)
	if err != nil {
		return err.Error(), nil
	}
	switch why := twinRefusal(name, ""); {
	case r.Old != nil:
	case why != "":
		warnings = append(warnings, fmt.Sprintf("providers refuse a twin namespace named %s: default, and names that begin with kube- or liqo, are reserved; use another remoteNamespaceName", name))
	case !mayName(name, r.ClusterID, nil):
		warnings = append(warnings, fmt.Sprintf("a provider accepts twin namespace %s only if its controller.twinNames lists the name: namespaceMappingStrategy DefaultName does not need that", name))
	}
	if len(chosen) == 0 && spec.PodOffloadingStrategy != offloadingv1beta1.PodsLocal {
		warnings = append(warnings, r.nowhere())
	}
	if why := r.onLoss(); why != "" {
		warnings = append(warnings, why)
	}
	if r.Old != nil {
		warnings = append(warnings, r.changes(chosen)...)
	}
	return "", warnings
}

// chosen returns the sorted ids of the clusters that the selector matches, judging by the
// VirtualNodes. It does not see labels that exist only on Nodes.
func (r Review) chosen(spec *offloadingv1beta1.NamespaceOffloadingSpec) ([]string, error) {
	choices, err := choose(&spec.ClusterSelector, r.VirtualNodes, func(string) *corev1.Node { return nil })
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(choices, func(_ string, c choice) bool { return c != selected })
	return slices.Sorted(maps.Keys(choices)), nil
}

func (r Review) nowhere() string {
	if len(r.VirtualNodes) == 0 {
		return "this cluster has no virtual node yet: nothing is offloaded until it is peered with a provider"
	}
	return "clusterSelector matches no virtual node by the labels of the VirtualNodes: nothing is offloaded until it does"
}

// onLoss returns the warning about the namespace's annotation for lost providers.
func (r Review) onLoss() string {
	if _, err := offloadingv1beta1.KeptOnProviderLoss(r.Namespace.Annotations); err != nil {
		return fmt.Sprintf("namespace %s: %v; no pod can be created until it is corrected", r.Namespace.Name, err)
	}
	return ""
}

// changes returns warnings about effects of an edit that its author may not expect.
func (r Review) changes(chosen []string) (warnings []string) {
	old, spec := &r.Old.Spec, &r.New.Spec
	if old.PodOffloadingStrategy != spec.PodOffloadingStrategy {
		warnings = append(warnings, fmt.Sprintf("podOffloadingStrategy %s applies to pods that are created from now on: existing pods stay where they are until they are created again (kubectl rollout restart)",
			spec.PodOffloadingStrategy))
	}
	if equality.Semantic.DeepEqual(old.ClusterSelector, spec.ClusterSelector) {
		return warnings
	}
	before, err := r.chosen(old)
	if err != nil {
		return warnings
	}
	gone := slices.DeleteFunc(before, func(id string) bool { return slices.Contains(chosen, id) })
	if len(gone) > 0 {
		warnings = append(warnings, fmt.Sprintf("no longer selected: %s; the twin namespace there is deleted, and its pods wait until they are created again elsewhere", strings.Join(gone, ", ")))
	}
	return warnings
}
