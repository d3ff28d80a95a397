package roles

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	liqofake "github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/serve"
)

func review(t testing.TB, op admissionv1.Operation, obj, old any) *admissionv1.AdmissionRequest {
	t.Helper()
	raw := func(o any) runtime.RawExtension {
		if o == nil {
			return runtime.RawExtension{}
		}
		data := must(json.Marshal(o))
		return runtime.RawExtension{Raw: data}
	}
	return &admissionv1.AdmissionRequest{UID: "u", Operation: op, Object: raw(obj), OldObject: raw(old)}
}

// newRules returns the rules with filled caches, and clients that keep what they are asked.
func newRules(t testing.TB, core []runtime.Object, liqo ...runtime.Object) (map[string]serve.Rule, *fake.Clientset, *liqofake.Clientset) {
	t.Helper()
	kube, ours := fake.NewClientset(core...), liqofake.NewSimpleClientset(liqo...)
	own := externalversions.NewSharedInformerFactory(ours, 0)
	rules := rulesForPeople(clients{kube: kube, liqo: ours}, own, "rome", "liqod")
	ctx, cancel := context.WithCancel(context.Background())
	own.Start(ctx.Done())
	t.Cleanup(func() {
		cancel()
		own.Shutdown()
	})
	for kind, synced := range own.WaitForCacheSync(ctx.Done()) {
		require.True(t, synced, kind)
	}
	kube.ClearActions()
	ours.ClearActions()
	return rules, kube, ours
}

// TestRulesReadCaches: no review lists objects, however many come.
func TestRulesReadCaches(t *testing.T) {
	t.Parallel()
	rules, kube, ours := newRules(t, []runtime.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web"}}}, foreignCluster("milan", "milan"))
	for path, want := range map[string][]string{
		validateNamespaceOffloadingPath: {"get namespaces"},
		validateVirtualNodePath:         {"get nodes"},
		validateForeignClusterPath:      nil,
	} {
		kube.ClearActions()
		ours.ClearActions()
		rules[path](t.Context(), review(t, "CREATE", map[string]any{"metadata": map[string]any{"namespace": "web", "name": "web"}}, nil))
		var got []string
		for _, a := range slices.Concat(kube.Actions(), ours.Actions()) {
			got = append(got, a.GetVerb()+" "+a.GetResource().Resource)
		}
		require.Equal(t, want, got, path)
	}
}

func foreignCluster(name, id string) *corev1beta1.ForeignCluster {
	return &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: id}}
}

func TestRulesAskTheAPIServer(t *testing.T) {
	t.Parallel()
	nso := &offloadingv1beta1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "offloading"}}
	vn := &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"},
		Spec: offloadingv1beta1.VirtualNodeSpec{ClusterID: "milan", KubeconfigSecretRef: corev1.LocalObjectReference{Name: "milan"}}}
	rules, _, _ := newRules(t, []runtime.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "metal"}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "a"}, Spec: corev1.PodSpec{NodeName: "milan"}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "b"}, Spec: corev1.PodSpec{NodeName: "milan"}, Status: corev1.PodStatus{Phase: corev1.PodSucceeded}},
	}, foreignCluster("milan", "milan"), vn)
	other := func(name string) *offloadingv1beta1.VirtualNode {
		o := vn.DeepCopy()
		o.Name = name
		return o
	}
	typo := nso.DeepCopy()
	typo.Spec.ClusterSelector.NodeSelectorTerms = []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
		Key: corev1beta1.RemoteClusterIDLabel, Operator: corev1.NodeSelectorOpIn, Values: []string{"milann"}}}}}
	reserved := nso.DeepCopy()
	reserved.Namespace = "kube-system"
	for name, tc := range map[string]struct {
		path    string
		req     *admissionv1.AdmissionRequest
		refused string
		warns   int
	}{
		"a namespace":                {validateNamespaceOffloadingPath, review(t, "CREATE", nso, nil), "", 0},
		"a reserved namespace":       {validateNamespaceOffloadingPath, review(t, "CREATE", reserved, nil), "belongs to Kubernetes", 0},
		"a selector with a typo":     {validateNamespaceOffloadingPath, review(t, "UPDATE", typo, nso), "milan (running pods: 1), and no virtual node is selected any more", 0},
		"a virtual node":             {validateVirtualNodePath, review(t, "CREATE", other("spare"), nil), "", 0},
		"the name of a Node":         {validateVirtualNodePath, review(t, "CREATE", other("metal"), nil), "a Node metal exists", 0},
		"a peer":                     {validateForeignClusterPath, review(t, "CREATE", foreignCluster("turin", "turin"), nil), "", 0},
		"a peer as it is":            {validateForeignClusterPath, review(t, "UPDATE", foreignCluster("milan", "milan"), foreignCluster("milan", "milan")), "", 0},
		"itself":                     {validateForeignClusterPath, review(t, "CREATE", foreignCluster("rome", "rome"), nil), "cannot be a peer of itself", 0},
		"what is not written":        {validateForeignClusterPath, review(t, "DELETE", nil, foreignCluster("rome", "rome")), "", 0},
		"what cannot be read":        {validateForeignClusterPath, review(t, "CREATE", "text", nil), "reading the", 0},
		"what cannot be read of old": {validateForeignClusterPath, review(t, "UPDATE", foreignCluster("milan", "milan"), 7), "reading the", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := rules[tc.path](t.Context(), tc.req)
			require.Contains(t, got.Message, tc.refused)
			require.Equal(t, tc.refused == "", got.Allowed, got.Message)
			require.Len(t, got.Warnings, tc.warns, "%q", got.Warnings)
		})
	}
}

// TestRulesWithoutAnAPIServer: what cannot be judged is let through, and said.
func TestRulesWithoutAnAPIServer(t *testing.T) {
	t.Parallel()
	core, liqo := fake.NewClientset(), liqofake.NewSimpleClientset()
	away := func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("away") }
	core.PrependReactor("*", "*", away)
	liqo.PrependReactor("*", "*", away)
	rules := rulesForPeople(clients{kube: core, liqo: liqo}, externalversions.NewSharedInformerFactory(liqo, 0), "rome", "")
	for path, rule := range rules {
		got := rule(t.Context(), review(t, "CREATE", map[string]any{}, nil))
		require.True(t, got.Allowed, path)
		require.Len(t, got.Warnings, 1, path)
		require.Contains(t, got.Warnings[0], "are not read yet", path)
	}
}

func FuzzRules(f *testing.F) {
	f.Add("CREATE", []byte(`{"spec":{"clusterID":"rome","userName":"x","authUrl":"https://[","apiServer":{"ca":"-----BEGIN"},"addressRanges":["10.0.0.0/8"]}}`), []byte(``))
	f.Add("UPDATE", []byte(`{"metadata":{"namespace":"web","name":"a"},"spec":{"clusterSelector":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"In"}]}]}}}`), []byte(`{}`))
	f.Add("UPDATE", []byte(`{"spec":{"resourceQuota":{"hard":{"cpu":"-1"}},"offloadingPatch":{"affinity":{"nodeAffinity":{}}}}}`), []byte(`{"spec":{"resourceQuota":{"hard":{"cpu":"1"}}}}`))
	f.Add("DELETE", []byte(`null`), []byte(`[]`))
	milan := foreignCluster("milan", "milan")
	milan.Spec.AddressRanges = []string{"10.0.0.0/16", "nonsense"}
	rules, _, _ := newRules(f, []runtime.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web"}}}, milan)
	f.Fuzz(func(t *testing.T, op string, obj, old []byte) {
		for path, rule := range rules {
			got := rule(t.Context(), &admissionv1.AdmissionRequest{UID: "u", Operation: admissionv1.Operation(op),
				Object: runtime.RawExtension{Raw: obj}, OldObject: runtime.RawExtension{Raw: old}})
			require.True(t, got.Allowed || got.Message != "", "%s refuses without a word", path)
			require.Empty(t, got.Patch, path)
		}
	})
}

// TestStrictRules: what could not be checked is refused for now, and what could be checked is answered as it is.
func TestStrictRules(t *testing.T) {
	t.Parallel()
	for _, want := range []serve.Decision{serve.Allow(), serve.Deny("no")} {
		decided := strict(func(context.Context, *admissionv1.AdmissionRequest) (serve.Decision, error) { return want, nil })
		require.Equal(t, want, decided(t.Context(), nil))
		failed := strict(func(context.Context, *admissionv1.AdmissionRequest) (serve.Decision, error) {
			return want, errors.New("down")
		})
		answer := failed(t.Context(), nil)
		require.False(t, answer.Allowed)
		require.Equal(t, int32(http.StatusServiceUnavailable), answer.Code)
		require.Contains(t, answer.Message, "down")
	}
}
