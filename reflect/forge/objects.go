package forge

import (
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// Reasons of Refused for objects other than pods.
const (
	// ReasonReflectionDisabled says that objects of this sort are not reflected.
	ReasonReflectionDisabled = "ReflectionDisabled"
	// ReasonNameTaken says that the object's name stands, in the provider, for another one
	// of this cluster.
	ReasonNameTaken = "NameTaken"
)

// ObjectOptions say where a reflected object goes and what of it stays here.
type ObjectOptions struct {
	// OriginClusterID is the id of this cluster.
	OriginClusterID string
	// DestinationClusterID is the id of the provider.
	DestinationClusterID string
	// RemoteNamespace is the twin namespace.
	RemoteNamespace string
	// Patch is the virtual node's spec.offloadingPatch; nil for none.
	Patch *offloadingv1beta1.OffloadingPatch
	// SkipLabels and SkipAnnotations are keys that stay here, beside those of Patch.
	SkipLabels      []string
	SkipAnnotations []string
}

// homeAnnotations are those that speak to this cluster alone. What kubectl last applied
// would carry a Secret's content into an annotation, and mislead a kubectl there.
var homeAnnotations = []string{
	corev1.LastAppliedConfigAnnotation,
	offloadingv1beta1.SkipReflectionAnnotation,
	offloadingv1beta1.AllowReflectionAnnotation,
	offloadingv1beta1.ReflectedAnnotation,
	offloadingv1beta1.KeptAnnotation,
}

// Foreign tells whether an object of the cluster with that id stands for one of another
// cluster. Such an object is never reflected any further: nothing goes round.
func Foreign(o metav1.Object, clusterID string) bool {
	origin, set := o.GetLabels()[offloadingv1beta1.OriginLabel]
	return set && origin != clusterID
}

// meta returns the metadata of the remote object: name, labels and annotations, and the
// record of the keys that are the local object's.
func (o ObjectOptions) meta(local *metav1.ObjectMeta) metav1.ObjectMeta {
	skipLabels, skipAnnotations := o.SkipLabels, o.SkipAnnotations
	if o.Patch != nil {
		skipLabels = slices.Concat(skipLabels, o.Patch.LabelsNotReflected)
		skipAnnotations = slices.Concat(skipAnnotations, o.Patch.AnnotationsNotReflected)
	}
	labels := without(local.Labels, skipLabels)
	labels[offloadingv1beta1.OriginLabel] = o.OriginClusterID
	labels[offloadingv1beta1.DestinationLabel] = o.DestinationClusterID
	out := metav1.ObjectMeta{
		Name: local.Name, Namespace: o.RemoteNamespace, Labels: labels,
		Annotations: without(without(local.Annotations, skipAnnotations), homeAnnotations),
	}
	record(&out)
	return out
}

// leave takes labels and annotations that mean something at home only out of forged
// metadata.
func leave(m *metav1.ObjectMeta, labels, annotations []string) {
	m.Labels, m.Annotations = without(m.Labels, labels), without(m.Annotations, annotations)
	record(m)
}

// keys are the labels and annotations of a reflected object that come from here.
type keys struct {
	Labels      []string `json:"labels,omitempty"`
	Annotations []string `json:"annotations,omitempty"`
}

// record writes the keys of all labels and annotations into the annotation that tells
// them from those that others add.
func record(m *metav1.ObjectMeta) {
	delete(m.Annotations, offloadingv1beta1.ReflectedAnnotation)
	// Lists of strings are always encoded.
	text, _ := json.Marshal(keys{slices.Sorted(maps.Keys(m.Labels)), slices.Sorted(maps.Keys(m.Annotations))})
	if m.Annotations == nil {
		m.Annotations = map[string]string{}
	}
	m.Annotations[offloadingv1beta1.ReflectedAnnotation] = string(text)
}

// mergeMeta makes the labels and annotations of have as wanted: keys that came from here
// earlier and are no longer wanted go, as does the mark of what was not known here for a
// while, and what others have added stays. The rest of the metadata (finalizers, owners)
// is not ours.
func mergeMeta(have, want *metav1.ObjectMeta) {
	var earlier keys
	// A record that somebody has spoilt says nothing: it is written anew.
	if err := json.Unmarshal([]byte(have.Annotations[offloadingv1beta1.ReflectedAnnotation]), &earlier); err != nil {
		earlier = keys{}
	}
	have.Labels = mergeKeys(have.Labels, want.Labels, earlier.Labels)
	have.Annotations = mergeKeys(have.Annotations, want.Annotations, append(earlier.Annotations, offloadingv1beta1.KeptAnnotation))
}

func mergeKeys(have, want map[string]string, earlier []string) map[string]string {
	out := without(have, earlier)
	maps.Copy(out, want)
	if len(out) == 0 {
		return nil
	}
	return out
}
