package offer

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

func quantities(cpu, memory, pods string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory), corev1.ResourcePods: resource.MustParse(pods)}
}

func metalNode(name string, mutate ...func(*corev1.Node)) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
		Allocatable: quantities("4", "8Gi", "110"), Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}}
	for _, m := range mutate {
		m(&n)
	}
	return n
}

func TestTakesPods(t *testing.T) {
	t.Parallel()
	tainted := func(effect corev1.TaintEffect) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "a", Effect: effect}} }
	}
	for name, tc := range map[string]struct {
		node corev1.Node
		want bool
	}{
		"an ordinary one":      {metalNode("a"), true},
		"one that is avoided":  {metalNode("a", tainted(corev1.TaintEffectPreferNoSchedule)), true},
		"a tainted one":        {metalNode("a", tainted(corev1.TaintEffectNoSchedule)), false},
		"a cordoned one":       {metalNode("a", func(n *corev1.Node) { n.Spec.Unschedulable = true }), false},
		"one that is deleted":  {metalNode("a", func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{} }), false},
		"one that is away":     {metalNode("a", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }), false},
		"one without a status": {metalNode("a", func(n *corev1.Node) { n.Status.Conditions = nil }), false},
		"a virtual one": {metalNode("a", func(n *corev1.Node) {
			n.Labels = map[string]string{offloadingv1beta1.TypeLabel: offloadingv1beta1.TypeVirtualNode}
		}), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, takesPods(&tc.node))
		})
	}
}
