package kinds

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/reflect/engine"
	"github.com/liqod/liqod/reflect/forge"
)

// realSite is a cluster with the nodes worker, another and milan, a virtual one, in a
// kubetest.Bubble. Its methods do what the scheduler, the volume controller and a provisioner do.
type realSite struct {
	t      *testing.T
	core   *fake.Clientset
	server *kubetest.Server
	events *record.FakeRecorder
	class  func() (string, string)
	stop   func()
}

func newRealSite(t *testing.T, objects ...runtime.Object) *realSite {
	t.Helper()
	node := func(name string, labels map[string]string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	}
	objects = append(objects,
		node("worker", nil), node("another", nil), node("milan", map[string]string{offloadingv1beta1.TypeLabel: offloadingv1beta1.TypeVirtualNode}),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "ns-1"}},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "liqo"}, Provisioner: offloadingv1beta1.StorageProvisioner, ReclaimPolicy: ptr.To(corev1.PersistentVolumeReclaimDelete)})
	for _, o := range objects {
		o.(metav1.Object).SetResourceVersion("1")
	}
	s := &realSite{t: t, events: record.NewFakeRecorder(100), class: func() (string, string) { return "local-path", "" }, core: fake.NewClientset(objects...)}
	s.server = kubetest.NewServer(s.core.Tracker(), clock.RealClock{})
	s.core.PrependReactor("*", "*", s.server.React)
	kubetest.WatchFromList(s.core)
	s.start()
	return s
}

// add adds a claim with its UID, which a create would replace.
func (s *realSite) add(claim *corev1.PersistentVolumeClaim) {
	s.t.Helper()
	claim.ResourceVersion = "1"
	require.NoError(s.t, s.core.Tracker().Add(claim))
}

func (s *realSite) start() {
	s.t.Helper()
	factory := informers.NewSharedInformerFactory(s.core, 0)
	volumes := informers.NewSharedInformerFactoryWithOptions(s.core, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = offloadingv1beta1.LocalClaimUIDLabel }))
	claims := NewRealClaims(RealClaimsConfig{
		Kube: s.core, Claims: factory.Core().V1().PersistentVolumeClaims(), Volumes: volumes.Core().V1().PersistentVolumes(), Nodes: factory.Core().V1().Nodes(),
		Namespace: "liqo-storage", Class: func() (string, string) { return s.class() }, Classes: factory.Storage().V1().StorageClasses(),
		Recorder: s.events, Env: loop.Env{Clock: clock.RealClock{}, Log: zaptest.NewLogger(s.t)},
	})
	s.stop = kubetest.Run(s.t, func(ctx context.Context) error {
		factory.Start(ctx.Done())
		defer factory.Shutdown()
		volumes.Start(ctx.Done())
		defer volumes.Shutdown()
		return claims.Run(ctx, 2)
	})
}

// wrote requires the writes of the provisioner until nothing happens any more, and that they are
// all: after a restart it writes nothing.
func (s *realSite) wrote(want ...string) {
	s.t.Helper()
	kubetest.Settled(2*time.Second, s.core)
	require.Equal(s.t, want, s.take())
	s.stop()
	s.start()
	kubetest.Settled(2*time.Second, s.core)
	require.Empty(s.t, s.take(), "after a restart")
}

// take returns the writes of the provisioner: the others are updates, or of objects that it does
// not write.
func (s *realSite) take() []string {
	var out []string
	for _, w := range kubetest.TakeWrites(s.core) {
		words := strings.Fields(w)
		if words[0] != "update" && !slices.Contains([]string{"create persistentvolumes pv-real", "create persistentvolumeclaims shop/data", "delete persistentvolumeclaims shop/data", "delete namespaces shop"}, w) {
			out = append(out, strings.Join(words[:3], " "))
		}
	}
	return out
}

func (s *realSite) claim(namespace, name string) *corev1.PersistentVolumeClaim {
	s.t.Helper()
	return kubetest.Find(s.t, s.core.CoreV1().PersistentVolumeClaims(namespace), name)
}

func (s *realSite) volume() *corev1.PersistentVolume {
	s.t.Helper()
	return kubetest.Get(s.t, s.core.CoreV1().PersistentVolumes(), "pvc-claim-1")
}

// set changes a claim and then its status.
func (s *realSite) set(namespace, name string, change func(*corev1.PersistentVolumeClaim)) {
	s.t.Helper()
	claims := s.core.CoreV1().PersistentVolumeClaims(namespace)
	claim := s.claim(namespace, name)
	change(claim)
	changed := kubetest.Update(s.t, claims, claim)
	if equality.Semantic.DeepEqual(changed.Status, claim.Status) {
		return // the provisioner may have written the claim by now
	}
	changed.Status = claim.Status
	kubetest.UpdateStatus(s.t, claims, changed)
}

// bindReal makes the volume of the real claim.
func (s *realSite) bindReal() {
	s.t.Helper()
	volume := realVolume()
	volume.Spec.VolumeMode = s.claim("liqo-storage", "claim-1").Spec.VolumeMode
	kubetest.Create(s.t, s.core.CoreV1().PersistentVolumes(), volume)
	s.set("liqo-storage", "claim-1", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeName = "pv-real"
		c.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: capacityOf("1Gi")}
	})
}

func realVolume() *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-real", Labels: map[string]string{"topology.kubernetes.io/zone": "a"}, Annotations: map[string]string{forge.ProvisionedBy: "rancher.io/local-path"}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: capacityOf("1Gi"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: "local-path",
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/volumes/1"}},
		},
	}
}

// bindLocal binds the user's claim to its volume.
func (s *realSite) bindLocal() {
	s.t.Helper()
	s.set("shop", "data", bound)
	s.phase(corev1.VolumeBound)
}

func (s *realSite) phase(phase corev1.PersistentVolumePhase) {
	s.t.Helper()
	v := s.volume()
	v.Status.Phase = phase
	kubetest.UpdateStatus(s.t, s.core.CoreV1().PersistentVolumes(), v)
}

// deleteLocal deletes the user's claim, and releases its volume.
func (s *realSite) deleteLocal() {
	s.t.Helper()
	require.NoError(s.t, s.core.CoreV1().PersistentVolumeClaims("shop").Delete(s.t.Context(), "data", metav1.DeleteOptions{}))
	s.phase(corev1.VolumeReleased)
}

// provisionedSite returns a site whose claim is bound to the volume of the real claim.
func provisionedSite(t *testing.T, objects ...runtime.Object) *realSite {
	t.Helper()
	s := newRealSite(t, append(objects, claimAt("worker"))...)
	s.wrote("create persistentvolumeclaims liqo-storage/claim-1")
	s.bindReal()
	s.wrote("create persistentvolumes pvc-claim-1")
	s.bindLocal()
	s.wrote()
	return s
}

// TestRealClaims follows a claim from the scheduler's choice to its deletion. After each step, a
// restart writes nothing.
func TestRealClaims(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		s := provisionedSite(t)
		real := s.claim("liqo-storage", "claim-1")
		require.Equal(t, "local-path", *real.Spec.StorageClassName)
		require.Equal(t, "worker", real.Annotations[forge.SelectedNode])
		require.Equal(t, "shop/data", real.Annotations[offloadingv1beta1.LocalClaimAnnotation])
		volume := s.volume()
		require.Equal(t, corev1.PersistentVolumeReclaimDelete, volume.Spec.PersistentVolumeReclaimPolicy)
		require.Equal(t, "ns-1", volume.Annotations[offloadingv1beta1.NamespaceUIDAnnotation])
		require.Equal(t, "/volumes/1", volume.Spec.Local.Path)
		require.Contains(t, <-s.events.Events, "in this cluster, in PersistentVolumeClaim liqo-storage/claim-1")
		s.deleteLocal()
		s.wrote("delete persistentvolumeclaims liqo-storage/claim-1", "delete persistentvolumes pvc-claim-1")
	})
}

// TestRealClaimsBlock: the claim of a block device gets that of its real class.
func TestRealClaimsBlock(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		s := newRealSite(t, claimAt("worker", device))
		s.wrote("create persistentvolumeclaims liqo-storage/claim-1")
		s.bindReal()
		s.wrote("create persistentvolumes pvc-claim-1")
		require.Equal(t, corev1.PersistentVolumeBlock, *s.claim("liqo-storage", "claim-1").Spec.VolumeMode)
		require.Equal(t, corev1.PersistentVolumeBlock, *s.volume().Spec.VolumeMode)
	})
}

// TestRealClaimsLoseAnswers: each write succeeds, and its answer is lost.
func TestRealClaimsLoseAnswers(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		s := newRealSite(t)
		var mu sync.Mutex
		lost := map[string]bool{}
		s.core.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
			mu.Lock()
			defer mu.Unlock()
			what := a.GetVerb() + " " + a.GetResource().Resource
			if a.GetVerb() != "create" && a.GetVerb() != "delete" || a.GetNamespace() == "shop" || lost[what] {
				return false, nil, nil
			}
			if create, ok := a.(clienttesting.CreateActionImpl); ok && create.GetObject().(metav1.Object).GetName() == "pv-real" {
				return false, nil, nil
			}
			lost[what] = true
			if _, _, err := s.server.React(a); err != nil {
				return true, nil, err
			}
			return true, nil, errors.New("the answer is lost")
		})
		s.add(claimAt("worker"))
		kubetest.Settled(time.Minute, s.core)
		require.NotNil(t, s.claim("liqo-storage", "claim-1"))
		s.bindReal()
		kubetest.Settled(time.Minute, s.core)
		s.bindLocal()
		s.deleteLocal()
		kubetest.Settled(time.Minute, s.core)
		require.Nil(t, s.claim("liqo-storage", "claim-1"))
		_, err := s.core.CoreV1().PersistentVolumes().Get(t.Context(), "pvc-claim-1", metav1.GetOptions{})
		require.True(t, apierrors.IsNotFound(err), "%v", err)
		require.Len(t, lost, 4, "%v", lost)
	})
}

// TestRealClaimsElsewhere: a claim that is not for nodes of this cluster has no real one.
func TestRealClaimsElsewhere(t *testing.T) {
	for name, change := range map[string]func(*corev1.PersistentVolumeClaim){
		"virtual node": func(c *corev1.PersistentVolumeClaim) { c.Annotations[forge.SelectedNode] = "milan" },
		"unknown node": func(c *corev1.PersistentVolumeClaim) { c.Annotations[forge.SelectedNode] = "gone" },
		"no node":      func(c *corev1.PersistentVolumeClaim) { delete(c.Annotations, forge.SelectedNode) },
		"another class": func(c *corev1.PersistentVolumeClaim) {
			c.Annotations[storageProvisionerAnnotation] = "example.com/disk"
		},
		"of no class":   func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = ptr.To("local-path") },
		"bound":         func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "by-hand" },
		"in a provider": func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = forge.VolumeName(c) },
		"being deleted": func(c *corev1.PersistentVolumeClaim) {
			c.DeletionTimestamp, c.Finalizers = &metav1.Time{Time: time.Now()}, []string{"kubernetes.io/pvc-protection"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			kubetest.Bubble(t, func(t *testing.T) { newRealSite(t, claimAt("worker", change)).wrote() })
		})
	}
}

func podWithClaim(name, claim string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{{
		Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}}}
}

// TestRealClaimsRefused: an event says why there is no volume, at the claim and at the first pods that
// wait for it.
func TestRealClaimsRefused(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*corev1.PersistentVolumeClaim)
		class  func() (string, string)
		says   string
	}{
		"snapshot": {func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: ptr.To("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: "yesterday"}
		}, nil, "from VolumeSnapshot yesterday"},
		"clone": {func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "other"}
		}, nil, "from PersistentVolumeClaim other"},
		"no class": {nil, func() (string, string) { return "", "there is no class" }, "there is no class"},
	} {
		t.Run(name, func(t *testing.T) {
			kubetest.Bubble(t, func(t *testing.T) {
				s := newRealSite(t)
				if row.class != nil {
					s.class = row.class
				}
				claim := claimAt("worker")
				if row.change != nil {
					row.change(claim)
				}
				for i := range podsTold + 2 {
					require.NoError(t, s.core.Tracker().Add(podWithClaim(fmt.Sprintf("web-%d", i), claim.Name)))
				}
				require.NoError(t, s.core.Tracker().Add(podWithClaim("another", "logs")))
				s.add(claim)
				s.wrote()
				require.Contains(t, <-s.events.Events, row.says)
				require.Len(t, s.events.Events, 2*(1+podsTold)-1, "and once more after the restart")
				require.Regexp(t, "^Warning (ProvisioningFailed|DataSourceNotSupported) PersistentVolumeClaim data: .*"+row.says, <-s.events.Events)
			})
		})
	}
}

// TestRealClaimsGivenBack: a provisioner that has no volume for a node removes the node from the
// real claim. The scheduler chooses again, perhaps the same node, and the real claim follows.
func TestRealClaimsGivenBack(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		s := newRealSite(t, claimAt("worker"))
		s.wrote("create persistentvolumeclaims liqo-storage/claim-1")
		for _, next := range []string{"worker", "another"} {
			s.set("liqo-storage", "claim-1", func(c *corev1.PersistentVolumeClaim) { delete(c.Annotations, forge.SelectedNode) })
			s.wrote("patch persistentvolumeclaims liqo-storage/claim-1", "patch persistentvolumeclaims shop/data")
			require.NotContains(t, s.claim("shop", "data").Annotations, forge.SelectedNode)
			s.set("shop", "data", func(c *corev1.PersistentVolumeClaim) { c.Annotations[forge.SelectedNode] = next })
			s.wrote("patch persistentvolumeclaims liqo-storage/claim-1")
			require.Equal(t, next, s.claim("liqo-storage", "claim-1").Annotations[forge.SelectedNode])
		}
		require.Contains(t, <-s.events.Events, "StorageClass local-path has no volume for node worker")

		s.set("shop", "data", func(c *corev1.PersistentVolumeClaim) { c.Annotations[forge.SelectedNode] = "milan" })
		s.wrote("delete persistentvolumeclaims liqo-storage/claim-1")
	})
}

// TestRealClaimsConflict: a claim that changes while it is given back is not given back. The real
// claim asks for the same node again.
func TestRealClaimsConflict(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		s := newRealSite(t, claimAt("worker"))
		s.wrote("create persistentvolumeclaims liqo-storage/claim-1")
		met := false
		s.core.PrependReactor("patch", "persistentvolumeclaims", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if a.GetNamespace() != "shop" || met {
				return false, nil, nil
			}
			met = true
			return true, nil, apierrors.NewConflict(corev1.Resource("persistentvolumeclaims"), "data", errors.New("it has changed"))
		})
		s.set("liqo-storage", "claim-1", func(c *corev1.PersistentVolumeClaim) { delete(c.Annotations, forge.SelectedNode) })
		s.wrote("patch persistentvolumeclaims liqo-storage/claim-1", "patch persistentvolumeclaims shop/data", "patch persistentvolumeclaims liqo-storage/claim-1")
		require.Equal(t, "worker", s.claim("liqo-storage", "claim-1").Annotations[forge.SelectedNode])
		require.Equal(t, "worker", s.claim("shop", "data").Annotations[forge.SelectedNode])
	})
}

// TestRealClaimsOccupied: a volume of the name that is not the claim's is left as it is.
func TestRealClaimsOccupied(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		other := realVolume()
		other.Name = "pvc-claim-1"
		s := newRealSite(t, claimAt("worker"), other)
		s.wrote("create persistentvolumeclaims liqo-storage/claim-1")
		s.set("liqo-storage", "claim-1", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "pv-real" })
		kubetest.Settled(2*time.Second, s.core)
		s.bindReal() // by now one event, of the status
		kubetest.Settled(2*time.Second, s.core)
		require.Equal(t, []string{"create persistentvolumes pvc-claim-1"}, s.take())
		require.Contains(t, <-s.events.Events, "PersistentVolume pvc-claim-1 exists and is not changed")
		require.Equal(t, "local-path", s.volume().Spec.StorageClassName)
		require.NoError(t, s.core.CoreV1().PersistentVolumes().Delete(t.Context(), "pvc-claim-1", metav1.DeleteOptions{}))
		kubetest.Settled(engine.TakenRetry, s.core)
		require.Equal(t, "liqo", s.volume().Spec.StorageClassName)
	})
}

// TestRealClaimsForbidden: the claim says why its volume is refused, as for a folder that the chart does not list, and
// gets it when it is not refused any more.
func TestRealClaimsForbidden(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		s := newRealSite(t, claimAt("worker"))
		s.wrote("create persistentvolumeclaims liqo-storage/claim-1")
		var listed atomic.Bool
		s.core.PrependReactor("create", "persistentvolumes", func(a clienttesting.Action) (bool, runtime.Object, error) {
			name := a.(clienttesting.CreateAction).GetObject().(*corev1.PersistentVolume).Name
			return name == "pvc-claim-1" && !listed.Load(), nil, apierrors.NewForbidden(corev1.Resource("persistentvolumes"), name, errors.New("storage.volumeFolders"))
		})
		s.bindReal()
		kubetest.Settled(2*time.Second, s.core)
		require.Contains(t, <-s.events.Events, "storage.volumeFolders")
		listed.Store(true)
		kubetest.Settled(claimsRefusedRetry, s.core)
		require.Equal(t, "liqo", s.volume().Spec.StorageClassName)
	})
}

// TestRealClaimsGrow: the real claim is asked first. The volume follows its source, and the claim
// shows the size that the real one has reached.
func TestRealClaimsGrow(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		s := provisionedSite(t)
		s.set("shop", "data", func(c *corev1.PersistentVolumeClaim) { c.Spec.Resources.Requests = capacityOf("2Gi") })
		s.wrote("patch persistentvolumeclaims liqo-storage/claim-1")
		source := kubetest.Get(t, s.core.CoreV1().PersistentVolumes(), "pv-real")
		source.Spec.Capacity = capacityOf("2Gi")
		kubetest.Update(t, s.core.CoreV1().PersistentVolumes(), source)
		s.set("liqo-storage", "claim-1", func(c *corev1.PersistentVolumeClaim) { c.Status.Capacity = capacityOf("2Gi") })
		s.wrote("patch persistentvolumes pvc-claim-1", "patch persistentvolumeclaims/status shop/data")
		require.True(t, s.volume().Spec.Capacity.Storage().Equal(*source.Spec.Capacity.Storage()))
		require.Equal(t, "2Gi", s.claim("shop", "data").Status.Capacity.Storage().String())
	})
}

// TestRealClaimsRelease: data is deleted only with the claim itself, and where the class says so.
func TestRealClaimsRelease(t *testing.T) {
	for name, row := range map[string]struct {
		before func(*testing.T, *realSite)
		wrote  []string
	}{
		"Retain": {func(t *testing.T, s *realSite) {
			v := s.volume()
			v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
			kubetest.Update(t, s.core.CoreV1().PersistentVolumes(), v)
		}, nil},
		"the namespace is gone": {func(t *testing.T, s *realSite) {
			require.NoError(t, s.core.CoreV1().Namespaces().Delete(t.Context(), "shop", metav1.DeleteOptions{}))
		}, []string{"patch persistentvolumes pvc-claim-1"}},
		"the namespace of a pod with an ephemeral volume is gone": {func(t *testing.T, s *realSite) {
			v := s.volume()
			ofAPod(v)
			kubetest.Update(t, s.core.CoreV1().PersistentVolumes(), v)
			require.NoError(t, s.core.CoreV1().Namespaces().Delete(t.Context(), "shop", metav1.DeleteOptions{}))
		}, []string{"delete persistentvolumeclaims liqo-storage/claim-1", "delete persistentvolumes pvc-claim-1"}},
		"the real claim is gone": {func(t *testing.T, s *realSite) {
			require.NoError(t, s.core.CoreV1().PersistentVolumeClaims("liqo-storage").Delete(t.Context(), "claim-1", metav1.DeleteOptions{}))
			kubetest.Settled(2*time.Second, s.core)
			<-s.events.Events
			require.Contains(t, <-s.events.Events, "RemoteVolumeLost")
			s.core.ClearActions()
		}, []string{"delete persistentvolumes pvc-claim-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			kubetest.Bubble(t, func(t *testing.T) {
				s := provisionedSite(t)
				row.before(t, s)
				s.deleteLocal()
				s.wrote(row.wrote...)
			})
		})
	}
}

// TestRealClaimsOfPods: the volume of a claim that goes with its pod says so.
func TestRealClaimsOfPods(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		s := newRealSite(t, claimAt("worker", func(c *corev1.PersistentVolumeClaim) {
			c.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: "web", UID: "pod-1", Controller: ptr.To(true)}}
		}))
		s.wrote("create persistentvolumeclaims liqo-storage/claim-1")
		s.bindReal()
		s.wrote("create persistentvolumes pvc-claim-1")
		require.Equal(t, "true", s.volume().Annotations[offloadingv1beta1.EphemeralVolumeLabel])
	})
}

// TestRealClaimsSuccessor: a claim of the same name gets a volume of its own, and that of its
// predecessor is deleted.
func TestRealClaimsSuccessor(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		s := provisionedSite(t)
		s.deleteLocal()
		s.add(claimAt("worker", func(c *corev1.PersistentVolumeClaim) { c.UID = "claim-2" }))
		kubetest.Settled(2*time.Second, s.core)
		have := s.take()
		slices.Sort(have)
		require.Equal(t, []string{"create persistentvolumeclaims liqo-storage/claim-2", "delete persistentvolumeclaims liqo-storage/claim-1", "delete persistentvolumes pvc-claim-1"}, have)
	})
}

// TestRealClaimsForgotten: a real claim without a user's claim is deleted unless it may have data.
func TestRealClaimsForgotten(t *testing.T) {
	for name, row := range map[string]struct {
		volume string
		wrote  []string
	}{
		"unbound": {"", []string{"delete persistentvolumeclaims liqo-storage/claim-1"}},
		"bound":   {"pv-real", nil},
	} {
		t.Run(name, func(t *testing.T) {
			kubetest.Bubble(t, func(t *testing.T) {
				real, err := forge.RealClaim(claimAt("worker"), "liqo-storage", "local-path", "worker")
				require.NoError(t, err)
				real.UID, real.Spec.VolumeName = "real-1", row.volume
				newRealSite(t, real).wrote(row.wrote...)
			})
		})
	}
}
