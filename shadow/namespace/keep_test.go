package namespace

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
)

func volumeClaim(namespace, volume string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "data"},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: volume},
	}
}

// collections returns the deletions by collection, without duplicates, as resource and
// selector. The fake clients only record such requests.
func collections(f *clienttesting.Fake) []string {
	var out []string
	for _, a := range f.Actions() {
		if d, ok := a.(clienttesting.DeleteCollectionAction); ok && a.GetVerb() == "delete-collection" {
			if what := a.GetResource().Resource + " " + d.GetListRestrictions().Labels.String(); !slices.Contains(out, what) {
				out = append(out, what)
			}
		}
	}
	return out
}

// unmapped returns a world in which the twin web-rome exists and its entry has been
// removed.
func unmapped(t *testing.T, objects ...runtime.Object) *world {
	t.Helper()
	objects = append(objects, tenantNamespace("rome"), romeCluster(romeUser), replica(map[string]string{"web": "web-rome"}))
	w := newWorld(t, objects...).provider()
	w.accepted("web")
	w.settled()
	w.setDesired(nil)
	return w
}

func TestTwinWithVolumesIsKept(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := unmapped(t, volumeClaim("web-rome", "pv-1"), &corev1.Service{ObjectMeta: metav1.ObjectMeta{
			Namespace: "web-rome", Name: "a", Labels: map[string]string{offloadingv1beta1.OriginLabel: "rome"}}})
		w.eventually("the twin is marked", func() bool { return w.namespace("web-rome").Annotations[offloadingv1beta1.DataKeptAnnotation] != "" })
		w.settled()
		s := w.current("web")
		require.Equal(t, offloadingv1beta1.MappingTerminating, s.Phase)
		require.Contains(t, s.Message, "PersistentVolumeClaims data")
		require.Nil(t, w.bound("web-rome", PeerTwinRole), "the peer has no rights there")
		require.Equal(t, []string{"shadowpods ", "shadowendpointslices "}, collections(&w.liqo.Fake))
		require.Equal(t, []string{"pods liqo.io/managed-by=shadowpod", "ingresses offloading.liqo.io/origin", "configmaps offloading.liqo.io/origin",
			"secrets offloading.liqo.io/origin"}, collections(&w.core.Fake))
		services := kubetest.List(t, w.core.CoreV1().Services("web-rome"))
		require.Empty(t, services.Items)
		require.Contains(t, <-w.events.Events, "is kept for its volumes")

		// Wanted again: the data is still there.
		w.setDesired(map[string]string{"web": "web-rome"})
		w.accepted("web")
		w.settled()
		require.NotContains(t, w.namespace("web-rome").Annotations, offloadingv1beta1.DataKeptAnnotation)
		require.Equal(t, []string{"User:" + romeUser}, w.bound("web-rome", PeerTwinRole))
	})
}

func TestTwinWithClaimsThatHoldNothingGoes(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		ephemeral := volumeClaim("web-rome", "pv-1")
		ephemeral.Name, ephemeral.Labels = "web-scratch", map[string]string{offloadingv1beta1.EphemeralVolumeLabel: "true"}
		w := unmapped(t, volumeClaim("web-rome", ""), ephemeral)
		w.eventually("the twin goes", func() bool { return w.namespace("web-rome") == nil })
	})
}

func TestVolumesAreDeletedByName(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		value string
		goes  bool
	}{
		"named":         {"web-rome", true},
		"named another": {"shop-rome", false},
		"not named":     {"true", false},
	} {
		t.Run(name, func(t *testing.T) {
			kubetest.Bubble(t, func(t *testing.T) {
				w := unmapped(t, volumeClaim("web-rome", "pv-1"))
				w.eventually("the twin is marked", func() bool { return w.namespace("web-rome").Annotations[offloadingv1beta1.DataKeptAnnotation] != "" })
				ns := w.namespace("web-rome")
				ns.Annotations[offloadingv1beta1.DeleteVolumesAnnotation] = tc.value
				kubetest.Update(t, w.core.CoreV1().Namespaces(), ns)
				if tc.goes {
					w.eventually("the twin goes", func() bool { return w.namespace("web-rome") == nil })
					return
				}
				w.settled()
				require.NotNil(t, w.namespace("web-rome"))
			})
		})
	}
}

// TestPeeringEndsBesideKeptVolumes: kept volumes do not block the map's finalizer and are
// not deleted with the map. A restart writes nothing.
func TestPeeringEndsBesideKeptVolumes(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		now := metav1.Now()
		twin := plainNamespace("web-rome")
		twin.Annotations = map[string]string{offloadingv1beta1.ManagedByNamespaceMapAnnotation: "liqo-tenant-rome/milan", offloadingv1beta1.OriginalNameAnnotation: "web"}
		twin.Labels = map[string]string{"liqo.io/remote-cluster-id": "rome"}
		ending := replica(map[string]string{"web": "web-rome"}, func(m *offloadingv1beta1.NamespaceMap) {
			m.DeletionTimestamp, m.Finalizers = &now, []string{offloadingv1beta1.NamespaceMapFinalizer}
		})
		w := newWorld(t, tenantNamespace("rome"), romeCluster(romeUser), ending, twin, volumeClaim("web-rome", "pv-1")).provider()
		w.eventually("the finalizer goes", func() bool { m := w.asked(); return m == nil || len(m.Finalizers) == 0 })
		w.settled()
		kept := w.namespace("web-rome")
		require.NotEmpty(t, kept.Annotations[offloadingv1beta1.DataKeptAnnotation])

		again := newWorld(t, tenantNamespace("rome"), romeCluster(romeUser), kept, volumeClaim("web-rome", "pv-1")).provider()
		require.Zero(t, again.settled(), "the map is gone: its twin is looked at, and left")
		require.NotNil(t, again.namespace("web-rome"))
	})
}
