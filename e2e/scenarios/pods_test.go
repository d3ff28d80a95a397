package scenarios

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
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

// overHosts has the scheduler spread the pods that are selected evenly over hosts.
func overHosts(selector *metav1.LabelSelector) []corev1.TopologySpreadConstraint {
	return []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: selector}}
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
	inTurn(t, w, []part[*world]{
		{"HomeDrain", testHomeDrain}, {"HomeTaint", testHomeTaint}, {"VKubeletDown", testVKubeletDown}, {"ControllerDown", testControllerDown},
		{"Many", testMany}, {"Endpoints", testEndpoints},
	})
}

// podsTogether is how many subtests run at a time. More make the API server of a small machine
// so slow that the roles lose their Leases.
const podsTogether = 8

// testPodsTogether runs subtests that have a namespace each, those that take longest first.
func testPodsTogether(t *testing.T, w *world) {
	var running errgroup.Group
	running.SetLimit(podsTogether)
	for _, test := range []part[*world]{
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

// metrics returns the metrics of a process.
func metrics(ctx context.Context, p *lab.Process) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Flag("server.address")+"/metrics", nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

// measures returns a condition: the metrics of a process have lines that match.
func measures(p *lab.Process, lines ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		text, err := metrics(ctx, p)
		for _, line := range lines {
			err = lab.Wrong(err, !regexp.MustCompile("(?m)^"+line+"$").MatchString(text), "there is no line %s in\n%s", line, text)
		}
		return err
	}
}

// testMetrics: the roles measure peers, virtual nodes, pods, namespaces and the webhook; and
// nothing of their libraries appears among the loops.
func testMetrics(t *testing.T, w *world) {
	w.fixture(t, "measured")
	kubetest.Create(t, w.rome.Client().AppsV1().Deployments("measured"), deployment("web", 2))
	within(t, 3*time.Minute, "2 pods run in the provider", w.available("web", "measured", 2))
	const some = "[1-9][0-9.e+]*"
	vkubelet := *w.rome.VKubelet("milan")
	within(t, 3*time.Minute, "the consumer's controller measures", measures(w.rome.Controller,
		`liqod_peer_up{check="APIServerStatus",peer="milan"} 1`, `liqod_peer_unknown{check="APIServerStatus",peer="milan"} 0`,
		`liqod_peer_probe_seconds_count{peer="milan",result="ok"} `+some, `liqod_virtual_node_ready{peer="milan",virtual_node="milan"} 1`,
		`liqod_namespaces{direction="outgoing",peer="milan",phase="Accepted"} `+some, `liqod_lease_leading{role="controller"} 1`,
	))
	within(t, 3*time.Minute, "the vkubelet measures", measures(vkubelet,
		`liqod_offloaded_pods{peer="milan",phase="Running",ready="true",virtual_node="milan",workload_namespace="measured"} 2`,
		`liqod_virtual_node_allocatable{peer="milan",resource="cpu",virtual_node="milan"} `+some,
		`liqod_virtual_node_requested{peer="milan",resource="pods",virtual_node="milan"} `+some,
		`liqod_loop_lag_seconds_count{loop="pods"} `+some, `liqod_certificate_expiry_timestamp_seconds{certificate="kubelet",peer=""} `+some,
	))
	within(t, 3*time.Minute, "the provider's controller measures", measures(w.milan.Controller,
		`liqod_peer_pods{peer="[^"]+",phase="Running"} `+some, `liqod_namespaces{direction="incoming",peer="[^"]+",phase="Accepted"} `+some,
	))
	within(t, 3*time.Minute, "the webhook measures", measures(w.rome.Webhook,
		`liqod_webhook_seconds_count{result="changed",webhook="/mutate/pod"} `+some, `liqod_certificate_expiry_timestamp_seconds{certificate="webhook",peer=""} `+some,
	))
	for name, p := range map[string]*lab.Process{"controller": w.rome.Controller, "vkubelet": vkubelet, "webhook": w.rome.Webhook, "provider": w.milan.Controller} {
		text := must(metrics(t.Context(), p))(t)
		for _, loop := range regexp.MustCompile(`loop="([^"]*)"`).FindAllStringSubmatch(text, -1) {
			require.Regexp(t, `^[a-z][A-Za-z0-9-]*$`, loop[1], "%s: it is a loop of a library", name)
		}
	}
}
