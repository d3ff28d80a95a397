package scenarios

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// testResize: a running pod grows and shrinks in place, sidecars too, and a resize that
// the provider's node puts off or cannot do shows here until it is taken back.
func testResize(t *testing.T, w *world) {
	c := w.fixture(t, "resize")
	pod := bare("web", corev1.RestartPolicyAlways)
	pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: amounts("100m", "64Mi"), Limits: amounts("200m", "128Mi")}
	pod.Spec.InitContainers = []corev1.Container{{
		Name: "proxy", Image: "sim/proxy:1", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways),
		Resources: corev1.ResourceRequirements{Requests: amounts("10m", "16Mi")},
	}}
	c.create(t, pod)
	c.untilLocal(t, 20*time.Second, "web", "runs", podRunning)
	before := c.remote(t, "web")
	for _, step := range []struct{ what, cpu, patch string }{
		{"grows", "300m", `{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"300m"},"limits":{"cpu":"400m"}}}]}}`},
		{"shrinks", "50m", `{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"50m"},"limits":{"cpu":"60m"}}}]}}`},
	} {
		local := w.patchPod(t, w.rome, c.namespace, "web", step.patch, "resize")
		c.untilLocal(t, 10*time.Second, "web", step.what, func(p *corev1.Pod) bool {
			return p.Status.ContainerStatuses[0].Resources.Requests.Cpu().String() == step.cpu && p.Status.ObservedGeneration == local.Generation
		})
		require.Equal(t, step.cpu, c.remote(t, "web").Spec.Containers[0].Resources.Requests.Cpu().String())
	}
	w.patchPod(t, w.rome, c.namespace, "web", `{"spec":{"initContainers":[{"name":"proxy","resources":{"requests":{"cpu":"20m"}}}]}}`, "resize")
	c.untilRemote(t, 10*time.Second, "web", "has a larger sidecar", func(p *corev1.Pod) bool {
		return p.Spec.InitContainers[0].Resources.Requests.Cpu().String() == "20m"
	})
	for _, reason := range []string{corev1.PodReasonDeferred, corev1.PodReasonInfeasible} {
		// The node speaks as a kubelet without room does.
		w.patchPod(t, w.milan, c.twin, "web", `{"status":{"conditions":[{"type":"PodResizePending","status":"True","reason":"`+reason+`","message":"no room"}]}}`, "status")
		c.untilLocal(t, 10*time.Second, "web", "says that its resize is "+reason, func(p *corev1.Pod) bool {
			return podCondition(p, corev1.PodResizePending).Reason == reason
		})
	}
	w.patchPod(t, w.milan, c.twin, "web", `{"status":{"conditions":[{"type":"PodResizePending","$patch":"delete"}]}}`, "status")
	settled := func(p *corev1.Pod) bool { return podCondition(p, corev1.PodResizePending).Type == "" }
	c.untilLocal(t, 10*time.Second, "web", "has no pending resize", settled)

	// More than the virtual node lets know of: the provider's API server refuses it.
	w.patchPod(t, w.rome, c.namespace, "web", `{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"100"},"limits":{"cpu":"100"}}}]}}`, "resize")
	local := c.untilLocal(t, 10*time.Second, "web", "says that the provider refuses its resize", func(p *corev1.Pod) bool {
		return podCondition(p, corev1.PodResizePending).Reason == corev1.PodReasonDeferred
	})
	require.Contains(t, podCondition(local, corev1.PodResizePending).Message, "enough allocatable resources")
	require.True(t, podRunning(local), "it runs as it is")
	c.hasEvent(t, local, "UpdateRefused")
	w.patchPod(t, w.rome, c.namespace, "web", `{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"70m"},"limits":{"cpu":"80m"}}}]}}`, "resize")
	local = c.untilLocal(t, 10*time.Second, "web", "has what it asks for", func(p *corev1.Pod) bool {
		return settled(p) && p.Status.ContainerStatuses[0].Resources.Requests.Cpu().String() == "70m"
	})
	_, err := w.rome.Client().CoreV1().Pods(c.namespace).Patch(t.Context(), "web", types.StrategicMergePatchType,
		[]byte(`{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"2000"},"limits":{"cpu":"2000"}}}]}}`), metav1.PatchOptions{}, "resize")
	require.ErrorContains(t, err, "enough allocatable resources", "more than the virtual node has")
	require.Zero(t, restarts(local))
	require.Equal(t, before.UID, c.remote(t, "web").UID, "the same pod")
	c.deleteAll(t)
}

// testResizePod: the resources of a pod as a whole are carried, and follow a resize.
func testResizePod(t *testing.T, w *world) {
	c := w.fixture(t, "resize-pod")
	pod := bare("web", corev1.RestartPolicyAlways)
	pod.Spec.Resources = &corev1.ResourceRequirements{Requests: amounts("200m", "64Mi"), Limits: amounts("400m", "128Mi")}
	c.create(t, pod)
	c.untilLocal(t, 20*time.Second, "web", "runs", podRunning)
	before := c.remote(t, "web")
	require.Equal(t, pod.Spec.Resources.Requests.Cpu().String(), before.Spec.Resources.Requests.Cpu().String())
	require.Equal(t, corev1.PodQOSBurstable, before.Status.QOSClass)
	w.patchPod(t, w.rome, c.namespace, "web", `{"spec":{"resources":{"requests":{"cpu":"300m"},"limits":{"cpu":"600m"}}}}`, "resize")
	remote := c.untilRemote(t, 10*time.Second, "web", "has the resources", func(p *corev1.Pod) bool {
		return p.Spec.Resources.Requests.Cpu().String() == "300m" && p.Spec.Resources.Limits.Cpu().String() == "600m"
	})
	require.Equal(t, before.UID, remote.UID, "the same pod")
	// The node speaks as a kubelet that has done it.
	w.patchPod(t, w.milan, c.twin, "web", `{"status":{"resources":{"requests":{"cpu":"300m"}},"allocatedResources":{"cpu":"300m"}}}`, "status")
	c.untilLocal(t, 10*time.Second, "web", "shows the resources that it has", func(p *corev1.Pod) bool {
		return p.Status.Resources != nil && p.Status.Resources.Requests.Cpu().String() == "300m" && p.Status.AllocatedResources.Cpu().String() == "300m"
	})
	c.deleteAll(t)
}

// testRestartAll: a pod whose rules start all containers again is accepted by the
// scheduler for the virtual node, and comes into the provider as it is.
func testRestartAll(t *testing.T, w *world) {
	c := w.fixture(t, "restart-all")
	pod := bare("web", corev1.RestartPolicyNever)
	pod.Spec.Containers[0].RestartPolicy = ptr.To(corev1.ContainerRestartPolicyNever)
	pod.Spec.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{
		Action:    corev1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
	}}
	c.create(t, pod)
	c.untilLocal(t, 20*time.Second, "web", "runs", podRunning)
	require.Equal(t, pod.Spec.Containers[0].RestartPolicyRules, c.remote(t, "web").Spec.Containers[0].RestartPolicyRules)
	c.deleteAll(t)
}
