package scenarios

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

// run makes a pod at home.
func (w *fullWorld) run(t *testing.T, namespace, name string, spec corev1.PodSpec) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	kubetest.Create(t, w.rome.Client().CoreV1().Pods(namespace), pod)
}

// pods of a namespace at home.
func (w *fullWorld) pods(ctx context.Context, namespace string) ([]corev1.Pod, error) {
	list, err := w.rome.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

func fullDeployment(t *testing.T, w *fullWorld) {
	w.offload(t, "across", offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsLocalAndRemote})
	d := webDeployment("web", 4)
	d.Spec.Template.Spec.TopologySpreadConstraints = overHosts(d.Spec.Selector)
	kubetest.Create(t, w.rome.Client().AppsV1().Deployments("across"), d)
	within(t, time.Minute, "4 pods run across both clusters", w.available("web", "across", 4))
	pods := must(w.pods(t.Context(), "across"))(t)
	on, here := map[string]int{}, ""
	for _, p := range pods {
		on[p.Spec.NodeName]++
		if p.Spec.NodeName == "rome-1" {
			here = p.Name
		}
	}
	require.Equal(t, map[string]int{"rome-1": 2, "milan": 2}, on)
	for _, p := range pods {
		within(t, 20*time.Second, p.Spec.NodeName+" answers at "+p.Status.PodIP, func(ctx context.Context) error {
			out, err := w.rome.Exec(ctx, "across", here, "get", "http://"+p.Status.PodIP+":8080/")
			return lab.Wrong(err, strings.TrimSpace(out) != p.Name, "%q answered instead of %s", out, p.Name)
		})
	}
}

func fullLogsAndExec(t *testing.T, w *fullWorld) {
	w.offload(t, "logs", offloadingv1beta1.NamespaceOffloadingSpec{})
	w.run(t, "logs", "lines", testSpec(1, "lines", "600", "100ms"))
	within(t, time.Minute, "the pod is Ready", w.podReady("logs", "lines"))
	t.Run("follow", func(t *testing.T) { fullFollow(t, w) })
	t.Run("tail", func(t *testing.T) {
		data := must(w.rome.Client().CoreV1().Pods("logs").GetLogs("lines", &corev1.PodLogOptions{TailLines: ptr.To[int64](2), Timestamps: true}).DoRaw(t.Context()))(t)
		require.Regexp(t, `^2\S+Z line \d+\n2\S+Z line \d+\n$`, string(data))
	})
	t.Run("exec, its output and codes", func(t *testing.T) {
		out, err := w.rome.Exec(t.Context(), "logs", "lines", "hostname")
		require.NoError(t, err)
		require.Equal(t, "lines\n", out)
		_, err = w.rome.Exec(t.Context(), "logs", "lines", "exit", "7")
		var code exec.CodeExitError
		require.ErrorAs(t, err, &code)
		require.Equal(t, 7, code.Code)
		_, err = w.rome.Exec(t.Context(), "logs", "lines", "cat", "/missing")
		require.ErrorContains(t, err, "no such file", "standard error arrives")
	})
	t.Run("exec, its input", func(t *testing.T) {
		text := strings.Repeat("across the border\n", 10000)
		require.Equal(t, text, fullInput(t, w, text))
	})
	t.Run("no such container", func(t *testing.T) {
		_, err := w.rome.Client().CoreV1().Pods("logs").GetLogs("lines", &corev1.PodLogOptions{Container: "none"}).DoRaw(t.Context())
		require.True(t, apierrors.IsBadRequest(err), "%v", err)
	})
}

// fullFollow reads lines as they are printed.
func fullFollow(t *testing.T, w *fullWorld) {
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	begin := time.Now() // before the first line is chosen
	stream := must(w.rome.Client().CoreV1().Pods("logs").GetLogs("lines", &corev1.PodLogOptions{Follow: true, TailLines: ptr.To[int64](1)}).Stream(ctx))(t)
	defer stream.Close()
	first, last := 0, 0
	scanner := bufio.NewScanner(stream)
	for n := 0; n < 15 && scanner.Scan(); n++ {
		_, err := fmt.Sscanf(scanner.Text(), "line %d", &last)
		require.NoError(t, err, scanner.Text())
		if n == 0 {
			first = last
		}
	}
	require.NoError(t, scanner.Err())
	require.Equal(t, first+14, last, "no line is missing, none comes twice")
	require.Greater(t, time.Since(begin), time.Second, "15 lines are printed in 1.5 s")
}

// fullInput sends text through a pod's cat, with kubectl's older protocol, SPDY.
func fullInput(t *testing.T, w *fullWorld, text string) string {
	request := w.rome.Client().CoreV1().RESTClient().Post().Resource("pods").Namespace("logs").Name("lines").SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: []string{"cat"}, Stdin: true, Stdout: true}, scheme.ParameterCodec)
	executor := must(remotecommand.NewSPDYExecutor(w.rome.Config(), "POST", request.URL()))(t)
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	var out bytes.Buffer
	require.NoError(t, executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: strings.NewReader(text), Stdout: &out}))
	return out.String()
}

func fullJobs(t *testing.T, w *fullWorld) {
	w.offload(t, "jobs", offloadingv1beta1.NamespaceOffloadingSpec{})
	sidecar := testSpec(10, "exit", "0", "500ms")
	sidecar.RestartPolicy = corev1.RestartPolicyNever
	sidecar.InitContainers = []corev1.Container{{
		Name: "sidecar", Image: sidecar.Containers[0].Image, ImagePullPolicy: corev1.PullNever, Command: []string{"serve"},
		RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways),
		StartupProbe:  &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"get", "http://127.0.0.1:8080/healthz"}}}},
	}}
	good, bad := testSpec(1, "exit", "0"), testSpec(1, "exit", "3")
	good.RestartPolicy, bad.RestartPolicy = corev1.RestartPolicyNever, corev1.RestartPolicyNever
	for name, test := range map[string]struct {
		spec corev1.PodSpec
		want batchv1.JobConditionType
		code int32
	}{
		"good":    {good, batchv1.JobComplete, 0},
		"bad":     {bad, batchv1.JobFailed, 3},
		"sidecar": {sidecar, batchv1.JobComplete, 0},
	} {
		t.Run(name, func(t *testing.T) {
			job := &batchv1.Job{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec:       batchv1.JobSpec{BackoffLimit: ptr.To[int32](0), Template: corev1.PodTemplateSpec{Spec: test.spec}},
			}
			kubetest.Create(t, w.rome.Client().BatchV1().Jobs("jobs"), job)
			within(t, time.Minute, "Job is "+string(test.want), func(ctx context.Context) error { return jobIs(ctx, w, name, test.want) })
			pods := kubetest.List(t, w.rome.Client().CoreV1().Pods("jobs"), metav1.ListOptions{LabelSelector: "job-name=" + name})
			require.Len(t, pods.Items, 1, "it ran once")
			require.Equal(t, test.code, pods.Items[0].Status.ContainerStatuses[0].State.Terminated.ExitCode)
		})
	}
}

func jobIs(ctx context.Context, w *fullWorld, name string, want batchv1.JobConditionType) error {
	return lab.Is(w.rome.Client().BatchV1().Jobs("jobs"), name, func(j *batchv1.Job) bool { return jobCondition(j, want) != nil })(ctx)
}

func fullRestarts(t *testing.T, w *fullWorld) {
	w.offload(t, "restarts", offloadingv1beta1.NamespaceOffloadingSpec{})
	w.run(t, "restarts", "crash", testSpec(1, "exit", "5", "200ms"))
	within(t, time.Minute, "two restarts are counted", lab.That(w.rome.Client().CoreV1().Pods("restarts"), "crash", func(p *corev1.Pod) error {
		if len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].RestartCount < 2 {
			return fmt.Errorf("%+v", p.Status.ContainerStatuses)
		}
		status := p.Status.ContainerStatuses[0]
		last := status.LastTerminationState.Terminated
		return lab.Wrong(nil, last == nil || last.ExitCode != 5, "the last end is not told: %+v", status)
	}))
	within(t, 10*time.Second, "the counts are those of the provider", func(ctx context.Context) error {
		here, err := w.rome.Client().CoreV1().Pods("restarts").Get(ctx, "crash", metav1.GetOptions{})
		if err != nil {
			return err
		}
		there, err := w.milan.Client().CoreV1().Pods("restarts-rome").Get(ctx, "crash", metav1.GetOptions{})
		if err != nil {
			return err
		}
		a, b := here.Status.ContainerStatuses[0].RestartCount, there.Status.ContainerStatuses[0].RestartCount
		return lab.Wrong(nil, a != b, "%d at home, %d in the provider", a, b)
	})
	_, err := w.rome.Client().CoreV1().Pods("restarts").GetLogs("crash", &corev1.PodLogOptions{Previous: true}).DoRaw(t.Context())
	require.NoError(t, err, "the log of the container before")
}

// fullGrace deletes a pod that ends when it is asked to, and one that does not.
func fullGrace(t *testing.T, w *fullWorld) {
	w.offload(t, "grace", offloadingv1beta1.NamespaceOffloadingSpec{})
	for name, test := range map[string]struct {
		grace             int64
		command           string
		code              int32
		atLeast, atMostly time.Duration
	}{
		"polite":   {30, "sleep", 143, 0, 10 * time.Second},
		"stubborn": {4, "ignore", 137, 4 * time.Second, 14 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			w.run(t, "grace", name, testSpec(test.grace, test.command))
			within(t, time.Minute, "the pod is Ready", w.podReady("grace", name))
			took, last := w.deleteAndWatch(t, "grace", name)
			t.Logf("the pod is gone: %s", took.Round(time.Millisecond))
			require.GreaterOrEqual(t, took, test.atLeast)
			requireFaster(t, took, test.atMostly, "a pod with a grace")
			require.NotNil(t, last.Status.ContainerStatuses[0].State.Terminated, "the end is written before the pod goes")
			require.Equal(t, test.code, last.Status.ContainerStatuses[0].State.Terminated.ExitCode)
		})
	}
}

// deleteAndWatch deletes a pod and returns how long it stayed and its last state.
func (w *fullWorld) deleteAndWatch(t *testing.T, namespace, name string) (time.Duration, *corev1.Pod) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	pods := w.rome.Client().CoreV1().Pods(namespace)
	watcher := must(pods.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name}))(t)
	defer watcher.Stop()
	begin := time.Now()
	require.NoError(t, pods.Delete(ctx, name, metav1.DeleteOptions{}))
	for event := range watcher.ResultChan() {
		if event.Type == watch.Deleted {
			return time.Since(begin), event.Object.(*corev1.Pod)
		}
	}
	require.Fail(t, "the pod is still there", name)
	return 0, nil
}
