package rules

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// FuzzHarden: whatever a peer writes, nothing that it may not choose is left in the pod, a
// second Harden changes nothing, and a refused pod is as it was.
func FuzzHarden(f *testing.F) {
	typ := reflect.TypeFor[corev1.PodSpec]()
	for i := range typ.NumField() {
		var spec corev1.PodSpec
		fillValue(reflect.ValueOf(&spec).Elem().Field(i), 0)
		addSpec(f, spec)
	}
	for _, text := range []string{
		`{"tolerations":[{"operator":"Exists"},{"key":"dedicated","operator":"Exists"},{"key":"node.kubernetes.io/unschedulable","operator":"Exists"}]}`,
		`{"tolerations":[{"key":"dedicated","operator":"Equal","value":"peers"},{"key":"","value":"peers","tolerationSeconds":5}]}`,
		`{"nodeSelector":{"kubernetes.io/hostname":"a","topology.kubernetes.io/zone":"z","example.com/vault":"x"}}`,
		`{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchFields":[{"key":"metadata.name","operator":"In","values":["n"]}],"matchExpressions":[{"key":"topology.kubernetes.io/zone","operator":"Exists"}]}]}}}}`,
		`{"affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"kubernetes.io/hostname","namespaces":["kube-system"]},{"topologyKey":"kubernetes.io/hostname"}]}}}`,
		`{"volumes":[{"name":"a","nfs":{"server":"192.0.2.1","path":"/"}},{"name":"b","projected":{"sources":[{"serviceAccountToken":{"path":"t"}},{"secret":{"name":"s"}}]}},{"name":"c","image":{"reference":"x"}}]}`,
		`{"containers":[{"name":"c","imagePullPolicy":"Never","livenessProbe":{"httpGet":{"port":80}},"lifecycle":{"preStop":{"tcpSocket":{"host":"127.0.0.1","port":1}}}}]}`,
		`{"volumes":[{"name":"e","ephemeral":{"volumeClaimTemplate":{"spec":{"storageClassName":"disk","volumeName":"pv"}}}}],"terminationGracePeriodSeconds":99999999}`,
		`{"runtimeClassName":"gvisor","hostNetwork":true,"priority":2000000000,"ephemeralContainers":[{"name":"d"}]}`,
	} {
		f.Add([]byte(text))
	}
	allowed := Allowed{
		RuntimeClasses: []string{"gvisor"}, StorageClasses: []string{"disk"}, VolumeTypes: []string{"emptyDir", "secret", "projected", "ephemeral", "image"},
		SelectorLabels: []string{corev1.LabelTopologyZone}, Tolerations: parsed(f, "dedicated=peers:NoSchedule", "dedicated:NoExecute", "slow"), AlwaysPull: true,
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var spec corev1.PodSpec
		if json.Unmarshal(data, &spec) != nil {
			return
		}
		before := spec.DeepCopy()
		if err := Harden(&spec, allowed); err != nil {
			require.True(t, equality.Semantic.DeepEqual(before, &spec), "a refused spec is left as it was")
			return
		}
		requireHardened(t, &spec)
		again := spec.DeepCopy()
		require.NoError(t, Harden(again, allowed))
		require.True(t, equality.Semantic.DeepEqual(&spec, again), "a second time changes nothing")
	})
}

func addSpec(f *testing.F, spec corev1.PodSpec) {
	f.Helper()
	text, err := json.Marshal(spec)
	require.NoError(f, err)
	f.Add(text)
}

// requireHardened says anew, in other words than Harden, what no peer's pod may have.
func requireHardened(t *testing.T, s *corev1.PodSpec) {
	t.Helper()
	require.Empty(t, s.NodeName+s.SchedulerName+s.PriorityClassName+s.ServiceAccountName+s.DeprecatedServiceAccount)
	require.False(t, s.HostNetwork || s.HostPID || s.HostIPC || *s.AutomountServiceAccountToken)
	require.True(t, s.Priority == nil && s.PreemptionPolicy == nil && s.SchedulingGroup == nil)
	require.True(t, len(s.SchedulingGates)+len(s.EphemeralContainers)+len(s.ResourceClaims)+len(s.Overhead) == 0)
	require.True(t, s.RuntimeClassName == nil || *s.RuntimeClassName == "gvisor")
	require.True(t, s.TerminationGracePeriodSeconds == nil || *s.TerminationGracePeriodSeconds <= 3600)
	taint := func(key, value string, effect corev1.TaintEffect) *corev1.Taint {
		return &corev1.Taint{Key: key, Value: value, Effect: effect}
	}
	for i := range s.Tolerations {
		for _, forbidden := range []*corev1.Taint{
			taint("dedicated", "pci", corev1.TaintEffectNoSchedule), taint("vault", "", corev1.TaintEffectNoSchedule), taint("vault", "", corev1.TaintEffectNoExecute),
			taint("node-role.kubernetes.io/control-plane", "", corev1.TaintEffectNoSchedule), taint(corev1.TaintNodeUnschedulable, "", corev1.TaintEffectNoSchedule),
			taint(corev1.TaintNodeNotReady, "", corev1.TaintEffectNoSchedule), taint("virtual-node.liqo.io/not-allowed", "true", corev1.TaintEffectNoExecute),
		} {
			require.Falsef(t, tolerates(s.Tolerations[i], forbidden), "%v tolerates %v", s.Tolerations[i], forbidden)
		}
	}
	requireHardenedPlacement(t, s)
	requireHardenedVolumes(t, s.Volumes)
	for _, c := range slices.Concat(s.InitContainers, s.Containers) {
		require.Equal(t, corev1.PullAlways, c.ImagePullPolicy)
		text, err := json.Marshal([]any{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe, c.Lifecycle})
		require.NoError(t, err)
		require.NotContains(t, string(text), `"host":`)
	}
}

func requireHardenedPlacement(t *testing.T, s *corev1.PodSpec) {
	t.Helper()
	for key := range s.NodeSelector {
		require.Equal(t, corev1.LabelTopologyZone, key)
	}
	topologies := []string{corev1.LabelTopologyZone, corev1.LabelHostname}
	for _, c := range s.TopologySpreadConstraints {
		require.Contains(t, topologies, c.TopologyKey)
	}
	a := s.Affinity
	if a == nil {
		return
	}
	if n := a.NodeAffinity; n != nil {
		var terms []corev1.NodeSelectorTerm
		for _, p := range n.PreferredDuringSchedulingIgnoredDuringExecution {
			terms = append(terms, p.Preference)
		}
		if n.RequiredDuringSchedulingIgnoredDuringExecution != nil {
			terms = append(terms, n.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms...)
		}
		for _, term := range terms {
			require.Empty(t, term.MatchFields)
			for _, r := range term.MatchExpressions {
				require.Equal(t, corev1.LabelTopologyZone, r.Key)
			}
		}
	}
	var terms []corev1.PodAffinityTerm
	var weighted []corev1.WeightedPodAffinityTerm
	if p := a.PodAffinity; p != nil {
		terms, weighted = append(terms, p.RequiredDuringSchedulingIgnoredDuringExecution...), append(weighted, p.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	if p := a.PodAntiAffinity; p != nil {
		terms, weighted = append(terms, p.RequiredDuringSchedulingIgnoredDuringExecution...), append(weighted, p.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	for _, w := range weighted {
		terms = append(terms, w.PodAffinityTerm)
	}
	for _, term := range terms {
		require.Contains(t, topologies, term.TopologyKey)
		require.True(t, len(term.Namespaces) == 0 && term.NamespaceSelector == nil)
	}
}

func requireHardenedVolumes(t *testing.T, volumes []corev1.Volume) {
	t.Helper()
	for _, v := range volumes {
		text, err := json.Marshal(v.VolumeSource)
		require.NoError(t, err)
		var sources map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(text, &sources))
		for name := range sources {
			require.Contains(t, []string{"emptyDir", "secret", "projected", "ephemeral", "image"}, name)
		}
		if p := v.Projected; p != nil {
			require.False(t, slices.ContainsFunc(p.Sources, func(s corev1.VolumeProjection) bool { return s.ServiceAccountToken != nil || s.PodCertificate != nil }))
		}
		if e := v.Ephemeral; e != nil && e.VolumeClaimTemplate != nil {
			require.Equal(t, "disk", *e.VolumeClaimTemplate.Spec.StorageClassName)
			require.Empty(t, e.VolumeClaimTemplate.Spec.VolumeName)
		}
	}
}

// tolerates says so in the words of the scheduler, for the operators of old.
func tolerates(t corev1.Toleration, taint *corev1.Taint) bool {
	if t.Effect != "" && t.Effect != taint.Effect || t.Key != "" && t.Key != taint.Key {
		return false
	}
	return t.Operator == corev1.TolerationOpExists || strings.TrimPrefix(string(t.Operator), "Equal") == "" && t.Value == taint.Value
}
