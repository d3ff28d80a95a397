package forge

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRealVolume(t *testing.T) {
	t.Parallel()
	no := corev1.NodeSelectorRequirement{Key: "liqo.io/type", Operator: "NotIn", Values: []string{"virtual-node"}}
	zone := func(values ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: "zone", Operator: "In", Values: values}
	}
	affinity := func(terms ...[]corev1.NodeSelectorRequirement) *corev1.VolumeNodeAffinity {
		out := &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{}}
		for _, t := range terms {
			out.Required.NodeSelectorTerms = append(out.Required.NodeSelectorTerms, corev1.NodeSelectorTerm{MatchExpressions: t})
		}
		return out
	}
	for name, row := range map[string]struct{ have, want *corev1.VolumeNodeAffinity }{
		"everywhere": {nil, affinity([]corev1.NodeSelectorRequirement{no})},
		"one zone":   {affinity([]corev1.NodeSelectorRequirement{zone("a")}), affinity([]corev1.NodeSelectorRequirement{zone("a"), no})},
		"each term": {
			affinity([]corev1.NodeSelectorRequirement{zone("a")}, []corev1.NodeSelectorRequirement{zone("b")}),
			affinity([]corev1.NodeSelectorRequirement{zone("a"), no}, []corev1.NodeSelectorRequirement{zone("b"), no}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			local, mode := claim(), corev1.PersistentVolumeBlock
			local.Spec.StorageClassName = new("liqo")
			real := &corev1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Name: "pvc-other", Labels: map[string]string{"zone": "a"}, Annotations: map[string]string{ProvisionedBy: "example.com/disk"}},
				Spec: corev1.PersistentVolumeSpec{
					Capacity: size("12Gi").Requests, AccessModes: []corev1.PersistentVolumeAccessMode{"ReadWriteOncePod"}, VolumeMode: &mode, MountOptions: []string{"noatime"},
					StorageClassName: "disk", VolumeAttributesClassName: new("gold"), NodeAffinity: row.have, ClaimRef: &corev1.ObjectReference{Name: "other"},
					PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "example.com/disk", VolumeHandle: "7"}},
				},
			}
			require.Equal(t, &corev1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{
					Name: "pvc-" + uid, Labels: map[string]string{"zone": "a", "offloading.liqo.io/local-claim-uid": uid}, Annotations: map[string]string{ProvisionedBy: "liqo.io/storage"},
				},
				Spec: corev1.PersistentVolumeSpec{
					Capacity: size("12Gi").Requests, AccessModes: []corev1.PersistentVolumeAccessMode{"ReadWriteOncePod"}, VolumeMode: &mode, MountOptions: []string{"noatime"},
					StorageClassName: "liqo", NodeAffinity: row.want,
					ClaimRef:               &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "shop", Name: "data", UID: uid},
					PersistentVolumeSource: real.Spec.PersistentVolumeSource,
				},
			}, RealVolume(local, real))
			require.Equal(t, row.have, real.Spec.NodeAffinity, "the source is not changed")
		})
	}
}
