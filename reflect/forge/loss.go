package forge

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// OnLoss returns the tolerations of a pod on a virtual node, and the value of its annotation
// OnProviderLossAnnotation, as they should be in a namespace that keeps its pods on a lost
// provider, or that does not.
//
// Tolerations can be added to a pod, and not be removed. Their time may change, so those that
// were added get the time of the pod's own when the namespace keeps its pods no longer.
func OnLoss(local *corev1.Pod, keep bool) (tolerations []corev1.Toleration, mark string) {
	given, own := splitTolerations(local)
	switch {
	case keep && len(given) == 0 && offloadingv1beta1.KeptBy(own), !keep && len(given) == 0:
		return local.Spec.Tolerations, local.Annotations[offloadingv1beta1.OnProviderLossAnnotation]
	case keep:
		return append(offloadingv1beta1.LossTolerations(), own...), offloadingv1beta1.OnProviderLossKeep
	}
	for i := range given {
		given[i].TolerationSeconds = new(int64)
		if t := offloadingv1beta1.LossToleration(own, given[i].Key); t != nil {
			given[i].TolerationSeconds = t.TolerationSeconds
		}
	}
	return append(given, own...), offloadingv1beta1.OnProviderLossEvict
}

// splitTolerations returns the tolerations that were given to a pod for lost providers, and
// the pod's own ones. Those that were taken back have the time of the pod's own.
func splitTolerations(local *corev1.Pod) (given, own []corev1.Toleration) {
	mark := local.Annotations[offloadingv1beta1.OnProviderLossAnnotation]
	var awaited []corev1.Toleration
	if mark == offloadingv1beta1.OnProviderLossKeep || mark == offloadingv1beta1.OnProviderLossEvict {
		awaited = offloadingv1beta1.LossTolerations()
	}
	for _, t := range local.Spec.Tolerations {
		i := slices.IndexFunc(awaited, func(a corev1.Toleration) bool {
			return a.MatchToleration(&t) && (t.TolerationSeconds == nil || mark == offloadingv1beta1.OnProviderLossEvict)
		})
		if i < 0 {
			own = append(own, t)
			continue
		}
		awaited = slices.Delete(awaited, i, i+1)
		given = append(given, t)
	}
	return given, own
}
