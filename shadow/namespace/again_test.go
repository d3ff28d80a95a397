package namespace

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
)

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
