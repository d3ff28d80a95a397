package rules

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/liqod/liqod/reasons"
)

// VolumeTypes returns the names of all types of volumes, as in the API. Of most of them the node
// mounts, or connects to, a server that the pod's author names.
func VolumeTypes() []string {
	return []string{
		"configMap", "secret", "projected", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "image", "csi",
		"hostPath", "nfs", "iscsi", "fc", "cephfs", "rbd", "glusterfs", "cinder", "awsElasticBlockStore", "azureDisk", "azureFile",
		"gcePersistentDisk", "vsphereVolume", "portworxVolume", "scaleIO", "storageos", "quobyte", "photonPersistentDisk", "flocker",
		"flexVolume", "gitRepo",
	}
}

// mountable judges the type of a volume: each field of its source is one. A volume without a source is an emptyDir.
func mountable(v *corev1.Volume, allowed Allowed) error {
	source := v.VolumeSource
	if source == (corev1.VolumeSource{}) {
		source.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&source)
	if err != nil {
		return &Refused{reasons.VolumeTypeRefused, fmt.Sprintf("spec.volumes %q: %v", v.Name, err)}
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(allowed.VolumeTypes, name) {
			return &Refused{reasons.VolumeTypeRefused, fmt.Sprintf("spec.volumes %q is a volume of type %s: %s", v.Name, name,
				allowed.accepts(allowed.VolumeTypes, "controller.volumeTypes"))}
		}
	}
	return nil
}
