package kinds

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/reflect/engine"
	"github.com/liqod/liqod/reflect/forge"
)

// storageSite returns a site whose namespace shop is offloaded to a virtual node that
// offers the given classes.
func storageSite(t *testing.T, classes ...offloadingv1beta1.ClassOffer) *site {
	t.Helper()
	s := shopSite()
	// By resource versions a store knows its own patch, which a watch shows later.
	for _, c := range []*fake.Clientset{s.home, s.remote} {
		server := kubetest.NewServer(c.Tracker(), clock.RealClock{})
		c.PrependReactor("patch", "persistentvolumes", server.React)
		c.PrependReactor("patch", "persistentvolumeclaims", server.React)
	}
	vn := &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "milan"}}
	vn.Spec.StorageClasses = classes
	require.NoError(t, s.homeLiqod.Tracker().Update(offloadingv1beta1.SchemeGroupVersion.WithResource("virtualnodes"), vn, tenant))
	s.add(s.home.Tracker(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "ns-1"}},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "liqo"}, ReclaimPolicy: ptr.To(corev1.PersistentVolumeReclaimDelete)})
	return s
}

var fast = offloadingv1beta1.ClassOffer{StorageClassName: "fast"}

var errAway = errors.New("away")

func (s *site) startClaims(t *testing.T) (stop func()) {
	t.Helper()
	return s.startClaimsOf(t, true)
}

// startClaimsOf starts a Claims. mapped reports whether the namespace shop is mapped.
func (s *site) startClaimsOf(t *testing.T, mapped bool) (stop func()) {
	t.Helper()
	s.home.ClearActions()
	s.remote.ClearActions()
	// Of what changes between a list and the watch that follows it, the fakes tell nothing.
	var watched atomic.Bool
	watched.Store(!mapped)
	gate := func() error {
		if !watched.Load() {
			return errAway
		}
		return s.gate
	}
	claims, start := s.newClaims(t, gate)
	s.claims = claims
	ctx, cancel := context.WithCancel(t.Context())
	for _, f := range start {
		f.Start(ctx.Done())
	}
	eventually(t, func() bool {
		return claims.cfg.Volumes.Informer().HasSynced()
	}, "what every namespace needs is known")
	ended := kubetest.Run(t, claims.Run)
	stop = func() { cancel(); ended() }
	eventually(t, func() bool {
		tw := claims.twins.Get("shop")
		return !mapped || (tw != nil && tw.synced() && watches(s.home) && watches(s.remote))
	}, "the claims are known")
	if !watched.Swap(true) {
		claims.Resync()
	}
	return stop
}

// newClaims returns a Claims that is not running, and the factories of its informers.
func (s *site) newClaims(t *testing.T, gate func() error) (*Claims, []interface{ Start(<-chan struct{}) }) {
	t.Helper()
	core := informers.NewSharedInformerFactoryWithOptions(s.home, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.LabelSelector = corev1beta1.RemoteClusterIDLabel + "=milan"
	}))
	own := externalversions.NewSharedInformerFactory(s.homeLiqod, 0)
	namespaces, err := engine.NewFollower(own.Offloading().V1beta1().NamespaceMaps(), tenant, "milan")
	require.NoError(t, err)
	claims := NewClaims(ClaimsConfig{
		OfNode: ofNode(namespaces, own, s.events, gate, func(context.Context) error { return s.gate }),
		Home:   s.home, Remote: s.remote, Volumes: core.Core().V1().PersistentVolumes(), Workers: 2,
	})
	return claims, []interface{ Start(<-chan struct{}) }{core, own}
}

// watches reports whether a watch for claims was opened.
func watches(client *fake.Clientset) bool {
	return slices.ContainsFunc(client.Actions(), func(a clienttesting.Action) bool { return a.Matches("watch", "persistentvolumeclaims") })
}

func capacityOf(size string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
}

// claimAt returns a claim of the class liqo that was scheduled to a node.
func claimAt(node string, change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "claim-1", Annotations: map[string]string{
			storageProvisionerAnnotation: offloadingv1beta1.StorageProvisioner, forge.SelectedNode: node,
		}},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: ptr.To("liqo"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: capacityOf("1Gi")},
		},
	}
	for _, f := range change {
		f(c)
	}
	return c
}

// device makes the claim one of a block device.
func device(c *corev1.PersistentVolumeClaim) {
	c.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
}

// bound changes the claim as the volume controller does when it binds the claim.
func bound(c *corev1.PersistentVolumeClaim) {
	c.Spec.VolumeName = forge.VolumeName(c)
	c.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: capacityOf("1Gi")}
}

func volumeOf(claim *corev1.PersistentVolumeClaim, change ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	v := forge.PersistentVolume(claim, nil, "milan")
	v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	v.UID = "volume-" + claim.UID
	v.Annotations[offloadingv1beta1.NamespaceUIDAnnotation] = "ns-1"
	v.Status.Phase = corev1.VolumeBound
	for _, f := range change {
		f(v)
	}
	return v
}

func released(v *corev1.PersistentVolume) { v.Status.Phase = corev1.VolumeReleased }

// remoteClaim returns the claim in the provider for a local claim.
func remoteClaim(t *testing.T, claim *corev1.PersistentVolumeClaim, change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	t.Helper()
	c, err := forge.PersistentVolumeClaim(claim, forge.ObjectOptions{OriginClusterID: "rome", DestinationClusterID: "milan", RemoteNamespace: "shop-rome"},
		[]forge.Class{{Name: "fast", Default: true}})
	require.NoError(t, err)
	c.UID, c.Spec.VolumeName = "remote-"+claim.UID, "pv-there"
	c.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: capacityOf("1Gi")}
	for _, f := range change {
		f(c)
	}
	return c
}

func (s *site) claimThere(t *testing.T) *corev1.PersistentVolumeClaim {
	t.Helper()
	return kubetest.Find(t, s.remote.CoreV1().PersistentVolumeClaims("shop-rome"), "data")
}

func (s *site) volume(t *testing.T, claim types.UID) *corev1.PersistentVolume {
	t.Helper()
	return kubetest.Find(t, s.home.CoreV1().PersistentVolumes(), "pvc-"+string(claim))
}

func (s *site) claimWrites() []string {
	return slices.Concat(writes(s.home.Actions()), writes(s.remote.Actions()))
}

// tries is claimWrites without repetitions. A start may enqueue a claim more than once, and each time a create is
// tried again that is refused.
func (s *site) tries() []string { return slices.Compact(s.claimWrites()) }

func (s *site) nothingWritten(t *testing.T) {
	t.Helper()
	require.Never(t, func() bool { return len(s.claimWrites()) > 0 }, 300*time.Millisecond, 10*time.Millisecond)
}

func TestVolumeIsProvisioned(t *testing.T) {
	for name, tc := range map[string]struct {
		offered []offloadingv1beta1.ClassOffer
		class   *string
		local   func(*corev1.PersistentVolumeClaim)
	}{
		"the only class":             {offered: []offloadingv1beta1.ClassOffer{fast}, class: ptr.To("fast")},
		"the provider's own default": {offered: []offloadingv1beta1.ClassOffer{{}}},
		"a block device":             {offered: []offloadingv1beta1.ClassOffer{fast}, class: ptr.To("fast"), local: device},
	} {
		t.Run(name, func(t *testing.T) {
			s := storageSite(t, tc.offered...)
			claim := claimAt("milan")
			if tc.local != nil {
				tc.local(claim)
			}
			s.add(s.home.Tracker(), claim)
			s.startClaims(t)
			eventually(t, func() bool { return s.volume(t, "claim-1") != nil }, "the volume comes")
			there := s.claimThere(t)
			require.Equal(t, tc.class, there.Spec.StorageClassName)
			require.Equal(t, claim.Spec.VolumeMode, there.Spec.VolumeMode)
			require.Equal(t, claim.Spec.VolumeMode, s.volume(t, "claim-1").Spec.VolumeMode)
			require.Equal(t, "claim-1", there.Labels[offloadingv1beta1.LocalClaimUIDLabel])
			require.NotContains(t, there.Annotations, forge.SelectedNode)
			v := s.volume(t, "claim-1")
			require.Equal(t, corev1.PersistentVolumeReclaimDelete, v.Spec.PersistentVolumeReclaimPolicy)
			require.Equal(t, "ns-1", v.Annotations[offloadingv1beta1.NamespaceUIDAnnotation])
			require.Contains(t, <-s.events.Events, "ProvisioningSucceeded")
			require.Equal(t, []string{"create persistentvolumes", "create persistentvolumeclaims"}, s.claimWrites())
		})
	}
}

func TestRestartAtEachStepWritesNothingTwice(t *testing.T) {
	for name, tc := range map[string]struct {
		there, volume, bound bool
		want                 []string
	}{
		"nothing done":       {false, false, false, []string{"create persistentvolumes", "create persistentvolumeclaims"}},
		"claim there":        {true, false, false, []string{"create persistentvolumes"}},
		"and volume here":    {true, true, false, nil},
		"and bound together": {true, true, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := storageSite(t, fast)
			claim := claimAt("milan")
			if tc.there {
				s.add(s.remote.Tracker(), remoteClaim(t, claim))
			}
			if tc.volume {
				s.add(s.home.Tracker(), volumeOf(claim))
			}
			if tc.bound {
				bound(claim)
			}
			s.add(s.home.Tracker(), claim)
			stop := s.startClaims(t)
			eventually(t, func() bool { return s.volume(t, "claim-1") != nil }, "the volume is there")
			require.Never(t, func() bool { return !slices.Equal(tc.want, s.claimWrites()) }, 300*time.Millisecond, 10*time.Millisecond)
			stop()
			s.startClaims(t)
			s.nothingWritten(t)
		})
	}
}

// TestClaimsThatAreKnownFirstAreProvisioned has the cache of claims sync before that of
// volumes.
func TestClaimsThatAreKnownFirstAreProvisioned(t *testing.T) {
	s := storageSite(t, fast)
	s.add(s.home.Tracker(), claimAt("milan"))
	claims, start := s.newClaims(t, func() error { return nil })
	start[1].Start(t.Context().Done())
	kubetest.Run(t, claims.Run)
	eventually(t, func() bool {
		tw := claims.twins.Get("shop")
		return tw != nil && tw.synced()
	}, "the claims are known")
	require.Never(t, func() bool { return s.claimThere(t) != nil }, 300*time.Millisecond, 10*time.Millisecond)
	start[0].Start(t.Context().Done())
	eventually(t, func() bool { return s.claimThere(t) != nil }, "the claim is in the provider")
}

// TestSkipListsOfClaimsAreLive requires that changes of the skipped keys apply to
// existing claims.
func TestSkipListsOfClaimsAreLive(t *testing.T) {
	s := storageSite(t, fast)
	s.add(s.home.Tracker(), claimAt("milan", func(c *corev1.PersistentVolumeClaim) { c.Labels = map[string]string{"private": "1"} }))
	s.startClaims(t)
	eventually(t, func() bool { return s.volume(t, "claim-1") != nil }, "the volume comes")
	require.Contains(t, s.claimThere(t).Labels, "private")
	s.home.ClearActions()
	s.remote.ClearActions()
	s.nothingWritten(t)
	vns := s.homeLiqod.OffloadingV1beta1().VirtualNodes(tenant)
	vn := kubetest.Get(t, vns, "milan")
	vn.Status.NotReflected = &offloadingv1beta1.NotReflected{Labels: []string{"private"}}
	kubetest.UpdateStatus(t, vns, vn)
	eventually(t, func() bool { return s.claimThere(t).Labels["private"] == "" }, "the label stays here")
}

func TestClaimsOfOthersAreLeft(t *testing.T) {
	for name, change := range map[string]func(*corev1.PersistentVolumeClaim){
		"another node": func(c *corev1.PersistentVolumeClaim) { c.Annotations[forge.SelectedNode] = "worker-1" },
		"no node yet":  func(c *corev1.PersistentVolumeClaim) { delete(c.Annotations, forge.SelectedNode) },
		"another provisioner": func(c *corev1.PersistentVolumeClaim) {
			c.Annotations[storageProvisionerAnnotation] = "example.com/disk"
		},
		"another volume": func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "mine" },
		"being deleted": func(c *corev1.PersistentVolumeClaim) {
			c.DeletionTimestamp, c.Finalizers = ptr.To(metav1.Now()), []string{"kubernetes.io/pvc-protection"}
		},
		"reflected to us": func(c *corev1.PersistentVolumeClaim) {
			c.Labels = map[string]string{offloadingv1beta1.OriginLabel: "paris"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := storageSite(t, fast)
			s.add(s.home.Tracker(), claimAt("milan", change))
			s.startClaims(t)
			s.nothingWritten(t)
		})
	}
}

func TestProviderAway(t *testing.T) {
	s := storageSite(t, fast)
	s.gate = errAway
	s.add(s.home.Tracker(), claimAt("milan"), volumeOf(claimAt("milan", func(c *corev1.PersistentVolumeClaim) { c.Name, c.UID = "old", "claim-0" }), released))
	s.startClaims(t)
	s.nothingWritten(t)
}

// TestClaimsThatGetNothing: a claim that cannot have its volume says why, and nothing of others is written over.
func TestClaimsThatGetNothing(t *testing.T) {
	const unmade = "was not made by liqod for this claim"
	for name, tc := range map[string]struct {
		claim  []func(*corev1.PersistentVolumeClaim)
		volume func(*corev1.PersistentVolume) // nil: there is none
		there  bool                           // the provider has the claim
		told   string
		tries  []string
	}{
		"the scheduler has misplaced it": {
			claim: []func(*corev1.PersistentVolumeClaim){func(c *corev1.PersistentVolumeClaim) {
				c.Annotations[storageProvisionerAnnotation] = "example.com/disk"
			}}, told: "ProvisioningFailed provisioner example.com/disk makes no volumes on virtual node milan",
		},
		// An empty volume does not replace it.
		"its data is lost": {claim: []func(*corev1.PersistentVolumeClaim){bound}, volume: func(*corev1.PersistentVolume) {}, told: "RemoteVolumeLost"},
		// The watch selects by the label, which a vkubelet has no right to write.
		"the label of its volume was taken off": {claim: []func(*corev1.PersistentVolumeClaim){bound}, there: true,
			volume: func(v *corev1.PersistentVolume) { delete(v.Labels, corev1beta1.RemoteClusterIDLabel) },
			told:   "lacks the label liqo.io/remote-cluster-id=milan", tries: []string{"create persistentvolumes"}},
		"its volume is of another provider": {claim: []func(*corev1.PersistentVolumeClaim){bound}, there: true,
			volume: func(v *corev1.PersistentVolume) { v.Labels[corev1beta1.RemoteClusterIDLabel] = "paris" },
			told:   unmade, tries: []string{"create persistentvolumes"}},
		"its volume is not of liqod": {claim: []func(*corev1.PersistentVolumeClaim){bound}, there: true,
			volume: func(v *corev1.PersistentVolume) { v.Annotations, v.Labels = nil, nil },
			told:   unmade, tries: []string{"create persistentvolumes"}},
		"its volume is another claim's": {claim: []func(*corev1.PersistentVolumeClaim){bound}, there: true,
			volume: func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID, v.Labels = "claim-0", nil },
			told:   unmade, tries: []string{"create persistentvolumes"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := storageSite(t, fast)
			claim := claimAt("milan", tc.claim...)
			s.add(s.home.Tracker(), claim)
			if tc.volume != nil {
				s.add(s.home.Tracker(), volumeOf(claim, tc.volume))
			}
			if tc.there {
				s.add(s.remote.Tracker(), remoteClaim(t, claim))
			}
			s.startClaims(t)
			s.requireEvent(t, tc.told)
			require.Never(t, func() bool { return len(s.claimWrites()) > 2 || len(s.events.Events) > 0 }, 1500*time.Millisecond, 10*time.Millisecond)
			require.Equal(t, tc.tries, s.tries())
		})
	}
}

func TestForeignClaimIsNotTouched(t *testing.T) {
	s := storageSite(t, fast)
	s.add(s.home.Tracker(), claimAt("milan"))
	s.add(s.remote.Tracker(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-rome", Name: "data", UID: "theirs"}})
	s.startClaims(t)
	s.requireEvent(t, "was not made by liqod for this cluster")
	require.Equal(t, []string{"create persistentvolumeclaims"}, s.tries(), "attempts alone")
	require.EqualValues(t, "theirs", s.claimThere(t).UID)
}

func TestNoStorageIsOffered(t *testing.T) {
	s := storageSite(t)
	s.home.PrependReactor("patch", "persistentvolumeclaims", s.patchAtHome)
	s.add(s.home.Tracker(), claimAt("milan", func(c *corev1.PersistentVolumeClaim) { c.ResourceVersion = "1" }))
	s.startClaims(t)
	s.requireEvent(t, "ReschedulingRequired")
	claim := kubetest.Get(t, s.home.CoreV1().PersistentVolumeClaims("shop"), "data")
	require.NotContains(t, claim.Annotations, forge.SelectedNode)
	require.Equal(t, []string{"patch persistentvolumeclaims"}, s.claimWrites())
}

// A virtual node of an offer follows the offer: people edit the settings of the provider, not the
// VirtualNode.
func TestNoStorageInAnOffer(t *testing.T) {
	vn := &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Name: "milan"}, Spec: offloadingv1beta1.VirtualNodeSpec{ClusterID: "milan"}}
	require.Contains(t, notOffered(vn, "milan"), "VirtualNode milan offers no storage: list the provider's classes in spec.storageClasses")
	vn.Labels = map[string]string{offloadingv1beta1.ManagedByLabel: sharingv1alpha1.ManagedByOffer}
	require.Contains(t, notOffered(vn, "milan"), "cluster milan offers no storage class")
	require.NotContains(t, notOffered(vn, "milan"), "spec.storageClasses")
	vn.Spec.StorageClasses = []offloadingv1beta1.ClassOffer{{StorageClassName: "fast"}}
	require.Empty(t, notOffered(vn, "milan"))
	require.Equal(t, "virtual node milan is being removed", notOffered(nil, "milan"))
}

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
