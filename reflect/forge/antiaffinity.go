package forge

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/reasons"
)

// podAntiAffinity returns the anti-affinity of the remote pod according to the preset
// annotation, or nil for none. labels are those of the remote pod.
func podAntiAffinity(local *corev1.Pod, labels map[string]string) (*corev1.PodAntiAffinity, error) {
	preset, set := local.Annotations[offloadingv1beta1.AntiAffinityPresetAnnotation]
	if !set {
		return nil, nil
	}
	switch preset {
	case offloadingv1beta1.AntiAffinityPropagate:
		if local.Spec.Affinity == nil {
			return nil, nil
		}
		return local.Spec.Affinity.PodAntiAffinity.DeepCopy(), nil
	case offloadingv1beta1.AntiAffinitySoft, offloadingv1beta1.AntiAffinityHard:
	default:
		return nil, &Refused{reasons.AntiAffinityInvalid, fmt.Sprintf("annotation %s is %q: accepted are %s, %s and %s",
			offloadingv1beta1.AntiAffinityPresetAnnotation, preset, offloadingv1beta1.AntiAffinityPropagate,
			offloadingv1beta1.AntiAffinitySoft, offloadingv1beta1.AntiAffinityHard)}
	}
	selector, err := antiAffinityLabels(local, labels)
	if err != nil {
		return nil, err
	}
	term := corev1.PodAffinityTerm{
		LabelSelector: &metav1.LabelSelector{MatchLabels: selector},
		TopologyKey:   corev1.LabelHostname,
	}
	if preset == offloadingv1beta1.AntiAffinityHard {
		return &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}}, nil
	}
	return &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
		{Weight: 1, PodAffinityTerm: term}}}, nil
}

// antiAffinityLabels returns the labels of the pods that must not share a node. The
// result is never empty: an empty selector would separate the pod from every pod in its
// namespace, and the affinity of an existing pod is immutable.
func antiAffinityLabels(local *corev1.Pod, labels map[string]string) (map[string]string, error) {
	out := map[string]string{}
	list, set := local.Annotations[offloadingv1beta1.AntiAffinityLabelsAnnotation]
	if !set {
		for key := range local.Labels {
			if value, reflected := labels[key]; reflected && !perReplicaLabel(key) {
				out[key] = value
			}
		}
		if len(out) == 0 {
			return nil, &Refused{reasons.AntiAffinityInvalid, fmt.Sprintf("annotation %s: the pod has no reflected label that could identify it; set one",
				offloadingv1beta1.AntiAffinityPresetAnnotation)}
		}
		return out, nil
	}
	for _, key := range strings.Split(list, ",") {
		key = strings.TrimSpace(key)
		value, reflected := labels[key]
		if !reflected {
			return nil, &Refused{reasons.AntiAffinityInvalid, fmt.Sprintf("annotation %s names %q, which is not a reflected label of the pod: accepted is a comma-separated list of keys of such labels",
				offloadingv1beta1.AntiAffinityLabelsAnnotation, key)}
		}
		out[key] = value
	}
	return out, nil
}

// perReplicaLabel reports whether the values of a label differ between the pods of one
// workload or between its revisions. A selector with such a label would separate none of
// them. liqod's own labels count as such, because one contains the pod's UID.
func perReplicaLabel(key string) bool {
	return strings.HasPrefix(key, "offloading.liqo.io/") || slices.Contains([]string{
		"controller-revision-hash",
		"pod-template-hash",
		"pod-template-generation",
		"statefulset.kubernetes.io/pod-name",
		"apps.kubernetes.io/pod-index",
		"batch.kubernetes.io/job-completion-index",
		"batch.kubernetes.io/controller-uid",
		"controller-uid",
	}, key)
}
