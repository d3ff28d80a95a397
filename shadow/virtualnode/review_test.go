package virtualnode

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

func roomy(vn *offloadingv1beta1.VirtualNode) {
	vn.Spec.ResourceQuota.Hard = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("100")}
}

func TestReview(t *testing.T) {
	t.Parallel()
	type change = func(*offloadingv1beta1.VirtualNode)
	cpu := func(value string) change {
		return func(vn *offloadingv1beta1.VirtualNode) {
			vn.Spec.ResourceQuota.Hard = vn.Spec.ResourceQuota.Hard.DeepCopy()
			vn.Spec.ResourceQuota.Hard[corev1.ResourceCPU] = resource.MustParse(value)
		}
	}
	affinity := func(op corev1.NodeSelectorOperator) change {
		return func(vn *offloadingv1beta1.VirtualNode) {
			vn.Spec.OffloadingPatch = &offloadingv1beta1.OffloadingPatch{Affinity: &offloadingv1beta1.OffloadingAffinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "gpu", Operator: op}}}}}}}}
		}
	}
	metal := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "milan"}}
	elsewhere := virtualNode(func(vn *offloadingv1beta1.VirtualNode) {
		vn.Namespace, vn.Spec.ClusterID = "liqo-tenant-turin", "turin"
	})
	misplaced := virtualNode(func(vn *offloadingv1beta1.VirtualNode) { vn.Namespace = "default" })
	for name, tc := range map[string]struct {
		review  Review
		change  change // of a valid virtual node
		update  bool
		refused string
	}{
		"plain":                   {},
		"plain, again":            {update: true},
		"with its Node":           {review: Review{Node: ourNode(corev1.ConditionTrue)}},
		"in another namespace":    {change: func(vn *offloadingv1beta1.VirtualNode) { vn.Namespace = "default" }, refused: "must be in the tenant namespace liqo-tenant-milano"},
		"the name of a real Node": {review: Review{Node: metal}, refused: "a Node milan exists that does not belong to this virtual node"},
		"it came later":           {review: Review{Node: metal}, update: true},
		"the name of another":     {review: Review{Namesakes: []*offloadingv1beta1.VirtualNode{elsewhere}}, refused: "VirtualNode liqo-tenant-turin/milan has the same name"},
		"that is none itself":     {review: Review{Namesakes: []*offloadingv1beta1.VirtualNode{misplaced}}},
		"no credentials":          {change: func(vn *offloadingv1beta1.VirtualNode) { vn.Spec.KubeconfigSecretRef.Name = "" }, refused: "kubeconfigSecretRef.name is empty"},
		"a negative amount":       {change: cpu("-1"), refused: "hard.cpu is -1"},
		"an affinity for no pod":  {change: affinity("Like"), refused: "offloadingPatch.affinity.nodeAffinity"},
		"an affinity":             {change: affinity(corev1.NodeSelectorOpExists)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := tc.review
			r.New = virtualNode(roomy)
			if tc.update {
				r.Old = r.New.DeepCopy()
			}
			if tc.change != nil {
				tc.change(r.New)
			}
			refused := r.Judge()
			require.Contains(t, refused, tc.refused)
			require.Equal(t, tc.refused == "", refused == "", refused)
		})
	}
}
