package namespace

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	liqodfake "github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	offloadinglisters "github.com/liqod/liqod/api/generated/listers/offloading/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/serve"
)

// TestPodRuleOnProviderLoss: the annotation of the namespace decides, also where only the
// API server has it yet.
func TestPodRuleOnProviderLoss(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		value    string
		strategy offloadingv1beta1.PodOffloadingStrategy
		uncached bool
		given    bool
		denied   string
	}{
		"nothing said":         {strategy: offloadingv1beta1.PodsRemote},
		"Evict":                {value: "Evict", strategy: offloadingv1beta1.PodsRemote},
		"Keep":                 {value: "Keep", strategy: offloadingv1beta1.PodsRemote, given: true},
		"Keep, not cached yet": {value: "Keep", strategy: offloadingv1beta1.PodsRemote, uncached: true, given: true},
		"Keep, here or there":  {value: "Keep", strategy: offloadingv1beta1.PodsLocalAndRemote},
		"Keep, here only":      {value: "Keep", strategy: offloadingv1beta1.PodsLocal},
		"unknown": {value: "keep", strategy: offloadingv1beta1.PodsRemote,
			denied: `namespace web: annotation offloading.liqo.io/on-provider-loss is "keep": Keep and Evict are accepted`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := plainNamespace("web")
			if tc.value != "" {
				ns.Annotations = map[string]string{offloadingv1beta1.OnProviderLossAnnotation: tc.value}
			}
			offloadings, namespaces := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}), cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
			require.NoError(t, offloadings.Add(&offloadingv1beta1.NamespaceOffloading{
				ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: offloadingv1beta1.NamespaceOffloadingName},
				Spec:       offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: tc.strategy},
			}))
			if !tc.uncached {
				require.NoError(t, namespaces.Add(ns))
			}
			raw, err := json.Marshal(&corev1.Pod{})
			require.NoError(t, err)
			answer := PodRule{
				Offloadings: offloadinglisters.NewNamespaceOffloadingLister(offloadings), Namespaces: corelisters.NewNamespaceLister(namespaces),
				Liqo: liqodfake.NewSimpleClientset(), Kube: fake.NewClientset(ns), OwnNamespace: "liqod",
			}.Decide(t.Context(), &admissionv1.AdmissionRequest{Namespace: "web", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: raw}})
			require.Equal(t, tc.denied, answer.Message)
			require.Equal(t, tc.denied == "", answer.Allowed)
			text, err := json.Marshal(answer.Patch)
			require.NoError(t, err)
			for _, part := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, "on-provider-loss"} {
				require.Equal(t, tc.given, strings.Contains(string(text), part), "%s", text)
			}
		})
	}
}

// TestPodRuleAtUpdate: a client that writes its own list of tolerations takes none away that
// liqod has added. The rule reads nothing but the two pods.
func TestPodRuleAtUpdate(t *testing.T) {
	t.Parallel()
	ours := corev1.Toleration{Key: offloadingv1beta1.VirtualNodeTaintKey, Operator: corev1.TolerationOpExists}
	own, other := corev1.Toleration{Key: "team", Operator: corev1.TolerationOpExists}, corev1.Toleration{Key: "more", Value: "x"}
	narrow := corev1.Toleration{Key: ours.Key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	add := func(path string, value any) []serve.Operation {
		raw, err := json.Marshal(value)
		require.NoError(t, err)
		return []serve.Operation{{Op: "add", Path: path, Value: json.RawMessage(raw)}}
	}
	type list = []corev1.Toleration
	for name, tc := range map[string]struct {
		old, written list
		change       func(*admissionv1.AdmissionRequest)
		patch        []serve.Operation
	}{
		"its own list":                  {old: list{own, ours}, written: list{own, other}, patch: add("/spec/tolerations/-", ours)},
		"no list":                       {old: list{ours}, patch: add("/spec/tolerations", list{ours})},
		"a narrower one":                {old: list{ours}, written: list{narrow}, patch: add("/spec/tolerations/-", ours)},
		"nothing taken away":            {old: list{ours}, written: list{other, ours}},
		"never given":                   {old: list{own}, written: list{own, other}},
		"never given, but one like it":  {old: list{narrow}, written: list{own}},
		"given by the client itself":    {written: list{own}},
		"its status":                    {old: list{ours}, change: func(r *admissionv1.AdmissionRequest) { r.SubResource = "status" }},
		"its deletion":                  {old: list{ours}, change: func(r *admissionv1.AdmissionRequest) { r.Operation = admissionv1.Delete }},
		"in the namespace of this role": {old: list{ours}, change: func(r *admissionv1.AdmissionRequest) { r.Namespace = "liqod" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := func(tolerations list) runtime.RawExtension {
				raw, err := json.Marshal(&corev1.Pod{Spec: corev1.PodSpec{NodeName: "milan", Tolerations: tolerations}})
				require.NoError(t, err)
				return runtime.RawExtension{Raw: raw}
			}
			req := &admissionv1.AdmissionRequest{Namespace: "web", Operation: admissionv1.Update, OldObject: pod(tc.old), Object: pod(tc.written)}
			if tc.change != nil {
				tc.change(req)
			}
			answer := PodRule{OwnNamespace: "liqod"}.Decide(t.Context(), req)
			require.True(t, answer.Allowed, answer.Message)
			want, err := json.Marshal(tc.patch)
			require.NoError(t, err)
			have, err := json.Marshal(answer.Patch)
			require.NoError(t, err)
			require.Equal(t, string(want), string(have))
		})
	}
	for _, req := range []admissionv1.AdmissionRequest{{OldObject: runtime.RawExtension{Raw: []byte("{}")}}, {Object: runtime.RawExtension{Raw: []byte("{}")}}} {
		req.Namespace, req.Operation, req.Kind.Kind = "web", admissionv1.Update, "Pod"
		answer := PodRule{}.Decide(t.Context(), &req)
		require.False(t, answer.Allowed)
		require.Contains(t, answer.Message, "reading the Pod")
	}
}
