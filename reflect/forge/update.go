package forge

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// UpdateShadowPod returns have with the current values of the fields that can change
// after the creation of a pod, and whether anything differs. These are labels,
// annotations, images, resources, ephemeral containers that have not started, added
// tolerations, activeDeadlineSeconds and terminationGracePeriodSeconds. The local
// generation is updated with them. All other fields are kept. If nothing differs, have
// itself is returned.
func UpdateShadowPod(have *offloadingv1beta1.ShadowPod, local *corev1.Pod, o PodOptions) (*offloadingv1beta1.ShadowPod, bool) {
	want := have.DeepCopy()
	want.Labels = o.labels(local)
	copies, _ := o.copies(local) // the reference of a pod that exists was there before the setting
	want.Annotations = o.annotations(local, copies)
	want.Spec.LocalGeneration = local.Generation

	spec := &want.Spec.Pod
	current := containersOf(&local.Spec)
	for _, c := range containersOf(spec) {
		for _, l := range current {
			if c.Name == l.Name {
				c.Image, c.Resources = l.Image, *l.Resources.DeepCopy()
			}
		}
	}
	spec.EphemeralContainers = o.ephemeralContainers(local, spec.Volumes)
	o.leadToCopies(&corev1.PodSpec{EphemeralContainers: spec.EphemeralContainers})
	spec.Tolerations = addTolerations(spec.Tolerations, forgeTolerations(local, o.Patch))
	spec.ActiveDeadlineSeconds = local.Spec.ActiveDeadlineSeconds
	spec.TerminationGracePeriodSeconds = local.Spec.TerminationGracePeriodSeconds
	spec.Resources = local.Spec.Resources.DeepCopy()

	if maps.Equal(have.Labels, want.Labels) && maps.Equal(have.Annotations, want.Annotations) &&
		equality.Semantic.DeepEqual(have.Spec, want.Spec) {
		return have, false
	}
	return want, true
}
