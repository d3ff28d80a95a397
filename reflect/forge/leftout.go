package forge

import (
	"fmt"
	"slices"

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
