package kinds

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/reflect/forge"
)

func keptAlready(v *corev1.PersistentVolume) {
	v.Annotations[offloadingv1beta1.DataKeptAnnotation] = "namespace shop was deleted"
}

func retained(v *corev1.PersistentVolume) {
	v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
}

func ofAPod(v *corev1.PersistentVolume) {
	v.Annotations[offloadingv1beta1.EphemeralVolumeLabel] = "true"
}

func ofAnotherNamespace(v *corev1.PersistentVolume) {
	v.Annotations[offloadingv1beta1.NamespaceUIDAnnotation] = "ns-0"
}

// TestVolumeThatIsNotMadeYet: the PersistentVolume says that the provider has no volume, until it has one.
func TestVolumeThatIsNotMadeYet(t *testing.T) {
	pending := func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeName, c.Status = "", corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
	}
	marked := func(s *site) func() bool {
		return func() bool {
			v := s.volume(t, "claim-1")
			return v != nil && v.Annotations[offloadingv1beta1.NoVolumeAnnotation] == "true"
		}
	}
	for name, gone := range map[string]bool{"its claim is there": false, "its claim is gone": true} {
		t.Run(name, func(t *testing.T) {
			s := storageSite(t, fast)
			claim := claimAt("milan")
			s.add(s.remote.Tracker(), remoteClaim(t, claim, pending))
			s.add(s.home.Tracker(), claim)
			stop := s.startClaims(t)
			eventually(t, marked(s), "the volume comes with the mark")
			stop()
			if gone { // and Retain, while the vkubelet was away
				require.NoError(t, s.home.CoreV1().PersistentVolumeClaims("shop").Delete(t.Context(), "data", metav1.DeleteOptions{}))
				v := s.volume(t, "claim-1")
				retained(v)
				v.Status.Phase = corev1.VolumeReleased
				require.NoError(t, s.home.Tracker().Update(corev1.SchemeGroupVersion.WithResource("persistentvolumes"), v, ""))
			}
			require.NoError(t, s.remote.Tracker().Update(corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), remoteClaim(t, claim), "shop-rome"))
			s.startClaims(t)
			eventually(t, func() bool { return !marked(s)() }, "the mark goes")
			require.NotNil(t, s.volume(t, "claim-1"))
			require.NotNil(t, s.claimThere(t))
		})
	}
}

// TestDataIsDeletedOnlyByName requires that data is deleted only if the claim itself was
// deleted, its namespace still exists, and the reclaim policy is Delete.
func TestDataIsDeletedOnlyByName(t *testing.T) {
	const there, here, mark = "delete persistentvolumeclaims", "delete persistentvolumes", "patch persistentvolumes"
	for name, tc := range map[string]struct {
		volume   []func(*corev1.PersistentVolume)
		site     func(*testing.T, *site)
		unmapped bool
		want     []string // at home, then in the provider
	}{
		"the claim itself was deleted":     {want: []string{here, there}},
		"its class retains":                {volume: []func(*corev1.PersistentVolume){retained}},
		"it is kept already":               {volume: []func(*corev1.PersistentVolume){keptAlready}},
		"the namespace is another one now": {volume: []func(*corev1.PersistentVolume){ofAnotherNamespace}, want: []string{mark}},
		"the namespace is being deleted": {want: []string{mark}, site: func(t *testing.T, s *site) {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "ns-1", DeletionTimestamp: new(metav1.Now()), Finalizers: []string{"kubernetes"}}}
			require.NoError(t, s.home.Tracker().Update(corev1.SchemeGroupVersion.WithResource("namespaces"), ns, ""))
		}},
		"the namespace is gone": {want: []string{mark}, site: func(t *testing.T, s *site) {
			require.NoError(t, s.home.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("namespaces"), "", "shop"))
		}},
		"the namespace is gone, and no longer mapped": {want: []string{mark}, unmapped: true, site: func(t *testing.T, s *site) {
			require.NoError(t, s.home.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("namespaces"), "", "shop"))
		}},
		"the namespace of a pod with an ephemeral volume is gone": {volume: []func(*corev1.PersistentVolume){ofAPod}, want: []string{here, there}, site: func(t *testing.T, s *site) {
			require.NoError(t, s.home.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("namespaces"), "", "shop"))
		}},
		"the same, and it is no longer mapped": {volume: []func(*corev1.PersistentVolume){ofAPod}, want: []string{here}, unmapped: true, site: func(t *testing.T, s *site) {
			require.NoError(t, s.home.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("namespaces"), "", "shop"))
		}},
		"the namespace of a pod with an ephemeral volume is no longer mapped": {volume: []func(*corev1.PersistentVolume){ofAPod}, unmapped: true},
		"the namespace is no longer mapped":                                   {unmapped: true},
		"the volume is not released yet":                                      {volume: []func(*corev1.PersistentVolume){func(v *corev1.PersistentVolume) { v.Status.Phase = corev1.VolumeBound }}},
		"the provider has gone away":                                          {site: func(_ *testing.T, s *site) { s.gate = errAway }},
		"the data there is of a claim that is not known": {want: []string{here, "create persistentvolumes"}, site: func(t *testing.T, s *site) {
			c := s.claimThere(t)
			c.Labels[offloadingv1beta1.LocalClaimUIDLabel] = "claim-0"
			require.NoError(t, s.remote.Tracker().Update(corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), c, c.Namespace))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := storageSite(t, fast)
			claim := claimAt("milan", bound)
			s.add(s.home.Tracker(), volumeOf(claim, append([]func(*corev1.PersistentVolume){released}, tc.volume...)...))
			s.add(s.remote.Tracker(), remoteClaim(t, claim))
			if tc.site != nil {
				tc.site(t, s)
			}
			if tc.unmapped {
				s.editMap(t, func(m *offloadingv1beta1.NamespaceMap) { delete(m.Spec.DesiredMapping, "shop") })
			}
			s.startClaimsOf(t, !tc.unmapped)
			if len(tc.want) > 0 {
				eventually(t, func() bool { return slices.Equal(tc.want, s.claimWrites()) }, "what is to be written")
			}
			require.Never(t, func() bool { return !slices.Equal(tc.want, s.claimWrites()) }, 700*time.Millisecond, 10*time.Millisecond)
			require.Equal(t, !slices.Contains(tc.want, there), s.claimThere(t) != nil)
			if slices.Contains(tc.want, mark) {
				require.Contains(t, s.volume(t, "claim-1").Annotations[offloadingv1beta1.DataKeptAnnotation], "stays in cluster milan")
				require.Contains(t, <-s.events.Events, "RemoteVolumeKept")
			}
		})
	}
}

func TestSuccessorGetsItsOwnVolume(t *testing.T) {
	s := storageSite(t, fast)
	old := claimAt("milan", bound)
	s.add(s.home.Tracker(), volumeOf(old, released), claimAt("milan", func(c *corev1.PersistentVolumeClaim) { c.UID = "claim-2" }))
	s.add(s.remote.Tracker(), remoteClaim(t, old))
	s.startClaims(t)
	eventually(t, func() bool { return s.volume(t, "claim-2") != nil }, "the successor is provisioned")
	require.Nil(t, s.volume(t, "claim-1"))
	require.Equal(t, "claim-2", s.claimThere(t).Labels[offloadingv1beta1.LocalClaimUIDLabel])
}

// TestKeptDataIsNotHandedOver: a claim gets the data of an earlier one of its name if it asks for that, and if its
// namespace had the data, or who may write PersistentVolumes says so.
func TestKeptDataIsNotHandedOver(t *testing.T) {
	for name, tc := range map[string]struct {
		asks bool
		had  string // the namespace that had the data
		gets bool
	}{
		"unasked":                           {had: "ns-1"},
		"asked for":                         {asks: true, had: "ns-1", gets: true},
		"asked for by the next namespace":   {asks: true, had: "ns-0"},
		"asked for, and nobody knows whose": {asks: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := storageSite(t, fast)
			old := claimAt("milan", bound)
			s.add(s.home.Tracker(), volumeOf(old, released, keptAlready, func(v *corev1.PersistentVolume) {
				v.Annotations[offloadingv1beta1.NamespaceUIDAnnotation] = tc.had
			}), claimAt("milan", func(c *corev1.PersistentVolumeClaim) {
				c.UID = "claim-2"
				if tc.asks {
					c.Annotations[offloadingv1beta1.AdoptRemoteVolumeAnnotation] = "true"
				}
			}))
			s.add(s.remote.Tracker(), remoteClaim(t, old))
			s.startClaims(t)
			if !tc.gets {
				eventually(t, func() bool { return len(s.events.Events) > 0 }, "it is told")
				told := <-s.events.Events
				require.Contains(t, told, "RemoteVolumeTaken")
				require.Contains(t, told, "also needs the annotation offloading.liqo.io/namespace-uid of PersistentVolume pvc-claim-1, with the UID of this namespace")
				s.nothingWritten(t)
			}
			if !tc.asks {
				return
			}
			s.marks(t, "pvc-claim-1")
			eventually(t, func() bool { return s.volume(t, "claim-2") != nil }, "the volume comes")
			require.Equal(t, "claim-2", s.claimThere(t).Labels[offloadingv1beta1.LocalClaimUIDLabel])
			require.EqualValues(t, "remote-claim-1", s.claimThere(t).UID, "it is the same claim there")
		})
	}
}

// TestRestoredClaimTakesNothingOver restores a claim and its volume from a backup, while
// the provider has the data of a newer claim of the same name.
func TestRestoredClaimTakesNothingOver(t *testing.T) {
	for name, tc := range map[string]struct {
		label  string // of the provider's claim
		adopts bool
	}{
		"unasked":                 {label: "claim-2"},
		"asked for":               {label: "claim-2", adopts: true},
		"the label was taken off": {},
	} {
		t.Run(name, func(t *testing.T) {
			s := storageSite(t, fast)
			claim := claimAt("milan", bound)
			if tc.adopts {
				claim.Annotations[offloadingv1beta1.AdoptRemoteVolumeAnnotation] = "true"
			}
			s.add(s.home.Tracker(), claim, volumeOf(claim))
			s.add(s.remote.Tracker(), remoteClaim(t, claim, func(c *corev1.PersistentVolumeClaim) {
				delete(c.Labels, offloadingv1beta1.LocalClaimUIDLabel)
				if tc.label != "" {
					c.Labels[offloadingv1beta1.LocalClaimUIDLabel] = tc.label
				}
			}))
			s.startClaims(t)
			if tc.label != "" {
				eventually(t, func() bool { return len(s.events.Events) > 1 }, "it is told")
				require.Contains(t, <-s.events.Events, "RemoteVolumeKept")
				require.Contains(t, <-s.events.Events, "RemoteVolumeTaken")
				require.NotContains(t, s.volume(t, "claim-2").Annotations, offloadingv1beta1.NamespaceUIDAnnotation, "nobody knows which namespace had it")
				require.Empty(t, writes(s.remote.Actions()))
				s.marks(t, "pvc-claim-2")
			}
			if tc.label != "" && !tc.adopts {
				require.Never(t, func() bool { return len(writes(s.remote.Actions())) > 0 }, 300*time.Millisecond, 10*time.Millisecond)
				return
			}
			eventually(t, func() bool { return s.claimThere(t).Labels[offloadingv1beta1.LocalClaimUIDLabel] == "claim-1" }, "it is the claim's")
		})
	}
}

// marks says that the namespace shop may have the data of a volume.
func (s *site) marks(t *testing.T, volume string) {
	t.Helper()
	kubetest.Patch(t, s.home.CoreV1().PersistentVolumes(), volume, types.MergePatchType, []byte(`{"metadata":{"annotations":{"offloading.liqo.io/namespace-uid":"ns-1"}}}`))
}

func TestExpansion(t *testing.T) {
	s := storageSite(t, fast)
	claim := claimAt("milan", bound)
	s.add(s.remote.Tracker(), remoteClaim(t, claim))
	claim.Spec.Resources.Requests = capacityOf("2Gi")
	s.add(s.home.Tracker(), claim, volumeOf(claimAt("milan", bound)))
	s.startClaims(t)
	two := capacityOf("2Gi")
	eventually(t, func() bool { return s.claimThere(t).Spec.Resources.Requests.Storage().Equal(*two.Storage()) }, "it is asked for there")
	require.Equal(t, []string{"patch persistentvolumeclaims"}, s.claimWrites())
	grown := s.claimThere(t)
	grown.Status.Capacity = two
	kubetest.UpdateStatus(t, s.remote.CoreV1().PersistentVolumeClaims("shop-rome"), grown)
	eventually(t, func() bool {
		c, err := s.home.CoreV1().PersistentVolumeClaims("shop").Get(t.Context(), "data", metav1.GetOptions{})
		return err == nil && c.Status.Capacity.Storage().Equal(*two.Storage()) && s.volume(t, "claim-1").Spec.Capacity.Storage().Equal(*two.Storage())
	}, "the size shows here")

	grown = s.claimThere(t)
	grown.Status.Capacity = capacityOf("3Gi")
	kubetest.UpdateStatus(t, s.remote.CoreV1().PersistentVolumeClaims("shop-rome"), grown)
	require.Never(t, func() bool { return !s.volume(t, "claim-1").Spec.Capacity.Storage().Equal(*two.Storage()) },
		time.Second, 10*time.Millisecond, "the provider's own growth costs nothing here")
}

func TestUnusedClaimIsTidiedAway(t *testing.T) {
	unused := func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeName, c.Status = "", corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
	}
	for name, tc := range map[string]struct {
		local func(*corev1.PersistentVolumeClaim) // nil: the claim is gone
		there func(*corev1.PersistentVolumeClaim)
		goes  bool
	}{
		"its claim is gone": {there: unused, goes: true},
		"it has data, and moves elsewhere": {there: func(*corev1.PersistentVolumeClaim) {},
			local: func(c *corev1.PersistentVolumeClaim) { c.Annotations[forge.SelectedNode] = "worker-1" }},
		"its claim went elsewhere": {there: unused, goes: true,
			local: func(c *corev1.PersistentVolumeClaim) { c.Annotations[forge.SelectedNode] = "worker-1" }},
		"its claim waits for the scheduler": {there: unused,
			local: func(c *corev1.PersistentVolumeClaim) { delete(c.Annotations, forge.SelectedNode) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := storageSite(t, fast)
			if tc.local != nil {
				s.add(s.home.Tracker(), claimAt("milan", tc.local))
			}
			s.add(s.remote.Tracker(), remoteClaim(t, claimAt("milan"), tc.there))
			s.startClaims(t)
			if tc.goes {
				eventually(t, func() bool { return s.claimThere(t) == nil }, "it goes")
				return
			}
			s.nothingWritten(t)
		})
	}
}

// TestForgottenDataIsRemembered covers data in the provider whose claim and volume this cluster does not
// have, as after a restored backup: a volume that is never reclaimed shows it, once.
func TestForgottenDataIsRemembered(t *testing.T) {
	newer := claimAt("worker-1", func(c *corev1.PersistentVolumeClaim) { c.UID = "claim-2" })
	for name, tc := range map[string]struct {
		home  []runtime.Object
		there func(*corev1.PersistentVolumeClaim)
		many  int // volumes that are kept already
		want  bool
	}{
		"no claim has the name":      {want: true},
		"another claim has the name": {home: []runtime.Object{newer}, want: true},
		"its volume is there, with another label": {home: []runtime.Object{volumeOf(claimAt("milan"), released, retained, func(v *corev1.PersistentVolume) {
			v.Labels = nil
		})}},
		"a claim of another name has the UID, and its data moves": {home: []runtime.Object{claimAt("turin", bound, func(c *corev1.PersistentVolumeClaim) {
			c.Name, c.Annotations[offloadingv1beta1.MoveToAnnotation] = "other", "turin"
		})}},
		"its volume is kept": {home: []runtime.Object{volumeOf(claimAt("milan"), released, keptAlready)}},
		"it is being deleted": {there: func(c *corev1.PersistentVolumeClaim) {
			c.DeletionTimestamp, c.Finalizers = new(metav1.Now()), []string{"x"}
		}},
		"it names no claim":            {there: func(c *corev1.PersistentVolumeClaim) { delete(c.Labels, offloadingv1beta1.LocalClaimUIDLabel) }},
		"it names what is no UID":      {there: func(c *corev1.PersistentVolumeClaim) { c.Labels[offloadingv1beta1.LocalClaimUIDLabel] = "A_B" }},
		"its name is a command":        {there: func(c *corev1.PersistentVolumeClaim) { c.Name = "data; reboot" }},
		"the provider has named many":  {many: maxRemembered},
		"and one less is not too many": {many: maxRemembered - 1, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := storageSite(t, fast)
			s.add(s.home.Tracker(), tc.home...)
			for i := range tc.many {
				s.add(s.home.Tracker(), volumeOf(claimAt("milan", func(c *corev1.PersistentVolumeClaim) {
					c.UID, c.Name = types.UID(fmt.Sprint("many-", i)), fmt.Sprint("many-", i)
				}), released, keptAlready))
			}
			if tc.there == nil {
				tc.there = func(*corev1.PersistentVolumeClaim) {}
			}
			s.add(s.remote.Tracker(), remoteClaim(t, claimAt("milan"), tc.there))
			s.startClaims(t)
			if !tc.want {
				require.Never(t, func() bool { return len(s.events.Events) > 0 }, 300*time.Millisecond, 10*time.Millisecond)
				left := kubetest.List(t, s.remote.CoreV1().PersistentVolumeClaims("shop-rome"))
				require.Len(t, left.Items, 1)
				return
			}
			eventually(t, func() bool { return s.volume(t, "claim-1") != nil }, "the data shows here")
			v := s.volume(t, "claim-1")
			require.Equal(t, "shop/data claim-1", v.Spec.ClaimRef.Namespace+"/"+v.Spec.ClaimRef.Name+" "+string(v.Spec.ClaimRef.UID))
			require.Equal(t, corev1.PersistentVolumeReclaimRetain, v.Spec.PersistentVolumeReclaimPolicy)
			require.False(t, deletable(v))
			require.Contains(t, v.Annotations[offloadingv1beta1.DataKeptAnnotation], "PersistentVolumeClaim data is not known here")
			require.Contains(t, <-s.events.Events, "RemoteVolumeKept")
			require.Never(t, func() bool { return len(s.events.Events) > 0 || len(writes(s.remote.Actions())) > 0 }, 300*time.Millisecond, 10*time.Millisecond)
		})
	}
}
