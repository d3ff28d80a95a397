package rules

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/liqod/liqod/reasons"
)

// volumeType is a type of volumes by its field in the API.
type volumeType struct {
	name string
	is   func(*corev1.VolumeSource) bool
}

// volumeTypes returns every type of volumes that the API has. Of most of them the node
// mounts, or connects to, a server that the pod's author names.
func volumeTypes() []volumeType {
	return []volumeType{
		{"configMap", func(v *corev1.VolumeSource) bool { return v.ConfigMap != nil }},
		{"secret", func(v *corev1.VolumeSource) bool { return v.Secret != nil }},
		{"projected", func(v *corev1.VolumeSource) bool { return v.Projected != nil }},
		{"downwardAPI", func(v *corev1.VolumeSource) bool { return v.DownwardAPI != nil }},
		{"emptyDir", func(v *corev1.VolumeSource) bool { return v.EmptyDir != nil }},
		{"ephemeral", func(v *corev1.VolumeSource) bool { return v.Ephemeral != nil }},
		{"persistentVolumeClaim", func(v *corev1.VolumeSource) bool { return v.PersistentVolumeClaim != nil }},
		{"image", func(v *corev1.VolumeSource) bool { return v.Image != nil }},
		{"csi", func(v *corev1.VolumeSource) bool { return v.CSI != nil }},
		{"hostPath", func(v *corev1.VolumeSource) bool { return v.HostPath != nil }},
		{"nfs", func(v *corev1.VolumeSource) bool { return v.NFS != nil }},
		{"iscsi", func(v *corev1.VolumeSource) bool { return v.ISCSI != nil }},
		{"fc", func(v *corev1.VolumeSource) bool { return v.FC != nil }},
		{"cephfs", func(v *corev1.VolumeSource) bool { return v.CephFS != nil }},
		{"rbd", func(v *corev1.VolumeSource) bool { return v.RBD != nil }},
		{"glusterfs", func(v *corev1.VolumeSource) bool { return v.Glusterfs != nil }},
		{"cinder", func(v *corev1.VolumeSource) bool { return v.Cinder != nil }},
		{"awsElasticBlockStore", func(v *corev1.VolumeSource) bool { return v.AWSElasticBlockStore != nil }},
		{"azureDisk", func(v *corev1.VolumeSource) bool { return v.AzureDisk != nil }},
		{"azureFile", func(v *corev1.VolumeSource) bool { return v.AzureFile != nil }},
		{"gcePersistentDisk", func(v *corev1.VolumeSource) bool { return v.GCEPersistentDisk != nil }},
		{"vsphereVolume", func(v *corev1.VolumeSource) bool { return v.VsphereVolume != nil }},
		{"portworxVolume", func(v *corev1.VolumeSource) bool { return v.PortworxVolume != nil }},
		{"scaleIO", func(v *corev1.VolumeSource) bool { return v.ScaleIO != nil }},
		{"storageos", func(v *corev1.VolumeSource) bool { return v.StorageOS != nil }},
		{"quobyte", func(v *corev1.VolumeSource) bool { return v.Quobyte != nil }},
		{"photonPersistentDisk", func(v *corev1.VolumeSource) bool { return v.PhotonPersistentDisk != nil }},
		{"flocker", func(v *corev1.VolumeSource) bool { return v.Flocker != nil }},
		{"flexVolume", func(v *corev1.VolumeSource) bool { return v.FlexVolume != nil }},
		{"gitRepo", func(v *corev1.VolumeSource) bool { return v.GitRepo != nil }},
	}
}

// VolumeTypes returns the names of all types of volumes, as in the API.
func VolumeTypes() []string {
	all := volumeTypes()
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].name
	}
	return names
}

// mountable judges the type of a volume. One without a source is an emptyDir.
func mountable(v *corev1.Volume, allowed Allowed) error {
	source := v.VolumeSource
	if source == (corev1.VolumeSource{}) {
		source.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	for _, t := range volumeTypes() {
		if t.is(&source) && !slices.Contains(allowed.VolumeTypes, t.name) {
			return &Refused{reasons.VolumeTypeRefused, fmt.Sprintf("spec.volumes %q is a volume of type %s: %s", v.Name, t.name,
				allowed.accepts(allowed.VolumeTypes, "controller.volumeTypes"))}
		}
	}
	return nil
}
