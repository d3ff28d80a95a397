package scenarios

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

// fullApart: by the presets of anti-affinity, the scheduler of milan spreads pods over its two
// nodes, which are one virtual node at home. Of three pods that must be apart the last one waits.
func fullApart(t *testing.T, w *fullWorld) {
	const namespace, twin = "apart", "apart-rome"
	w.offload(t, namespace, offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsRemote})
	preset, labels := offloadingv1beta1.AntiAffinityPresetAnnotation, offloadingv1beta1.AntiAffinityLabelsAnnotation
	own := &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
		Weight: 100, PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"set": "propagate"}}},
	}}}}
	sets := map[string]struct {
		pods        int
		annotations map[string]string
		affinity    *corev1.Affinity
		runs        int
	}{
		"hard":      {3, map[string]string{preset: offloadingv1beta1.AntiAffinityHard}, nil, 2},
		"soft":      {3, map[string]string{preset: offloadingv1beta1.AntiAffinitySoft}, nil, 3},
		"propagate": {2, map[string]string{preset: offloadingv1beta1.AntiAffinityPropagate}, own, 2},
		"labels":    {2, map[string]string{preset: offloadingv1beta1.AntiAffinityHard, labels: "set"}, nil, 2},
	}
	pods := w.rome.Client().CoreV1().Pods(namespace)
	for set, tc := range sets {
		for n := range tc.pods {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", set, n), Labels: map[string]string{"set": set}, Annotations: tc.annotations}, Spec: testSpec(0, "serve")}
			if set == "labels" {
				pod.Labels["instance"] = pod.Name // by all of its labels it is alone
			}
			pod.Spec.Affinity = tc.affinity
			kubetest.Create(t, pods, pod)
		}
	}
	for set, tc := range sets {
		within(t, time.Minute, set+": pods run on both nodes", lab.Those(w.milan.Client().CoreV1().Pods(twin), metav1.ListOptions{LabelSelector: "set=" + set}, func(list *corev1.PodList) error {
			var nodes []string
			for _, p := range list.Items {
				if p.Status.Phase == corev1.PodRunning {
					nodes = append(nodes, p.Spec.NodeName)
				}
			}
			slices.Sort(nodes)
			return lab.Wrong(nil, len(list.Items) != tc.pods || len(nodes) != tc.runs || len(slices.Compact(nodes)) != 2, "%d pods, running on %v", len(list.Items), nodes)
		}))
	}
	within(t, time.Minute, "the third one says why it waits", lab.Some(pods, metav1.ListOptions{LabelSelector: "set=hard"}, func(p *corev1.Pod) bool {
		return podCondition(p, corev1.PodReady).Reason == corev1.PodReasonUnschedulable
	}))
	require.NoError(t, pods.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
}
