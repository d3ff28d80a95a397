package namespace

import (
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
	"k8s.io/apimachinery/pkg/types"
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
	b := kubetest.Find(w.t, w.core.RbacV1().RoleBindings(namespace), name)
	if b == nil {
		return nil
	}
	out := []string{}
	for _, s := range b.Subjects {
		out = append(out, s.Kind+":"+s.Name)
	}
	return out
}

// twinned returns a world in which namespace web of rome has the twin web-rome, and the loops are idle.
func twinned(t *testing.T, objects ...runtime.Object) *world {
	t.Helper()
	objects = append(objects, tenantNamespace("rome"), romeCluster(romeUser), replica(map[string]string{"web": "web-rome"}))
	w := newWorld(t, objects...).provider()
	w.accepted("web")
	w.settled()
	return w
}

func TestTwins(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, tenantNamespace("rome"), plainNamespace("theirs"), romeCluster(romeUser),
			replica(map[string]string{"web": "web-rome", "shop": "shop", "x": "theirs"})).provider()
		w.accepted("web", "shop")
		ns := w.namespace("web-rome")
		require.Equal(t, map[string]string{corev1beta1.RemoteClusterIDLabel: "rome", "pod-security.kubernetes.io/enforce": "baseline"}, ns.Labels)
		require.Equal(t, map[string]string{offloadingv1beta1.ManagedByNamespaceMapAnnotation: "liqo-tenant-rome/milan", offloadingv1beta1.OriginalNameAnnotation: "web",
			offloadingv1beta1.ConsumerUIDAnnotation: "rome/peering-uid--rome"}, ns.Annotations)
		require.Equal(t, []string{"User:" + romeUser}, w.bound("web-rome", PeerTwinRole))
		require.Equal(t, []string{"ServiceAccount:liqod-controller"}, w.bound("web-rome", ControllerTwinRole))
		require.Contains(t, w.asked().Finalizers, offloadingv1beta1.NamespaceMapFinalizer)
		require.EqualValues(t, 1, w.asked().Status.ObservedGeneration)
		w.settled()

		w.setDesired(map[string]string{"shop": "shop"})
		w.eventually("unmapped twin goes", func() bool { return w.namespace("web-rome") == nil })
		w.eventually("its answer goes", func() bool { return w.current("web").Phase == "" })
		w.settled()
		require.NotNil(t, w.namespace("shop"))
		require.True(t, meta.IsStatusConditionTrue(w.asked().Status.Conditions, "Ready"))

		require.NoError(t, w.core.CoreV1().Namespaces().Delete(t.Context(), "shop", metav1.DeleteOptions{}))
		w.eventually("made again behind whoever deleted it", func() bool { return w.namespace("shop") != nil })
		w.accepted("shop")

		require.NoError(t, w.liqo.OffloadingV1beta1().NamespaceMaps("liqo-tenant-rome").Delete(t.Context(), "milan", metav1.DeleteOptions{}))
		w.eventually("the map goes", func() bool { return w.asked() == nil })
		require.Nil(t, w.namespace("shop"))
		require.NotNil(t, w.namespace("theirs"))
	})
}

// TestTwinThatStands: a restart writes nothing, drift is repaired, and no twin is deleted where a stale cache shows a map
// or an entry as missing.
func TestTwinThatStands(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := twinned(t)
		objects, bindings := []runtime.Object{w.namespace("liqo-tenant-rome"), w.namespace("web-rome"), romeCluster(romeUser), w.asked()}, w.core.RbacV1().RoleBindings("web-rome")
		for _, name := range []string{PeerTwinRole, ControllerTwinRole} {
			objects = append(objects, kubetest.Get(t, bindings, name))
		}
		require.Zero(t, newWorld(t, objects...).provider().settled())

		w.changeNamespace("web-rome", func(ns *corev1.Namespace) {
			ns.Labels = map[string]string{"pod-security.kubernetes.io/enforce": "privileged", "mine": "stays"}
			delete(ns.Annotations, offloadingv1beta1.OriginalNameAnnotation)
		})
		w.eventually("labels and annotation are back", func() bool {
			ns := w.namespace("web-rome")
			return ns.Labels["pod-security.kubernetes.io/enforce"] == "baseline" && ns.Labels[corev1beta1.RemoteClusterIDLabel] == "rome" &&
				ns.Labels["mine"] == "stays" && originalOf(ns) == "web"
		})
		require.NoError(t, bindings.Delete(t.Context(), ControllerTwinRole, metav1.DeleteOptions{}))
		w.eventually("a binding is back", func() bool { return w.bound("web-rome", ControllerTwinRole) != nil })
		b := kubetest.Get(t, bindings, PeerTwinRole)
		b.RoleRef.Name = "cluster-admin"
		b.Subjects = append(b.Subjects, rbacv1.Subject{Kind: "User", Name: "mallory"})
		kubetest.Update(t, bindings, b)
		w.eventually("and says what it said", func() bool {
			b, err := bindings.Get(t.Context(), PeerTwinRole, metav1.GetOptions{})
			return err == nil && b.RoleRef.Name == PeerTwinRole && len(b.Subjects) == 1
		})

		w.core.ClearActions()
		store := w.liqoInformers.Offloading().V1beta1().NamespaceMaps().Informer().GetStore()
		m := w.asked()
		m.Spec.DesiredMapping = nil
		for _, stale := range []func(any) error{store.Update, store.Delete} {
			require.NoError(t, stale(m))
			w.maps.Add(loop.Key{Namespace: "liqo-tenant-rome", Name: "milan"})
			w.settled()
			require.NotNil(t, w.namespace("web-rome"))
		}
		for _, a := range w.core.Actions() {
			require.NotEqual(t, "delete", a.GetVerb())
		}
	})
}

// TestTwinPassesToAnotherNamespace: a second wish for a twin does not shake it. Once the first one is withdrawn, the
// namespace is made anew: what one has left there is not given to another.
func TestTwinPassesToAnotherNamespace(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := twinned(t)
		before := w.namespace("web-rome").UID
		w.setDesired(map[string]string{"a": "web-rome", "web": "web-rome"})
		w.backsOff("a", "it is the twin of web")
		w.accepted("web")
		require.Equal(t, before, w.namespace("web-rome").UID)
		w.setDesired(map[string]string{"a": "web-rome"})
		w.accepted("a")
		require.NotEqual(t, before, w.namespace("web-rome").UID)
		require.Equal(t, "a", originalOf(w.namespace("web-rome")))
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

func (w *world) changeNamespace(name string, change func(*corev1.Namespace)) {
	w.t.Helper()
	ns := w.namespace(name).DeepCopy()
	change(ns)
	kubetest.Update(w.t, w.core.CoreV1().Namespaces(), ns)
}

// TestTwinNames: a peer gets namespaces with its id in their names, those that the
// administrator lists. Otherwise it could take the name of a
// product before that is installed, and read its Secrets.
func TestTwinNames(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, tenantNamespace("rome"), romeCluster(romeUser), plainNamespace("theirs"),
			replica(map[string]string{"web": "web-rome", "product": "cert-manager", "listed": "team-a", "shop": "shop", "foreign": "theirs"})).providerAs("milan", "team-*")
		w.accepted("web", "listed")
		for original, twin := range map[string]string{"product": "cert-manager", "shop": "shop"} {
			for _, why := range []string{"name a namespace " + twin, "end in -rome", "controller.twinNames of milan"} {
				w.backsOff(original, why)
			}
			require.Nil(t, w.namespace(twin))
		}
		w.backsOff("foreign", "was not made for cluster rome")
		require.Equal(t, strings.ReplaceAll(w.current("product").Message, "cert-manager", "theirs"), w.current("foreign").Message, "a peer does not learn which namespaces there are")
	})
}

// TestTwinNamesFollowTheTrust: the names that a peer may give follow its ForeignCluster, at once;
// a twin that it has stays.
func TestTwinNamesFollowTheTrust(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, tenantNamespace("rome"), romeCluster(romeUser), replica(map[string]string{"web": "web"}))
		clusters := w.liqoInformers.Core().V1beta1().ForeignClusters().Lister()
		w.providerWith(func(cfg *MapsConfig) {
			cfg.TwinNames = func(peer string) []string {
				fc, err := clusters.Get(peer)
				require.NoError(t, err)
				return map[corev1beta1.Trust][]string{corev1beta1.TrustOrganisation: {"*"}}[fc.Spec.Trust]
			}
		})
		w.backsOff("web", "end in -rome")
		trust := func(trust corev1beta1.Trust) {
			fc := romeCluster(romeUser)
			fc.Spec.Trust = trust
			kubetest.Update(t, w.liqo.CoreV1beta1().ForeignClusters(), fc)
		}
		trust(corev1beta1.TrustOrganisation)
		w.accepted("web")
		trust(corev1beta1.TrustStrict)
		w.accepted("web")
	})
}

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

func TestTwinWithVolumesIsKept(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := twinned(t, volumeClaim("web-rome", "pv-1"), &corev1.Service{ObjectMeta: metav1.ObjectMeta{
			Namespace: "web-rome", Name: "a", Labels: map[string]string{offloadingv1beta1.OriginLabel: "rome"}}})
		w.setDesired(nil)
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
		w := twinned(t, volumeClaim("web-rome", ""), ephemeral)
		w.setDesired(nil)
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
				w := twinned(t, volumeClaim("web-rome", "pv-1"))
				w.setDesired(nil)
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

// peeredAs returns rome's ForeignCluster of one peering. uid is that of rome's kube-system
// namespace, or "" where it is not known.
func peeredAs(record, user, uid string, since time.Time) *corev1beta1.ForeignCluster {
	fc := romeCluster(user)
	fc.UID, fc.CreationTimestamp = types.UID(record), metav1.NewTime(since)
	fc.Status.ClusterUID = types.UID(uid)
	return fc
}

// keptTwin returns web-rome as the end of a peering left it. mark may be empty.
func keptTwin(mark string, made time.Time) *corev1.Namespace {
	ns := plainNamespace("web-rome")
	ns.CreationTimestamp = metav1.NewTime(made)
	ns.Labels = map[string]string{corev1beta1.RemoteClusterIDLabel: "rome"}
	ns.Annotations = map[string]string{
		offloadingv1beta1.ManagedByNamespaceMapAnnotation: "liqo-tenant-rome/milan", offloadingv1beta1.OriginalNameAnnotation: "web",
		offloadingv1beta1.DataKeptAnnotation: "kept",
	}
	if mark != "" {
		ns.Annotations[offloadingv1beta1.ConsumerUIDAnnotation] = mark
	}
	return ns
}

func mark(ns *corev1.Namespace) string {
	return ns.Annotations[offloadingv1beta1.ConsumerUIDAnnotation]
}

// TestKeptTwinIsForItsClusterOnly: a cluster that is peered under the id of an earlier one
// gets neither its namespace nor its volumes.
func TestKeptTwinIsForItsClusterOnly(t *testing.T) {
	t.Parallel()
	long, now := time.Now().Add(-time.Hour), time.Now()
	for name, tc := range map[string]struct {
		mark, uid string
		since     time.Time // of the peering; the twin was made an hour ago
		empty     bool      // the twin holds no volumes
		gets      bool
	}{
		"the same cluster, peered anew":                    {"rome/uid-a", "uid-a", now, false, true},
		"another cluster":                                  {"rome/uid-a", "uid-b", now, false, false},
		"another cluster, nothing kept":                    {"rome/uid-a", "uid-b", now, true, false},
		"a cluster of unknown UID":                         {"rome/uid-a", "", now, false, false},
		"the same peering, UID unknown":                    {"rome/peering-fc-1", "", long, false, true},
		"the same peering, UID known since":                {"rome/peering-fc-1", "uid-a", long, false, true},
		"another peering, UID unknown":                     {"rome/peering-fc-0", "", now, false, false},
		"another peering, UID known":                       {"rome/peering-fc-0", "uid-a", now, false, false},
		"made without a mark, the peering stands":          {"", "uid-a", long.Add(-time.Minute), false, true},
		"made without a mark, another peering":             {"", "uid-a", now, false, false},
		"made without a mark, another, UID unknown":        {"", "", now, false, false},
		"made without a mark, another peering, no volumes": {"", "uid-b", now, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			kubetest.Bubble(t, func(t *testing.T) {
				claim := volumeClaim("web-rome", "pv-1")
				if tc.empty {
					claim.Spec.VolumeName = ""
				}
				w := newWorld(t, tenantNamespace("rome"), peeredAs("fc-1", romeUser, tc.uid, tc.since), keptTwin(tc.mark, long), claim,
					replica(map[string]string{"web": "web-rome"})).provider()
				if !tc.gets {
					w.backsOff("web", "kubectl annotate namespace web-rome --overwrite offloading.liqo.io/consumer-uid=rome/")
					if tc.mark != "" {
						require.NotContains(t, w.current("web").Message, tc.mark, "whose it is, is not told")
					}
					w.settled()
					require.Nil(t, w.bound("web-rome", PeerTwinRole))
					require.Equal(t, tc.mark, mark(w.namespace("web-rome")))
					require.Contains(t, w.namespace("web-rome").Annotations, offloadingv1beta1.DataKeptAnnotation)
					return
				}
				w.accepted("web")
				w.settled()
				want := "rome/" + tc.uid
				if tc.uid == "" {
					want = "rome/peering-fc-1"
				}
				require.Equal(t, want, mark(w.namespace("web-rome")))
				require.Equal(t, []string{"User:" + romeUser}, w.bound("web-rome", PeerTwinRole))
			})
		})
	}
}

// TestUIDOfAPeerInCommands: a cluster chooses the UID that it enrols with, and people paste the command.
func TestUIDOfAPeerInCommands(t *testing.T) {
	t.Parallel()
	const command = "kubectl annotate namespace web-rome --overwrite offloading.liqo.io/consumer-uid="
	for uid, want := range map[string]string{"uid-b": command + "rome/uid-b;", "": command + "rome/peering-fc-2;", "x; reboot #": "", "$(reboot)": "", "x reboot": ""} {
		got := wish{peer: "rome", name: "web-rome", of: identity{peer: "rome", cluster: uid, peering: "peering-fc-2"}}.anothers()
		require.Contains(t, got, "namespace web-rome exists already")
		require.Contains(t, got, want)
		require.NotContains(t, got, "reboot")
		require.Equal(t, want != "", strings.Contains(got, "kubectl"), uid)
	}
}

func TestKeptTwinIsHandedOver(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		long, now := time.Now().Add(-time.Hour), time.Now()
		w := newWorld(t, tenantNamespace("rome"), peeredAs("fc-2", romeUser, "uid-b", now), keptTwin("rome/uid-a", long), volumeClaim("web-rome", "pv-1"),
			replica(map[string]string{"web": "web-rome"})).provider()
		w.backsOff("web", "consumer-uid=rome/uid-b;")
		w.changeNamespace("web-rome", func(ns *corev1.Namespace) { ns.Annotations[offloadingv1beta1.ConsumerUIDAnnotation] = "rome/uid-b" })
		w.accepted("web")
		require.Equal(t, []string{"User:" + romeUser}, w.bound("web-rome", PeerTwinRole))
	})
}

// TestMarkOutlastsAnUnknownUID: an administrator clears status.clusterUID to have it read
// again. Meanwhile the peer keeps its twin.
func TestMarkOutlastsAnUnknownUID(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, tenantNamespace("rome"), peeredAs("fc-1", romeUser, "uid-a", time.Now()), replica(map[string]string{"web": "web-rome"})).provider()
		w.accepted("web")
		require.Equal(t, "rome/uid-a", mark(w.namespace("web-rome")), "marked from the beginning")
		learn := func(uid types.UID) {
			fcs := w.liqo.CoreV1beta1().ForeignClusters()
			fc := kubetest.Get(t, fcs, "rome")
			fc.Status.ClusterUID = uid
			kubetest.UpdateStatus(t, fcs, fc)
		}
		learn("")
		w.settled()
		require.Equal(t, offloadingv1beta1.MappingAccepted, w.current("web").Phase)
		require.Equal(t, "rome/uid-a", mark(w.namespace("web-rome")))
		require.Equal(t, []string{"User:" + romeUser}, w.bound("web-rome", PeerTwinRole))
		learn("uid-b")
		w.backsOff("web", "consumer-uid=rome/uid-b")
		w.eventually("another cluster has no rights", func() bool { return w.bound("web-rome", PeerTwinRole) == nil })
	})
}
