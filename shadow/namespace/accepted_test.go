package namespace

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
)

// sharing returns a namespace whose owner accepts a peer.
func sharing(name, peer string) *corev1.Namespace {
	ns := plainNamespace(name)
	ns.Labels = map[string]string{"team": "a", "pod-security.kubernetes.io/enforce": "restricted"}
	ns.Annotations = map[string]string{offloadingv1beta1.AcceptTwinAnnotation: peer}
	return ns
}

func (w *world) changeNamespace(name string, change func(*corev1.Namespace)) {
	w.t.Helper()
	ns := w.namespace(name).DeepCopy()
	change(ns)
	_, err := w.core.CoreV1().Namespaces().Update(context.Background(), ns, metav1.UpdateOptions{})
	require.NoError(w.t, err)
}

func reflectedService(name, origin string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{offloadingv1beta1.OriginLabel: origin}}}
}

// cleared returns the resources that were deleted by collection in a namespace, by the
// selectors for rome's objects. The fake clients only record such requests.
func (w *world) cleared(namespace string) []string {
	found := map[string]bool{}
	selectors := []string{"offloading.liqo.io/origin=rome", "liqo.io/managed-by=shadowpod", ""}
	for _, a := range append(w.core.Actions(), w.liqo.Actions()...) {
		d, ok := a.(clienttesting.DeleteCollectionAction)
		if ok && a.GetVerb() == "delete-collection" && a.GetNamespace() == namespace && slices.Contains(selectors, d.GetListRestrictions().Labels.String()) {
			found[a.GetResource().Resource] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// requireGivenBack checks that a namespace has no trace of a peer.
func (w *world) requireGivenBack(name string) {
	w.t.Helper()
	w.eventually(name+" is given back", func() bool { return offloadingv1beta1.TwinOf(w.namespace(name)) == "" })
	ns := w.namespace(name)
	require.Equal(w.t, map[string]string{"team": "a", "pod-security.kubernetes.io/enforce": "restricted"}, ns.Labels)
	require.NotContains(w.t, ns.Annotations, offloadingv1beta1.OriginalNameAnnotation)
	require.NotContains(w.t, ns.Annotations, offloadingv1beta1.ConsumerUIDAnnotation)
	for _, role := range []string{PeerTwinRole, ControllerTwinRole} {
		require.Nil(w.t, w.bound(name, role), role)
	}
	for _, a := range w.core.Actions() {
		require.False(w.t, a.GetVerb() == "delete" && a.GetResource().Resource == "namespaces", "never deleted")
	}
}

func TestAcceptedTwin(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, tenantNamespace("rome"), sharing("shop", "rome"), romeCluster(romeUser), replica(map[string]string{"shop": "shop"}),
			reflectedService("of-paris", "paris"), reflectedService("of-rome", "rome")).provider()
		w.accepted("shop")
		ns := w.namespace("shop")
		require.Equal(t, map[string]string{"team": "a", "pod-security.kubernetes.io/enforce": "restricted", corev1beta1.RemoteClusterIDLabel: "rome"}, ns.Labels)
		require.Equal(t, map[string]string{offloadingv1beta1.AcceptTwinAnnotation: "rome", offloadingv1beta1.OriginalNameAnnotation: "shop",
			offloadingv1beta1.AcceptedForAnnotation: "liqo-tenant-rome/milan", offloadingv1beta1.ConsumerUIDAnnotation: "rome/peering-uid--rome"}, ns.Annotations)
		require.Equal(t, []string{"User:" + romeUser}, w.bound("shop", PeerTwinRole))
		require.NotNil(t, w.bound("shop", ControllerTwinRole))
		b, err := w.core.RbacV1().RoleBindings("shop").Get(t.Context(), PeerTwinRole, metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, PeerAcceptedRole, b.RoleRef.Name)
		require.Empty(t, refusal(ns, "liqod"), "its owner may offload it")
		w.settled()

		w.setDesired(nil)
		w.requireGivenBack("shop")
		require.Equal(t, []string{"configmaps", "ingresses", "pods", "secrets", "shadowendpointslices", "shadowpods"}, w.cleared("shop"))
		_, err = w.core.CoreV1().Services("shop").Get(t.Context(), "of-rome", metav1.GetOptions{})
		require.True(t, apierrors.IsNotFound(err))
		_, err = w.core.CoreV1().Services("shop").Get(t.Context(), "of-paris", metav1.GetOptions{})
		require.NoError(t, err, "nobody else's")
		w.setDesired(map[string]string{"shop": "shop"})
		w.accepted("shop")
	})
}

func TestAcceptanceTakenBack(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, tenantNamespace("rome"), sharing("shop", "rome"), romeCluster(romeUser), replica(map[string]string{"shop": "shop"})).provider()
		w.accepted("shop")
		w.changeNamespace("shop", func(ns *corev1.Namespace) { ns.Annotations[offloadingv1beta1.AcceptTwinAnnotation] = "paris" })
		w.requireGivenBack("shop")
		w.backsOff("shop", "liqo.io/accept-twin=rome")
		w.changeNamespace("shop", func(ns *corev1.Namespace) { ns.Annotations[offloadingv1beta1.AcceptTwinAnnotation] = "rome" })
		w.accepted("shop")
		w.changeNamespace("shop", func(ns *corev1.Namespace) { delete(ns.Labels, corev1beta1.PodSecurityLabel) })
		w.backsOff("shop", "pod-security")
		w.eventually("its rights are gone", func() bool { return w.bound("shop", PeerTwinRole) == nil })
	})
}

// TestTwinNames: a peer gets namespaces with its id in their names, those that the
// administrator lists, and those that accept it. Otherwise it could take the name of a
// product before that is installed, and read its Secrets.
func TestTwinNames(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, tenantNamespace("rome"), romeCluster(romeUser), plainNamespace("theirs"),
			replica(map[string]string{"web": "web-rome", "product": "cert-manager", "listed": "team-a", "shop": "shop", "foreign": "theirs"})).providerAs("milan", "team-*")
		w.accepted("web", "listed")
		for original, twin := range map[string]string{"product": "cert-manager", "shop": "shop"} {
			for _, why := range []string{"name a namespace " + twin, "end in -rome", "controller.twinNames of milan", "liqo.io/accept-twin=rome"} {
				w.backsOff(original, why)
			}
			_, err := w.core.CoreV1().Namespaces().Get(t.Context(), twin, metav1.GetOptions{})
			require.True(t, apierrors.IsNotFound(err))
		}
		w.backsOff("foreign", "was not made for cluster rome")
		require.Equal(t, strings.ReplaceAll(w.current("product").Message, "cert-manager", "theirs"), w.current("foreign").Message, "a peer does not learn which namespaces there are")
		_, err := w.core.CoreV1().Namespaces().Create(t.Context(), sharing("shop", "rome"), metav1.CreateOptions{})
		require.NoError(t, err)
		w.accepted("shop")
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
			_, err := w.liqo.CoreV1beta1().ForeignClusters().Update(t.Context(), fc, metav1.UpdateOptions{})
			require.NoError(t, err)
		}
		trust(corev1beta1.TrustOrganisation)
		w.accepted("web")
		trust(corev1beta1.TrustStrict)
		w.accepted("web")
	})
}

// TestStaleCacheTakesNoAcceptanceBack: a stale cache shows a namespace without its
// acceptance; the namespace stays a twin.
func TestStaleCacheTakesNoAcceptanceBack(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, tenantNamespace("rome"), sharing("shop", "rome"), romeCluster(romeUser), replica(map[string]string{"shop": "shop"})).provider()
		w.accepted("shop")
		before := w.settled()
		ns := w.namespace("shop").DeepCopy()
		delete(ns.Annotations, offloadingv1beta1.AcceptTwinAnnotation)
		require.NoError(t, w.coreInformers.Core().V1().Namespaces().Informer().GetStore().Update(ns))
		w.maps.Add(loop.Key{Namespace: "liqo-tenant-rome", Name: "milan"})
		require.Equal(t, before, w.settled())
		require.NotNil(t, w.bound("shop", PeerTwinRole))
	})
}

// TestAcceptedTwinWaitsForPods: the controller keeps its rights until the peer's pods are
// gone.
func TestAcceptedTwinWaitsForPods(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Labels: map[string]string{
			offloadingv1beta1.OriginLabel: "rome", offloadingv1beta1.ManagedByLabel: offloadingv1beta1.ManagedByShadowPod}}}
		w := newWorld(t, tenantNamespace("rome"), sharing("shop", "rome"), romeCluster(romeUser), replica(map[string]string{"shop": "shop"}), pod).provider()
		w.accepted("shop")
		w.setDesired(nil)
		w.eventually("the peer's rights go", func() bool { return w.bound("shop", PeerTwinRole) == nil })
		require.NotNil(t, w.bound("shop", ControllerTwinRole))
		require.NoError(t, w.core.CoreV1().Pods("shop").Delete(t.Context(), "web", metav1.DeleteOptions{}))
		w.requireGivenBack("shop")
	})
}

// TestAcceptedTwinWaitsForEndpoints: the controller keeps its rights until the peer's
// EndpointSlices are deleted. Otherwise the owner's Services would keep directing traffic
// to them.
func TestAcceptedTwinWaitsForEndpoints(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		slice := func(name string) *discoveryv1.EndpointSlice {
			return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{
				discoveryv1.LabelManagedBy: offloadingv1beta1.ManagedByShadowEndpointSlice}}}
		}
		controller := true
		going, others := slice("going"), slice("others")
		going.DeletionTimestamp, going.Finalizers = &metav1.Time{Time: time.Now()}, []string{"example.com/held"}
		others.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: "web", UID: "s", Controller: &controller}}
		w := newWorld(t, tenantNamespace("rome"), sharing("shop", "rome"), romeCluster(romeUser), replica(map[string]string{"shop": "shop"}),
			slice("web"), going, others).provider()
		w.accepted("shop")
		w.setDesired(nil)
		w.eventually("the peer's objects are deleted", func() bool { return len(w.cleared("shop")) > 0 })
		w.settled()
		require.Nil(t, w.bound("shop", PeerTwinRole))
		require.NotNil(t, w.bound("shop", ControllerTwinRole))
		require.NoError(t, w.core.DiscoveryV1().EndpointSlices("shop").Delete(t.Context(), "web", metav1.DeleteOptions{}))
		w.requireGivenBack("shop")
	})
}

// TestReleaseGoesOn: a release that stopped after the controller's rights were removed is
// completed. Without those rights, nothing more can be deleted, and they cannot be granted
// again.
func TestReleaseGoesOn(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, tenantNamespace("rome"), sharing("shop", "rome"), romeCluster(romeUser), replica(map[string]string{"shop": "shop"})).provider()
		w.accepted("shop")
		w.settled()
		var conflicts atomic.Int64
		w.core.PrependReactor("patch", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
			if conflicts.Add(1) > 1 {
				return false, nil, nil
			}
			return true, nil, apierrors.NewConflict(corev1.Resource("namespaces"), "shop", errors.New("changed"))
		})
		forbids := func(a clienttesting.Action) (bool, runtime.Object, error) {
			bindings := schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"}
			if _, err := w.core.Tracker().Get(bindings, "shop", ControllerTwinRole); err != nil {
				return true, nil, apierrors.NewForbidden(a.GetResource().GroupResource(), "", errors.New("no rights"))
			}
			return false, nil, nil
		}
		w.core.PrependReactor("delete-collection", "*", forbids)
		w.liqo.PrependReactor("delete-collection", "*", forbids)
		w.setDesired(nil)
		w.requireGivenBack("shop")
		require.Greater(t, conflicts.Load(), int64(1))
	})
}

func TestNotAccepted(t *testing.T) {
	t.Parallel()
	twin := sharing("of-paris", "rome")
	twin.Annotations[offloadingv1beta1.ManagedByNamespaceMapAnnotation] = "liqo-tenant-paris/milan"
	for name, ns := range map[string]*corev1.Namespace{"another peer": sharing("shop", "paris"), "the twin of another": twin, "nobody": plainNamespace("shop")} {
		t.Run(name, func(t *testing.T) {
			kubetest.Bubble(t, func(t *testing.T) {
				paris := replica(map[string]string{"x": "of-paris"}, func(m *offloadingv1beta1.NamespaceMap) {
					m.Namespace, m.Labels[offloadingv1beta1.OriginIDLabel] = "liqo-tenant-paris", "paris"
				})
				w := newWorld(t, tenantNamespace("rome"), tenantNamespace("paris"), ns, romeCluster(romeUser), replica(map[string]string{"shop": ns.Name}), paris).provider()
				w.backsOff("shop", "exists already")
				require.Nil(t, w.bound(ns.Name, PeerTwinRole))
			})
		})
	}
}

// TestAcceptedTwinGetsWhatIsShared: the peer has no rights to Secrets, claims and Services of an
// accepted namespace, but those that its owner shares, as long as the owner shares them.
func TestAcceptedTwinGetsWhatIsShared(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, tenantNamespace("rome"), sharing("shop", "rome"), romeCluster(romeUser), replica(map[string]string{"shop": "shop"})).provider()
		w.accepted("shop")
		w.settled()
		share := func(list string) {
			w.changeNamespace("shop", func(ns *corev1.Namespace) { ns.Annotations[offloadingv1beta1.AcceptTwinSharesAnnotation] = list })
		}
		given := func() (out []string) {
			for _, what := range offloadingv1beta1.AllShares() {
				if b := w.bound("shop", sharedRole(what)); b != nil {
					require.Equal(t, []string{"User:" + romeUser}, b)
					out = append(out, what)
				}
			}
			return out
		}
		require.Empty(t, given())
		require.Contains(t, w.current("shop").Message, "does not share its Secrets, PersistentVolumeClaims, Services")
		account, err := w.core.CoreV1().ServiceAccounts("shop").Get(t.Context(), offloadingv1beta1.AcceptedAccount, metav1.GetOptions{})
		require.NoError(t, err)
		require.False(t, *account.AutomountServiceAccountToken)

		share("Secrets, Services")
		w.eventually("two are shared", func() bool { return slices.Equal([]string{"Secrets", "Services"}, given()) })
		share("Services")
		w.eventually("one is taken back", func() bool { return slices.Equal([]string{"Services"}, given()) })
		share("Services,all")
		w.backsOff("shop", `"all": a list of Secrets,PersistentVolumeClaims,Services is accepted`)
		require.Empty(t, given(), "a list that is wrong shares nothing")
		require.Nil(t, w.bound("shop", PeerTwinRole))
		share("Secrets,PersistentVolumeClaims,Services")
		w.accepted("shop")
		require.Empty(t, w.current("shop").Message)
		require.Len(t, given(), 3)

		w.changeNamespace("shop", func(ns *corev1.Namespace) { delete(ns.Annotations, offloadingv1beta1.AcceptTwinAnnotation) })
		w.requireGivenBack("shop")
		require.Empty(t, given())
		_, err = w.core.CoreV1().ServiceAccounts("shop").Get(t.Context(), offloadingv1beta1.AcceptedAccount, metav1.GetOptions{})
		require.True(t, apierrors.IsNotFound(err))
	})
}
