package scenarios

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

const zones = "zones"

// fullZones: places that are no hosts. At home a virtual node is in the zone of its spec.labels, and in
// none without. In milan the anti-affinity of preset propagate and the affinity of an offloadingPatch are by zones of milan,
// and by no label that milan does not list.
func fullZones(t *testing.T, w *fullWorld) {
	w.offload(t, zones, offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsLocalAndRemote})
	w.zone(t, w.rome, "rome-1", "home")
	zonesAtHome(t, w)

	w.zone(t, w.milan, "milan-1", "north")
	w.zone(t, w.milan, "milan-2", "north")
	for name, key := range map[string]string{"apart-0": corev1.LabelTopologyZone, "apart-1": corev1.LabelTopologyZone, "rack": "example.org/rack"} {
		pod := zonePod(name)
		pod.Annotations = map[string]string{offloadingv1beta1.AntiAffinityPresetAnnotation: offloadingv1beta1.AntiAffinityPropagate}
		pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: key, LabelSelector: &metav1.LabelSelector{MatchLabels: pod.Labels},
		}}}}
		kubetest.Create(t, w.rome.Client().CoreV1().Pods(zones), pod)
	}
	within(t, longest, "of two pods that must be in different zones one waits in milan's only zone", w.inMilan("apart", 1, 1))
	within(t, time.Minute, "milan refuses a label that it does not list", lab.Is(w.rome.Client().CoreV1().Pods(zones), "rack", func(pod *corev1.Pod) bool {
		return pod.Status.Reason == offloadingv1beta1.ReasonPodRefused && strings.Contains(pod.Status.Message, "example.org/rack: ")
	}))
	w.zone(t, w.milan, "milan-2", "south")
	within(t, longest, "it runs when there is another zone", w.inMilan("apart", 2, 2))

	w.patchNode(t, `{"spec":{"labels":{"example.org/patched":"yes"},"offloadingPatch":{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[
		{"matchExpressions":[{"key":"topology.kubernetes.io/zone","operator":"In","values":["south"]}]}]}}}}}}`)
	within(t, time.Minute, "the vkubelet has the patch", lab.Is(w.rome.Client().CoreV1().Nodes(), "milan", func(node *corev1.Node) bool {
		return node.Labels["example.org/patched"] == "yes"
	}))
	for n := range 3 {
		kubetest.Create(t, w.rome.Client().CoreV1().Pods(zones), zonePod(fmt.Sprintf("south-%d", n)))
	}
	within(t, time.Minute, "pods run in the zone of the virtual node's patch", w.inMilan("south", 3, 1))
	w.patchNode(t, `{"spec":{"labels":{"example.org/patched":null},"offloadingPatch":null}}`)
	require.NoError(t, w.rome.Client().CoreV1().Pods(zones).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	for node, s := range map[string]*site.Site{"rome-1": w.rome, "milan-1": w.milan, "milan-2": w.milan} {
		w.zone(t, s, node, "")
	}
}

// zonesAtHome: a strict spread over zones leaves a virtual node without a zone empty, and counts
// one that has a zone.
func zonesAtHome(t *testing.T, w *fullWorld) {
	for _, tc := range []struct {
		set, label string
		want       map[string]int
	}{{"without", "null", map[string]int{"rome-1": 4}}, {"with", `"abroad"`, map[string]int{"rome-1": 2, "milan": 2}}} {
		w.patchNode(t, fmt.Sprintf(`{"spec":{"labels":{"topology.kubernetes.io/zone":%s}}}`, tc.label))
		within(t, time.Minute, "virtual node "+tc.set+" a zone", lab.Is(w.rome.Client().CoreV1().Nodes(), "milan", func(node *corev1.Node) bool {
			return (node.Labels[corev1.LabelTopologyZone] == "abroad") == (tc.set == "with")
		}))
		d := webDeployment(tc.set, 4)
		d.Spec.Template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: d.Spec.Selector,
		}}
		kubetest.Create(t, w.rome.Client().AppsV1().Deployments(zones), d)
		within(t, time.Minute, "four pods run", w.available(tc.set, zones, 4))
		have := must(w.nodesOf(t.Context(), zones))(t)
		require.Equal(t, tc.want, have, "virtual node %s a zone", tc.set)
		w.removeDeployment(t, zones, tc.set)
	}
	w.patchNode(t, `{"spec":{"labels":{"topology.kubernetes.io/zone":null}}}`)
}

// zonePod runs in milan. Its set is its name without the number.
func zonePod(name string) *corev1.Pod {
	set, _, _ := strings.Cut(name, "-")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"set": set}}, Spec: testSpec(0, "serve")}
	pod.Spec.RuntimeClassName = ptr.To("liqo")
	return pod
}

// zone gives a node a zone; empty: it has none.
func (w *fullWorld) zone(t *testing.T, s *site.Site, node, zone string) {
	t.Helper()
	value := "null"
	if zone != "" {
		value = fmt.Sprintf("%q", zone)
	}
	kubetest.Patch(t, s.Client().CoreV1().Nodes(), node, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"topology.kubernetes.io/zone":%s}}}`, value))
}

// patchNode patches the VirtualNode of milan.
func (w *fullWorld) patchNode(t *testing.T, patch string) {
	t.Helper()
	kubetest.Patch(t, w.rome.Liqod().OffloadingV1beta1().VirtualNodes(tenantOfMilan), "milan", types.MergePatchType, []byte(patch))
}

// inMilan says whether as many pods of a set run in milan, in so many of its zones.
func (w *fullWorld) inMilan(set string, run, in int) func(context.Context) error {
	return func(ctx context.Context) error {
		nodes, err := w.milan.Client().CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		zoneOf := map[string]string{}
		for _, n := range nodes.Items {
			zoneOf[n.Name] = n.Labels[corev1.LabelTopologyZone]
		}
		list, err := w.milan.Client().CoreV1().Pods(zones+"-rome").List(ctx, metav1.ListOptions{LabelSelector: "set=" + set})
		if err != nil {
			return err
		}
		have, places := 0, map[string]int{}
		for _, p := range list.Items {
			if p.Status.Phase == corev1.PodRunning {
				have++
				places[zoneOf[p.Spec.NodeName]]++
			}
		}
		waits := slices.ContainsFunc(list.Items, func(p corev1.Pod) bool {
			return podCondition(&p, corev1.PodScheduled).Reason == corev1.PodReasonUnschedulable
		})
		return lab.Wrong(nil, have != run || len(places) != in || waits != (run < len(list.Items)) || len(list.Items) == 0,
			"of %d pods %v run; one waits: %t", len(list.Items), places, waits)
	}
}

// fullApart: by the presets of anti-affinity, the scheduler of milan spreads pods over its two
// nodes, which are one virtual node at home. Of three pods that must be apart the last one waits, also when
// their preset changes later.
func fullApart(t *testing.T, w *fullWorld) {
	const namespace, twin = "apart", "apart-rome"
	w.offload(t, namespace, offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsRemote})
	preset, labels := offloadingv1beta1.AntiAffinityPresetAnnotation, offloadingv1beta1.AntiAffinityLabelsAnnotation
	own := &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
		Weight: 100, PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"set": "propagate"}}},
	}}}}
	sets := map[string]struct {
		pods        int
		annotations map[string]string
		affinity    *corev1.Affinity
		runs        int
	}{
		"hard":      {3, map[string]string{preset: offloadingv1beta1.AntiAffinityHard}, nil, 2},
		"soft":      {3, map[string]string{preset: offloadingv1beta1.AntiAffinitySoft}, nil, 3},
		"propagate": {2, map[string]string{preset: offloadingv1beta1.AntiAffinityPropagate}, own, 2},
		"labels":    {2, map[string]string{preset: offloadingv1beta1.AntiAffinityHard, labels: "set"}, nil, 2},
	}
	pods := w.rome.Client().CoreV1().Pods(namespace)
	for set, tc := range sets {
		for n := range tc.pods {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", set, n), Labels: map[string]string{"set": set}, Annotations: tc.annotations}, Spec: testSpec(0, "serve")}
			if set == "labels" {
				pod.Labels["instance"] = pod.Name // by all of its labels it is alone
			}
			pod.Spec.Affinity = tc.affinity
			kubetest.Create(t, pods, pod)
		}
	}
	for set, tc := range sets {
		within(t, time.Minute, set+": pods run on both nodes", lab.Those(w.milan.Client().CoreV1().Pods(twin), metav1.ListOptions{LabelSelector: "set=" + set}, func(list *corev1.PodList) error {
			var nodes []string
			for _, p := range list.Items {
				if p.Status.Phase == corev1.PodRunning {
					nodes = append(nodes, p.Spec.NodeName)
				}
			}
			slices.Sort(nodes)
			return lab.Wrong(nil, len(list.Items) != tc.pods || len(nodes) != tc.runs || len(slices.Compact(nodes)) != 2, "%d pods, running on %v", len(list.Items), nodes)
		}))
	}
	within(t, time.Minute, "the third one says why it waits", lab.Some(pods, metav1.ListOptions{LabelSelector: "set=hard"}, func(p *corev1.Pod) bool {
		return podCondition(p, corev1.PodReady).Reason == corev1.PodReasonUnschedulable
	}))
	softer := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, preset, offloadingv1beta1.AntiAffinitySoft)
	for n := range 3 {
		kubetest.Patch(t, pods, fmt.Sprintf("hard-%d", n), types.MergePatchType, softer)
	}
	hold(t, 5*time.Second, "a preset that changes later moves no pod", lab.Those(w.milan.Client().CoreV1().Pods(twin), metav1.ListOptions{LabelSelector: "set=hard"}, func(list *corev1.PodList) error {
		waiting := 0
		for _, p := range list.Items {
			if p.Spec.NodeName == "" {
				waiting++
			}
		}
		return lab.Wrong(nil, len(list.Items) != 3 || waiting != 1, "of %d pods %d wait", len(list.Items), waiting)
	}))
	require.NoError(t, pods.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
}
