package kinds

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/reasons"
	"github.com/liqod/liqod/reflect/forge"
)

func movesTo(node string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) { c.Annotations[offloadingv1beta1.MoveToAnnotation] = node }
}

func discards(where string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		c.Annotations[offloadingv1beta1.DiscardCopyAnnotation] = where
	}
}

// inTurin is the volume of a claim whose data is in cluster turin.
func inTurin(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	v := forge.PersistentVolume(claim, nil, "turin")
	v.Status.Phase = corev1.VolumeBound
	return v
}

// TestCopyForAMove: a second claim is created in the provider, and nothing at home.
func TestCopyForAMove(t *testing.T) {
	s := storageSite(t, fast)
	claim := claimAt("turin", bound, movesTo("milan"))
	s.add(s.home.Tracker(), claim, inTurin(claim))
	s.startClaims(t)
	eventually(t, func() bool { return s.claimThere(t) != nil }, "the copy comes")
	require.Equal(t, "claim-1", s.claimThere(t).Labels[offloadingv1beta1.LocalClaimUIDLabel])
	require.NotContains(t, s.claimThere(t).Annotations, offloadingv1beta1.MoveToAnnotation)
	require.Equal(t, "turin", s.volume(t, "claim-1").Labels[corev1beta1.RemoteClusterIDLabel])
}

// TestNoCopyOverOtherData: the data of an earlier claim of the name stays in the provider.
func TestNoCopyOverOtherData(t *testing.T) {
	s := storageSite(t, fast)
	claim := claimAt("turin", bound, movesTo("milan"))
	s.add(s.home.Tracker(), claim, inTurin(claim))
	s.add(s.remote.Tracker(), remoteClaim(t, claimAt("milan", func(c *corev1.PersistentVolumeClaim) { c.UID = "claim-0" })))
	s.startClaims(t)
	eventually(t, func() bool { return len(s.events.Events) > 1 }, "events")
	require.Contains(t, <-s.events.Events, reasons.RemoteVolumeKept)
	require.Contains(t, <-s.events.Events, reasons.RemoteVolumeTaken)
	require.Empty(t, writes(s.remote.Actions()))
}

// TestVolumeAfterAMove: the claim gets the copy once its earlier volume is gone, and not before.
func TestVolumeAfterAMove(t *testing.T) {
	s := storageSite(t, fast)
	claim := claimAt("milan", bound, movesTo("milan"))
	s.add(s.home.Tracker(), claim, inTurin(claim))
	s.add(s.remote.Tracker(), remoteClaim(t, claim))
	s.startClaims(t)
	require.Never(t, func() bool {
		v := s.volume(t, "claim-1") // nil once it is deleted below: a last look may be that late
		return v == nil || v.Labels[corev1beta1.RemoteClusterIDLabel] != "turin" || len(s.events.Events) > 0
	}, 300*time.Millisecond, 10*time.Millisecond)
	require.NoError(t, s.home.CoreV1().PersistentVolumes().Delete(t.Context(), "pvc-claim-1", metav1.DeleteOptions{}))
	eventually(t, func() bool {
		v := s.volume(t, "claim-1")
		return v != nil && v.Labels[corev1beta1.RemoteClusterIDLabel] == "milan"
	}, "the volume of the copy")
}

// TestCopyIsDiscarded: the provider's claim is deleted only while the claim at home is bound elsewhere.
func TestCopyIsDiscarded(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*corev1.PersistentVolumeClaim)
		volume func(*corev1.PersistentVolumeClaim) *corev1.PersistentVolume
		away   bool
		want   bool
	}{
		"bound elsewhere":       {volume: inTurin, want: true},
		"it is the data":        {volume: func(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolume { return volumeOf(c) }},
		"the volume is gone":    {},
		"the claim has lost it": {change: func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost }, volume: inTurin},
		"the volume is another's": {volume: func(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
			v := inTurin(c)
			v.Spec.ClaimRef.UID = "claim-0"
			return v
		}},
		"of another node":            {change: discards("genoa"), volume: inTurin},
		"the provider is not itself": {volume: inTurin, away: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := storageSite(t, fast)
			claim := claimAt("turin", bound, discards("milan"))
			if tc.change != nil {
				tc.change(claim)
			}
			s.add(s.home.Tracker(), claim)
			if tc.volume != nil {
				s.add(s.home.Tracker(), tc.volume(claim))
			}
			s.add(s.remote.Tracker(), remoteClaim(t, claim))
			if tc.away {
				s.gate = errAway
			}
			s.startClaims(t)
			if !tc.want {
				s.nothingWritten(t)
				return
			}
			eventually(t, func() bool {
				have, err := s.home.CoreV1().PersistentVolumeClaims("shop").Get(t.Context(), "data", metav1.GetOptions{})
				return err == nil && have.Annotations[offloadingv1beta1.DiscardCopyAnnotation] == ""
			}, "the annotation goes after the copy")
			require.Nil(t, s.claimThere(t))
			require.NotNil(t, s.volume(t, "claim-1"))
		})
	}
}

// TestMoveToANodeOfThisCluster follows the real claim from the copy to the volume. After each step, a
// restart writes nothing.
func TestMoveToANodeOfThisCluster(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		claim := claimAt("milan", bound, movesTo("worker"))
		s := newRealSite(t, claim, inTurin(claim))
		s.wrote("create persistentvolumeclaims liqo-storage/claim-1")
		require.Equal(t, "worker", s.claim("liqo-storage", "claim-1").Annotations[forge.SelectedNode])
		s.bindReal()
		s.wrote()
		s.set("shop", "data", func(c *corev1.PersistentVolumeClaim) { c.Annotations[forge.SelectedNode] = "worker" })
		kubetest.Settled(2*time.Second, s.core)
		require.Equal(t, "turin", s.volume().Labels[corev1beta1.RemoteClusterIDLabel])
		s.removeVolume()
		kubetest.Settled(2*time.Second, s.core)
		s.take()
		s.wrote()
		require.Equal(t, "claim-1", s.volume().Labels[offloadingv1beta1.LocalClaimUIDLabel])
	})
}

// removeVolume deletes the volume of the user's claim, as liqod storage move does.
func (s *realSite) removeVolume() {
	s.t.Helper()
	require.NoError(s.t, s.core.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("persistentvolumes"), "", "pvc-claim-1"))
}

// TestNoEmptyVolumeAfterAMove: a copy that somebody has deleted is not replaced by an empty volume.
func TestNoEmptyVolumeAfterAMove(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		newRealSite(t, claimAt("worker", bound, movesTo("worker"))).wrote()
	})
}

func TestRealCopyIsDiscarded(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		s := provisionedSite(t)
		s.set("shop", "data", discards(offloadingv1beta1.CopyHere))
		s.wrote() // its volume is here
		s.removeVolume()
		s.wrote()
		require.NoError(t, s.core.Tracker().Add(inTurin(claimAt("milan"))))
		s.set("shop", "data", func(c *corev1.PersistentVolumeClaim) { c.Annotations[forge.SelectedNode] = "milan" })
		s.wrote("delete persistentvolumeclaims liqo-storage/claim-1", "patch persistentvolumeclaims shop/data")
		require.NotContains(t, s.claim("shop", "data").Annotations, offloadingv1beta1.DiscardCopyAnnotation)
	})
}
