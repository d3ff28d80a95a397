package rules

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqod/liqod/reasons"
)

func TestEphemeralVolumes(t *testing.T) {
	t.Parallel()
	all, disk := []string{"*"}, []string{"disk", "fast"}
	exists := func(class string) bool { return class == "slow" || class == "disk" }
	for name, tc := range map[string]struct {
		spec    corev1.PersistentVolumeClaimSpec
		notes   map[string]string
		classes []string
		usual   string
		refused string
	}{
		"of a class that is not": {spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new("manual")}, classes: all, refused: `"manual" would get a volume that is there already`},
		"the same, shared":       {spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new("manual")}, classes: []string{"*", "manual"}},
		"of any class":           {spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new("slow")}, classes: all},
		"of the default class":   {classes: all, usual: "disk"},
		"the default is shared":  {classes: disk, usual: "disk"},
		"no default class":       {classes: all, refused: "there is no default one"},
		"of a shared class":      {spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new("disk")}, classes: disk},
		"of another class":       {spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new("slow")}, classes: disk, refused: "spec.storageClassName: this cluster accepts from peers disk, fast"},
		"the default is another": {classes: disk, usual: "slow", refused: "accepts from peers disk, fast"},
		"no class is shared":     {spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new("disk")}, refused: "accepts from peers none"},
		"without class":          {spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new("")}, classes: all, usual: "disk", refused: "without a class"},
		"without class, shared":  {spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new("")}, classes: disk, refused: "accepts from peers disk, fast"},
		"class by annotation":    {notes: map[string]string{corev1.BetaStorageClassAnnotation: ""}, classes: all, refused: "volume.beta.kubernetes.io/storage-class: this cluster accepts from peers spec.storageClassName"},
		"a volume":               {spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv"}, classes: all, refused: "spec.volumeName"},
		"a choice of volumes":    {spec: corev1.PersistentVolumeClaimSpec{Selector: &metav1.LabelSelector{}}, classes: all, refused: "spec.selector"},
		"data of others":         {spec: corev1.PersistentVolumeClaimSpec{DataSourceRef: &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "x", Namespace: new("bank")}}, classes: all, refused: "spec.dataSourceRef.namespace"},
		"data of its own":        {spec: corev1.PersistentVolumeClaimSpec{DataSourceRef: &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "x"}}, classes: all, usual: "disk"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			volume := corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
				VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{ObjectMeta: metav1.ObjectMeta{Annotations: tc.notes}, Spec: tc.spec},
			}}}
			spec := corev1.PodSpec{Volumes: []corev1.Volume{*volume.DeepCopy()}}
			allowed := Allowed{VolumeTypes: []string{"ephemeral"}, StorageClasses: tc.classes, ProvisionedClass: exists, DefaultStorageClass: func() string { return tc.usual }}
			if tc.refused == "" {
				require.Equal(t, []corev1.Volume{volume}, hardened(t, spec, allowed).Volumes)
				return
			}
			require.Contains(t, requireRefused(t, spec, allowed, reasons.VolumeClaimRefused), tc.refused)
		})
	}
}

// TestClaimsOfPeers: a claim whose class makes no volumes would get one that is there already.
func TestClaimsOfPeers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		class   *string
		classes []string
		refused bool
	}{
		"a class that makes volumes": {new("disk"), []string{"*"}, false},
		"a class that is not":        {new("manual"), []string{"*"}, true},
		"the same, shared by name":   {new("manual"), []string{"*", "manual"}, false},
		"none are shared":            {new("manual"), nil, false}, // the policy refuses it
		"no class":                   {new(""), []string{"*"}, false},
		"the default, of which none": {nil, []string{"*"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := Allowed{StorageClasses: tc.classes, ProvisionedClass: func(class string) bool { return class == "disk" }}
			why := b.RefuseClaim(&corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: tc.class}})
			require.Equal(t, tc.refused, why != "", why)
			if tc.refused {
				require.Contains(t, why, "sharing.storageClasses")
			}
		})
	}
	require.True(t, Provisioned(&storagev1.StorageClass{Provisioner: "csi.example.com"}))
	require.False(t, Provisioned(&storagev1.StorageClass{Provisioner: "kubernetes.io/no-provisioner"}))
	require.False(t, Provisioned(&storagev1.StorageClass{}))
}
