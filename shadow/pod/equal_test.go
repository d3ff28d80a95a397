package pod

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/shadow/rules"
)

func TestForge(t *testing.T) {
	shadow := newShadow(never, func(s *offloadingv1beta1.ShadowPod) {
		s.Labels[offloadingv1beta1.ManagedByLabel] = "somebody"
		s.Annotations[AppliedAnnotation] = "forged"
		s.Annotations[offloadingv1beta1.LeftOutAnnotation] = "forged"
		s.Annotations[offloadingv1beta1.ShadowPodUIDAnnotation] = "forged"
		s.Annotations["kubernetes.io/config.mirror"] = "x"
		s.Annotations["cni.projectcalico.org/ipAddrs"] = "x"
		s.Labels["sidecar.istio.io/inject"] = "true"
		s.Spec.Pod.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
			VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"volume.kubernetes.io/selected-node": "worker-1"}}},
		}}}}
		s.Spec.Pod.ServiceAccountName = "root"
	})
	before := shadow.DeepCopy()
	pod, err := forge(shadow, twin(), rules.Metadata{Labels: rules.LeftOutLabels{"istio.io/*"}}, noHostNetwork)
	require.NoError(t, err)
	require.Equal(t, before, shadow, "the cache's object is not written to")

	require.Equal(t, testName, pod.Name)
	require.Equal(t, testNamespace, pod.Namespace)
	require.Equal(t, offloadingv1beta1.ManagedByShadowPod, pod.Labels[offloadingv1beta1.ManagedByLabel])
	require.Equal(t, origin, pod.Labels[offloadingv1beta1.OriginLabel])
	require.Equal(t, "local-1", pod.Labels[offloadingv1beta1.LocalPodUIDLabel])
	require.Equal(t, "web", pod.Labels["app"])
	require.NotContains(t, pod.Annotations, "kubernetes.io/config.mirror")
	require.NotContains(t, pod.Annotations, "cni.projectcalico.org/ipAddrs")
	require.Equal(t, []string{"note", offloadingv1beta1.LeftOutAnnotation}, readApplied(pod).Annotations)
	require.NotContains(t, pod.Labels, "sidecar.istio.io/inject")
	require.NotContains(t, readApplied(pod).Labels, "sidecar.istio.io/inject", "it is removed from a pod that has it")
	require.Empty(t, pod.Spec.Volumes[0].Ephemeral.VolumeClaimTemplate.Annotations)
	require.Equal(t, offloadingv1beta1.MarksSum(shadow), pod.Annotations[offloadingv1beta1.LeftOutAnnotation])
	text, err := json.Marshal(pod)
	require.NoError(t, err)
	for _, key := range []string{"cni.projectcalico.org", "config.mirror", "sidecar.istio.io", "selected-node"} {
		require.NotContains(t, string(text), key, "no part of the pod names what is left out")
	}
	require.Equal(t, int64(1), readApplied(pod).Spec)
	require.Equal(t, []string{offloadingv1beta1.RemotePodFinalizer}, pod.Finalizers)
	require.Empty(t, pod.Spec.ServiceAccountName)
	require.Equal(t, []metav1.OwnerReference{controlledBy(twin())}, pod.OwnerReferences)
	require.True(t, owns(shadow, pod))
	require.True(t, ofAnyShadow(pod))
	require.Equal(t, "shadow-1", pod.Annotations[offloadingv1beta1.ShadowPodUIDAnnotation], "its author has no say in it")

	pod, err = forge(newShadow(always), twin(), rules.Metadata{}, noHarden)
	require.NoError(t, err)
	require.Empty(t, pod.Finalizers)
	require.NotContains(t, pod.Annotations, offloadingv1beta1.LeftOutAnnotation)
	pod, err = forge(newShadow(""), twin(), rules.Metadata{}, noHarden)
	require.NoError(t, err)
	require.Empty(t, pod.Finalizers, "no policy is Always")

	_, err = forge(newShadow(always, func(s *offloadingv1beta1.ShadowPod) { s.Spec.Pod.HostNetwork = true }), twin(), rules.Metadata{}, noHostNetwork)
	require.ErrorContains(t, err, "host network")
}

// changeRow is a change and the patch that must result from it.
type changeRow struct {
	now, then  *offloadingv1beta1.ShadowPod // the current ShadowPod, and the one that the pod was made from
	have       podMod
	spec       store.Patch
	metadata   []string // keys that the patch sets or removes, without the record
	removed    []string
	resize     bool
	wantNoDiff bool
}

func changeRows() map[string]changeRow {
	cpu := func(q string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(q)}}
	}
	at := func(mods ...shadowMod) *offloadingv1beta1.ShadowPod { return newShadow(always, mods...) }
	spec := func(change func(*corev1.PodSpec)) shadowMod {
		return func(s *offloadingv1beta1.ShadowPod) { change(&s.Spec.Pod); s.Generation++ }
	}
	first := corev1.Toleration{Key: "a", Operator: corev1.TolerationOpExists}
	return map[string]changeRow{
		"equal":                      {now: at(), then: at(), wantNoDiff: true},
		"a label of others":          {now: at(), then: at(), have: func(p *corev1.Pod) { p.Labels["x"] = "y"; p.Annotations["x"] = "y" }, wantNoDiff: true},
		"an annotation put by CNI":   {now: at(), then: at(), have: func(p *corev1.Pod) { p.Annotations["cni"] = "10.0.0.1" }, wantNoDiff: true},
		"a label changed":            {now: at(func(s *offloadingv1beta1.ShadowPod) { s.Labels["app"] = "web2" }), then: at(), metadata: []string{"app"}},
		"a label added":              {now: at(func(s *offloadingv1beta1.ShadowPod) { s.Labels["b"] = "c" }), then: at(), metadata: []string{"b"}},
		"a label removed":            {now: at(func(s *offloadingv1beta1.ShadowPod) { delete(s.Labels, "app") }), then: at(), removed: []string{"app"}},
		"an annotation removed":      {now: at(func(s *offloadingv1beta1.ShadowPod) { s.Annotations = nil }), then: at(), removed: []string{"note"}},
		"a record that is gone":      {now: at(), then: at(), have: func(p *corev1.Pod) { delete(p.Annotations, AppliedAnnotation) }},
		"a record that is no record": {now: at(), then: at(), have: func(p *corev1.Pod) { p.Annotations[AppliedAnnotation] = "{" }},
		"a newer one was applied":    {now: at(), then: at(image("img:2")), have: func(p *corev1.Pod) { delete(p.Labels, "app") }, wantNoDiff: true},
		"a new image":                {now: at(image("img:2")), then: at(), spec: store.Patch{"containers": []store.Patch{{"name": "main", "image": "img:2"}}}},
		"a new image for a rewritten one": {now: at(image("img:2")), then: at(), have: func(p *corev1.Pod) { p.Spec.Containers[0].Image = "mirror/img:1" },
			spec: store.Patch{"containers": []store.Patch{{"name": "main", "image": "img:2"}}}},
		"a generation that changes nothing here": {now: at(spec(func(*corev1.PodSpec) {})), then: at()},
		"a container that a webhook injected":    {now: at(spec(func(*corev1.PodSpec) {})), then: at(), have: func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "proxy"}) }},
		"a toleration more": {now: at(spec(func(s *corev1.PodSpec) { s.Tolerations = []corev1.Toleration{first} })), then: at(),
			have: func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Key: "provider"}} },
			spec: store.Patch{"tolerations": []corev1.Toleration{{Key: "provider"}, first}}},
		"a toleration that lasts longer": {now: at(spec(func(s *corev1.PodSpec) {
			s.Tolerations = []corev1.Toleration{{Key: "a", TolerationSeconds: new(int64(9))}}
		})), then: at(),
			have: func(p *corev1.Pod) {
				p.Spec.Tolerations = []corev1.Toleration{{Key: "a", TolerationSeconds: new(int64(5))}}
			},
			spec: store.Patch{"tolerations": []corev1.Toleration{{Key: "a", TolerationSeconds: new(int64(9))}}}},
		"a deadline": {now: at(spec(func(s *corev1.PodSpec) { s.ActiveDeadlineSeconds = new(int64(5)) })), then: at(), spec: store.Patch{"activeDeadlineSeconds": int64(5)}},
		"a deadline that may not grow": {now: at(spec(func(s *corev1.PodSpec) { s.ActiveDeadlineSeconds = new(int64(5)) })), then: at(),
			have: func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(4)) }},
		"a grace repaired": {now: at(spec(func(s *corev1.PodSpec) { s.TerminationGracePeriodSeconds = new(int64(1)) })), then: at(),
			have: func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(-3)) }, spec: store.Patch{"terminationGracePeriodSeconds": int64(1)}},
		"a grace that may not change": {now: at(spec(func(s *corev1.PodSpec) { s.TerminationGracePeriodSeconds = new(int64(1)) })), then: at(),
			have: func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(30)) }},
		"more resources": {now: at(spec(func(s *corev1.PodSpec) { s.Containers[0].Resources = cpu("2") })), then: at(), resize: true},
		"more resources of the whole pod": {now: at(spec(func(s *corev1.PodSpec) { s.Resources = new(cpu("2")) })), then: at(spec(func(s *corev1.PodSpec) { s.Resources = new(cpu("1")) })),
			have: func(p *corev1.Pod) { p.Annotations[AppliedAnnotation] = "{}" }, resize: true},
		"the first resources of the whole pod": {now: at(spec(func(s *corev1.PodSpec) { s.Resources = new(cpu("2")) })), then: at(), resize: true},
		"no more resources of the whole pod":   {now: at(spec(func(*corev1.PodSpec) {})), then: at(), have: func(p *corev1.Pod) { p.Spec.Resources = new(cpu("1")) }},
		"equal resources in other words": {now: at(spec(func(s *corev1.PodSpec) { s.Containers[0].Resources = cpu("1000m") })), then: at(),
			have: func(p *corev1.Pod) { p.Spec.Containers[0].Resources = cpu("1") }},
	}
}

func TestChanges(t *testing.T) {
	for name, tc := range changeRows() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := podOf(tc.then)
			if tc.have != nil {
				tc.have(pod)
			}
			before := pod.DeepCopy()
			want, err := forge(tc.now, twin(), rules.Metadata{}, noHarden)
			require.NoError(t, err)
			require.Equal(t, !tc.wantNoDiff, differs(want, pod))
			require.Equal(t, tc.resize, len(resourceChanges(want, pod)) > 0)
			patch := changes(want, pod, readApplied(want).Resources)
			require.Equal(t, before, pod, "the cache's object is not written to")
			if tc.wantNoDiff {
				require.Empty(t, patch)
				return
			}
			if tc.spec == nil {
				require.NotContains(t, patch, "spec")
			} else {
				require.Equal(t, tc.spec, patch["spec"])
			}
			var set, removed []string
			for _, part := range []string{"labels", "annotations"} {
				m, _ := patch["metadata"].(store.Patch)[part].(store.Patch)
				for k, v := range m {
					switch {
					case k == AppliedAnnotation:
					case v == nil:
						removed = append(removed, k)
					default:
						set = append(set, k)
					}
				}
			}
			require.ElementsMatch(t, tc.metadata, set)
			require.ElementsMatch(t, tc.removed, removed)
		})
	}
}

func TestLostStatus(t *testing.T) {
	pod := podOf(newShadow(never), deleting)
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: ago(0)}}
	before := pod.DeepCopy()
	s := lostStatus(pod, testTime())
	require.Equal(t, before, pod)
	require.Equal(t, corev1.PodFailed, s.Phase)
	require.Equal(t, offloadingv1beta1.ReasonRemotePodLost, s.Reason)
	want := map[corev1.PodConditionType]corev1.ConditionStatus{
		corev1.DisruptionTarget: corev1.ConditionTrue, corev1.PodReady: corev1.ConditionFalse, corev1.ContainersReady: corev1.ConditionFalse,
	}
	got := map[corev1.PodConditionType]corev1.ConditionStatus{}
	for _, c := range s.Conditions {
		got[c.Type] = c.Status
	}
	require.Equal(t, want, got)
	require.Equal(t, int32(137), s.ContainerStatuses[0].State.Terminated.ExitCode)
	require.Nil(t, s.ContainerStatuses[0].State.Running)
	require.Equal(t, int32(2), s.ContainerStatuses[0].RestartCount)
}

func TestAddRestarts(t *testing.T) {
	pod := podOf(newShadow(always))
	pod.Spec.InitContainers = []corev1.Container{{Name: "init"}}
	got := addRestarts([]offloadingv1beta1.ContainerRestarts{{Name: "main", Count: 3}, {Name: "gone", Count: 1}}, pod)
	require.Equal(t, []offloadingv1beta1.ContainerRestarts{{Name: "init", Count: 1}, {Name: "main", Count: 6}}, got)
}
