package offer

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

func TestTakesPods(t *testing.T) {
	t.Parallel()
	tainted := func(effect corev1.TaintEffect) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "a", Effect: effect}} }
	}
	for name, tc := range map[string]struct {
		node *corev1.Node
		want bool
	}{
		"an ordinary one":     {realNode("a"), true},
		"one that is avoided": {realNode("a", tainted(corev1.TaintEffectPreferNoSchedule)), true},
		"a tainted one":       {realNode("a", tainted(corev1.TaintEffectNoSchedule)), false},
		"a cordoned one":      {realNode("a", func(n *corev1.Node) { n.Spec.Unschedulable = true }), false},
		"one that is deleted": {realNode("a", func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{} }), false},
		"one that is away":    {realNode("a", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }), false},
		"a virtual one": {realNode("a", func(n *corev1.Node) {
			n.Labels = map[string]string{offloadingv1beta1.TypeLabel: offloadingv1beta1.TypeVirtualNode}
		}), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, takesPods(tc.node))
		})
	}
}

// TestPressures: a pressure counts if each node has it that would take pods without it, of those that
// the offer is of.
func TestPressures(t *testing.T) {
	t.Parallel()
	pressed := func(name string, more ...func(*corev1.Node)) *corev1.Node {
		return realNode(name, append(more, func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeMemoryPressure, Effect: corev1.TaintEffectNoSchedule})
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue})
		})...)
	}
	full := func(n *corev1.Node) {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue})
	}
	pool := func(n *corev1.Node) { n.Labels = map[string]string{"pool": "shared"} }
	cordoned := realNode("c", func(n *corev1.Node) { n.Spec.Unschedulable = true })
	tainted := realNode("t", func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
	})
	ordinary := realNode("o")
	memory := []corev1.NodeConditionType{corev1.NodeMemoryPressure}
	shared := map[string]string{"pool": "shared"}
	for name, tc := range map[string]struct {
		nodes    []*corev1.Node
		selector map[string]string
		want     []corev1.NodeConditionType
	}{
		"no node":                   {nil, nil, nil},
		"one of two":                {[]*corev1.Node{pressed("a"), ordinary}, nil, nil},
		"both, one of disk, too":    {[]*corev1.Node{pressed("a", full), pressed("b")}, nil, memory},
		"of memory and disk":        {[]*corev1.Node{pressed("a", full)}, nil, []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure}},
		"others take no pods":       {[]*corev1.Node{pressed("a"), cordoned, tainted}, nil, memory},
		"those of the offer":        {[]*corev1.Node{pressed("a", pool), ordinary}, shared, memory},
		"none that is of the offer": {[]*corev1.Node{pressed("a")}, shared, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, pressuresOf(tc.nodes, tc.selector))
			f := factsOf(func(f *Facts) { f.Nodes = tc.nodes })
			require.Equal(t, tc.want, offerSpec(f, automatic(), "milan", nil, tc.selector).Pressures)
		})
	}
	require.False(t, sameCapacity(pressed("a"), pressed("a", full)), "the offers follow")
	require.False(t, sameCapacity(pressed("a"), realNode("a")))
	require.True(t, sameCapacity(pressed("a"), pressed("a")))
}
