package v1beta1

import corev1 "k8s.io/api/core/v1"

// VirtualNodeTaint returns the taint of virtual nodes, VirtualNodeTaintKey.
func VirtualNodeTaint() corev1.Taint {
	return corev1.Taint{Key: VirtualNodeTaintKey, Value: VirtualNodeTaintValue, Effect: corev1.TaintEffectNoExecute}
}
