package pod

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/store"
)

// differs reports whether have needs a patch. want is a pod from forge.
func differs(want, have *corev1.Pod) bool {
	return len(changes(want, have, readApplied(want).Resources)) > 0
}

// ephemeralChanges returns the patch for the ephemeralcontainers subresource: the
// containers of shadow that have lacks. It returns nil if there are none. Existing
// ephemeral containers are never changed, because the API server does not allow that. With
// alwaysPull the node pulls their images.
func ephemeralChanges(shadow *offloadingv1beta1.ShadowPod, have *corev1.Pod, alwaysPull bool) store.Patch {
	var list []corev1.EphemeralContainer
	for _, want := range shadow.Spec.Pod.EphemeralContainers {
		if !slices.ContainsFunc(have.Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == want.Name }) {
			if alwaysPull {
				want.ImagePullPolicy = corev1.PullAlways
			}
			list = append(list, want)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return store.Patch{"spec": store.Patch{"ephemeralContainers": list}}
}

// changes returns the patch that makes have equal to want except for resources, or an empty
// one. The patch records that the resources follow the given generation.
func changes(want, have *corev1.Pod, resources int64) store.Patch {
	mine, done := readApplied(want), readApplied(have)
	if done.Spec > mine.Spec {
		return nil // want comes from a ShadowPod older than the applied one
	}
	mine.Resources = resources
	labels := store.MapChanges(want.Labels, have.Labels, done.Labels)
	annotations := store.MapChanges(want.Annotations, have.Annotations, done.Annotations)
	delete(annotations, AppliedAnnotation)
	if record := store.Record(mine); have.Annotations[AppliedAnnotation] != record {
		annotations[AppliedAnnotation] = record
	}
	patch, metadata := store.Patch{}, store.Patch{}
	store.Put(metadata, "labels", labels)
	store.Put(metadata, "annotations", annotations)
	if owner := metav1.GetControllerOf(have); owner == nil || owner.UID != want.OwnerReferences[0].UID {
		metadata["ownerReferences"] = append([]any{store.Patch{"$patch": "replace"}}, want.OwnerReferences[0])
	}
	store.Put(patch, "metadata", metadata)
	if done.Spec < mine.Spec {
		store.Put(patch, "spec", specChanges(&want.Spec, &have.Spec))
	}
	return patch
}

// specChanges compares the mutable fields of a pod spec, except resources.
func specChanges(want, have *corev1.PodSpec) store.Patch {
	patch := store.Patch{}
	store.Put(patch, "containers", imageChanges(want.Containers, have.Containers))
	store.Put(patch, "initContainers", imageChanges(want.InitContainers, have.InitContainers))
	if list, changed := addTolerations(want.Tolerations, have.Tolerations); changed {
		patch["tolerations"] = list
	}
	if d, old := want.ActiveDeadlineSeconds, have.ActiveDeadlineSeconds; d != nil && (old == nil || *d < *old) {
		patch["activeDeadlineSeconds"] = *d
	}
	// The API server accepts only one change of this field: from a negative value to 1.
	if g, old := want.TerminationGracePeriodSeconds, have.TerminationGracePeriodSeconds; g != nil && *g == 1 && old != nil && *old < 0 {
		patch["terminationGracePeriodSeconds"] = *g
	}
	return patch
}

func imageChanges(want, have []corev1.Container) []store.Patch {
	var list []store.Patch
	for _, h := range have {
		i := slices.IndexFunc(want, func(c corev1.Container) bool { return c.Name == h.Name })
		if i >= 0 && want[i].Image != h.Image {
			list = append(list, store.Patch{"name": h.Name, "image": want[i].Image})
		}
	}
	return list
}

// addTolerations adds the missing tolerations of want to have. The API server does not
// allow the removal of a toleration.
func addTolerations(want, have []corev1.Toleration) ([]corev1.Toleration, bool) {
	list, changed := slices.Clone(have), false
	for _, w := range want {
		i := slices.IndexFunc(list, func(t corev1.Toleration) bool { return t.MatchToleration(&w) })
		switch {
		case i < 0:
			list, changed = append(list, w), true
		case !apiequality.Semantic.DeepEqual(list[i].TolerationSeconds, w.TolerationSeconds):
			list[i], changed = w, true
		}
	}
	return list, changed
}

// resourceChanges returns the patch for the resize subresource, or an empty one. Quantities
// that the provider added stay, because a resize may not remove one.
func resourceChanges(want, have *corev1.Pod) store.Patch {
	if readApplied(have).Resources >= readApplied(want).Resources {
		return nil
	}
	spec := store.Patch{}
	store.Put(spec, "containers", quantityChanges(want.Spec.Containers, have.Spec.Containers))
	store.Put(spec, "initContainers", quantityChanges(want.Spec.InitContainers, have.Spec.InitContainers))
	store.Put(spec, "resources", podQuantityChanges(&want.Spec, &have.Spec))
	patch := store.Patch{}
	store.Put(patch, "spec", spec)
	return patch
}

// podQuantityChanges compares the pod-level resources.
func podQuantityChanges(want, have *corev1.PodSpec) store.Patch {
	if want.Resources == nil {
		return nil
	}
	old := ptr.Deref(have.Resources, corev1.ResourceRequirements{})
	return requirementChanges(want.Resources, &old)
}

func requirementChanges(want, have *corev1.ResourceRequirements) store.Patch {
	resources := store.Patch{}
	store.Put(resources, "requests", listChanges(want.Requests, have.Requests))
	store.Put(resources, "limits", listChanges(want.Limits, have.Limits))
	return resources
}

func quantityChanges(want, have []corev1.Container) []store.Patch {
	var list []store.Patch
	for _, h := range have {
		i := slices.IndexFunc(want, func(c corev1.Container) bool { return c.Name == h.Name })
		if i < 0 {
			continue
		}
		if resources := requirementChanges(&want[i].Resources, &h.Resources); len(resources) > 0 {
			list = append(list, store.Patch{"name": h.Name, "resources": resources})
		}
	}
	return list
}

func listChanges(want, have corev1.ResourceList) store.Patch {
	patch := store.Patch{}
	for name, quantity := range want {
		if old, ok := have[name]; !ok || old.Cmp(quantity) != 0 {
			patch[string(name)] = quantity.String()
		}
	}
	return patch
}
