package cmd

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
)

// answer is the status of an offloading that milan and turin are asked for.
func answer(phase offloadingv1beta1.OffloadingPhase, reason, message string, milan metav1.Condition) offloadingv1beta1.NamespaceOffloadingStatus {
	return offloadingv1beta1.NamespaceOffloadingStatus{
		OffloadingPhase: phase, Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: reason, Message: message}},
		RemoteNamespacesConditions: map[string][]metav1.Condition{
			"milan": {{Type: "OffloadingRequired", Status: metav1.ConditionTrue}, milan},
			"turin": {{Type: "OffloadingRequired", Status: metav1.ConditionFalse}, {Type: "Ready", Status: metav1.ConditionFalse, Message: "leaves"}},
		},
	}
}

func creating() offloadingv1beta1.NamespaceOffloadingStatus {
	return answer(offloadingv1beta1.PhaseInProgress, "InProgress", "milan: asked", metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse, Message: "asked"})
}

func standing() offloadingv1beta1.NamespaceOffloadingStatus {
	return answer(offloadingv1beta1.PhaseReady, "Ready", "namespace shop-rome stands in cluster milan", metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Message: "stands"})
}

func TestOffload(t *testing.T) {
	waiting := "waiting for liqod's controller to process it (if that takes long: liqod check)\n"
	asked := "namespace shop: offloading is asked for (LocalAndRemote, twins by DefaultName)\n"
	for name, tc := range map[string]struct {
		answers []offloadingv1beta1.NamespaceOffloadingStatus
		args    []string
		out     string
		err     string
	}{
		"waits and tells": {
			[]offloadingv1beta1.NamespaceOffloadingStatus{{}, {}, creating(), creating(), standing()}, nil,
			asked + waiting + "milan: asked\nmilan: stands\nnamespace shop: offloaded; namespace shop-rome stands in cluster milan\n", "",
		},
		"services at home": {[]offloadingv1beta1.NamespaceOffloadingStatus{{}}, []string{"--services=Home", "--wait=false"},
			asked + "\nDifferent in providers\n  services Home: each call by name of a pod in a provider goes through this cluster, and stops while it cannot be reached: docs/networking.md#services-at-home\n\n", ""},

		"does not wait": {[]offloadingv1beta1.NamespaceOffloadingStatus{{}}, []string{"--wait=false"}, asked, ""},
		"time is over": {
			[]offloadingv1beta1.NamespaceOffloadingStatus{creating()}, []string{"--timeout=1s"}, asked + "milan: asked\n",
			"namespace shop is not offloaded yet, timed out after 1s; what was asked for stands. Still missing: milan: asked",
		},
		"no controller": {
			[]offloadingv1beta1.NamespaceOffloadingStatus{{}}, []string{"--timeout=1s"}, asked + waiting,
			"Still missing: waiting for liqod's controller to process it",
		},
		"invalid": {
			[]offloadingv1beta1.NamespaceOffloadingStatus{{OffloadingPhase: offloadingv1beta1.PhaseAllFailed,
				Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Invalid", Message: "the name is too long"}}}}, nil,
			asked, "namespace shop is not offloaded: the name is too long",
		},
		"nobody selected": {
			[]offloadingv1beta1.NamespaceOffloadingStatus{{OffloadingPhase: offloadingv1beta1.PhaseNoClusterSelected,
				Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: "NoClusterSelected", Message: "no virtual node matches"}}}}, nil,
			asked, "no virtual node matches",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster()
			c.answers(tc.answers...)
			out, err := c.run(t, append([]string{"offload", "namespace", "shop"}, tc.args...)...)
			require.Equal(t, tc.out, out)
			if tc.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tc.err)
				require.Equal(t, ExitProblem, code(err))
			}
			require.NotNil(t, c.offloading(t), "what was asked for stands")
		})
	}
}

func existing(change func(*offloadingv1beta1.NamespaceOffloading)) *offloadingv1beta1.NamespaceOffloading {
	o := &offloadingv1beta1.NamespaceOffloading{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "offloading", UID: "1", Labels: map[string]string{"kept": "yes"}},
		Spec:       offloadingv1beta1.NamespaceOffloadingSpec{NamespaceMappingStrategy: offloadingv1beta1.DefaultName, PodOffloadingStrategy: offloadingv1beta1.PodsLocalAndRemote},
	}
	change(o)
	return o
}

func TestOffloadAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		have func(*offloadingv1beta1.NamespaceOffloading)
		args []string
		out  string
		err  string
	}{
		"the same":    {func(*offloadingv1beta1.NamespaceOffloading) {}, nil, "namespace shop: offloading is asked for already\n", ""},
		"otherwise":   {func(*offloadingv1beta1.NamespaceOffloading) {}, []string{"--pod-offloading-strategy=Remote", "-l", "a=b"}, "namespace shop: offloading is changed (Remote)\n", ""},
		"other names": {func(*offloadingv1beta1.NamespaceOffloading) {}, []string{"--namespace-mapping-strategy=EnforceSameName"}, "", "is offloaded already, with twins named by DefaultName"},
		"selected names": {func(o *offloadingv1beta1.NamespaceOffloading) {
			o.Spec.NamespaceMappingStrategy, o.Spec.RemoteNamespaceName = offloadingv1beta1.SelectedName, "store"
		}, []string{"--namespace-mapping-strategy=DefaultName"}, "", "with twins named by SelectedName store: that cannot be changed; unoffload it first"},
		"on its way out": {func(o *offloadingv1beta1.NamespaceOffloading) { o.DeletionTimestamp = ptr.To(metav1.Now()) }, nil, "", "offload it again when that has ended"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(existing(tc.have))
			out, err := c.run(t, append([]string{"offload", "namespace", "shop", "--wait=false"}, tc.args...)...)
			require.Equal(t, tc.out, out)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			have := c.offloading(t)
			require.Equal(t, "yes", have.Labels["kept"])
			if len(tc.args) > 0 {
				require.Equal(t, offloadingv1beta1.PodsRemote, have.Spec.PodOffloadingStrategy)
				require.Len(t, have.Spec.ClusterSelector.NodeSelectorTerms, 1)
			}
		})
	}
}

// What no flag names stays as it is.
func TestOffloadKeeps(t *testing.T) {
	t.Parallel()
	milan := must(nodeSelector([]string{"liqo.io/remote-cluster-id=milan"}))
	c := newCluster(existing(func(o *offloadingv1beta1.NamespaceOffloading) {
		o.Spec = offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsRemote, ClusterSelector: milan,
			NamespaceMappingStrategy: offloadingv1beta1.SelectedName, RemoteNamespaceName: "store"}
	}))
	want := c.offloading(t).Spec
	for _, tc := range []struct {
		args   []string
		change func(*offloadingv1beta1.NamespaceOffloadingSpec)
		says   string
	}{
		{nil, func(*offloadingv1beta1.NamespaceOffloadingSpec) {}, "offloading is asked for already"},
		{[]string{"--pod-offloading-strategy=LocalAndRemote"}, func(s *offloadingv1beta1.NamespaceOffloadingSpec) {
			s.PodOffloadingStrategy = offloadingv1beta1.PodsLocalAndRemote
		}, "offloading is changed (LocalAndRemote)"},
		{[]string{"-l", "a=b"}, func(s *offloadingv1beta1.NamespaceOffloadingSpec) {
			s.ClusterSelector.NodeSelectorTerms = []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "a", Operator: corev1.NodeSelectorOpIn, Values: []string{"b"}}}}}
		}, "offloading is changed (LocalAndRemote)"},
		{[]string{"-l", ""}, func(s *offloadingv1beta1.NamespaceOffloadingSpec) { s.ClusterSelector = corev1.NodeSelector{} }, "offloading is changed (LocalAndRemote)"},
	} {
		out := c.ran(t, append([]string{"offload", "shop", "--wait=false"}, tc.args...)...)
		require.Equal(t, "namespace shop: "+tc.says+"\n", out)
		tc.change(&want)
		require.Equal(t, want, c.offloading(t).Spec)
	}
}

// TestOffloadEndsPods: the flag names the clusters of today, for this change only.
func TestOffloadEndsPods(t *testing.T) {
	t.Parallel()
	c := newCluster(existing(func(o *offloadingv1beta1.NamespaceOffloading) { o.Status = standing() }))
	for _, tc := range []struct {
		args []string
		want string
	}{{[]string{"-l", "a=b", "--end-pods"}, "milan,turin"}, {[]string{"-l", "a=c"}, ""}} {
		c.ran(t, append([]string{"offload", "shop", "--wait=false"}, tc.args...)...)
		require.Equal(t, tc.want, c.offloading(t).Annotations["liqo.io/end-pods-in"])
	}
}

func TestOffloadOfWhatIsNotThere(t *testing.T) {
	t.Parallel()
	require.EqualError(t, errOf(newCluster().run(t, "offload", "namespace", "market")), "there is no namespace market in this cluster: make it first (kubectl create namespace market)")
}

// A cluster without liqod's kinds answers in its own way.
func TestNotInstalled(t *testing.T) {
	t.Parallel()
	c := newCluster()
	c.liqod.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewGenericServerResponse(404, action.GetVerb(), action.GetResource().GroupResource(), "offloading", "404 page not found", 0, true)
	})
	for _, args := range [][]string{{"offload", "namespace", "shop"}, {"unoffload", "namespace", "shop"}} {
		require.ErrorContains(t, errOf(c.run(t, args...)), "liqod is not installed in this cluster")
	}
	out := c.fails(t, ExitProblem, "", "check")
	require.Contains(t, out, "✘ CRDs: the API server lacks addresspools")
}

func TestWaitSurvivesAnOutage(t *testing.T) {
	t.Parallel()
	c := newCluster(existing(func(*offloadingv1beta1.NamespaceOffloading) {}))
	c.answers(standing())
	turn := 0
	c.liqod.PrependReactor("get", "namespaceoffloadings", func(clienttesting.Action) (bool, runtime.Object, error) {
		turn++
		if turn == 2 { // the first is asked before the wait
			return true, nil, apierrors.NewInternalError(errors.New("etcd is away"))
		}
		return false, nil, nil
	})
	out := c.ran(t, "offload", "namespace", "shop")
	require.Contains(t, out, "waiting for the API server: ")
	require.Contains(t, out, "namespace shop: offloaded")
}

func TestUnoffload(t *testing.T) {
	mapOf := func(change func(*offloadingv1beta1.NamespaceMap)) *offloadingv1beta1.NamespaceMap {
		m := &offloadingv1beta1.NamespaceMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"},
			Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{
				"shop": {RemoteNamespace: "shop-rome", Phase: offloadingv1beta1.MappingTerminating}}},
		}
		change(m)
		return m
	}
	deleted := "namespace shop: its offloading is deleted\n"
	for name, tc := range map[string]struct {
		objects []runtime.Object
		args    []string
		out     string
		err     string
	}{
		"gone at once":  {[]runtime.Object{existing(func(*offloadingv1beta1.NamespaceOffloading) {})}, nil, deleted + "namespace shop: no provider has anything of it any more\n", ""},
		"not offloaded": {nil, nil, "namespace shop: it is not offloaded\n", ""},
		"a peer's own map is none of ours": {
			[]runtime.Object{existing(func(*offloadingv1beta1.NamespaceOffloading) {}), mapOf(func(m *offloadingv1beta1.NamespaceMap) { m.Name = "rome" })}, nil,
			deleted + "namespace shop: no provider has anything of it any more\n", "",
		},
		"does not wait": {
			[]runtime.Object{existing(func(*offloadingv1beta1.NamespaceOffloading) {}), mapOf(func(*offloadingv1beta1.NamespaceMap) {})}, []string{"--wait=false"}, deleted, "",
		},
		"the twin stays": {
			[]runtime.Object{existing(func(*offloadingv1beta1.NamespaceOffloading) {}), mapOf(func(*offloadingv1beta1.NamespaceMap) {})}, []string{"--timeout=1s"},
			deleted + "milan: namespace shop-rome is being removed\n",
			"namespace shop is not gone from everywhere, timed out after 1s; nothing more has to be asked for. Left: milan: namespace shop-rome is being removed",
		},
		"the twin is kept for its volumes": {
			[]runtime.Object{existing(func(*offloadingv1beta1.NamespaceOffloading) {}), mapOf(func(m *offloadingv1beta1.NamespaceMap) {
				m.Status.CurrentMapping["shop"] = offloadingv1beta1.RemoteNamespaceStatus{RemoteNamespace: "shop-rome", Phase: offloadingv1beta1.MappingTerminating, Message: "kept for its volumes"}
			})}, nil,
			deleted + "milan: kept for its volumes\nnamespace shop: taken back; what is kept for its volumes stays until somebody deletes it\n", "",
		},
		"the peer is away": {
			[]runtime.Object{mapOf(func(m *offloadingv1beta1.NamespaceMap) {
				m.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: offloadingv1beta1.ReasonReplicationFailed, Message: "timeout"}}
			})}, []string{"--timeout=1s"},
			"namespace shop: it is not offloaded\nmilan: namespace shop-rome is removed when the cluster is reached again: timeout\n", "Left: milan",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(tc.objects...)
			out, err := c.run(t, append([]string{"unoffload", "namespace", "shop"}, tc.args...)...)
			require.Equal(t, tc.out, out)
			if tc.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tc.err)
			}
			require.Nil(t, c.offloading(t))
		})
	}
}

func TestStatusReads(t *testing.T) {
	t.Parallel()
	c := newCluster(existing(func(o *offloadingv1beta1.NamespaceOffloading) { o.Status = standing() }),
		foreignCluster("milan"))
	c.forbid("list", "daemonsets")
	// A pod that milan runs here, on a virtual node: it is found twice.
	kubetest.Create(t, c.core.CoreV1().Nodes(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "turin", Labels: map[string]string{
		offloadingv1beta1.TypeLabel: offloadingv1beta1.TypeVirtualNode}}})
	kubetest.Create(t, c.core.CoreV1().Pods("shop"), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{
		offloadingv1beta1.OriginLabel: "milan", offloadingv1beta1.ManagedByLabel: offloadingv1beta1.ManagedByShadowPod}}})
	out := c.fails(t, ExitProblem, "", "status", "-o", "json")
	require.Contains(t, out, `"namespaces": 0,
        "pods": 1
`)
	out, err := c.run(t, "status")
	require.Equal(t, ExitProblem, code(err), "there is no controller")
	require.Contains(t, out, "milan: 0 pods")
	out = c.fails(t, ExitProblem, "", "check", "-n", "elsewhere")
	require.Contains(t, out, "namespace elsewhere has no Deployment of it")
	out = c.fails(t, ExitProblem, "", "check", "-o", "yaml")
	require.Contains(t, out, "health: problem\n")
	require.Contains(t, out, "may not read DaemonSets")
	c.fails(t, ExitUnknown, `there is no peer "genoa": the only peer is milan`, "status", "genoa")
}
