package forge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/reasons"
)

// volumeAnnotations are the prefixes of annotations in which controllers of a cluster
// record their progress with a claim.
var volumeAnnotations = []string{"pv.kubernetes.io/", "volume.kubernetes.io/", "volume.beta.kubernetes.io/"}

// accessModes are the values accepted in the annotation.
var accessModes = map[string]corev1.PersistentVolumeAccessMode{
	"RWO": corev1.ReadWriteOnce, "ROX": corev1.ReadOnlyMany, "RWX": corev1.ReadWriteMany, "RWOP": corev1.ReadWriteOncePod,
}

// PersistentVolumeClaim returns the claim in the provider. Its storage class is the one
// in the annotation of local, else the offered default, else the provider's default. The
// class of local is never used, because a class of the same name in the provider is
// unrelated. The result is nil if local was itself reflected from another cluster. An
// error is always a *Refused.
func PersistentVolumeClaim(local *corev1.PersistentVolumeClaim, o ObjectOptions, offered []Class) (*corev1.PersistentVolumeClaim, error) {
	if Foreign(local, o.OriginClusterID) {
		return nil, nil
	}
	if err := checkDataSource(local); err != nil {
		return nil, err
	}
	modes, err := remoteAccessModes(local)
	if err != nil {
		return nil, err
	}
	out := &corev1.PersistentVolumeClaim{ObjectMeta: o.meta(&local.ObjectMeta), Spec: *local.Spec.DeepCopy()}
	leave(&out.ObjectMeta, nil, slices.DeleteFunc(slices.Collect(maps.Keys(local.Annotations)), func(key string) bool {
		return !slices.ContainsFunc(volumeAnnotations, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
	}))
	class := cmp.Or(local.Annotations[offloadingv1beta1.RemoteStorageClassAnnotation], remoteClass("", offered))
	out.Labels[offloadingv1beta1.LocalClaimUIDLabel] = string(local.UID)
	delete(out.Labels, offloadingv1beta1.EphemeralVolumeLabel)
	if OfPod(local) {
		out.Labels[offloadingv1beta1.EphemeralVolumeLabel] = "true"
	}
	record(&out.ObjectMeta)
	out.Spec.StorageClassName = named(class)
	out.Spec.AccessModes = modes
	out.Spec.VolumeName = ""
	out.Spec.Selector = nil
	out.Spec.VolumeAttributesClassName = nil
	return out, nil
}

// OfPod reports whether Kubernetes has created a claim for an ephemeral volume of a pod: the claim goes with
// the pod, and so does its data.
func OfPod(claim *corev1.PersistentVolumeClaim) bool {
	owner := metav1.GetControllerOf(claim)
	return owner != nil && owner.Kind == "Pod"
}

// checkDataSource accepts only claims of the same namespace as data source, because they
// are reflected too.
func checkDataSource(local *corev1.PersistentVolumeClaim) error {
	s := dataSource(local)
	if s == nil || s.Kind == "PersistentVolumeClaim" && value(s.APIGroup) == "" && value(s.Namespace) == "" {
		return nil
	}
	return &Refused{offloadingv1beta1.ReasonDataSource, fmt.Sprintf("PersistentVolumeClaim %s is to be filled from %s %s, which the provider does not have; accepted is a PersistentVolumeClaim of the same namespace",
		local.Name, s.Kind, s.Name)}
}

func remoteAccessModes(local *corev1.PersistentVolumeClaim) ([]corev1.PersistentVolumeAccessMode, error) {
	list, set := local.Annotations[offloadingv1beta1.RemoteAccessModesAnnotation]
	if !set {
		return slices.Clone(local.Spec.AccessModes), nil
	}
	var out []corev1.PersistentVolumeAccessMode
	for _, short := range strings.Split(list, ",") {
		mode, known := accessModes[strings.TrimSpace(short)]
		if !known {
			return nil, &Refused{reasons.AccessModesInvalid, fmt.Sprintf("PersistentVolumeClaim %s: annotation %s is %q: accepted is a comma-separated list of RWO, ROX, RWX and RWOP",
				local.Name, offloadingv1beta1.RemoteAccessModesAnnotation, list)}
		}
		out = append(out, mode)
	}
	return out, nil
}

// MergePersistentVolumeClaim returns a copy of have with the fields of want that are
// mutable in a claim: the metadata and, once the claim is bound, the requested size. The
// requested size is never reduced to the current capacity or below.
func MergePersistentVolumeClaim(have, want *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	out := have.DeepCopy()
	mergeMeta(&out.ObjectMeta, &want.ObjectMeta)
	wanted, had := want.Spec.Resources.Requests.Storage(), have.Spec.Resources.Requests.Storage()
	if have.Status.Phase != corev1.ClaimBound || wanted.Cmp(*had) == 0 {
		return out
	}
	if wanted.Cmp(*had) > 0 || wanted.Cmp(*have.Status.Capacity.Storage()) > 0 {
		out.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: wanted.DeepCopy()}
	}
	return out
}

// placeholderPath is the path of volumes that no node of this cluster ever mounts.
const placeholderPath = "/var/lib/liqod/in-the-provider"

// ProvisionedBy is the annotation with the name of the provisioner of a volume. Only this
// provisioner may delete the volume.
const ProvisionedBy = "pv.kubernetes.io/provisioned-by"

// VolumeName returns the name of the local volume for a claim whose data is in a
// provider.
func VolumeName(local *corev1.PersistentVolumeClaim) string { return VolumeNameFor(local.UID) }

// VolumeNameFor is VolumeName for the UID of a claim.
func VolumeNameFor(claim types.UID) string { return "pvc-" + string(claim) }

// PersistentVolume returns the local volume for a claim whose data is in the provider
// with this id. Its node affinity restricts pods that use the claim to the virtual nodes
// of that provider. The capacity is that of the remote claim, which may be nil, but at
// least the requested size. The caller adds the reclaim policy.
func PersistentVolume(local, remote *corev1.PersistentVolumeClaim, destinationClusterID string) *corev1.PersistentVolume {
	spec := local.DeepCopy().Spec
	annotations := map[string]string{ProvisionedBy: offloadingv1beta1.StorageProvisioner}
	if remote != nil && remote.Spec.VolumeName == "" {
		annotations[offloadingv1beta1.NoVolumeAnnotation] = "true"
	}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        VolumeName(local),
			Labels:      map[string]string{corev1beta1.RemoteClusterIDLabel: destinationClusterID},
			Annotations: annotations,
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: capacity(local, remote)},
			AccessModes: spec.AccessModes,
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: local.Namespace, Name: local.Name, UID: local.UID,
			},
			StorageClassName: value(spec.StorageClassName),
			VolumeMode:       spec.VolumeMode,
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: corev1beta1.RemoteClusterIDLabel, Operator: corev1.NodeSelectorOpIn, Values: []string{destinationClusterID},
				}},
			}}}},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: placeholderPath}},
		},
	}
}

// capacity returns the capacity of the remote claim, or the requested size of the local
// claim if that is larger: the local claim would not bind to a smaller volume.
func capacity(local, remote *corev1.PersistentVolumeClaim) resource.Quantity {
	asked := local.Spec.Resources.Requests.Storage()
	if remote != nil {
		if got := remote.Status.Capacity.Storage(); got.Cmp(*asked) > 0 {
			return got.DeepCopy()
		}
	}
	return asked.DeepCopy()
}
