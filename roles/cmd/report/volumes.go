package report

import (
	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// isEmpty reports whether the provider had made no volume when the consumer last saw its claim there.
func isEmpty(volume *corev1.PersistentVolume) bool {
	return volume.Annotations[offloadingv1beta1.NoVolumeAnnotation] == "true"
}

// stays reports whether nothing deletes the data of a volume whose claim is gone.
func stays(volume *corev1.PersistentVolume) bool {
	return volume.Annotations[offloadingv1beta1.DataKeptAnnotation] != "" || volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete
}
