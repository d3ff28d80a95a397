package rules

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqod/liqod/reasons"
)

func requirement(key string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{"x"}}
}

func nodeSelectorTerm(keys ...string) corev1.NodeSelectorTerm {
	var t corev1.NodeSelectorTerm
	for _, key := range keys {
		if key == metav1.ObjectNameField {
			t.MatchFields = append(t.MatchFields, requirement(key))
		} else {
			t.MatchExpressions = append(t.MatchExpressions, requirement(key))
		}
	}
	return t
}

func requiredNodes(terms ...corev1.NodeSelectorTerm) *corev1.NodeAffinity {
	return &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}
}

func preferredNodes(terms ...corev1.NodeSelectorTerm) *corev1.NodeAffinity {
	a := &corev1.NodeAffinity{}
	for i, t := range terms {
		a.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PreferredDuringSchedulingIgnoredDuringExecution,
			corev1.PreferredSchedulingTerm{Weight: int32(i + 1), Preference: t})
	}
	return a
}

func TestNoNodeIsChosen(t *testing.T) {
	t.Parallel()
	host, name, zone := corev1.LabelHostname, metav1.ObjectNameField, corev1.LabelTopologyZone
	cases := map[string]struct{ in, want *corev1.NodeAffinity }{
		"a zone":                        {in: requiredNodes(nodeSelectorTerm(zone)), want: requiredNodes(nodeSelectorTerm(zone))},
		"a host":                        {in: requiredNodes(nodeSelectorTerm(host))},
		"a name":                        {in: requiredNodes(nodeSelectorTerm(name))},
		"a host in a zone":              {in: requiredNodes(nodeSelectorTerm(host, zone)), want: requiredNodes(nodeSelectorTerm(zone))},
		"a name in a zone":              {in: requiredNodes(nodeSelectorTerm(name, zone)), want: requiredNodes(nodeSelectorTerm(zone))},
		"a host or a zone":              {in: requiredNodes(nodeSelectorTerm(host), nodeSelectorTerm(zone)), want: requiredNodes(nodeSelectorTerm(zone))},
		"a host or a name":              {in: requiredNodes(nodeSelectorTerm(host), nodeSelectorTerm(name))},
		"preferably a host":             {in: preferredNodes(nodeSelectorTerm(host))},
		"preferably a name in a zone":   {in: preferredNodes(nodeSelectorTerm(zone, name)), want: preferredNodes(nodeSelectorTerm(zone))},
		"preferably a zone or a host":   {in: preferredNodes(nodeSelectorTerm(zone), nodeSelectorTerm(host)), want: preferredNodes(nodeSelectorTerm(zone))},
		"a term that matches no node":   {in: requiredNodes(nodeSelectorTerm())},
		"a preference without any wish": {in: preferredNodes(nodeSelectorTerm())},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var want *corev1.Affinity
			if tc.want != nil {
				want = &corev1.Affinity{NodeAffinity: tc.want}
			}
			spec := corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: tc.in}}
			require.Equal(t, want, hardened(t, spec, Allowed{SelectorLabels: []string{zone}}).Affinity)
		})
	}
}

func TestNodeSelector(t *testing.T) {
	t.Parallel()
	spec := corev1.PodSpec{NodeSelector: map[string]string{corev1.LabelHostname: "n", corev1.LabelArchStable: "arm64"}}
	spec = hardened(t, spec, Allowed{SelectorLabels: []string{corev1.LabelArchStable}})
	require.Equal(t, map[string]string{corev1.LabelArchStable: "arm64"}, spec.NodeSelector)
	spec = corev1.PodSpec{NodeSelector: map[string]string{corev1.LabelHostname: "n"}}
	require.Nil(t, hardened(t, spec, Allowed{}).NodeSelector)
}

// TestNodesAreSelectedByListedLabels: with any other label a peer could lead its pod to
// nodes that are set apart, and learn which there are.
func TestNodesAreSelectedByListedLabels(t *testing.T) {
	t.Parallel()
	const vault = "example.com/vault"
	beside := corev1.PodAffinityTerm{TopologyKey: vault, LabelSelector: &metav1.LabelSelector{}}
	others := beside
	others.Namespaces = []string{"kube-system"}
	for name, tc := range map[string]struct {
		spec  corev1.PodSpec
		field string
	}{
		"node selector": {corev1.PodSpec{NodeSelector: map[string]string{vault: "x"}}, "spec.nodeSelector"},
		"instance id":   {corev1.PodSpec{NodeSelector: map[string]string{"alpha.eksctl.io/instance-id": "i-1"}}, "spec.nodeSelector"},
		"required":      {corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: requiredNodes(nodeSelectorTerm(corev1.LabelTopologyZone, vault))}}, "spec.affinity.nodeAffinity"},
		"preferred":     {corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: preferredNodes(nodeSelectorTerm(corev1.LabelTopologyZone), nodeSelectorTerm(vault))}}, "spec.affinity.nodeAffinity"},
		"beside its own": {corev1.PodSpec{Affinity: &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{others, beside}}}}, "spec.affinity.podAffinity"},
		"apart from its own": {corev1.PodSpec{Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: beside}}}}}, "spec.affinity.podAntiAffinity"},
		"spread": {corev1.PodSpec{TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{TopologyKey: vault}}}, "spec.topologySpreadConstraints"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			message := requireRefused(t, tc.spec, Allowed{SelectorLabels: []string{corev1.LabelTopologyZone}}, reasons.NodeLabelRefused)
			require.Contains(t, message, tc.field+" selects nodes by the label ")
			require.Contains(t, message, "this cluster accepts from peers: topology.kubernetes.io/zone; its administrators can allow more by the setting sharing.selectorLabels")
			require.NoError(t, Harden(&tc.spec, Allowed{SelectorLabels: []string{corev1.LabelTopologyZone, vault, "alpha.eksctl.io/instance-id"}}))
		})
	}
}

func TestNodesAreSelectedByAnyLabel(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]bool{"example.com/vault": true, corev1.LabelTopologyZone: true, "alpha.eksctl.io/instance-id": false} {
		err := Harden(&corev1.PodSpec{NodeSelector: map[string]string{key: "x"}}, Allowed{SelectorLabels: []string{AllKeys}})
		require.Equal(t, want, err == nil, "%s: %v", key, err)
	}
}

func TestSingleNode(t *testing.T) {
	t.Parallel()
	for _, key := range []string{corev1.LabelHostname, "hostname", "topology.hostpath.csi/node", "alpha.eksctl.io/instance-id"} {
		require.True(t, SingleNode(key), key)
	}
	for _, key := range []string{corev1.LabelTopologyZone, corev1.LabelInstanceTypeStable, corev1.LabelArchStable, "pool", "example.com/gpu"} {
		require.False(t, SingleNode(key), key)
	}
}

func TestPodAffinityIsAboutTheNamespacesOwnPods(t *testing.T) {
	t.Parallel()
	own := corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}
	named, selected := *own.DeepCopy(), *own.DeepCopy()
	named.Namespaces = []string{"kube-system"}
	selected.NamespaceSelector = &metav1.LabelSelector{}
	terms := func(t ...corev1.PodAffinityTerm) []corev1.PodAffinityTerm { return t }
	weighted := func(terms ...corev1.PodAffinityTerm) (out []corev1.WeightedPodAffinityTerm) {
		for _, t := range terms {
			out = append(out, corev1.WeightedPodAffinityTerm{Weight: 1, PodAffinityTerm: t})
		}
		return out
	}

	spec := corev1.PodSpec{Affinity: &corev1.Affinity{
		PodAffinity: &corev1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution:  terms(own, named),
			PreferredDuringSchedulingIgnoredDuringExecution: weighted(selected),
		},
		PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution:  terms(selected),
			PreferredDuringSchedulingIgnoredDuringExecution: weighted(named, own),
		},
	}}
	require.NoError(t, Harden(&spec, Allowed{}))
	require.Equal(t, terms(own), spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
	require.Empty(t, spec.Affinity.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	require.Empty(t, spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
	require.Equal(t, weighted(own), spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution)

	spec = corev1.PodSpec{Affinity: &corev1.Affinity{
		PodAffinity:     &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms(named)},
		PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: weighted(selected)},
	}}
	require.NoError(t, Harden(&spec, Allowed{}))
	require.Nil(t, spec.Affinity)
}
