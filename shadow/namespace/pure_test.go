package namespace

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

func TestRemoteName(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 60)
	for name, tc := range map[string]struct {
		spec      offloadingv1beta1.NamespaceOffloadingSpec
		namespace string
		want, err string
	}{
		"named default":     {spec: offloadingv1beta1.NamespaceOffloadingSpec{NamespaceMappingStrategy: offloadingv1beta1.DefaultName}, namespace: "web", want: "web-rome"},
		"same":              {spec: offloadingv1beta1.NamespaceOffloadingSpec{NamespaceMappingStrategy: offloadingv1beta1.EnforceSameName}, namespace: "web", want: "web"},
		"selected":          {spec: offloadingv1beta1.NamespaceOffloadingSpec{NamespaceMappingStrategy: offloadingv1beta1.SelectedName, RemoteNamespaceName: "shop"}, namespace: "web", want: "shop"},
		"selected, no name": {spec: offloadingv1beta1.NamespaceOffloadingSpec{NamespaceMappingStrategy: offloadingv1beta1.SelectedName}, namespace: "web", err: "would be named"},
		"too long":          {namespace: long, err: "65 characters where a namespace may have 63"},
		"unknown":           {spec: offloadingv1beta1.NamespaceOffloadingSpec{NamespaceMappingStrategy: "Other"}, namespace: "web", err: "accepted are EnforceSameName"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := remoteName(&tc.spec, tc.namespace, "rome")
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		ns   corev1.Namespace
		want string
	}{
		"plain":          {corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, ""},
		"default":        {corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, ""},
		"kube-system":    {corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}}, "belongs to Kubernetes"},
		"kube-public":    {corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-public"}}, "belongs to Kubernetes"},
		"own":            {corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqod"}}, "liqod runs in"},
		"tenant by name": {corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-x"}}, "tenant namespace"},
		"tenant by label": {corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x",
			Labels: map[string]string{corev1beta1.TenantNamespaceLabel: "true"}}}, "tenant namespace"},
		"twin": {corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x", Labels: map[string]string{corev1beta1.RemoteClusterIDLabel: "oslo"},
			Annotations: map[string]string{offloadingv1beta1.ManagedByNamespaceMapAnnotation: "liqo-tenant-oslo/oslo"}}}, "by cluster oslo"},
	} {
		t.Run(name, func(t *testing.T) {
			got := refusal(&tc.ns, "liqod")
			if tc.want == "" {
				require.Empty(t, got)
			} else {
				require.Contains(t, got, tc.want)
			}
		})
	}
	for name, reserved := range map[string]bool{
		"web-rome": false, "default": true, "kube-system": true, "kube-anything": true, "liqo": true, "liqo-tenant-rome": true, "liqod": true,
		"own": true, "UPPER": true, "": true, "a.b": true, strings.Repeat("a", 64): true, "../kube-system": true,
	} {
		require.Equal(t, reserved, twinRefusal(name, "own") != "", name)
	}
	for name, may := range map[string]bool{
		"web-rome": true, "web-eu-rome": true, "shop": true, "team-a": true, "team-": true,
		"web": false, "web-romes": false, "webrome": false, "rome": false, "web-rome-x": false, "shops": false, "cert-manager": false, "a-team-a": false,
	} {
		require.Equal(t, may, mayName(name, "rome", []string{"shop", "team-*"}), name)
		require.True(t, mayName(name, "rome", []string{"*"}), name)
	}
	require.False(t, mayName("web-", "", nil), "a peer without an id")
}

func virtualNode(name, cluster string, labels map[string]string) *offloadingv1beta1.VirtualNode {
	return &offloadingv1beta1.VirtualNode{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: corev1beta1.TenantNamespace(cluster)},
		Spec:       offloadingv1beta1.VirtualNodeSpec{ClusterID: cluster, Labels: labels},
	}
}

func selector(key string, values ...string) corev1.NodeSelector {
	return corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}}}}}
}

func TestChoose(t *testing.T) {
	t.Parallel()
	node := func(name string, labels map[string]string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	}
	for name, tc := range map[string]struct {
		selector corev1.NodeSelector
		vns      []*offloadingv1beta1.VirtualNode
		nodes    []*corev1.Node
		want     map[string]choice
	}{
		"empty selects all": {vns: []*offloadingv1beta1.VirtualNode{virtualNode("a", "milan", nil), virtualNode("b", "turin", nil)},
			want: map[string]choice{"milan": selected, "turin": selected}},
		"labels the Node will have": {selector: selector("region", "b"),
			vns:  []*offloadingv1beta1.VirtualNode{virtualNode("a", "milan", map[string]string{"region": "b"}), virtualNode("b", "turin", map[string]string{"region": "c"})},
			want: map[string]choice{"milan": selected, "turin": undecided}},
		"cluster id": {selector: selector(corev1beta1.RemoteClusterIDLabel, "milan"),
			vns: []*offloadingv1beta1.VirtualNode{virtualNode("a", "milan", nil)}, want: map[string]choice{"milan": selected}},
		"the Node's labels rule": {selector: selector("region", "b"),
			vns:   []*offloadingv1beta1.VirtualNode{virtualNode("a", "milan", map[string]string{"region": "b"})},
			nodes: []*corev1.Node{node("a", map[string]string{"region": "z"})}, want: map[string]choice{"milan": notSelected}},
		"any virtual node is enough": {selector: selector("region", "b"),
			vns:   []*offloadingv1beta1.VirtualNode{virtualNode("a", "milan", nil), virtualNode("a2", "milan", nil)},
			nodes: []*corev1.Node{node("a", nil), node("a2", map[string]string{"region": "b"})}, want: map[string]choice{"milan": selected}},
		"by the node's name": {selector: corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}}}}},
			vns:   []*offloadingv1beta1.VirtualNode{virtualNode("a", "milan", nil), virtualNode("b", "turin", nil)},
			nodes: []*corev1.Node{node("a", nil), node("b", nil)}, want: map[string]choice{"milan": selected, "turin": notSelected}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := choose(&tc.selector, tc.vns, func(name string) *corev1.Node {
				for _, n := range tc.nodes {
					if n.Name == name {
						return n
					}
				}
				return nil
			})
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
	bad := selector("not a key!", "x")
	_, err := choose(&bad, nil, nil)
	require.ErrorContains(t, err, "spec.clusterSelector")
}

func TestOffloadingStatus(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	answer := func(phase offloadingv1beta1.MappingPhase, message string) *offloadingv1beta1.RemoteNamespaceStatus {
		return &offloadingv1beta1.RemoteNamespaceStatus{RemoteNamespace: "web-rome", Phase: phase, Message: message}
	}
	for name, tc := range map[string]struct {
		outcomes map[string]outcome
		invalid  string
		phase    offloadingv1beta1.OffloadingPhase
		message  string
	}{
		"all failed": {outcomes: map[string]outcome{"milan": {choice: selected, answer: answer(offloadingv1beta1.MappingCreationLoopBackOff, "exists already")}}, phase: offloadingv1beta1.PhaseAllFailed, message: "milan: exists already"},
		"other name": {outcomes: map[string]outcome{"milan": {choice: selected, answer: &offloadingv1beta1.RemoteNamespaceStatus{RemoteNamespace: "old", Phase: offloadingv1beta1.MappingAccepted}}}, phase: offloadingv1beta1.PhaseInProgress, message: "has not answered"},
		"leaving":    {outcomes: map[string]outcome{"milan": {choice: notSelected, answer: answer(offloadingv1beta1.MappingAccepted, "")}}, phase: offloadingv1beta1.PhaseNoClusterSelected, message: "no virtual node"},
		"invalid":    {invalid: "no", phase: offloadingv1beta1.PhaseAllFailed, message: "no"},
	} {
		t.Run(name, func(t *testing.T) {
			nso := &offloadingv1beta1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
			s := summary{name: "web-rome", outcomes: tc.outcomes, invalid: tc.invalid, now: now}
			got := s.status(nso)
			require.Equal(t, tc.phase, got.OffloadingPhase)
			c := meta.FindStatusCondition(got.Conditions, offloadingv1beta1.RemoteNamespaceReady)
			require.NotNil(t, c)
			require.Equal(t, tc.phase == offloadingv1beta1.PhaseReady, c.Status == metav1.ConditionTrue)
			require.Contains(t, c.Message, tc.message)
			require.EqualValues(t, 3, got.ObservedGeneration)

			nso.Status = got
			s.now = now.Add(time.Hour)
			require.Equal(t, got, s.status(nso), "the same facts give the same status, times included")
		})
	}
}

func TestChangedEntries(t *testing.T) {
	t.Parallel()
	m := func(desired map[string]string, current map[string]offloadingv1beta1.RemoteNamespaceStatus) *offloadingv1beta1.NamespaceMap {
		return &offloadingv1beta1.NamespaceMap{Spec: offloadingv1beta1.NamespaceMapSpec{DesiredMapping: desired},
			Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: current}}
	}
	accepted := map[string]offloadingv1beta1.RemoteNamespaceStatus{"a": {Phase: offloadingv1beta1.MappingAccepted}}
	got, freed := changedEntries(m(map[string]string{"a": "x", "b": "y"}, nil), m(map[string]string{"a": "x", "c": "z"}, accepted))
	require.ElementsMatch(t, []string{"a", "b", "c"}, got)
	require.True(t, freed)
	got, freed = changedEntries(m(nil, accepted), m(map[string]string{"b": "x"}, accepted))
	require.Equal(t, []string{"b"}, got)
	require.False(t, freed)
}

func TestReview(t *testing.T) {
	t.Parallel()
	type spec = offloadingv1beta1.NamespaceOffloadingSpec
	nodes := []*offloadingv1beta1.VirtualNode{virtualNode("milan", "milan", map[string]string{"region": "north"}), virtualNode("bari", "bari", map[string]string{"region": "south"})}
	twin := plainNamespace("web-oslo")
	twin.Annotations = map[string]string{offloadingv1beta1.ManagedByNamespaceMapAnnotation: "liqo-tenant-oslo/oslo"}
	twin.Labels = map[string]string{corev1beta1.RemoteClusterIDLabel: "oslo"}
	long := strings.Repeat("x", 60)
	broken := corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "a", Operator: "Like"}}}}}
	for name, tc := range map[string]struct {
		namespace *corev1.Namespace
		spec      spec
		old       *spec
		nodes     []*offloadingv1beta1.VirtualNode
		refused   string
		warns     []string
	}{
		"plain":                   {plainNamespace("web"), spec{}, nil, nodes, "", nil},
		"a twin":                  {twin, spec{}, nil, nodes, "itself offloaded here by cluster oslo", nil},
		"too long":                {plainNamespace(long), spec{}, nil, nodes, "SelectedName with a shorter", nil},
		"a broken selector":       {plainNamespace("web"), spec{ClusterSelector: broken}, nil, nodes, "spec.clusterSelector", nil},
		"its own name, selected":  {plainNamespace("web"), spec{NamespaceMappingStrategy: offloadingv1beta1.SelectedName, RemoteNamespaceName: "w-rome"}, nil, nodes, "", nil},
		"nothing to select":       {plainNamespace("web"), spec{}, nil, nil, "", nil},
		"selects nothing":         {plainNamespace("web"), spec{ClusterSelector: selector("region", "west")}, nil, nodes, "", nil},
		"Local needs nothing":     {plainNamespace("web"), spec{PodOffloadingStrategy: offloadingv1beta1.PodsLocal}, nil, nil, "", nil},
		"the same again":          {plainNamespace("web"), spec{ClusterSelector: selector("region", "north")}, &spec{ClusterSelector: selector("region", "north")}, nodes, "", nil},
		"another strategy":        {plainNamespace("web"), spec{PodOffloadingStrategy: offloadingv1beta1.PodsRemote}, &spec{PodOffloadingStrategy: offloadingv1beta1.PodsLocal}, nodes, "", []string{"podOffloadingStrategy Remote applies to pods that are created from now on"}},
		"a narrower selector":     {plainNamespace("web"), spec{ClusterSelector: selector("region", "north")}, &spec{}, nodes, "", nil},
		"a wider selector":        {plainNamespace("web"), spec{}, &spec{ClusterSelector: selector("region", "north")}, nodes, "", nil},
		"to nothing":              {plainNamespace("web"), spec{ClusterSelector: selector("region", "west")}, &spec{}, nodes, "no longer selected: bari (running pods: 0), milan (running pods: 0), and no virtual node is selected any more", nil},
		"instead of a broken one": {plainNamespace("web"), spec{}, &spec{ClusterSelector: broken}, nodes, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := Review{Namespace: tc.namespace, OwnNamespace: "liqod", ClusterID: "rome", VirtualNodes: tc.nodes}
			r.New = &offloadingv1beta1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: tc.namespace.Name, Name: "offloading"}, Spec: tc.spec}
			if tc.old != nil {
				r.Old = r.New.DeepCopy()
				r.Old.Spec = *tc.old
			}
			refused, warnings := r.Judge()
			require.Contains(t, refused, tc.refused)
			require.Equal(t, tc.refused == "", refused == "", refused)
			require.Len(t, warnings, len(tc.warns), "%q", warnings)
			for i := range warnings {
				require.Contains(t, warnings[i], tc.warns[i])
			}
		})
	}
}

// TestReviewOfWhatEndsPods: a change that ends pods names the clusters that it leaves.
func TestReviewOfWhatEndsPods(t *testing.T) {
	t.Parallel()
	nodes := []*offloadingv1beta1.VirtualNode{virtualNode("milan", "milan", map[string]string{"region": "north"}), virtualNode("bari", "bari", nil)}
	bari := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "bari", Labels: map[string]string{"region": "south"}}}
	for name, tc := range map[string]struct {
		region, confirms, refused string
	}{
		"nobody's pods":           {},
		"pods of one":             {region: "south", refused: "with liqo.io/end-pods-in=milan in the same change"},
		"pods of one, confirmed":  {region: "south", confirms: "milan"},
		"another's are confirmed": {region: "south", confirms: "turin", refused: "no longer selected: milan (running pods: 3);"},
		"no cluster":              {region: "west", confirms: "milan", refused: "with liqo.io/end-pods-in=bari,milan"},
		"no cluster, confirmed":   {region: "west", confirms: "bari,milan"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := Review{Namespace: plainNamespace("web"), ClusterID: "rome", VirtualNodes: nodes, Nodes: map[string]*corev1.Node{"bari": bari}, Running: map[string]int{"milan": 3}}
			r.Old = &offloadingv1beta1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "offloading"}}
			r.New = r.Old.DeepCopy()
			r.New.Spec.ClusterSelector = selector("region", tc.region)
			r.New.Annotations = map[string]string{offloadingv1beta1.EndPodsInAnnotation: tc.confirms}
			if name == "nobody's pods" {
				r.New.Spec.ClusterSelector, r.Running = selector("region", "south"), nil
			}
			refused, warnings := r.Judge()
			require.Equal(t, tc.refused == "", refused == "", refused)
			require.Contains(t, refused, tc.refused)
			require.Empty(t, warnings)
		})
	}
}
