package namespace

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
)

const romeUser = "liqo.io:peer:rome:1"

func romeCluster(user string) *corev1beta1.ForeignCluster {
	return &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "rome"}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: "rome", UserName: user}}
}

// replica returns rome's NamespaceMap as replicated to milan.
func replica(desired map[string]string, change ...func(*offloadingv1beta1.NamespaceMap)) *offloadingv1beta1.NamespaceMap {
	m := &offloadingv1beta1.NamespaceMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: "milan", Generation: 1,
			Labels: map[string]string{offloadingv1beta1.ReplicatedLabel: "true", offloadingv1beta1.OriginIDLabel: "rome"}},
		Spec: offloadingv1beta1.NamespaceMapSpec{DesiredMapping: desired},
	}
	for _, f := range change {
		f(m)
	}
	return m
}

func (w *world) setDesired(desired map[string]string) {
	m := w.asked()
	m.Spec.DesiredMapping = desired
	m.Generation++
	kubetest.Update(w.t, w.liqo.OffloadingV1beta1().NamespaceMaps(m.Namespace), m)
}

func (w *world) current(original string) offloadingv1beta1.RemoteNamespaceStatus {
	return w.asked().Status.CurrentMapping[original]
}

func (w *world) accepted(originals ...string) {
	w.t.Helper()
	for _, o := range originals {
		w.eventually(o+" accepted", func() bool { return w.current(o).Phase == offloadingv1beta1.MappingAccepted })
	}
}

func (w *world) backsOff(original, why string) {
	w.t.Helper()
	w.eventually(original+" backs off: "+why, func() bool {
		s := w.current(original)
		return s.Phase == offloadingv1beta1.MappingCreationLoopBackOff && strings.Contains(s.Message, why)
	})
}

// bound returns the subjects of a RoleBinding, or nil if it does not exist.
func (w *world) bound(namespace, name string) []string {
	b, err := w.core.RbacV1().RoleBindings(namespace).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	out := []string{}
	for _, s := range b.Subjects {
		out = append(out, s.Kind+":"+s.Name)
	}
	return out
}

func TestTwins(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, tenantNamespace("rome"), romeCluster(romeUser), replica(map[string]string{"web": "web-rome", "shop": "shop"})).provider()
		w.accepted("web", "shop")
		ns := w.namespace("web-rome")
		require.Equal(t, map[string]string{corev1beta1.RemoteClusterIDLabel: "rome", "pod-security.kubernetes.io/enforce": "baseline"}, ns.Labels)
		require.Equal(t, map[string]string{offloadingv1beta1.ManagedByNamespaceMapAnnotation: "liqo-tenant-rome/milan", offloadingv1beta1.OriginalNameAnnotation: "web",
			offloadingv1beta1.ConsumerUIDAnnotation: "rome/peering-uid--rome"}, ns.Annotations)
		require.Equal(t, []string{"User:" + romeUser}, w.bound("web-rome", PeerTwinRole))
		require.Equal(t, []string{"ServiceAccount:liqod-controller"}, w.bound("web-rome", ControllerTwinRole))
		require.Contains(t, w.asked().Finalizers, offloadingv1beta1.NamespaceMapFinalizer)
		require.True(t, meta.IsStatusConditionTrue(w.asked().Status.Conditions, "Ready"))
		require.EqualValues(t, 1, w.asked().Status.ObservedGeneration)
		w.settled()

		w.setDesired(map[string]string{"shop": "shop"})
		w.eventually("unmapped twin goes", func() bool { return w.namespace("web-rome") == nil })
		w.eventually("its answer goes", func() bool { return w.current("web").Phase == "" })
		require.NotNil(t, w.namespace("shop"))

		require.NoError(t, w.core.CoreV1().Namespaces().Delete(t.Context(), "shop", metav1.DeleteOptions{}))
		w.eventually("made again behind whoever deleted it", func() bool { return w.namespace("shop") != nil })
		w.accepted("shop")
	})
}

// TestTwinsWaitForAnOffer: a peer that enrolled with a token gets no twin before a Quota
// limits it.
func TestTwinsWaitForAnOffer(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		enrolled := romeCluster(romeUser)
		enrolled.Annotations = map[string]string{corev1beta1.EnrolmentAnnotation: "1"}
		w := newWorld(t, tenantNamespace("rome"), enrolled, replica(map[string]string{"web": "web-rome"})).provider()
		w.backsOff("web", "cluster rome has no offer yet")
		w.settled()
		require.Nil(t, w.namespace("web-rome"))
		quotas := w.liqo.OffloadingV1beta1().Quotas("liqo-tenant-rome")
		kubetest.Create(t, quotas, &offloadingv1beta1.Quota{ObjectMeta: metav1.ObjectMeta{Name: "milan", UID: "q"}})
		w.accepted("web")
		require.Equal(t, []string{"User:" + romeUser}, w.bound("web-rome", PeerTwinRole))

		// Without the Quota, existing rights stay, and no new twin is created.
		require.NoError(t, quotas.Delete(t.Context(), "milan", metav1.DeleteOptions{}))
		w.eventually("the Quota is missed", func() bool { return w.namespace("web-rome").Labels[offloadingv1beta1.BoundedLabel] == "false" })
		w.setDesired(map[string]string{"web": "web-rome", "shop": "shop-rome"})
		w.backsOff("shop", "cluster rome has no offer yet")
		w.settled()
		w.accepted("web")
		require.Equal(t, []string{"User:" + romeUser}, w.bound("web-rome", PeerTwinRole))
		require.Nil(t, w.namespace("shop-rome"))

		// A new identity starts without rights, even where a twin exists.
		enrolled = enrolled.DeepCopy()
		enrolled.Annotations[corev1beta1.EnrolmentAnnotation], enrolled.Spec.UserName = "2", "liqo.io:peer:rome:2"
		kubetest.Update(t, w.liqo.CoreV1beta1().ForeignClusters(), enrolled)
		w.backsOff("web", "cluster rome has no offer yet")
		require.Nil(t, w.bound("web-rome", PeerTwinRole))
		kubetest.Create(t, quotas, &offloadingv1beta1.Quota{ObjectMeta: metav1.ObjectMeta{Name: "by-hand", UID: "r"}})
		w.accepted("web", "shop")
		require.Equal(t, []string{"User:liqo.io:peer:rome:2"}, w.bound("web-rome", PeerTwinRole))
	})
}

func TestProviderRestartWritesNothing(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, tenantNamespace("rome"), romeCluster(romeUser), replica(map[string]string{"web": "web-rome"})).provider()
		w.accepted("web")
		w.settled()
		objects := []runtime.Object{w.namespace("liqo-tenant-rome"), w.namespace("web-rome"), romeCluster(romeUser), w.asked()}
		for _, name := range []string{PeerTwinRole, ControllerTwinRole} {
			b := kubetest.Get(t, w.core.RbacV1().RoleBindings("web-rome"), name)
			objects = append(objects, b)
		}
		require.Zero(t, newWorld(t, objects...).provider().settled())
	})
}

func TestForeignNamespaceIsNotTakenOver(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		foreign := plainNamespace("shop")
		foreign.Labels = map[string]string{"team": "a"}
		w := newWorld(t, tenantNamespace("rome"), foreign, romeCluster(romeUser), replica(map[string]string{"shop": "shop", "web": "web"})).provider()
		w.backsOff("shop", "exists already")
		w.accepted("web")
		require.Contains(t, <-w.events.Events, "exists already")
		w.settled()
		require.Equal(t, map[string]string{"team": "a"}, w.namespace("shop").Labels)
		require.Nil(t, w.bound("shop", PeerTwinRole))

		// The removal of an entry deletes no foreign namespace.
		w.setDesired(map[string]string{"web": "web"})
		w.settled()
		require.NotNil(t, w.namespace("shop"))
		w.setDesired(map[string]string{"web": "web", "shop": "shop"})
		w.backsOff("shop", "exists already")

		require.NoError(t, w.core.CoreV1().Namespaces().Delete(t.Context(), "shop", metav1.DeleteOptions{}))
		w.accepted("shop")
		require.NotNil(t, w.bound("shop", PeerTwinRole))
	})
}

func TestReservedNames(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, tenantNamespace("rome"), romeCluster(romeUser), replica(map[string]string{
			"a": "kube-system", "b": "default", "c": "liqod", "d": "liqo-tenant-oslo", "e": "kube-x", "f": "Not A Name", "g": "same", "h": "same"})).provider()
		for original, why := range map[string]string{"a": "reserved", "b": "reserved", "c": "reserved", "d": "reserved", "e": "reserved", "f": "not the name", "h": "requested twice"} {
			w.backsOff(original, why)
		}
		w.accepted("g")
		all := kubetest.List(t, w.core.CoreV1().Namespaces())
		require.Len(t, all.Items, 2, "the tenant namespace and one twin")
	})
}

func TestASecondWishDoesNotShakeATwin(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, tenantNamespace("rome"), romeCluster(romeUser), replica(map[string]string{"shop": "shop-rome"})).provider()
		w.accepted("shop")
		w.setDesired(map[string]string{"a": "shop-rome", "shop": "shop-rome"})
		w.backsOff("a", "it is the twin of shop")
		w.accepted("shop")
	})
}

func TestMapsThatAreNotAccepted(t *testing.T) {
	t.Parallel()
	other, oslos := plainNamespace("liqo-tenant-rome"), tenantNamespace("oslo")
	oslos.Name = "liqo-tenant-rome"
	for name, tc := range map[string]struct {
		tenant *corev1.Namespace
		change func(*offloadingv1beta1.NamespaceMap)
		want   string // empty: not touched
	}{
		"not replicated": {tenantNamespace("rome"), func(m *offloadingv1beta1.NamespaceMap) { m.Labels = nil }, ""},
		"another origin": {tenantNamespace("rome"), func(m *offloadingv1beta1.NamespaceMap) { m.Labels[offloadingv1beta1.OriginIDLabel] = "oslo" }, "only rome is accepted"},
		"no origin":      {tenantNamespace("rome"), func(m *offloadingv1beta1.NamespaceMap) { delete(m.Labels, offloadingv1beta1.OriginIDLabel) }, "only rome is accepted"},
		"named as peer":  {tenantNamespace("rome"), func(m *offloadingv1beta1.NamespaceMap) { m.Name = "rome" }, "in the NamespaceMap milan only"},
		"another tenant": {oslos, func(m *offloadingv1beta1.NamespaceMap) { m.Labels[offloadingv1beta1.OriginIDLabel] = "oslo" }, "is not a tenant namespace"},
		"no tenant":      {other, func(*offloadingv1beta1.NamespaceMap) {}, "is not a tenant namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			kubetest.Bubble(t, func(t *testing.T) {
				m := replica(map[string]string{"web": "web"}, tc.change)
				w := newWorld(t, tc.tenant.DeepCopy(), romeCluster(romeUser), m).provider()
				get := func() *offloadingv1beta1.NamespaceMap {
					return kubetest.Get(t, w.liqo.OffloadingV1beta1().NamespaceMaps(m.Namespace), m.Name)
				}
				if tc.want == "" {
					require.Zero(t, w.settled())
					return
				}
				w.eventually("a condition", func() bool { return len(get().Status.Conditions) == 1 })
				require.Contains(t, get().Status.Conditions[0].Message, tc.want)
				require.Equal(t, 1, w.settled(), "nothing else is written")
			})
		})
	}
}

func TestUserOfThePeer(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, tenantNamespace("rome"), replica(map[string]string{"web": "web"})).provider()
		w.backsOff("web", "no ForeignCluster")
		require.NotNil(t, w.bound("web", ControllerTwinRole))
		require.Nil(t, w.bound("web", PeerTwinRole))
		fcs := w.liqo.CoreV1beta1().ForeignClusters()

		fc := kubetest.Create(t, fcs, romeCluster(romeUser))
		w.accepted("web")

		for _, user := range []string{"liqo.io:peer:rome:2", "system:serviceaccount:liqo-tenant-rome:peer"} {
			fc.Spec.UserName = user
			fc = kubetest.Update(t, fcs, fc)
			w.eventually("rights follow the user", func() bool { return slices.Equal(w.bound("web", PeerTwinRole), []string{"User:" + user}) })
		}
		for _, user := range []string{"liqo.io:peer:oslo:1", "liqo.io:peer:rome", "system:serviceaccount:liqo-tenant-romea:x", "system:admin", ""} {
			fc.Spec.UserName = user
			fc = kubetest.Update(t, fcs, fc)
			w.eventually("no rights for "+user, func() bool { return w.bound("web", PeerTwinRole) == nil })
			w.backsOff("web", "userName")
		}
		require.NotNil(t, w.namespace("web"), "the twin and its pods stay")
	})
}

func TestDriftIsRepaired(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, tenantNamespace("rome"), romeCluster(romeUser), replica(map[string]string{"web": "web"})).provider()
		w.accepted("web")
		w.settled()
		ns := w.namespace("web")
		ns.Labels = map[string]string{"pod-security.kubernetes.io/enforce": "privileged", "mine": "stays"}
		delete(ns.Annotations, offloadingv1beta1.OriginalNameAnnotation)
		kubetest.Update(t, w.core.CoreV1().Namespaces(), ns)
		w.eventually("labels and annotation are back", func() bool {
			ns := w.namespace("web")
			return ns.Labels["pod-security.kubernetes.io/enforce"] == "baseline" && ns.Labels[corev1beta1.RemoteClusterIDLabel] == "rome" &&
				ns.Labels["mine"] == "stays" && originalOf(ns) == "web"
		})

		bindings := w.core.RbacV1().RoleBindings("web")
		require.NoError(t, bindings.Delete(t.Context(), ControllerTwinRole, metav1.DeleteOptions{}))
		w.eventually("a binding is back", func() bool { return w.bound("web", ControllerTwinRole) != nil })
		b := kubetest.Get(t, bindings, PeerTwinRole)
		b.RoleRef.Name = "cluster-admin"
		b.Subjects = append(b.Subjects, rbacv1.Subject{Kind: "User", Name: "mallory"})
		kubetest.Update(t, bindings, b)
		w.eventually("and says what it said", func() bool {
			b, err := bindings.Get(t.Context(), PeerTwinRole, metav1.GetOptions{})
			return err == nil && b.RoleRef.Name == PeerTwinRole && len(b.Subjects) == 1
		})
	})
}

func TestMapDeletion(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		gone := plainNamespace("theirs")
		w := newWorld(t, tenantNamespace("rome"), gone, romeCluster(romeUser), replica(map[string]string{"web": "web", "shop": "shop", "x": "theirs"})).provider()
		w.accepted("web", "shop")
		w.settled()
		require.NoError(t, w.liqo.OffloadingV1beta1().NamespaceMaps("liqo-tenant-rome").Delete(t.Context(), "milan", metav1.DeleteOptions{}))
		w.eventually("the map goes", func() bool { return w.asked() == nil })
		require.Nil(t, w.namespace("web"))
		require.Nil(t, w.namespace("shop"))
		require.NotNil(t, w.namespace("theirs"))
	})
}

func TestMapThatWentWithoutFinalizer(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, tenantNamespace("rome"), romeCluster(romeUser), replica(map[string]string{"web": "web"})).provider()
		w.accepted("web")
		w.settled()
		require.NoError(t, w.liqo.OffloadingV1beta1().NamespaceMaps("liqo-tenant-rome").Delete(t.Context(), "milan", metav1.DeleteOptions{}))
		w.eventually("its twin goes", func() bool { return w.namespace("web") == nil })
	})
}

// TestTenantNamespaceDeleted: a map that goes with its namespace says nothing about what the peer
// asks for. Its twins stay while the peer has rights, and until it writes the map again.
func TestTenantNamespaceDeleted(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		now := metav1.Now()
		w := newWorld(t, tenantNamespace("rome"), romeCluster(romeUser), replica(map[string]string{"web": "web", "shop": "shop"})).provider()
		w.accepted("web", "shop")
		w.settled()
		web := w.namespace("web").UID
		time.Sleep(time.Minute)
		maps, namespaces := w.liqo.OffloadingV1beta1().NamespaceMaps("liqo-tenant-rome"), w.core.CoreV1().Namespaces()
		going := w.namespace("liqo-tenant-rome").DeepCopy()
		going.DeletionTimestamp, going.Finalizers = &now, []string{"kubernetes"}
		require.NoError(t, w.core.Tracker().Update(corev1.SchemeGroupVersion.WithResource("namespaces"), going, ""))
		require.NoError(t, maps.Delete(t.Context(), "milan", metav1.DeleteOptions{}))
		w.eventually("the map goes at once", func() bool { return w.asked() == nil })
		w.settled()
		require.NoError(t, w.core.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("namespaces"), "", going.Name))
		w.settled()
		again := tenantNamespace("rome")
		again.CreationTimestamp = metav1.Now()
		kubetest.Create(t, namespaces, again)
		w.maps.Add(loop.Key{Namespace: "liqo-tenant-rome", Name: "milan"})
		w.settled()
		require.Equal(t, web, w.namespace("web").UID)
		kubetest.Create(t, maps, replica(map[string]string{"web": "web"}))
		w.accepted("web")
		require.Equal(t, web, w.namespace("web").UID)
		w.eventually("what is no longer asked for goes", func() bool { return w.namespace("shop") == nil })
		require.NoError(t, maps.Delete(t.Context(), "milan", metav1.DeleteOptions{}))
		require.NoError(t, w.liqo.CoreV1beta1().ForeignClusters().Delete(t.Context(), "rome", metav1.DeleteOptions{}))
		w.eventually("at the end of the peering all goes", func() bool { return w.namespace("web") == nil })
	})
}

func TestStrangeAnnotationDeletesNothing(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		objects := []runtime.Object{}
		for i, owner := range []string{"milan", "a/milan", "/", "liqo-tenant-a/a", "liqo-tenant-/milan", "a/b/c"} {
			ns := plainNamespace(fmt.Sprintf("ns%d", i))
			ns.Annotations = map[string]string{offloadingv1beta1.ManagedByNamespaceMapAnnotation: owner}
			objects = append(objects, ns)
		}
		require.Zero(t, newWorld(t, objects...).provider().settled())
	})
}

// TestStaleCacheDeletesNoTwin: a stale cache shows a map or an entry as missing; its twins
// stay.
func TestStaleCacheDeletesNoTwin(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, tenantNamespace("rome"), romeCluster(romeUser), replica(map[string]string{"web": "web"})).provider()
		w.accepted("web")
		w.settled()
		key := loop.Key{Namespace: "liqo-tenant-rome", Name: "milan"}
		store := w.liqoInformers.Offloading().V1beta1().NamespaceMaps().Informer().GetStore()
		m := w.asked()
		m.Spec.DesiredMapping = nil
		require.NoError(t, store.Update(m))
		w.maps.Add(key)
		w.settled()
		require.NotNil(t, w.namespace("web"))
		require.NoError(t, store.Delete(m))
		w.maps.Add(key)
		w.settled()
		require.NotNil(t, w.namespace("web"))
		for _, a := range w.core.Actions() {
			require.NotEqual(t, "delete", a.GetVerb())
		}
	})
}

func TestTwinPassesToAnotherNamespace(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, tenantNamespace("rome"), romeCluster(romeUser), replica(map[string]string{"a": "shop"})).provider()
		w.accepted("a")
		before := w.namespace("shop").UID
		w.setDesired(map[string]string{"b": "shop"})
		w.accepted("b")
		require.NotEqual(t, before, w.namespace("shop").UID, "what a left there is not given to b")
		require.Equal(t, "b", originalOf(w.namespace("shop")))
	})
}

func TestTerminatingTwin(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		now := metav1.Now()
		twin := plainNamespace("web")
		twin.DeletionTimestamp, twin.Finalizers = &now, []string{"test/hold"}
		twin.Annotations = map[string]string{offloadingv1beta1.ManagedByNamespaceMapAnnotation: "liqo-tenant-rome/milan", offloadingv1beta1.OriginalNameAnnotation: "web"}
		old := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: PeerTwinRole, Namespace: "web"},
			RoleRef: rbacv1.RoleRef{Name: PeerTwinRole}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "liqo.io:peer:rome:0"}}}
		w := newWorld(t, tenantNamespace("rome"), twin, old, romeCluster(romeUser), replica(map[string]string{"web": "web"})).provider()
		w.eventually("told", func() bool { return w.current("web").Phase == offloadingv1beta1.MappingTerminating })
		require.Nil(t, w.bound("web", PeerTwinRole), "an old user has no rights, here either")
		w.changeNamespace("web", func(ns *corev1.Namespace) { ns.Finalizers = nil })
		w.accepted("web")
	})
}

// TestCreationThatFails: the API server refuses a twin, and accepts it later.
func TestCreationThatFails(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, tenantNamespace("rome"), romeCluster(romeUser), replica(map[string]string{"web": "web", "shop": "shop"}))
		relents := &atomic.Bool{}
		w.core.PrependReactor("create", "namespaces", func(a clienttesting.Action) (bool, runtime.Object, error) {
			ns, ok := a.(clienttesting.CreateAction).GetObject().(*corev1.Namespace)
			if !ok || ns.Name != "web" {
				return false, nil, nil
			}
			return !relents.Load(), nil, apierrors.NewForbidden(corev1.Resource("namespaces"), "web", fmt.Errorf("too many"))
		})
		w.provider()
		w.backsOff("web", "too many")
		relents.Store(true)
		w.accepted("shop")
		w.accepted("web")
	})
}

func TestBothSidesInOneCluster(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		// A namespace that rome has offloaded here is not offloaded again to milan.
		w := newWorld(t, tenantNamespace("rome"), tenantNamespace("milan"), romeCluster(romeUser), virtualNode("milan", "milan", nil),
			replica(map[string]string{"web": "web"})).provider()
		w.accepted("web")
		kubetest.Create(t, w.liqo.OffloadingV1beta1().NamespaceOffloadings("web"), offload("web"))
		w.consumer()
		w.eventually("refused", func() bool { return strings.Contains(w.message("web"), "not reflected again") })
		require.Nil(t, w.namespaceMap("milan"))
	})
}

// TestBothDirections: milan and rome offload to each other.
func TestBothDirections(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		milan := romeCluster("liqo.io:peer:milan:1")
		milan.Name, milan.Spec.ClusterID = "milan", "milan"
		fromMilan := replica(map[string]string{"shop": "shop-milan"}, func(m *offloadingv1beta1.NamespaceMap) {
			m.Namespace, m.Name = "liqo-tenant-milan", "rome"
			m.Labels[offloadingv1beta1.OriginIDLabel] = "milan"
		})
		w := newWorld(t, tenantNamespace("milan"), milan, fromMilan, plainNamespace("web"), offload("web"), virtualNode("milan", "milan", nil)).providerAs("rome", "*").consumer()
		theirs := func() *offloadingv1beta1.NamespaceMap { return w.mapOf("milan", "rome") }
		w.eventually("rome asks", func() bool { return w.desired("milan")["web"] == "web-rome" })
		w.eventually("rome answers", func() bool { return theirs().Status.CurrentMapping["shop"].Phase == offloadingv1beta1.MappingAccepted })
		w.settled()
		require.Equal(t, "liqo-tenant-milan/rome", w.namespace("shop-milan").Annotations[offloadingv1beta1.ManagedByNamespaceMapAnnotation])
		require.Equal(t, []string{"User:liqo.io:peer:milan:1"}, w.bound("shop-milan", PeerTwinRole))
		require.Equal(t, map[string]string{"shop": "shop-milan"}, theirs().Spec.DesiredMapping)
		require.Empty(t, w.namespaceMap("milan").Finalizers, "rome's own wish is not enforced at rome")
		require.Empty(t, w.namespaceMap("milan").Status)

		require.NoError(t, w.liqo.OffloadingV1beta1().NamespaceMaps("liqo-tenant-milan").Delete(t.Context(), "rome", metav1.DeleteOptions{}))
		w.eventually("milan asks no more", func() bool { return w.namespace("shop-milan") == nil })
		w.settled()
		require.Equal(t, map[string]string{"web": "web-rome"}, w.desired("milan"))
	})
}
