package namespace

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
)

func offload(namespace string, change ...func(*offloadingv1beta1.NamespaceOffloading)) *offloadingv1beta1.NamespaceOffloading {
	n := &offloadingv1beta1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Name: "offloading", Namespace: namespace, Generation: 1}}
	for _, f := range change {
		f(n)
	}
	return n
}

func named(name string) func(*offloadingv1beta1.NamespaceOffloading) {
	return func(n *offloadingv1beta1.NamespaceOffloading) {
		n.Spec.NamespaceMappingStrategy, n.Spec.RemoteNamespaceName = offloadingv1beta1.SelectedName, name
	}
}

func (w *world) message(namespace string) string {
	n := w.nso(namespace)
	if n == nil {
		return ""
	}
	c := meta.FindStatusCondition(n.Status.Conditions, offloadingv1beta1.RemoteNamespaceReady)
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason + ": " + c.Message
}

func (w *world) removeOffloading(namespace string) {
	require.NoError(w.t, w.liqo.OffloadingV1beta1().NamespaceOffloadings(namespace).Delete(context.Background(), "offloading", metav1.DeleteOptions{}))
}

func (w *world) answer(peer, namespace string, s offloadingv1beta1.RemoteNamespaceStatus) {
	m := w.namespaceMap(peer)
	if m.Status.CurrentMapping == nil {
		m.Status.CurrentMapping = map[string]offloadingv1beta1.RemoteNamespaceStatus{}
	}
	m.Status.CurrentMapping[namespace] = s
	kubetest.UpdateStatus(w.t, w.liqo.OffloadingV1beta1().NamespaceMaps(m.Namespace), m)
}

// offloaded returns a world in which namespace web is offloaded to milan, and the loops are idle.
func offloaded(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, plainNamespace("web"), tenantNamespace("milan"), virtualNode("milan", "milan", nil), offload("web")).consumer()
	w.eventually("asked", func() bool { return w.desired("milan")["web"] == "web-rome" })
	w.settled()
	return w
}

func TestOffloadAndBack(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		other := &offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"},
			Spec: offloadingv1beta1.NamespaceMapSpec{DesiredMapping: map[string]string{"shop": "shop-rome"}}}
		w := newWorld(t, plainNamespace("web"), plainNamespace("shop"), tenantNamespace("milan"), tenantNamespace("turin"), other, offload("shop"),
			virtualNode("milan", "milan", nil), virtualNode("turin", "turin", nil), offload("web")).consumer()

		w.eventually("both providers are asked", func() bool {
			return w.desired("milan")["web"] == "web-rome" && w.desired("turin")["web"] == "web-rome"
		})
		require.Equal(t, "shop-rome", w.desired("milan")["shop"], "another namespace's entry stays")
		require.Equal(t, "true", w.namespace("web").Labels[offloadingv1beta1.SchedulingEnabledLabel])
		w.eventually("it waits for answers", func() bool { return w.nso("web").Status.OffloadingPhase == offloadingv1beta1.PhaseInProgress })

		accepted := offloadingv1beta1.RemoteNamespaceStatus{RemoteNamespace: "web-rome", Phase: offloadingv1beta1.MappingAccepted}
		w.answer("milan", "web", accepted)
		w.answer("turin", "web", offloadingv1beta1.RemoteNamespaceStatus{RemoteNamespace: "web-rome", Phase: offloadingv1beta1.MappingCreationLoopBackOff, Message: "exists already"})
		w.eventually("one failed", func() bool { return w.nso("web").Status.OffloadingPhase == offloadingv1beta1.PhaseSomeFailed })
		require.Contains(t, w.message("web"), "turin: exists already")
		w.answer("turin", "web", accepted)
		w.eventually("ready", func() bool { return w.nso("web").Status.OffloadingPhase == offloadingv1beta1.PhaseReady })
		require.Contains(t, w.nso("web").Finalizers, offloadingv1beta1.NamespaceOffloadingFinalizer)

		// The providers are unreachable from here on.
		w.removeOffloading("web")
		w.eventually("the finalizer goes", func() bool { return w.nso("web") == nil })
		require.NotContains(t, w.desired("milan"), "web")
		require.NotContains(t, w.desired("turin"), "web")
		require.Equal(t, "shop-rome", w.desired("milan")["shop"])
		require.NotContains(t, w.namespace("web").Labels, offloadingv1beta1.SchedulingEnabledLabel)
		require.NotContains(t, w.namespace("web").Annotations, markAnnotation)
	})
}

// A map says of which namespaces the pods use the Services of this cluster, until they are taken back.
func TestServicesAreInTheMap(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		home := func(n *offloadingv1beta1.NamespaceOffloading) { n.Spec.Services = offloadingv1beta1.ServicesHome }
		w := newWorld(t, plainNamespace("web"), plainNamespace("shop"), plainNamespace("bank"), tenantNamespace("milan"), virtualNode("milan", "milan", nil),
			offload("web"), offload("shop", home), offload("bank", home)).consumer()
		w.eventually("asked", func() bool { return len(w.desired("milan")) == 3 })
		const is = offloadingv1beta1.ServicesHome
		require.Equal(t, map[string]offloadingv1beta1.ServiceNetwork{"shop": is, "bank": is}, w.namespaceMap("milan").Spec.Services)
		w.removeOffloading("shop")
		w.eventually("taken back", func() bool { return len(w.desired("milan")) == 2 })
		require.Equal(t, map[string]offloadingv1beta1.ServiceNetwork{"bank": is}, w.namespaceMap("milan").Spec.Services)
	})
}

func TestUsersLabelStays(t *testing.T) {
	t.Parallel()
	for name, label := range map[string]string{"true": "true", "other": "no"} {
		t.Run(name, func(t *testing.T) {
			kubetest.Bubble(t, func(t *testing.T) {
				ns := plainNamespace("web")
				ns.Labels = map[string]string{offloadingv1beta1.SchedulingEnabledLabel: label}
				w := newWorld(t, ns, tenantNamespace("milan"), virtualNode("milan", "milan", nil), offload("web")).consumer()
				w.eventually("asked", func() bool { return w.desired("milan")["web"] != "" })
				require.Equal(t, "true", w.namespace("web").Labels[offloadingv1beta1.SchedulingEnabledLabel])
				w.settled()
				w.removeOffloading("web")
				w.eventually("the finalizer goes", func() bool { return w.nso("web") == nil })
				require.Equal(t, label, w.namespace("web").Labels[offloadingv1beta1.SchedulingEnabledLabel])
			})
		})
	}
}

func TestSameNameAtOneProvider(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, plainNamespace("a"), plainNamespace("b"), tenantNamespace("milan"), virtualNode("milan", "milan", nil), offload("a", named("shop"))).consumer()
		w.eventually("asked", func() bool { return w.desired("milan")["a"] == "shop" })
		kubetest.Create(t, w.liqo.OffloadingV1beta1().NamespaceOffloadings("b"), offload("b", named("shop")))
		w.eventually("the second is told", func() bool { return w.nso("b").Status.OffloadingPhase == offloadingv1beta1.PhaseAllFailed })
		require.Contains(t, w.message("b"), "namespace a is already offloaded to cluster milan as shop")
		require.NotContains(t, w.desired("milan"), "b")

		w.removeOffloading("a")
		w.eventually("the second takes the name", func() bool { return w.desired("milan")["b"] == "shop" })
		require.NotContains(t, w.desired("milan"), "a")
	})
}

func TestRefusedNamespaces(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		twin, going := plainNamespace("web-oslo"), plainNamespace("going")
		twin.Annotations = map[string]string{offloadingv1beta1.ManagedByNamespaceMapAnnotation: "liqo-tenant-oslo/oslo"}
		going.DeletionTimestamp, going.Finalizers = new(metav1.Now()), []string{"test/hold"}
		w := newWorld(t, plainNamespace("kube-system"), twin, going, tenantNamespace("milan"), virtualNode("milan", "milan", nil),
			offload("kube-system"), offload("web-oslo"), offload("liqo-tenant-milan"), offload("going")).consumer()
		for _, ns := range []string{"kube-system", "web-oslo", "liqo-tenant-milan"} {
			w.eventually(ns, func() bool { return w.message(ns) != "" })
			require.Contains(t, w.message(ns), "False Invalid")
			require.Empty(t, w.nso(ns).Finalizers)
		}
		w.settled()
		require.Empty(t, w.message("going"))
		require.Nil(t, w.namespaceMap("milan"))
	})
}

// TestOffloadedNamespace: a restart writes nothing, and an entry stays where a stale cache shows the virtual node as
// missing. It goes as soon as the namespace is being deleted: Kubernetes deletes the NamespaceOffloading only after the
// pods.
func TestOffloadedNamespace(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := offloaded(t)
		objects := []runtime.Object{w.namespace("web"), w.namespace("liqo-tenant-milan"), virtualNode("milan", "milan", nil), w.nso("web"), w.namespaceMap("milan")}
		require.Zero(t, newWorld(t, objects...).consumer().settled())

		require.NoError(t, w.liqoInformers.Offloading().V1beta1().VirtualNodes().Informer().GetStore().Delete(virtualNode("milan", "milan", nil)))
		w.offloading.Add(offloadingKey("web"))
		w.settled()
		require.Contains(t, w.desired("milan"), "web")

		w.changeNamespace("web", func(ns *corev1.Namespace) { ns.Finalizers = []string{"test/hold"} })
		require.NoError(t, w.core.CoreV1().Namespaces().Delete(t.Context(), "web", metav1.DeleteOptions{}))
		w.eventually("the provider is asked no longer", func() bool { return w.desired("milan")["web"] == "" })
		w.eventually("the finalizer goes", func() bool { return len(w.nso("web").Finalizers) == 0 })
	})
}

// TestVirtualNodesComeAndGo: an entry goes with the virtual node. Where somebody deletes a tenant namespace, virtual
// nodes go because of that, and nothing is withdrawn from the provider.
func TestVirtualNodesComeAndGo(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, plainNamespace("web"), tenantNamespace("milan"), offload("web")).consumer()
		w.eventually("told", func() bool { return w.nso("web").Status.OffloadingPhase == offloadingv1beta1.PhaseNoClusterSelected })
		vns := w.liqo.OffloadingV1beta1().VirtualNodes("liqo-tenant-milan")
		comes := func() {
			kubetest.Create(t, vns, virtualNode("milan", "milan", nil))
			w.eventually("asked", func() bool { return w.desired("milan")["web"] != "" })
		}
		comes()
		require.NoError(t, vns.Delete(t.Context(), "milan", metav1.DeleteOptions{}))
		w.eventually("no longer asked", func() bool { _, ok := w.desired("milan")["web"]; return !ok })

		comes()
		going := w.namespace("liqo-tenant-milan").DeepCopy()
		going.DeletionTimestamp, going.Finalizers = new(metav1.Now()), []string{"kubernetes"}
		require.NoError(t, w.core.Tracker().Update(corev1.SchemeGroupVersion.WithResource("namespaces"), going, ""))
		require.NoError(t, vns.Delete(t.Context(), "milan", metav1.DeleteOptions{}))
		w.settled()
		require.NotEmpty(t, w.desired("milan")["web"])
	})
}

func TestSelectorChange(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		milan := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "milan", Labels: map[string]string{
			offloadingv1beta1.TypeLabel: offloadingv1beta1.TypeVirtualNode, "region": "north"}}}
		north := func(n *offloadingv1beta1.NamespaceOffloading) { n.Spec.ClusterSelector = selector("region", "north") }
		w := newWorld(t, plainNamespace("web"), tenantNamespace("milan"), milan, virtualNode("milan", "milan", nil), offload("web", north)).consumer()
		w.eventually("asked", func() bool { return w.desired("milan")["web"] != "" })
		w.settled()

		// The Node is deleted, and with it a label that exists nowhere else. The entry stays.
		require.NoError(t, w.core.CoreV1().Nodes().Delete(t.Context(), "milan", metav1.DeleteOptions{}))
		w.settled()
		require.Contains(t, w.desired("milan"), "web")

		milan.Labels["region"], milan.ResourceVersion = "south", ""
		kubetest.Create(t, w.core.CoreV1().Nodes(), milan)
		w.eventually("no longer asked", func() bool { _, ok := w.desired("milan")["web"]; return !ok })
		w.eventually("told", func() bool { return w.nso("web").Status.OffloadingPhase == offloadingv1beta1.PhaseNoClusterSelected })

		n := w.nso("web")
		n.Spec.ClusterSelector = corev1.NodeSelector{}
		n.Generation++
		kubetest.Update(t, w.liqo.OffloadingV1beta1().NamespaceOffloadings("web"), n)
		w.eventually("asked again", func() bool { return w.desired("milan")["web"] != "" })
	})
}

// TestStaleCacheMapsNothing: a NamespaceOffloading that the cache still has, but a restored
// etcd has not, adds no entry to a map. Such an entry would be removed again, and the twin
// with it.
func TestStaleCacheMapsNothing(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, plainNamespace("web"), tenantNamespace("milan"), virtualNode("milan", "milan", nil)).consumer()
		w.settled()
		stale := offload("web")
		stale.UID, stale.Finalizers = "before", []string{offloadingv1beta1.NamespaceOffloadingFinalizer}
		require.NoError(t, w.liqoInformers.Offloading().V1beta1().NamespaceOffloadings().Informer().GetStore().Add(stale))
		w.offloading.Add(offloadingKey("web"))
		w.settled()
		require.NotContains(t, w.desired("milan"), "web")
	})
}

func TestLeftoversAreSwept(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		m := &offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"},
			Spec: offloadingv1beta1.NamespaceMapSpec{DesiredMapping: map[string]string{"gone": "gone-rome", "bare": "bare-rome"}}}
		bare := plainNamespace("bare")
		bare.Labels = map[string]string{offloadingv1beta1.SchedulingEnabledLabel: "true"}
		bare.Annotations = map[string]string{markAnnotation: ""}
		w := newWorld(t, tenantNamespace("milan"), bare, m, virtualNode("milan", "milan", nil)).consumer()
		w.eventually("no entries left", func() bool { return len(w.desired("milan")) == 0 })
		w.eventually("no label left", func() bool { return len(w.namespace("bare").Labels) == 0 })
	})
}

func TestPeersMapIsNotWritten(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		m := &offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan",
			Labels: map[string]string{offloadingv1beta1.ReplicatedLabel: "true", offloadingv1beta1.OriginIDLabel: "milan"}},
			Spec: offloadingv1beta1.NamespaceMapSpec{DesiredMapping: map[string]string{"web": "web-milan"}}}
		w := newWorld(t, plainNamespace("web"), tenantNamespace("milan"), m, virtualNode("milan", "milan", nil), offload("web")).consumer()
		w.eventually("told", func() bool { return w.nso("web").Status.OffloadingPhase == offloadingv1beta1.PhaseAllFailed })
		require.Contains(t, w.message("web"), "was written by cluster milan")
		require.Equal(t, map[string]string{"web": "web-milan"}, w.desired("milan"))
	})
}

// TestConflictIsTriedAgain: the API server refuses the first writes of the map with a
// conflict.
func TestConflictIsTriedAgain(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		m := &offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"}}
		w := newWorld(t, plainNamespace("web"), tenantNamespace("milan"), m, virtualNode("milan", "milan", nil), offload("web"))
		refused := 0
		w.liqo.PrependReactor("patch", "namespacemaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			if refused++; refused <= 2 {
				return true, nil, apierrors.NewConflict(offloadingv1beta1.Resource("namespacemaps"), "milan", nil)
			}
			return false, nil, nil
		})
		w.consumer()
		w.eventually("asked", func() bool { return w.desired("milan")["web"] == "web-rome" })
	})
}

// TestMapDeletedByHand: a map that was deleted by hand is created again with all its
// entries. The provider would delete a twin that is missing even for a moment, with its
// pods.
func TestMapDeletedByHand(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, tenantNamespace("milan"), virtualNode("milan", "milan", nil), plainNamespace("a"), plainNamespace("b"), plainNamespace("c"),
			plainNamespace("d"), offload("a"), offload("b"), offload("c", named("shop"))).consumer()
		want := map[string]string{"a": "a-rome", "b": "b-rome", "c": "shop"}
		w.eventually("all are asked for", func() bool { return len(w.desired("milan")) == 3 })
		kubetest.Create(t, w.liqo.OffloadingV1beta1().NamespaceOffloadings("d"), offload("d", named("shop")))
		w.eventually("the second is told", func() bool { return w.nso("d").Status.OffloadingPhase == offloadingv1beta1.PhaseAllFailed })
		w.settled()
		w.liqo.ClearActions()
		require.NoError(t, w.liqo.OffloadingV1beta1().NamespaceMaps("liqo-tenant-milan").Delete(t.Context(), "milan", metav1.DeleteOptions{}))
		w.eventually("it is made again", func() bool { return w.namespaceMap("milan") != nil })
		w.settled()
		var made []map[string]string
		for _, a := range w.liqo.Actions() {
			if c, ok := a.(clienttesting.CreateActionImpl); ok && a.GetResource().Resource == "namespacemaps" {
				m, ok := c.GetObject().(*offloadingv1beta1.NamespaceMap)
				require.True(t, ok)
				made = append(made, m.Spec.DesiredMapping)
			}
		}
		require.Len(t, made, 1)
		for _, ns := range []string{"a", "b"} {
			require.Equal(t, want[ns], made[0][ns])
		}
		require.Contains(t, made[0], "c", "the one that had the name keeps it")
		require.Equal(t, want, w.desired("milan"))

		w.removeOffloading("a")
		w.eventually("it is not asked for again", func() bool { _, ok := w.desired("milan")["a"]; return !ok })
	})
}

func TestReplicationTroubleIsShown(t *testing.T) {
	t.Parallel()
	for name, reason := range map[string]string{"not replicated": offloadingv1beta1.ReasonReplicationFailed, "not accepted": offloadingv1beta1.ReasonInvalid} {
		t.Run(name, func(t *testing.T) {
			kubetest.Bubble(t, func(t *testing.T) {
				w := newWorld(t, plainNamespace("web"), tenantNamespace("milan"), virtualNode("milan", "milan", nil), offload("web")).consumer()
				w.eventually("it waits for answers", func() bool {
					n := w.nso("web")
					return n != nil && n.Status.OffloadingPhase == offloadingv1beta1.PhaseInProgress
				})
				w.say("milan", metav1.ConditionFalse, reason, "no right to create")
				w.eventually("told", func() bool { return w.nso("web").Status.OffloadingPhase == offloadingv1beta1.PhaseAllFailed })
				require.Contains(t, w.message("web"), "milan: cluster milan cannot be asked for namespace web-rome: no right to create")
				c := meta.FindStatusCondition(w.nso("web").Status.RemoteNamespacesConditions["milan"], offloadingv1beta1.RemoteNamespaceReady)
				require.Equal(t, offloadingv1beta1.ReasonReplicationFailed, c.Reason)

				w.say("milan", metav1.ConditionFalse, offloadingv1beta1.ReasonCreating, "")
				w.eventually("it waits again", func() bool { return w.nso("web").Status.OffloadingPhase == offloadingv1beta1.PhaseInProgress })
				w.answer("milan", "web", offloadingv1beta1.RemoteNamespaceStatus{RemoteNamespace: "web-rome", Phase: offloadingv1beta1.MappingAccepted})
				w.eventually("ready", func() bool { return w.nso("web").Status.OffloadingPhase == offloadingv1beta1.PhaseReady })
				w.say("milan", metav1.ConditionFalse, reason, "no right to update")
				w.settled()
				require.Equal(t, offloadingv1beta1.PhaseReady, w.nso("web").Status.OffloadingPhase, "a twin that stands does")
			})
		})
	}
}

// say sets the condition Ready of the own map for a peer.
func (w *world) say(peer string, status metav1.ConditionStatus, reason, message string) {
	m := w.namespaceMap(peer)
	meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: offloadingv1beta1.RemoteNamespaceReady, Status: status, Reason: reason, Message: message})
	kubetest.UpdateStatus(w.t, w.liqo.OffloadingV1beta1().NamespaceMaps(m.Namespace), m)
}

// TestWhoHasANameKeepsIt: when an offloading that waits for a name creates the map again,
// the namespace that had the name keeps it.
func TestWhoHasANameKeepsIt(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		had := offload("c", named("shop"))
		had.Status.RemoteNamespaceName = "shop"
		had.Status.RemoteNamespacesConditions = map[string][]metav1.Condition{"milan": {{Type: offloadingv1beta1.RemoteNamespaceOffloadingRequired, Status: metav1.ConditionTrue}}}
		w := newWorld(t, tenantNamespace("milan"), had)
		indexer := w.liqoInformers.Offloading().V1beta1().NamespaceOffloadings().Informer().GetIndexer()
		require.NoError(t, indexer.Add(had))
		e := &entries{liqo: w.liqo, lister: w.liqoInformers.Offloading().V1beta1().NamespaceMaps().Lister(), offloadings: w.liqoInformers.Offloading().V1beta1().NamespaceOffloadings().Lister()}
		problem, err := e.set(t.Context(), "milan", "d", entry{name: "shop"})
		require.NoError(t, err)
		require.Contains(t, problem, "namespace c is already offloaded to cluster milan as shop")
		require.Equal(t, map[string]string{"c": "shop"}, w.desired("milan"))
	})
}
