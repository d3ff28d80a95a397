package rules

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// KeepOnLoss returns the pod as it is to be created in a namespace that keeps its pods on a
// lost provider. When nothing changes it returns the pod itself; it never changes its
// argument.
//
// A pod that may go to a virtual node gets LossTolerations, ahead of its own tolerations:
// of several that tolerate a taint, the first one says for how long. Its own ones stay, and
// are those that the provider applies to its nodes. The annotation on the pod says that it
// has been given tolerations.
func KeepOnLoss(pod *corev1.Pod) *corev1.Pod {
	if placed(pod) || !slices.ContainsFunc(pod.Spec.Tolerations, toleratesVirtualNodes) {
		return pod
	}
	if offloadingv1beta1.KeptBy(pod.Spec.Tolerations) {
		return pod
	}
	out := pod.DeepCopy()
	out.Spec.Tolerations = append(offloadingv1beta1.LossTolerations(), out.Spec.Tolerations...)
	metav1.SetMetaDataAnnotation(&out.ObjectMeta, offloadingv1beta1.OnProviderLossAnnotation, offloadingv1beta1.OnProviderLossKeep)
	return out
}

func toleratesVirtualNodes(t corev1.Toleration) bool {
	return t.Key == offloadingv1beta1.VirtualNodeTaintKey || (t.Key == "" && t.Operator == corev1.TolerationOpExists)
}
