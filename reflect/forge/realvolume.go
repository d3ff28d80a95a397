package forge

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// SelectedNode is the annotation of a claim with the node of its first pod.
const SelectedNode = "volume.kubernetes.io/selected-node"

// RealClaim returns the claim of a class of this cluster whose volume local gets, for a first pod
// on a node of this cluster. Its name is the UID of local. An error is always a *Refused.
func RealClaim(local *corev1.PersistentVolumeClaim, namespace, class, node string) (*corev1.PersistentVolumeClaim, error) {
	if source := dataSource(local); source != nil {
		return nil, &Refused{offloadingv1beta1.ReasonDataSource, fmt.Sprintf(
			"PersistentVolumeClaim %s is to be filled from %s %s: volumes of this class on nodes of this cluster begin empty; for a copy, use a claim of class %s", local.Name, source.Kind, source.Name, class)}
	}
	spec := local.Spec.DeepCopy()
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: string(local.UID),
			Labels: map[string]string{offloadingv1beta1.LocalClaimUIDLabel: string(local.UID)},
			Annotations: map[string]string{
				offloadingv1beta1.LocalClaimAnnotation: local.Namespace + "/" + local.Name,
				SelectedNode:                           node, offloadingv1beta1.AskedNodeAnnotation: node,
			},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: spec.AccessModes, Resources: spec.Resources, VolumeMode: spec.VolumeMode, StorageClassName: &class,
		},
	}, nil
}

// dataSource returns what a claim is to be filled from, or nil. If a claim has both fields, they name
// the same object.
func dataSource(local *corev1.PersistentVolumeClaim) *corev1.TypedObjectReference {
	if s := local.Spec.DataSource; s != nil {
		return &corev1.TypedObjectReference{APIGroup: s.APIGroup, Kind: s.Kind, Name: s.Name}
	}
	return local.Spec.DataSourceRef
}

// RealVolume returns the volume that gives the data of real, the volume of a claim of this
// cluster, to local. Its nodes are those of real that are not virtual. The caller adds the reclaim
// policy: deleting the volume leaves the data of real.
func RealVolume(local *corev1.PersistentVolumeClaim, real *corev1.PersistentVolume) *corev1.PersistentVolume {
	spec := *real.Spec.DeepCopy()
	spec.ClaimRef = &corev1.ObjectReference{
		APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: local.Namespace, Name: local.Name, UID: local.UID,
	}
	spec.StorageClassName = value(local.Spec.StorageClassName)
	spec.VolumeAttributesClassName = nil
	spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: notVirtual(spec.NodeAffinity)}
	out := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: VolumeName(local), Labels: maps.Clone(real.Labels), // of its zone, for the scheduler
			Annotations: map[string]string{ProvisionedBy: offloadingv1beta1.StorageProvisioner},
		},
		Spec: spec,
	}
	metav1.SetMetaDataLabel(&out.ObjectMeta, offloadingv1beta1.LocalClaimUIDLabel, string(local.UID))
	return out
}

// notVirtual adds to each term of an affinity that the node is not virtual.
func notVirtual(affinity *corev1.VolumeNodeAffinity) *corev1.NodeSelector {
	no := corev1.NodeSelectorRequirement{Key: offloadingv1beta1.TypeLabel, Operator: corev1.NodeSelectorOpNotIn, Values: []string{offloadingv1beta1.TypeVirtualNode}}
	terms := []corev1.NodeSelectorTerm{{}}
	if affinity != nil && affinity.Required != nil {
		terms = slices.Clone(affinity.Required.NodeSelectorTerms)
	}
	for i := range terms {
		terms[i].MatchExpressions = append(slices.Clone(terms[i].MatchExpressions), no)
	}
	return &corev1.NodeSelector{NodeSelectorTerms: terms}
}
