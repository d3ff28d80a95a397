package pod

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/shadow/rules"
)

const (
	// FieldManager is the field manager of all writes of this package.
	FieldManager = "liqod-shadowpod"
	// AppliedAnnotation holds a JSON record on a provider's pod: the generation of the
	// ShadowPod that the pod's spec follows, the one that its resources follow, and the
	// keys of the labels and annotations that come from the ShadowPod.
	AppliedAnnotation = "offloading.liqo.io/applied"
)

// applied is the content of AppliedAnnotation.
type applied struct {
	Spec        int64    `json:"spec"`
	Resources   int64    `json:"resources"`
	Labels      []string `json:"labels,omitempty"`
	Annotations []string `json:"annotations,omitempty"`
}

// readApplied returns the record of pod. A missing or invalid record reads as the zero
// value.
func readApplied(pod *corev1.Pod) applied {
	return store.Recorded[applied](pod.Annotations, AppliedAnnotation)
}

// forge returns the pod that shadow describes in the twin namespace ns. allowed is what
// Config.Metadata returned, and force is Config.Harden. An error is a message for the ShadowPod's author.
func forge(shadow *offloadingv1beta1.ShadowPod, ns *corev1.Namespace, allowed rules.Metadata, force func(*corev1.PodSpec) error) (*corev1.Pod, error) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:            shadow.Name,
			Namespace:       shadow.Namespace,
			OwnerReferences: []metav1.OwnerReference{controlledBy(ns)},
		},
		Spec: *shadow.Spec.Pod.DeepCopy(),
	}
	kept, leftOut := allowed.Keep("Pod", rules.Marks{Labels: shadow.Labels, Annotations: shadow.Annotations}, rules.Marks{})
	labels := slices.Sorted(maps.Keys(kept.Labels))
	pod.Labels, pod.Annotations = kept.Labels, kept.Annotations
	leftOut = append(leftOut, allowed.ClaimTemplates(&pod.Spec)...)
	pod.Labels[offloadingv1beta1.ManagedByLabel] = offloadingv1beta1.ManagedByShadowPod
	pod.Labels[offloadingv1beta1.OriginLabel] = ns.Labels[corev1beta1.RemoteClusterIDLabel]
	delete(pod.Annotations, AppliedAnnotation)
	delete(pod.Annotations, offloadingv1beta1.LeftOutAnnotation)
	delete(pod.Annotations, offloadingv1beta1.ShadowPodUIDAnnotation)
	if len(leftOut) > 0 {
		pod.Annotations[offloadingv1beta1.LeftOutAnnotation] = offloadingv1beta1.MarksSum(shadow)
	}
	pod.Annotations[AppliedAnnotation] = store.Record(applied{
		Spec:        shadow.Generation,
		Resources:   shadow.Generation,
		Labels:      labels,
		Annotations: slices.Sorted(maps.Keys(pod.Annotations)),
	})
	pod.Annotations[offloadingv1beta1.ShadowPodUIDAnnotation] = string(shadow.UID)
	pod.Spec.EphemeralContainers = nil // not allowed at creation: see ephemeralChanges
	if err := force(&pod.Spec); err != nil {
		return nil, err
	}
	if offloadingv1beta1.RestartPolicy(&pod.Spec) != corev1.RestartPolicyAlways {
		pod.Finalizers = []string{offloadingv1beta1.RemotePodFinalizer}
	}
	return pod, nil
}

// owns reports whether pod was created for shadow, and not for an earlier ShadowPod of that
// name.
func owns(shadow *offloadingv1beta1.ShadowPod, pod *corev1.Pod) bool {
	uid := shadowOf(pod)
	return uid != "" && uid == shadow.UID
}

// ofAnyShadow reports whether pod was created for any ShadowPod.
func ofAnyShadow(pod *corev1.Pod) bool { return shadowOf(pod) != "" }

// shadowOf returns the UID of the ShadowPod that pod was created for, or "" for a pod of
// others. A pod stays the ShadowPod's if its label or its owner reference was removed, or if
// another controller has adopted the pod since.
func shadowOf(pod *corev1.Pod) types.UID {
	owner := metav1.GetControllerOf(pod)
	if pod.Labels[offloadingv1beta1.ManagedByLabel] == offloadingv1beta1.ManagedByShadowPod || owner != nil && owner.Kind == namespaceKind {
		return types.UID(pod.Annotations[offloadingv1beta1.ShadowPodUIDAnnotation])
	}
	return ""
}

// controlledBy returns the owner reference of the pods in a twin namespace. It keeps other
// controllers from adopting them. It names no ShadowPod: the garbage collector would send
// three requests for each deleted one.
func controlledBy(ns *corev1.Namespace) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: namespaceKind, Name: ns.Name, UID: ns.UID, Controller: new(true)}
}

func hasFinalizer(pod *corev1.Pod) bool {
	return store.HasFinalizer(pod, offloadingv1beta1.RemotePodFinalizer)
}
