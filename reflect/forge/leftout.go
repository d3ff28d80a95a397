package forge

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// mostLeftOut is the maximum length in bytes of the keys that an event lists: a provider may
// name any.
const mostLeftOut = 512

// LeftOut returns the sorted keys of annotations, and then labels, that want has and the
// object in the provider has not, or with another value.
func LeftOut(want, written metav1.Object) (keys []string) {
	for _, key := range missing(want.GetAnnotations(), written.GetAnnotations()) {
		if key != offloadingv1beta1.ReflectedAnnotation {
			keys = append(keys, key)
		}
	}
	for _, key := range missing(want.GetLabels(), written.GetLabels()) {
		keys = append(keys, "label "+key)
	}
	return keys
}

// LeftOutOfPod is LeftOut for a ShadowPod and the pod that the provider runs for it. It also returns
// the keys of the claim templates of volumes.
func LeftOutOfPod(shadow *offloadingv1beta1.ShadowPod, pod *corev1.Pod) []string {
	keys := LeftOut(shadow, pod)
	templates := map[string]*corev1.PersistentVolumeClaimTemplate{}
	for _, v := range pod.Spec.Volumes {
		if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
			templates[v.Name] = v.Ephemeral.VolumeClaimTemplate
		}
	}
	for _, v := range shadow.Spec.Pod.Volumes {
		if there := templates[v.Name]; there != nil && v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
			for _, key := range LeftOut(v.Ephemeral.VolumeClaimTemplate, there) {
				keys = append(keys, key+" of volume "+v.Name)
			}
		}
	}
	return keys
}

func missing(want, have map[string]string) (keys []string) {
	for key, value := range want {
		if there, ok := have[key]; !ok || there != value {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// LeftOutMessage is the message of the event about labels and annotations that a provider
// left out.
func LeftOutMessage(provider, keys string) string {
	return fmt.Sprintf("cluster %s does not accept these labels and annotations, and left them out: %s; its administrators can allow them by the settings sharing.annotations and sharing.labelsLeftOut, or remove the admission webhook that changes them",
		provider, clip(keys, mostLeftOut))
}
