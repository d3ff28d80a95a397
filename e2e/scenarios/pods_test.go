package scenarios

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
)

func podSpec(image string) corev1.PodSpec {
	return corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To[int64](1), Containers: []corev1.Container{{Name: "c", Image: image}}}
}

func deployment(name string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec("sim/web:1")},
		},
	}
}

// offload offloads a fresh namespace, with all pods remote unless spec says otherwise.
func (w *world) offload(t *testing.T, namespace string, spec offloadingv1beta1.NamespaceOffloadingSpec) {
	t.Helper()
	if spec.PodOffloadingStrategy == "" {
		spec.PodOffloadingStrategy = offloadingv1beta1.PodsRemote
	}
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	require.NoError(t, w.rome.Offload(ctx, namespace, spec))
}

func (w *world) available(name, namespace string, want int32) func(context.Context) error {
	return lab.Is(w.rome.Client().AppsV1().Deployments(namespace), name, func(d *appsv1.Deployment) bool {
		return d.Status.ObservedGeneration == d.Generation && d.Status.UpdatedReplicas == want && d.Status.AvailableReplicas == want && d.Status.Replicas == want
	})
}

// gone waits until nothing of a namespace's pods is left in either cluster.
func (w *world) gone(namespace, twin string) func(context.Context) error {
	return func(ctx context.Context) error {
		local, err := w.rome.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		remote, err := w.milan.Client().CoreV1().Pods(twin).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		shadows, err := w.milan.Liqod().OffloadingV1beta1().ShadowPods(twin).List(ctx, metav1.ListOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		n := len(local.Items) + len(remote.Items) + len(shadows.Items)
		return lab.Wrong(nil, n > 0, "%d pods at home, %d in the provider, %d ShadowPods are left", len(local.Items), len(remote.Items), len(shadows.Items))
	}
}

// TestPods has two simulated clusters, in which nothing breaks but a role. Beside what becomes
// of pods it walks through docs/pods.md#what-of-a-pod-crosses-the-border: what API servers, schedulers and controllers
// make of a pod. What only containers show is in TestFull.
func TestPods(t *testing.T) {
	w := newWorld(t, map[string]any{"health": map[string]any{"unknownGrace": shortGrace.String()}, "controller": map[string]any{
		"runtimeClasses": []string{sandboxed}, "tolerations": []string{"example.com/slow", "team=x", "team=y:NoSchedule"},
		"volumeTypes": []string{"configMap", "secret", "projected", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "image", "nfs", "csi"},
	}})
	t.Run("Together", func(t *testing.T) { testPodsTogether(t, w) })
	// These keep every pod from the virtual node for a while.
	t.Run("HomeDrain", func(t *testing.T) { testHomeDrain(t, w) })
	t.Run("HomeTaint", func(t *testing.T) { testHomeTaint(t, w) })
	t.Run("VKubeletDown", func(t *testing.T) { testVKubeletDown(t, w) })
	t.Run("ControllerDown", func(t *testing.T) { testControllerDown(t, w) })
	t.Run("Many", func(t *testing.T) { testMany(t, w) })
	t.Run("Endpoints", func(t *testing.T) { testEndpoints(t, w) })
}

// podsTogether is how many subtests run at a time. More make the API server of a small machine
// so slow that the roles lose their Leases.
const podsTogether = 8

// testPodsTogether runs subtests that have a namespace each, those that take longest first.
func testPodsTogether(t *testing.T, w *world) {
	var running errgroup.Group
	running.SetLimit(podsTogether)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *world)
	}{
		{"Sidecar", testSidecar}, {"JobReplacement", testJobReplacement}, {"JobFails", testJobFails}, {"JobPolicies", testJobPolicies},
		{"RemoteDeleted", testRemoteDeleted}, {"JobEvicted", testJobEvicted}, {"StatefulSet", testStatefulSet}, {"Deployment", testDeployment},
		{"Endings", testEndings}, {"CronJobs", testCronJobs}, {"RefusedFeatures", testRefusedFeatures}, {"Grace", testGrace}, {"Deletion", testDeletion},
		{"NodePressure", testNodePressure}, {"Resize", testResize}, {"NeverRun", testNeverRun}, {"SuccessPolicy", testSuccessPolicy},
		{"Successor", testSuccessor}, {"Refused", testRefused}, {"Changes", testChanges}, {"RuntimeClass", testRuntimeClass},
		{"ResizePod", testResizePod}, {"IndexedJob", testIndexedJob}, {"Evicted", testEvicted}, {"TopologySpread", testTopologySpread},
		{"Claims", testClaims}, {"Carried", testCarried}, {"SchedulingGates", testSchedulingGates}, {"ProviderDrain", testProviderDrain},
		{"NoGrace", testNoGrace}, {"JobCompletes", testJobCompletes}, {"RestartAll", testRestartAll}, {"DaemonSet", testDaemonSet},
		{"StaysHome", testStaysHome}, {"NotOffloaded", testNotOffloaded}, {"Metrics", testMetrics}, {"Preemption", testPreemption},
		{"ReadinessGates", testReadinessGates}, {"TopologySpreadPlain", testTopologySpreadPlain},
	} {
		running.Go(func() error {
			t.Run(test.name, func(t *testing.T) { test.run(t, w) })
			return nil
		})
	}
	_ = running.Wait() // the subtests fail by themselves
}
