package rules

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

const (
	local          = offloadingv1beta1.PodsLocal
	remote         = offloadingv1beta1.PodsRemote
	localAndRemote = offloadingv1beta1.PodsLocalAndRemote
)

type (
	term = corev1.NodeSelectorTerm
	req  = corev1.NodeSelectorRequirement
)

func in(key string, values ...string) req {
	return req{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
}

func notIn(key string, values ...string) req {
	return req{Key: key, Operator: corev1.NodeSelectorOpNotIn, Values: values}
}

func exprs(r ...req) term { return term{MatchExpressions: r} }

// bound returns a pod that requires one of the terms; nil for none required.
func bound(terms []term) *corev1.Pod {
	pod := &corev1.Pod{}
	if terms != nil {
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
	}
	return pod
}

// required returns the terms that a pod requires one of, nil if it requires none.
func required(pod *corev1.Pod) []term {
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

func TestPod(t *testing.T) {
	t.Parallel()
	virtual, own := in("liqo.io/type", "virtual-node"), notIn("liqo.io/type", "virtual-node")
	zone, region := in("zone", "a"), in("region", "eu", "us")
	field := req{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n1"}}
	cases := map[string]struct {
		strategy offloadingv1beta1.PodOffloadingStrategy
		selector []term
		own      []term
		want     []term
	}{
		"Remote":                                          {remote, nil, nil, []term{exprs(virtual)}},
		"Remote, product":                                 {remote, []term{exprs(region), exprs(in("gpu", "x"))}, []term{exprs(zone), {MatchFields: []req{field}}}, []term{exprs(zone, region, virtual), exprs(zone, in("gpu", "x"), virtual), {MatchExpressions: []req{region, virtual}, MatchFields: []req{field}}, {MatchExpressions: []req{in("gpu", "x"), virtual}, MatchFields: []req{field}}}},
		"Remote, own says it already":                     {remote, nil, []term{exprs(zone, virtual)}, []term{exprs(zone, virtual)}},
		"Remote, own term matches nothing":                {remote, nil, []term{{}}, []term{{}}},
		"Remote, selector matches nothing, own":           {remote, []term{{}}, []term{exprs(zone)}, []term{{}}},
		"Remote, own without terms is left to be refused": {remote, nil, []term{}, []term{}},
		"LocalAndRemote":                                  {localAndRemote, nil, nil, nil},
		"LocalAndRemote, selector, own":                   {localAndRemote, []term{exprs(region)}, []term{exprs(zone)}, []term{exprs(zone, region, virtual), exprs(zone, own)}},
		"LocalAndRemote, matches nothing":                 {localAndRemote, []term{{}}, []term{exprs(zone)}, []term{exprs(zone, own)}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := bound(tc.own)
			before := pod.DeepCopy()
			selector := corev1.NodeSelector{NodeSelectorTerms: tc.selector}
			got, err := Offload(pod, tc.strategy, selector)
			require.NoError(t, err)
			require.Equal(t, before, pod, "the argument is not changed")
			require.Equal(t, tc.want, required(got))
			require.Equal(t, []corev1.Toleration{{Key: "virtual-node.liqo.io/not-allowed", Operator: corev1.TolerationOpExists}}, got.Spec.Tolerations)

			again, err := Offload(got, tc.strategy, selector)
			require.NoError(t, err)
			require.Same(t, got, again, "a second time changes nothing")
		})
	}
}

func TestPodsThatAreLeftAlone(t *testing.T) {
	t.Parallel()
	liqo := "liqo"
	cases := map[string]struct {
		strategy offloadingv1beta1.PodOffloadingStrategy
		pod      corev1.Pod
		changed  bool
	}{
		"Local":                      {local, corev1.Pod{}, false},
		"Local, class liqo":          {local, corev1.Pod{Spec: corev1.PodSpec{RuntimeClassName: &liqo}}, true},
		"LocalAndRemote, class liqo": {localAndRemote, corev1.Pod{Spec: corev1.PodSpec{RuntimeClassName: &liqo}}, true},
		"Remote, has a node":         {remote, corev1.Pod{Spec: corev1.PodSpec{NodeName: "n1"}}, false},
		"Remote, mirror":             {remote, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"kubernetes.io/config.mirror": "x"}}}, false},
		"Remote, of a DaemonSet":     {remote, corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet"}}}}, false},
		"Remote, of another cluster": {remote, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{offloadingv1beta1.ManagedByLabel: offloadingv1beta1.ManagedByShadowPod}}}, false},
		"Remote, of a ReplicaSet":    {remote, corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet"}}}}, true},
		"class liqo, of a DaemonSet": {remote, corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet"}}}, Spec: corev1.PodSpec{RuntimeClassName: &liqo}}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Offload(&tc.pod, tc.strategy, corev1.NodeSelector{})
			require.NoError(t, err)
			require.Equal(t, tc.changed, got != &tc.pod)
			if tc.pod.Spec.RuntimeClassName == &liqo && tc.changed {
				require.Equal(t, []term{exprs(in("liqo.io/type", "virtual-node"))}, required(got))
			}
		})
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	_, err := Offload(&corev1.Pod{}, "Everywhere", corev1.NodeSelector{})
	require.EqualError(t, err, `pod offloading strategy "Everywhere": accepted are Local, Remote and LocalAndRemote`)

	many := make([]term, 40)
	for i := range many {
		many[i] = exprs(in("k", strings.Repeat("v", i+1)))
	}
	_, err = Offload(bound(many), remote, corev1.NodeSelector{NodeSelectorTerms: many})
	require.ErrorContains(t, err, "40 terms of the pod and 40 of the namespace make more than the 1000 accepted")
}

// TestMeaning compares, for random pods, rules and nodes, with what the scheduler
// makes of each: a node is chosen if pod and rule both take it, and only then.
func TestMeaning(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 2))
		var own []term
		if r.IntN(4) > 0 {
			own = append(randomTerms(r), randomTerm(r))
		}
		strategy := []offloadingv1beta1.PodOffloadingStrategy{remote, localAndRemote}[r.IntN(2)]
		selector := corev1.NodeSelector{NodeSelectorTerms: randomTerms(r)}
		pod := bound(own)
		got, err := Offload(pod, strategy, selector)
		require.NoError(t, err)
		again, err := Offload(got, strategy, selector)
		require.NoError(t, err)
		require.Same(t, got, again)
		requirePatch(t, pod, got)
		for range 20 {
			node := randomNode(r)
			want := matches(t, required(pod), node) && ruleTakes(t, strategy, selector, node)
			require.Equalf(t, want, matches(t, required(got), node),
				"seed %d: pod %v, %s, selector %v, node %v", seed, own, strategy, selector, node)
		}
	}
}

// ruleTakes says what the strategy means, in other words than the code's.
func ruleTakes(t *testing.T, strategy offloadingv1beta1.PodOffloadingStrategy, selector corev1.NodeSelector, node *corev1.Node) bool {
	if node.Labels["liqo.io/type"] != "virtual-node" {
		return strategy == localAndRemote
	}
	return len(selector.NodeSelectorTerms) == 0 || matches(t, selector.NodeSelectorTerms, node)
}

func matches(t *testing.T, terms []term, node *corev1.Node) bool {
	if terms == nil {
		return true
	}
	selector, err := nodeaffinity.NewNodeSelector(&corev1.NodeSelector{NodeSelectorTerms: terms})
	require.NoError(t, err)
	return selector.Match(node)
}

func randomTerms(r *rand.Rand) []term {
	var out []term
	for range r.IntN(3) {
		out = append(out, randomTerm(r))
	}
	return out
}

func randomTerm(r *rand.Rand) term {
	var out term
	for range r.IntN(3) {
		key := []string{"a", "b", "liqo.io/type"}[r.IntN(3)]
		value := []string{"x", "y", "virtual-node"}[r.IntN(3)]
		operators := []req{in(key, value), notIn(key, value), {Key: key, Operator: corev1.NodeSelectorOpExists}, {Key: key, Operator: corev1.NodeSelectorOpDoesNotExist}}
		out.MatchExpressions = append(out.MatchExpressions, operators[r.IntN(4)])
	}
	if r.IntN(3) == 0 {
		out.MatchFields = []req{in("metadata.name", []string{"n1", "n2"}[r.IntN(2)])}
	}
	return out
}

func randomNode(r *rand.Rand) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: []string{"n1", "n2"}[r.IntN(2)], Labels: map[string]string{}}}
	for _, key := range []string{"a", "b"} {
		if value := []string{"", "x", "y"}[r.IntN(3)]; value != "" {
			node.Labels[key] = value
		}
	}
	if r.IntN(2) == 0 {
		node.Labels["liqo.io/type"] = "virtual-node"
	}
	return node
}

func TestPatch(t *testing.T) {
	t.Parallel()
	pods := map[string]*corev1.Pod{
		"tolerations":  {Spec: corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: "k"}}}},
		"pod affinity": {Spec: corev1.PodSpec{Affinity: &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}}}},
	}
	for name, pod := range pods {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Offload(pod, remote, corev1.NodeSelector{})
			require.NoError(t, err)
			requirePatch(t, pod, got)
			require.Empty(t, OffloadPatch(got, got))
		})
	}
}

// requirePatch requires that the patch makes have into want.
func requirePatch(t *testing.T, have, want *corev1.Pod) {
	t.Helper()
	patch, err := json.Marshal(OffloadPatch(have, want))
	require.NoError(t, err)
	raw, err := json.Marshal(have)
	require.NoError(t, err)
	document := map[string]any{}
	require.NoError(t, json.Unmarshal(raw, &document))
	var operations []struct {
		Op, Path string
		Value    any
	}
	require.NoError(t, json.Unmarshal(patch, &operations))
	for _, o := range operations {
		require.Equal(t, "add", o.Op)
		insert(t, document, strings.Split(o.Path, "/")[1:], o.Value)
	}
	raw, err = json.Marshal(document)
	require.NoError(t, err)
	wantRaw, err := json.Marshal(want)
	require.NoError(t, err)
	require.JSONEq(t, string(wantRaw), string(raw))
}

func insert(t *testing.T, in map[string]any, path []string, value any) {
	t.Helper()
	key := strings.ReplaceAll(path[0], "~1", "/")
	list, inList := in[key].([]any)
	switch {
	case len(path) == 1:
		in[key] = value
	case inList && path[1] == "-":
		in[key] = append(list, value)
	case inList:
		at, err := strconv.Atoi(path[1])
		require.NoError(t, err)
		in[key] = slices.Insert(list, at, value)
	default:
		next, ok := in[key].(map[string]any)
		require.True(t, ok, "%s is not there", key)
		insert(t, next, path[1:], value)
	}
}

// TestOnNode: a pod that names a virtual node gets there where its namespace is offloaded to it, and is
// refused elsewhere. It is never created only to be evicted.
func TestOnNode(t *testing.T) {
	t.Parallel()
	milan := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "milan", Labels: map[string]string{"liqo.io/type": "virtual-node", "region": "eu"}}}
	own := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "rome-1"}}
	everything := []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	for name, tc := range map[string]struct {
		node     *corev1.Node
		have     []corev1.Toleration
		strategy offloadingv1beta1.PodOffloadingStrategy
		selector []term
		want     []corev1.Toleration
		refused  string
	}{
		"a node of this cluster":       {node: own, strategy: remote},
		"remote":                       {node: milan, strategy: remote, want: []corev1.Toleration{toleration()}},
		"selected":                     {node: milan, strategy: remote, selector: []term{exprs(in("region", "eu"))}, want: []corev1.Toleration{toleration()}},
		"not selected":                 {node: milan, strategy: remote, selector: []term{exprs(in("region", "us"))}, refused: "virtual node milan, but the clusterSelector"},
		"not offloaded":                {node: milan, strategy: local, refused: "podOffloadingStrategy Local"},
		"not selected, it tolerates":   {node: milan, have: everything, strategy: remote, selector: []term{exprs(in("region", "us"))}, want: everything},
		"a selector of nothing at all": {node: milan, strategy: remote, selector: []term{{}}, refused: "clusterSelector"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: tc.node.Name, Tolerations: tc.have}}
			got, err := OnNode(pod, tc.node, tc.strategy, &corev1.NodeSelector{NodeSelectorTerms: tc.selector})
			if tc.refused != "" {
				require.ErrorContains(t, err, tc.refused)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, got.Spec.Tolerations)
			require.Equal(t, tc.have, pod.Spec.Tolerations, "the argument is not changed")
		})
	}
}

func TestKeepOnLoss(t *testing.T) {
	t.Parallel()
	virtual := corev1.Toleration{Key: offloadingv1beta1.VirtualNodeTaintKey, Operator: corev1.TolerationOpExists}
	all := corev1.Toleration{Operator: corev1.TolerationOpExists}
	forTime := func(key string) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300)}
	}
	usual := []corev1.Toleration{forTime(corev1.TaintNodeNotReady), forTime(corev1.TaintNodeUnreachable)}
	given := offloadingv1beta1.LossTolerations()
	join := func(parts ...any) (out []corev1.Toleration) {
		for _, part := range parts {
			switch p := part.(type) {
			case corev1.Toleration:
				out = append(out, p)
			case []corev1.Toleration:
				out = append(out, p...)
			}
		}
		return out
	}
	for name, tc := range map[string]struct {
		have, want  []corev1.Toleration // want nil: unchanged
		annotations map[string]string
		node        string
	}{
		"a pod that may not leave":      {have: usual},
		"a pod with a node":             {have: join(usual, virtual), node: "milan"},
		"the usual ones":                {have: join(usual, virtual), want: join(given, usual, virtual)},
		"with annotations of its own":   {have: join(virtual), want: join(given, virtual), annotations: map[string]string{"a": "b"}},
		"already kept":                  {have: join(given, virtual)},
		"one of the two is kept":        {have: join(given[0], usual[1], virtual), want: join(given, given[0], usual[1], virtual)},
		"kept, after one that ends":     {have: join(usual, given, virtual), want: join(given, usual, given, virtual)},
		"everything is tolerated":       {have: join(all)},
		"everything for a time":         {have: join(corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](9)}), want: join(given, corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](9)})},
		"another effect says nothing":   {have: join(corev1.Toleration{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}, virtual), want: join(given, corev1.Toleration{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}, virtual)},
		"an effect that is not said is": {have: join(corev1.Toleration{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists}, given[1], virtual)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: tc.annotations}, Spec: corev1.PodSpec{NodeName: tc.node, Tolerations: tc.have}}
			before := pod.DeepCopy()
			got := KeepOnLoss(pod)
			require.Equal(t, before, pod, "the argument is changed")
			if tc.want == nil {
				require.Same(t, pod, got)
				return
			}
			require.Equal(t, tc.want, got.Spec.Tolerations)
			require.Equal(t, offloadingv1beta1.OnProviderLossKeep, got.Annotations[offloadingv1beta1.OnProviderLossAnnotation])
			require.Len(t, got.Annotations, len(tc.annotations)+1)
			require.Same(t, got, KeepOnLoss(got), "it is not given twice")
			requirePatch(t, pod, got)
		})
	}
}

func TestOnOwnNodesOnly(t *testing.T) {
	t.Parallel()
	class := func(name, provisioner string) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner}
	}
	usual := class("local-path", "rancher.io/local-path")
	usual.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
	all := []*storagev1.StorageClass{usual, class("liqo", "liqo.io/storage"), class("static", "kubernetes.io/no-provisioner")}
	type m = map[string]string
	type answer struct{ only, decided bool }
	own, elsewhere, look := answer{true, true}, answer{false, true}, answer{false, false}
	volume := func(by string) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Annotations: m{"pv.kubernetes.io/provisioned-by": by}}}
	}
	for name, tc := range map[string]struct {
		class       *string
		annotations m
		bound       bool
		to          string // the volume that somebody has chosen
		volume      *corev1.PersistentVolume
		classes     []*storagev1.StorageClass
		want        answer
	}{
		"the default class":                    {classes: all, want: own},
		"no default class":                     {classes: all[1:], want: own},
		"a class of this cluster, bound":       {class: new("local-path"), bound: true, classes: all, want: own},
		"no class":                             {class: new(""), classes: all, want: own},
		"the virtual class":                    {class: new("liqo"), classes: all, want: elsewhere},
		"the virtual class, bound":             {class: new("liqo"), bound: true, classes: all, want: elsewhere},
		"the virtual class, by annotation":     {annotations: m{"volume.beta.kubernetes.io/storage-class": "liqo"}, classes: all, want: elsewhere},
		"a former virtual class":               {class: new("old"), annotations: m{"volume.kubernetes.io/storage-provisioner": "liqo.io/storage"}, bound: true, classes: all, want: elsewhere},
		"a former virtual class, beta":         {class: new("old"), annotations: m{"volume.beta.kubernetes.io/storage-provisioner": "liqo.io/storage"}, bound: true, classes: all, want: elsewhere},
		"the virtual class, another volume":    {class: new("liqo"), to: "mine", classes: all, want: look},
		"the virtual class, an own volume":     {class: new("liqo"), to: "mine", volume: volume(""), classes: all, want: own},
		"the virtual class, a former volume":   {class: new("liqo"), to: "pvc-former", volume: volume("liqo.io/storage"), classes: all, want: elsewhere},
		"no such class":                        {class: new("manual"), classes: all, want: own},
		"no such class, bound, not looked at":  {class: new("manual"), bound: true, classes: all, want: look},
		"no such class, bound to own":          {class: new("manual"), bound: true, volume: volume(""), classes: all, want: own},
		"no such class, bound to a provider's": {class: new("old"), bound: true, volume: volume("liqo.io/storage"), classes: all, want: elsewhere},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: tc.annotations}, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: tc.class}}
			if tc.bound {
				claim.UID, claim.Spec.VolumeName = "u", "pvc-u"
			}
			if tc.to != "" {
				claim.Spec.VolumeName = tc.to
			}
			only, decided := OnOwnNodesOnly(claim, tc.volume, tc.classes)
			require.Equal(t, tc.want, answer{only, decided})
		})
	}
}

// TestAddedTerms: KeepHome and WithStorage add a requirement to each term of a pod.
func TestAddedTerms(t *testing.T) {
	t.Parallel()
	storage := req{Key: "offloading.liqo.io/no-storage", Operator: corev1.NodeSelectorOpDoesNotExist}
	zone, region := in("zone", "a"), in("region", "eu")
	withStorage := func(pod *corev1.Pod) (*corev1.Pod, error) { return WithStorage(pod, true) }
	for name, tc := range map[string]struct {
		add  func(*corev1.Pod) (*corev1.Pod, error)
		this req
	}{"home": {KeepHome, notIn("liqo.io/type", "virtual-node")}, "storage": {withStorage, storage}} {
		for of, terms := range map[string]struct{ own, want []term }{
			"free":            {nil, []term{exprs(tc.this)}},
			"with own terms":  {[]term{exprs(zone), exprs(region)}, []term{exprs(zone, tc.this), exprs(region, tc.this)}},
			"says it already": {[]term{exprs(tc.this, zone)}, []term{exprs(tc.this, zone)}},
			"matches no node": {[]term{{}}, []term{{}}},
		} {
			t.Run(name+", "+of, func(t *testing.T) {
				t.Parallel()
				pod := bound(terms.own)
				before := pod.DeepCopy()
				got, err := tc.add(pod)
				require.NoError(t, err)
				require.Equal(t, before, pod, "the argument is not changed")
				require.Equal(t, terms.want, required(got))
				require.Empty(t, got.Spec.Tolerations, "it tolerates no virtual node")
			})
		}
		placed := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n1"}}
		got, err := tc.add(placed)
		require.NoError(t, err)
		require.Same(t, placed, got)
	}
	got, err := WithStorage(bound(nil), false)
	require.NoError(t, err)
	require.Equal(t, []term{exprs(in("liqo.io/type", "virtual-node"), storage)}, required(got))
}

func TestFollowsPod(t *testing.T) {
	t.Parallel()
	classes := []*storagev1.StorageClass{{ObjectMeta: metav1.ObjectMeta{Name: "liqo"}, Provisioner: "liqo.io/storage"}, {ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "example.org"}}
	for name, tc := range map[string]struct {
		class, volume string
		want          bool
	}{
		"of liqod":          {"liqo", "", true},
		"of liqod, bound":   {"liqo", "pvc-u", false},
		"of another":        {"fast", "", false},
		"of no known class": {"gone", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			claim := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &tc.class, VolumeName: tc.volume}}
			require.Equal(t, tc.want, FollowsPod(claim, classes))
		})
	}
}

func TestAsksForVirtualNodes(t *testing.T) {
	t.Parallel()
	virtual, zone := in("liqo.io/type", "virtual-node"), in("zone", "a")
	selects := &corev1.Pod{Spec: corev1.PodSpec{NodeSelector: map[string]string{"liqo.io/type": "virtual-node"}}}
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"nothing":          {bound(nil), false},
		"a selector":       {selects, true},
		"an affinity":      {bound([]term{exprs(zone, virtual)}), true},
		"one of two terms": {bound([]term{exprs(virtual), exprs(zone)}), false},
		"no virtual node":  {bound([]term{exprs(notIn("liqo.io/type", "virtual-node"))}), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, AsksForVirtualNodes(tc.pod))
		})
	}
}

func TestDefaultStorageClass(t *testing.T) {
	class := func(name string, age time.Duration, keys ...string) *storagev1.StorageClass {
		c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age)), Annotations: map[string]string{}}}
		for _, key := range keys {
			c.Annotations[key] = "true"
		}
		return c
	}
	for name, tc := range map[string]struct {
		classes []*storagev1.StorageClass
		want    string
	}{
		"none is the default":   {classes: []*storagev1.StorageClass{class("a", 0)}},
		"one":                   {classes: []*storagev1.StorageClass{class("a", 0), class("b", 0, defaultClassAnnotation)}, want: "b"},
		"by the former key":     {classes: []*storagev1.StorageClass{class("a", 0, betaDefaultClassAnnotation)}, want: "a"},
		"the newest of several": {classes: []*storagev1.StorageClass{class("a", time.Hour, defaultClassAnnotation), class("b", 0, defaultClassAnnotation)}, want: "b"},
		"the first of equals":   {classes: []*storagev1.StorageClass{class("b", 0, defaultClassAnnotation), class("a", 0, defaultClassAnnotation)}, want: "a"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, DefaultStorageClass(tc.classes))
		})
	}
}
