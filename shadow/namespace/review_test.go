package namespace

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

func inRegion(value string) corev1.NodeSelector {
	return corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "region", Operator: corev1.NodeSelectorOpIn, Values: []string{value}}}}}}
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
		"kube-system":             {plainNamespace("kube-system"), spec{}, nil, nodes, "belongs to Kubernetes", nil},
		"liqod's own":             {plainNamespace("liqod"), spec{}, nil, nodes, "the one that liqod runs in", nil},
		"a tenant namespace":      {tenantNamespace("milan"), spec{}, nil, nodes, "is a tenant namespace", nil},
		"a twin":                  {twin, spec{}, nil, nodes, "itself offloaded here by cluster oslo", nil},
		"too long":                {plainNamespace(long), spec{}, nil, nodes, "SelectedName with a shorter", nil},
		"an unreadable name":      {plainNamespace("web"), spec{NamespaceMappingStrategy: offloadingv1beta1.SelectedName, RemoteNamespaceName: "A"}, nil, nodes, `would be named "A"`, nil},
		"no name":                 {plainNamespace("web"), spec{NamespaceMappingStrategy: offloadingv1beta1.SelectedName}, nil, nodes, `would be named ""`, nil},
		"a broken selector":       {plainNamespace("web"), spec{ClusterSelector: broken}, nil, nodes, "spec.clusterSelector", nil},
		"its own name, selected":  {plainNamespace("web"), spec{NamespaceMappingStrategy: offloadingv1beta1.SelectedName, RemoteNamespaceName: "w-rome"}, nil, nodes, "", nil},
		"nothing to select":       {plainNamespace("web"), spec{}, nil, nil, "", nil},
		"selects nothing":         {plainNamespace("web"), spec{ClusterSelector: inRegion("west")}, nil, nodes, "", nil},
		"Local needs nothing":     {plainNamespace("web"), spec{PodOffloadingStrategy: offloadingv1beta1.PodsLocal}, nil, nil, "", nil},
		"the same again":          {plainNamespace("web"), spec{ClusterSelector: inRegion("north")}, &spec{ClusterSelector: inRegion("north")}, nodes, "", nil},
		"another strategy":        {plainNamespace("web"), spec{PodOffloadingStrategy: offloadingv1beta1.PodsRemote}, &spec{PodOffloadingStrategy: offloadingv1beta1.PodsLocal}, nodes, "", []string{"podOffloadingStrategy Remote applies to pods that are created from now on"}},
		"a narrower selector":     {plainNamespace("web"), spec{ClusterSelector: inRegion("north")}, &spec{}, nodes, "", nil},
		"a wider selector":        {plainNamespace("web"), spec{}, &spec{ClusterSelector: inRegion("north")}, nodes, "", nil},
		"to nothing":              {plainNamespace("web"), spec{ClusterSelector: inRegion("west")}, &spec{}, nodes, "no longer selected: bari (running pods: 0), milan (running pods: 0), and no virtual node is selected any more", nil},
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
			r.New.Spec.ClusterSelector = inRegion(tc.region)
			r.New.Annotations = map[string]string{offloadingv1beta1.EndPodsInAnnotation: tc.confirms}
			if name == "nobody's pods" {
				r.New.Spec.ClusterSelector, r.Running = inRegion("south"), nil
			}
			refused, warnings := r.Judge()
			require.Equal(t, tc.refused == "", refused == "", refused)
			require.Contains(t, refused, tc.refused)
			require.Empty(t, warnings)
		})
	}
}
