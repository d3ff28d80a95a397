package v1beta1

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Values of OnProviderLossAnnotation.
const (
	// OnProviderLossEvict leaves it to the tolerations of each pod: 300 s after the virtual
	// node is not Ready by default.
	OnProviderLossEvict = "Evict"
	// OnProviderLossKeep keeps the pods on the virtual node until it is Ready again.
	OnProviderLossKeep = "Keep"
)

// KeptOnProviderLoss reports whether a namespace with these annotations keeps its pods on a
// lost provider. The error says what is wrong with the annotation, and what is accepted.
func KeptOnProviderLoss(annotations map[string]string) (bool, error) {
	switch value := annotations[OnProviderLossAnnotation]; value {
	case OnProviderLossKeep:
		return true, nil
	case OnProviderLossEvict, "":
		return false, nil
	default:
		return false, fmt.Errorf("annotation %s is %q: %s and %s are accepted", OnProviderLossAnnotation, value, OnProviderLossKeep, OnProviderLossEvict)
	}
}

// LossTolerations are the tolerations of a pod that is kept on a lost provider. The taints
// are those of a Node that is not Ready.
func LossTolerations() []corev1.Toleration {
	return []corev1.Toleration{lossToleration(corev1.TaintNodeNotReady), lossToleration(corev1.TaintNodeUnreachable)}
}

func lossToleration(taint string) corev1.Toleration {
	return corev1.Toleration{Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
}

// LossToleration returns the one of a pod's tolerations that says how long the pod stays on a
// Node with a taint of effect NoExecute: of several that match, the first one. It returns nil
// if there is none.
func LossToleration(own []corev1.Toleration, taint string) *corev1.Toleration {
	i := slices.IndexFunc(own, func(t corev1.Toleration) bool {
		return (t.Effect == "" || t.Effect == corev1.TaintEffectNoExecute) && (t.Key == taint || (t.Key == "" && t.Operator == corev1.TolerationOpExists))
	})
	if i < 0 {
		return nil
	}
	return &own[i]
}

// KeptBy reports whether a pod with these tolerations stays on a lost provider without end.
func KeptBy(own []corev1.Toleration) bool {
	return !slices.ContainsFunc(LossTolerations(), func(given corev1.Toleration) bool {
		t := LossToleration(own, given.Key)
		return t == nil || t.TolerationSeconds != nil
	})
}
