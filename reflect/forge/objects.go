package forge

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// ObjectOptions are the parameters for reflecting an object.
type ObjectOptions struct {
	// OriginClusterID is the id of this cluster.
	OriginClusterID string
	// DestinationClusterID is the id of the provider.
	DestinationClusterID string
	// RemoteNamespace is the twin namespace.
	RemoteNamespace string
	// Patch is spec.offloadingPatch of the VirtualNode; nil for none.
	Patch *offloadingv1beta1.OffloadingPatch
	// SkipLabels and SkipAnnotations are keys that are not reflected, in addition to those
	// of Patch.
	SkipLabels      []string
	SkipAnnotations []string
}

// marks returns the labels or the annotations of a local object, and the keys that stay home.
func (o ObjectOptions) marks(local *metav1.ObjectMeta, of string) (have map[string]string, skip []string) {
	patch := cmp.Or(o.Patch, &offloadingv1beta1.OffloadingPatch{})
	if of == "labels" {
		return local.Labels, slices.Concat(o.SkipLabels, patch.LabelsNotReflected)
	}
	return local.Annotations, slices.Concat(o.SkipAnnotations, patch.AnnotationsNotReflected)
}

// reflected returns the labels or the annotations of a local object that its remote object gets,
// and to labels those of liqod.
func (o ObjectOptions) reflected(local *metav1.ObjectMeta, of string) map[string]string {
	out := without(o.marks(local, of))
	maps.DeleteFunc(out, func(key, _ string) bool {
		return offloadingv1beta1.Tracks(key) || of == "annotations" && slices.Contains(homeAnnotations, key)
	})
	if of == "labels" {
		out[offloadingv1beta1.OriginLabel] = o.OriginClusterID
		out[offloadingv1beta1.DestinationLabel] = o.DestinationClusterID
	}
	return out
}

// homeAnnotations are never reflected, because they concern this cluster only. The
// last-applied annotation would also copy the content of a Secret into an annotation, and
// would mislead kubectl apply in the provider.
var homeAnnotations = []string{
	corev1.LastAppliedConfigAnnotation,
	offloadingv1beta1.SkipReflectionAnnotation,
	offloadingv1beta1.AllowReflectionAnnotation,
	offloadingv1beta1.ReflectOnlyToAnnotation,
	offloadingv1beta1.ReflectedAnnotation,
	offloadingv1beta1.KeptAnnotation,
	offloadingv1beta1.MoveToAnnotation,
	offloadingv1beta1.DiscardCopyAnnotation,
}

// Foreign reports whether an object in the cluster with this id was reflected from
// another cluster. Such an object is not reflected further, which prevents cycles.
func Foreign(o metav1.Object, clusterID string) bool {
	origin, set := o.GetLabels()[offloadingv1beta1.OriginLabel]
	return set && origin != clusterID
}

// meta returns the metadata of the remote object: name, labels, annotations, and the
// record of their keys.
func (o ObjectOptions) meta(local *metav1.ObjectMeta) metav1.ObjectMeta {
	out := metav1.ObjectMeta{
		Name: local.Name, Namespace: o.RemoteNamespace, Labels: o.reflected(local, "labels"),
		Annotations: o.reflected(local, "annotations"),
	}
	record(&out)
	return out
}

// leave removes keys that are meaningful only in this cluster from forged labels and
// annotations.
func leave(m *metav1.ObjectMeta, labels, annotations []string) {
	m.Labels, m.Annotations = without(m.Labels, labels), without(m.Annotations, annotations)
	record(m)
}

// keys are the labels and annotations of a reflected object that come from this cluster.
type keys struct {
	Labels      []string `json:"labels,omitempty"`
	Annotations []string `json:"annotations,omitempty"`
}

// record writes the keys of all labels and annotations into an annotation. By this record
// mergeMeta recognises the keys that clients in the provider have added.
func record(m *metav1.ObjectMeta) {
	delete(m.Annotations, offloadingv1beta1.ReflectedAnnotation)
	// Encoding lists of strings never fails.
	text, _ := json.Marshal(keys{slices.Sorted(maps.Keys(m.Labels)), slices.Sorted(maps.Keys(m.Annotations))})
	if m.Annotations == nil {
		m.Annotations = map[string]string{}
	}
	m.Annotations[offloadingv1beta1.ReflectedAnnotation] = string(text)
}

// mergeMeta brings the labels and annotations of have to the wanted state. It removes
// recorded keys that are no longer wanted, and the mark of an object that was kept after
// a restored backup. Keys that clients in the provider have added stay. Finalizers and
// owner references are not changed.
func mergeMeta(have, want *metav1.ObjectMeta) {
	var earlier keys
	// A record that cannot be decoded is ignored and written anew.
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
