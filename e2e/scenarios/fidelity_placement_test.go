package scenarios

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

// testReadinessGates: a gate is judged here: its condition is written here, and the
// provider never waits for it.
func testReadinessGates(t *testing.T, w *world) {
	c := w.fixture(t, "gates")
	pod := bare("web", corev1.RestartPolicyAlways)
	pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.org/registered"}}
	c.create(t, pod)
	ready := func(status corev1.ConditionStatus, reason string) func(*corev1.Pod) bool {
		return func(p *corev1.Pod) bool {
			have := podCondition(p, corev1.PodReady)
			return have.Status == status && have.Reason == reason && podCondition(p, corev1.ContainersReady).Status == corev1.ConditionTrue
		}
	}
	gate := func(status string) {
		w.patchPod(t, w.rome, c.namespace, "web", `{"status":{"conditions":[{"type":"example.org/registered","status":"`+status+`"}]}}`, "status")
	}
	local := c.untilLocal(t, 20*time.Second, "web", "waits for its gate", ready(corev1.ConditionFalse, "ReadinessGatesNotReady"))
	require.Contains(t, podCondition(local, corev1.PodReady).Message, "example.org/registered")
	remote := c.remote(t, "web")
	require.Empty(t, remote.Spec.ReadinessGates)
	require.True(t, podRunning(remote), "Ready in the provider")
	gate("True")
	c.untilLocal(t, 10*time.Second, "web", "is Ready", ready(corev1.ConditionTrue, ""))
	gate("False")
	c.untilLocal(t, 10*time.Second, "web", "is not Ready again", ready(corev1.ConditionFalse, "ReadinessGatesNotReady"))
	gate("True")
	c.untilLocal(t, 10*time.Second, "web", "is Ready again", ready(corev1.ConditionTrue, ""))
	require.Equal(t, remote.ResourceVersion, c.remote(t, "web").ResourceVersion, "nothing of it is written in the provider")
	c.deleteAll(t)
}

// testSchedulingGates: a gated pod is nowhere; without its gates it is offloaded.
func testSchedulingGates(t *testing.T, w *world) {
	c := w.fixture(t, "gated")
	pod := bare("web", corev1.RestartPolicyAlways)
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.org/budget"}}
	c.create(t, pod)
	c.untilLocal(t, 10*time.Second, "web", "is gated", func(p *corev1.Pod) bool {
		return podCondition(p, corev1.PodScheduled).Reason == corev1.PodReasonSchedulingGated
	})
	shadows := kubetest.List(t, w.milan.Liqod().OffloadingV1beta1().ShadowPods(c.twin))
	require.Empty(t, shadows.Items)
	w.patchPod(t, w.rome, c.namespace, "web", `{"spec":{"schedulingGates":null}}`)
	c.untilLocal(t, 20*time.Second, "web", "runs", podRunning)
	require.Empty(t, c.remote(t, "web").Spec.SchedulingGates)
	c.deleteAll(t)
}

// testTopologySpread: the virtual node is one host among this cluster's; the provider
// spreads as it likes.
func testTopologySpread(t *testing.T, w *world) {
	w.offload(t, "spread", offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsLocalAndRemote})
	d := deployment("web", 6)
	d.Spec.Template.Spec.TopologySpreadConstraints = overHosts(d.Spec.Selector)
	kubetest.Create(t, w.rome.Client().AppsV1().Deployments("spread"), d)
	within(t, 30*time.Second, "6 pods run", w.available("web", "spread", 6))
	on := must(w.nodesOf(t.Context(), "spread"))(t)
	require.Equal(t, map[string]int{"rome-sim-1": 2, "rome-sim-2": 2, "milan": 2}, on)
	remote := kubetest.List(t, w.milan.Client().CoreV1().Pods("spread-rome"))
	require.Len(t, remote.Items, 2)
	require.Empty(t, remote.Items[0].Spec.TopologySpreadConstraints)
	w.removeDeployment(t, "spread", "web")
}

// nodesOf counts the pods of a namespace of rome by node.
func (w *world) nodesOf(ctx context.Context, namespace string) (map[string]int, error) {
	list, err := w.rome.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	on := map[string]int{}
	for _, pod := range list.Items {
		on[pod.Spec.NodeName]++
	}
	return on, nil
}

func (w *world) removeDeployment(t *testing.T, namespace, name string) {
	t.Helper()
	require.NoError(t, w.rome.Client().AppsV1().Deployments(namespace).Delete(t.Context(), name, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}))
	within(t, 30*time.Second, "everything is gone", w.gone(namespace, namespace+"-rome"))
}

// testTopologySpreadPlain: where a namespace is not offloaded, a strict constraint by host
// counts the virtual node, which its pods cannot use, unless it honours taints. That is
// the scheduler's rule for every tainted node.
func testTopologySpreadPlain(t *testing.T, w *world) {
	w.plainNamespace(t, "plain")
	for _, policy := range []corev1.NodeInclusionPolicy{corev1.NodeInclusionPolicyIgnore, corev1.NodeInclusionPolicyHonor} {
		d := deployment(strings.ToLower(string(policy)), 4)
		d.Spec.Template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: d.Spec.Selector, NodeTaintsPolicy: &policy,
		}}
		kubetest.Create(t, w.rome.Client().AppsV1().Deployments("plain"), d)
	}
	within(t, 30*time.Second, "all pods of the one that honours taints run", w.available("honor", "plain", 4))
	within(t, 30*time.Second, "half the pods of the other wait", func(ctx context.Context) error {
		on, err := w.nodesOf(ctx, "plain")
		return lab.Wrong(err, on[""] != 2 || on["rome-sim-1"] != 3 || on["rome-sim-2"] != 3, "pods are on %v", on)
	})
	for _, name := range []string{"ignore", "honor"} {
		require.NoError(t, w.rome.Client().AppsV1().Deployments("plain").Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
}

// testPreemption: where the virtual node has no room left, a pod of a higher class takes
// that of a lower one: its turn comes when that one has ended in the provider.
func testPreemption(t *testing.T, w *world) {
	const slot = corev1.ResourceName("example.org/slot")
	c := w.fixture(t, "preempt")
	kubetest.Patch(t, w.rome.Liqod().OffloadingV1beta1().VirtualNodes("liqo-tenant-milan"), "milan", types.MergePatchType, []byte(`{"spec":{"resourceQuota":{"hard":{"example.org/slot":"1"}}}}`))
	for _, node := range []string{"milan-sim-1", "milan-sim-2"} {
		kubetest.Patch(t, w.milan.Client().CoreV1().Nodes(), node, types.StrategicMergePatchType, []byte(`{"status":{"capacity":{"example.org/slot":"4"},"allocatable":{"example.org/slot":"4"}}}`), "status")
	}
	for name, value := range map[string]int32{"low": 10, "high": 1000} {
		kubetest.Create(t, w.rome.Client().SchedulingV1().PriorityClasses(), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value})
	}
	create := func(name string) *corev1.Pod {
		pod := bare(name, corev1.RestartPolicyAlways)
		pod.Spec.PriorityClassName = name
		pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{slot: resource.MustParse("1")}
		return c.create(t, pod)
	}
	low := create("low")
	c.untilLocal(t, 20*time.Second, "low", "runs", podRunning)
	require.Contains(t, c.remote(t, "low").Spec.Containers[0].Resources.Limits, slot)
	high := create("high")
	c.untilLocal(t, 30*time.Second, "high", "runs in its place", podRunning)
	last := c.home.last(t.Context(), t, low.UID)
	require.Equal(t, corev1.PodReasonPreemptionByScheduler, podCondition(last, corev1.DisruptionTarget).Reason, "its owner is told")
	require.True(t, endedPod(last))
	gone := c.provider.first(func(m moment) bool { return m.pod.Name == "low" && (m.kind == watch.Deleted || endedPod(m.pod)) })
	require.GreaterOrEqual(t, gone, 0)
	require.Greater(t, c.provider.first(func(m moment) bool { return m.pod.Labels[offloadingv1beta1.LocalPodUIDLabel] == string(high.UID) }), gone,
		"one has ended in the provider before the other comes")
	preemptedThere(t, c, slot)
	c.deleteAll(t)
}

// preemptedThere: the provider's own pods of a higher class take the place of a peer's,
// which waits for room and says so at home.
func preemptedThere(t *testing.T, c *fixture, slot corev1.ResourceName) {
	t.Helper()
	before := c.remote(t, "high")
	kubetest.Create(t, c.milan.Client().SchedulingV1().PriorityClasses(), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "own"}, Value: 1})
	own := c.milan.Client().CoreV1().Pods("default")
	names := []string{"own-1", "own-2"}
	for _, name := range names {
		pod := bare(name, corev1.RestartPolicyAlways)
		pod.Spec.PriorityClassName = "own"
		pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{slot: resource.MustParse("4")}
		kubetest.Create(t, own, pod)
	}
	c.untilLocal(t, 20*time.Second, "high", "waits for room in the provider", func(p *corev1.Pod) bool {
		return podCondition(p, corev1.PodReady).Reason == corev1.PodReasonUnschedulable
	})
	for _, name := range names {
		require.NoError(t, own.Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	c.replaced(t, "high", before.UID, 1)
}

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

// testClaims: generic ephemeral volumes and claims are carried by name: each cluster has
// its own claim. Those of ephemeral volumes each cluster makes itself, from the template.
func testClaims(t *testing.T, w *world) {
	c := w.fixture(t, "claims")
	block := corev1.PersistentVolumeBlock
	template := corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ptr.To("by-hand"),
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}
	device := *template.DeepCopy()
	device.VolumeMode = &block
	kubetest.Create(t, w.milan.Client().StorageV1().StorageClasses(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "by-hand"}, Provisioner: "x.example.org"})
	// As an administrator would, without reflection of claims and without a provisioner.
	for s, namespace := range map[*site.Site]string{w.rome: c.namespace, w.milan: c.twin} {
		for name, mode := range map[string]*corev1.PersistentVolumeMode{"scratch": nil, "device": &block} {
			kubetest.Create(t, s.Client().CoreV1().PersistentVolumes(), &corev1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: corev1.PersistentVolumeSpec{
					AccessModes: template.AccessModes, StorageClassName: "by-hand", VolumeMode: mode, Capacity: template.Resources.Requests,
					PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "x.example.org", VolumeHandle: name}},
				},
			})
		}
		kubetest.Create(t, s.Client().CoreV1().PersistentVolumeClaims(namespace), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "device"}, Spec: device})
	}
	pod := bare("web", corev1.RestartPolicyAlways)
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: template}}}},
		{Name: "device", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "device"}}},
	}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}}
	pod.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "device", DevicePath: "/dev/x"}}
	c.create(t, pod)
	local := c.untilLocal(t, 30*time.Second, "web", "runs", podRunning)
	remote := c.remote(t, "web")
	require.Equal(t, local.Spec.Volumes[:2], remote.Spec.Volumes[:2])
	require.Equal(t, local.Spec.Containers[0].VolumeDevices, remote.Spec.Containers[0].VolumeDevices)
	for s, owner := range map[*site.Site]*corev1.Pod{w.rome: local, w.milan: remote} {
		claim := kubetest.Get(t, s.Client().CoreV1().PersistentVolumeClaims(owner.Namespace), "web-scratch")
		require.Equal(t, corev1.ClaimBound, claim.Status.Phase)
		require.Equal(t, owner.UID, metav1.GetControllerOf(claim).UID, "in %s it goes with the pod of %s", s.Name, s.Name)
	}
	c.deleteAll(t)
}
