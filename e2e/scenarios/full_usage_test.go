package scenarios

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

// vkubeletMetric reads one of the metrics of milan's vkubelet.
func (w *fullWorld) vkubeletMetric(ctx context.Context, name string) (float64, error) {
	pods, err := w.rome.Client().CoreV1().Pods(tenant).List(ctx, metav1.ListOptions{LabelSelector: "liqo.io/virtual-node=milan"})
	if err != nil || len(pods.Items) == 0 {
		return 0, fmt.Errorf("looking for the vkubelet: %d pods, %w", len(pods.Items), err)
	}
	data, err := w.rome.Client().CoreV1().Pods(tenant).ProxyGet("http", pods.Items[0].Name, "8080", "/metrics", nil).DoRaw(ctx)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("the vkubelet has no metric %s", name)
}

// fullStreams holds hundreds of streams through one vkubelet, and looks at what it needs
// for them, and what is left.
func fullStreams(t *testing.T, w *fullWorld) {
	const logs, execs = 220, 80
	w.offload(t, "streams", offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsRemote})
	w.run(t, "streams", "lines", testSpec(1, "lines", "100000", "1s"))
	within(t, time.Minute, "the pod is Ready", w.podReady("streams", "lines"))
	goroutines := must(w.vkubeletMetric(t.Context(), "go_goroutines"))(t)
	memory := must(w.vkubeletMetric(t.Context(), "process_resident_memory_bytes"))(t)

	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var open atomic.Int64
	all, failed := errgroup.WithContext(ctx) // one that ends early ends the wait
	// Opened a few at a time: an API server gives up on what takes long.
	opening := make(chan struct{}, 30)
	opened := func() {
		open.Add(1)
		<-opening
	}
	all.Go(func() error {
		for i := range logs + execs {
			select {
			case opening <- struct{}{}:
			case <-failed.Done():
				return nil
			}
			all.Go(func() error {
				if i < logs {
					return w.readLines(ctx, opened)
				}
				return w.echoes(ctx, opened)
			})
		}
		return nil
	})
	begin := time.Now()
	require.NoError(t, lab.Eventually(failed, func(context.Context) error {
		n := open.Load()
		return lab.Wrong(nil, n < logs+execs, "%d streams are open", n)
	}))
	t.Logf("%d streams are open: %s", logs+execs, time.Since(begin).Round(time.Millisecond))
	more := must(w.vkubeletMetric(ctx, "go_goroutines"))(t)
	grown := must(w.vkubeletMetric(ctx, "process_resident_memory_bytes"))(t)
	t.Logf("vkubelet: %.0f MiB and %.0f goroutines before, %.0f MiB and %.0f with %d followed logs and %d commands",
		memory/(1<<20), goroutines, grown/(1<<20), more, logs, execs)
	require.Less(t, grown-memory, float64(512<<20))
	cancel()
	require.NoError(t, all.Wait())
	within(t, time.Minute, "nothing of them is left", func(ctx context.Context) error {
		n, err := w.vkubeletMetric(ctx, "go_goroutines")
		return lab.Wrong(err, n > goroutines+30, "%.0f goroutines", n)
	})
}

// readLines follows the log until ctx ends.
func (w *fullWorld) readLines(ctx context.Context, opened func()) error {
	stream, err := w.rome.Client().CoreV1().Pods("streams").GetLogs("lines", &corev1.PodLogOptions{Follow: true, TailLines: ptr.To[int64](1)}).Stream(ctx)
	if err != nil {
		return fmt.Errorf("opening the log: %w", err)
	}
	defer stream.Close()
	scanner := bufio.NewScanner(stream)
	for n := 0; scanner.Scan(); n++ {
		if n == 1 { // one of those that came after it was opened
			opened()
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("the log ended: %v", scanner.Err())
}

// echoes runs cat, and holds it until ctx ends.
func (w *fullWorld) echoes(ctx context.Context, opened func()) error {
	request := w.rome.Client().CoreV1().RESTClient().Post().Resource("pods").Namespace("streams").Name("lines").SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: []string{"cat"}, Stdin: true, Stdout: true}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(w.rome.Config(), "GET", request.URL().String())
	if err != nil {
		return err
	}
	in, typed := io.Pipe()
	defer typed.Close()
	go func() { _, _ = io.WriteString(typed, "hello") }()
	out := &heard{opened: opened}
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: out})
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("the command ended with %q: %w", out.text.String(), err)
}

// heard counts an echo that is whole.
type heard struct {
	text   bytes.Buffer
	opened func()
}

// Write implements io.Writer.
func (h *heard) Write(p []byte) (int, error) {
	h.text.Write(p)
	if h.text.String() == "hello" {
		h.opened()
	}
	return len(p), nil
}

// fullTop measures with the metrics-server of both clusters.
func fullTop(t *testing.T, w *fullWorld) {
	ctx := t.Context()
	w.offload(t, "top", offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsRemote})
	spec := testSpec(1, "burn", "0.3")
	spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m")}
	labels := map[string]string{"app": "burner"}
	kubetest.Create(t, w.rome.Client().AppsV1().Deployments("top"), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "burner"},
		Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec}},
	})
	t.Cleanup(func() { // what comes after needs the CPU
		require.NoError(t, w.rome.Client().AppsV1().Deployments("top").Delete(context.Background(), "burner", metav1.DeleteOptions{}))
	})
	within(t, time.Minute, "it runs", w.available("burner", "top", 1))

	node := func(ctx context.Context) error { return w.topNode(ctx, t) }
	require.NoError(t, w.full.ApplyMetricsServer(ctx, w.rome.Cluster))
	out, err := w.rome.Kubectl(ctx, lab.KubectlOptions{}, "get", "--raw", "/api/v1/nodes/rome-1")
	require.NoError(t, err, out)
	within(t, time.Minute, "a provider without metrics API is told once", func(ctx context.Context) error {
		return w.vkubeletSays(ctx, "no metrics of pods from the provider")
	})
	require.NoError(t, w.full.ApplyMetricsServer(ctx, w.milan.Cluster))
	within(t, 2*time.Minute, "kubectl top node", node)
	within(t, 2*time.Minute, "kubectl top pod", func(ctx context.Context) error {
		here, err := w.top(ctx, w.rome.Cluster, "top")
		if err != nil {
			return err
		}
		there, err := w.top(ctx, w.milan.Cluster, "top-rome")
		if err != nil {
			return err
		}
		t.Logf("at home: %v, in the provider: %v", here, there)
		for pod, cpu := range there {
			if cpu < 50 || here[pod] < cpu/2 || here[pod] > cpu*2 {
				return fmt.Errorf("pod %s uses %dm at home, %dm in the provider", pod, here[pod], cpu)
			}
		}
		return nil
	})
	kubetest.Create(t, w.rome.Client().AutoscalingV2().HorizontalPodAutoscalers("top"), &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "burner"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "burner"},
			MinReplicas:    ptr.To[int32](1), MaxReplicas: 3,
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
				Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: ptr.To[int32](50)}}}},
		},
	})
	within(t, 2*time.Minute, "it is scaled by what it uses in the provider", w.available("burner", "top", 3))
}

// topNode is kubectl top node for the virtual node.
func (w *fullWorld) topNode(ctx context.Context, t *testing.T) error {
	out, err := w.rome.Kubectl(ctx, lab.KubectlOptions{}, "top", "node", "milan", "--no-headers")
	if err != nil {
		return err
	}
	t.Log(strings.TrimSpace(out))
	words := strings.Fields(out)
	if len(words) < 2 {
		return fmt.Errorf("%q", out)
	}
	if cpu, err := strconv.Atoi(strings.TrimSuffix(words[1], "m")); err != nil || cpu < 50 {
		return fmt.Errorf("%q", out)
	}
	return nil
}

// top returns what kubectl top pod says of CPU, in thousandths of a core, by pod.
func (w *fullWorld) top(ctx context.Context, c *lab.Cluster, namespace string) (map[string]int, error) {
	out, err := c.Kubectl(ctx, lab.KubectlOptions{}, "-n", namespace, "top", "pod", "--no-headers")
	if err != nil {
		return nil, err
	}
	used := map[string]int{}
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		if len(words) != 3 {
			return nil, fmt.Errorf("%q", out)
		}
		if used[words[0]], err = strconv.Atoi(strings.TrimSuffix(words[1], "m")); err != nil {
			return nil, err
		}
	}
	if len(used) == 0 {
		return nil, fmt.Errorf("no pod yet")
	}
	return used, nil
}

// vkubeletSays looks for exactly one line in the log of milan's vkubelet.
func (w *fullWorld) vkubeletSays(ctx context.Context, text string) error {
	pods, err := w.rome.Client().CoreV1().Pods(tenant).List(ctx, metav1.ListOptions{LabelSelector: "liqo.io/virtual-node=milan"})
	if err != nil || len(pods.Items) == 0 {
		return fmt.Errorf("looking for the vkubelet: %d pods, %w", len(pods.Items), err)
	}
	out, err := w.rome.Logs(ctx, tenant, pods.Items[0].Name)
	if err != nil {
		return err
	}
	n := strings.Count(out, text)
	return lab.Wrong(nil, n != 1, "said %d times", n)
}
