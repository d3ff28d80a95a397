package kinds

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// TestEphemeralVolumeUsesTheClaimThatIsCarried: the provider would let its pod use no claim
// as an ephemeral volume that it has not made for it.
func TestEphemeralVolumeUsesTheClaimThatIsCarried(t *testing.T) {
	ephemeral := corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
		Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{}},
	}}
	claimed := corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "web-data"},
	}}
	for name, tc := range map[string]struct {
		claim func(*corev1.PersistentVolumeClaim) // nil: there is none
		off   bool                                // claims are not watched
		want  corev1.Volume
	}{
		"it is of the class":     {claim: bound, want: claimed},
		"it is not bound yet":    {claim: func(*corev1.PersistentVolumeClaim) {}, want: claimed},
		"it is bound to another": {claim: func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "mine" }, want: ephemeral},
		"it is of another class": {claim: func(c *corev1.PersistentVolumeClaim) {
			c.Annotations[storageProvisionerAnnotation] = "example.com/disk"
		}, want: ephemeral},
		"it is not the pod's":        {claim: func(c *corev1.PersistentVolumeClaim) { c.OwnerReferences = nil }, want: ephemeral},
		"it is another pod's":        {claim: func(c *corev1.PersistentVolumeClaim) { c.OwnerReferences[0].UID = "local-0" }, want: ephemeral},
		"there is none":              {want: ephemeral},
		"no volumes are made at all": {claim: bound, off: true, want: ephemeral},
	} {
		t.Run(name, func(t *testing.T) {
			s := storageSite(t, fast)
			pod := localPod(func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{ephemeral} })
			s.add(s.home.Tracker(), pod)
			if tc.claim != nil {
				s.add(s.home.Tracker(), claimAt("milan", func(c *corev1.PersistentVolumeClaim) {
					c.Name, c.OwnerReferences = "web-data", []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web", UID: pod.UID, Controller: ptr.To(true)}}
				}, tc.claim))
			}
			if !tc.off {
				s.startClaims(t)
			}
			s.start(t)
			eventually(t, func() bool { return s.shadow(t) != nil }, "the pod is offloaded")
			require.Equal(t, []corev1.Volume{tc.want}, s.shadow(t).Spec.Pod.Volumes)
			s.pods.Resync()
			s.idle(t, "shop")
			require.Equal(t, []string{"create shadowpods"}, writes(s.remoteLiqod.Actions()), "nothing differs later")
		})
	}
}
