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

func podOn(node string, phase corev1.PodPhase) corev1.Pod {
	return corev1.Pod{
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")}}}}},
		Status: corev1.PodStatus{Phase: phase},
	}
}

func TestFree(t *testing.T) {
	t.Parallel()
	tainted := func(effect corev1.TaintEffect) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "a", Effect: effect}} }
	}
	for name, tc := range map[string]struct {
		nodes   []corev1.Node
		pods    []corev1.Pod
		percent int64
		want    [3]string
	}{
		"no node":         {nil, nil, 90, [3]string{"0", "0", "0"}},
		"an empty node":   {[]corev1.Node{metalNode("a")}, nil, 100, [3]string{"4", "8Gi", "110"}},
		"a share":         {[]corev1.Node{metalNode("a")}, nil, 50, [3]string{"2", "4Gi", "55"}},
		"pods":            {[]corev1.Node{metalNode("a")}, []corev1.Pod{podOn("a", corev1.PodRunning), podOn("a", corev1.PodPending)}, 100, [3]string{"2", "6Gi", "108"}},
		"pods that ended": {[]corev1.Node{metalNode("a")}, []corev1.Pod{podOn("a", corev1.PodSucceeded), podOn("a", corev1.PodFailed)}, 100, [3]string{"4", "8Gi", "110"}},
		"pods elsewhere":  {[]corev1.Node{metalNode("a")}, []corev1.Pod{podOn("b", corev1.PodRunning), podOn("", corev1.PodPending)}, 100, [3]string{"4", "8Gi", "110"}},
		"two nodes":       {[]corev1.Node{metalNode("a"), metalNode("b", tainted(corev1.TaintEffectPreferNoSchedule))}, nil, 100, [3]string{"8", "16Gi", "220"}},
		"a tainted one":   {[]corev1.Node{metalNode("a"), metalNode("b", tainted(corev1.TaintEffectNoSchedule))}, nil, 100, [3]string{"4", "8Gi", "110"}},
		"a cordoned one":  {[]corev1.Node{metalNode("a", func(n *corev1.Node) { n.Spec.Unschedulable = true })}, nil, 100, [3]string{"0", "0", "0"}},
		"a virtual one": {[]corev1.Node{metalNode("a", func(n *corev1.Node) {
			n.Labels = map[string]string{offloadingv1beta1.TypeLabel: offloadingv1beta1.TypeVirtualNode}
		})}, nil, 100, [3]string{"0", "0", "0"}},
		"one that is away":   {[]corev1.Node{metalNode("a", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown })}, nil, 100, [3]string{"0", "0", "0"}},
		"more used than had": {[]corev1.Node{metalNode("a", func(n *corev1.Node) { n.Status.Allocatable = quantities("1", "1Gi", "1") })}, []corev1.Pod{podOn("a", corev1.PodRunning), podOn("a", corev1.PodRunning)}, 100, [3]string{"0", "0", "0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Free(tc.nodes, tc.pods, tc.percent)
			require.Equal(t, tc.want, [3]string{got.Cpu().String(), got.Memory().String(), got.Pods().String()})
		})
	}
}
