package kinds

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// TestEphemeralVolumeUsesTheClaimThatIsCarried covers the claim of an ephemeral volume.
// The provider accepts as an ephemeral volume only a claim that it created for the pod
// itself.
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

// TestPodGetsNoDataOfAnotherClaim covers data of an earlier claim that the provider has
// kept under the same name.
func TestPodGetsNoDataOfAnotherClaim(t *testing.T) {
	successor := func(c *corev1.PersistentVolumeClaim) {
		c.UID, c.Annotations, c.Spec.StorageClassName, c.Spec.VolumeName = "claim-2", nil, ptr.To("nfs"), "nfs-1"
	}
	without := func(key string) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) { delete(c.Labels, key) }
	}
	for name, tc := range map[string]struct {
		local func(*corev1.PersistentVolumeClaim) // nil: there is none
		there func(*corev1.PersistentVolumeClaim) // nil: there is none
		held  bool
	}{
		"its own":                           {local: bound, there: bound},
		"an earlier claim's":                {local: successor, there: bound, held: true},
		"an earlier claim's, and none here": {there: bound, held: true},
		"an earlier claim's, its volume given on": {local: func(c *corev1.PersistentVolumeClaim) {
			successor(c)
			c.Spec.VolumeName, c.Status.Phase = "pvc-claim-1", corev1.ClaimBound
		}, there: bound},
		"an earlier claim's, which is wanted": {local: func(c *corev1.PersistentVolumeClaim) {
			successor(c)
			c.Annotations = map[string]string{offloadingv1beta1.AdoptRemoteVolumeAnnotation: "true"}
		}, there: bound},
		"the provider's own claim":              {local: successor, there: without(offloadingv1beta1.OriginLabel)},
		"nobody knows whose":                    {local: successor, there: without(offloadingv1beta1.LocalClaimUIDLabel)},
		"a claim of a class that stays at home": {local: successor},
	} {
		t.Run(name, func(t *testing.T) {
			s := storageSite(t, fast)
			pod := localPod(func(p *corev1.Pod) {
				p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
				}}}
			})
			s.add(s.home.Tracker(), pod, volumeOf(claimAt("milan", bound), retained, released))
			if tc.local != nil {
				s.add(s.home.Tracker(), claimAt("milan", tc.local))
			}
			if tc.there != nil {
				s.add(s.remote.Tracker(), remoteClaim(t, claimAt("milan", bound), tc.there))
			}
			s.startClaims(t)
			s.start(t)
			if !tc.held {
				eventually(t, func() bool { return s.shadow(t) != nil }, "the pod is offloaded")
				return
			}
			eventually(t, func() bool { return s.local(t).Status.Reason == "RemoteVolumeTaken" }, "it is said")
			require.Contains(t, s.local(t).Status.Message, "PersistentVolumeClaim shop-rome/data of cluster milan")
			require.Nil(t, s.shadow(t))
			require.NoError(t, s.remote.CoreV1().PersistentVolumeClaims("shop-rome").Delete(t.Context(), "data", metav1.DeleteOptions{}))
			s.pods.Resync()
			eventually(t, func() bool { return s.shadow(t) != nil }, "it goes when that is gone")
		})
	}
}
