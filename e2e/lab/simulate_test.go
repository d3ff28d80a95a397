package lab

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

func simulatedPod(name string, policy corev1.RestartPolicy, annotations map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec:       corev1.PodSpec{RestartPolicy: policy, Containers: []corev1.Container{{Name: "main", Image: "app:1"}, {Name: "aside", Image: "aside:1"}}},
	}
}

func createPod(t *testing.T, c *Cluster, pod *corev1.Pod) {
	t.Helper()
	_, err := c.Client().CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
}

func waitPod(t *testing.T, c *Cluster, name, what string, cond func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	within(t, 20*time.Second, name+" "+what, func(ctx context.Context) (err error) {
		if pod, err = c.Client().CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if !cond(pod) {
			return fmt.Errorf("pod %s: %+v", name, pod.Status)
		}
		return nil
	})
	return pod
}

func inPhase(phase corev1.PodPhase) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool { return pod.Status.Phase == phase }
}

func ready(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

func TestLabSimulatedPods(t *testing.T) {
	l := newTestLab(t)
	c, err := l.Start(t.Context(), ClusterOptions{Name: "sim", SimulatedNodes: 2})
	require.NoError(t, err)
	t.Run("endings", func(t *testing.T) { testEndings(t, c) })
	t.Run("init containers", func(t *testing.T) { testInitContainers(t, c) })
	t.Run("missing image", func(t *testing.T) { testMissingImage(t, c) })
	t.Run("new image", func(t *testing.T) { testNewImage(t, c) })
	t.Run("deletion", func(t *testing.T) { testDeletion(t, c) })
	t.Run("deletion at once", func(t *testing.T) { testDeletionAtOnce(t, c) })
	t.Run("300 pods", func(t *testing.T) { testManyPods(t, c) })
}

func testEndings(t *testing.T, c *Cluster) {
	tests := map[string]struct {
		policy   corev1.RestartPolicy
		codes    string
		phase    corev1.PodPhase
		restarts int32
		code     int32
	}{
		"never-good":    {policy: corev1.RestartPolicyNever, codes: "0", phase: corev1.PodSucceeded},
		"never-bad":     {policy: corev1.RestartPolicyNever, codes: "7", phase: corev1.PodFailed, code: 7},
		"failure-good":  {policy: corev1.RestartPolicyOnFailure, codes: "0", phase: corev1.PodSucceeded},
		"failure-twice": {policy: corev1.RestartPolicyOnFailure, codes: "1,2,0", phase: corev1.PodSucceeded, restarts: 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			createPod(t, c, simulatedPod(name, test.policy, map[string]string{SimExitCode: test.codes, SimRunFor: "200"}))
			pod := waitPod(t, c, name, "ended", inPhase(test.phase))
			require.False(t, ready(pod))
			for _, status := range pod.Status.ContainerStatuses {
				require.NotNil(t, status.State.Terminated, status.Name)
				require.Equal(t, test.code, status.State.Terminated.ExitCode)
				require.Equal(t, test.restarts, status.RestartCount)
			}
		})
	}
	t.Run("always", func(t *testing.T) {
		t.Parallel()
		createPod(t, c, simulatedPod("always", corev1.RestartPolicyAlways, map[string]string{SimExitCode: "1", SimRunFor: "100"}))
		pod := waitPod(t, c, "always", "restarted twice", func(pod *corev1.Pod) bool {
			return len(pod.Status.ContainerStatuses) > 0 && pod.Status.ContainerStatuses[0].RestartCount >= 2
		})
		require.Equal(t, corev1.PodRunning, pod.Status.Phase)
		require.EqualValues(t, 1, pod.Status.ContainerStatuses[0].LastTerminationState.Terminated.ExitCode)
		require.NoError(t, c.Client().CoreV1().Pods("default").Delete(t.Context(), "always", metav1.DeleteOptions{}))
	})
}

func testInitContainers(t *testing.T, c *Cluster) {
	pod := simulatedPod("inits", corev1.RestartPolicyNever, map[string]string{SimExitCode: "0", SimRunFor: "300"})
	always := corev1.ContainerRestartPolicyAlways
	pod.Spec.InitContainers = []corev1.Container{{Name: "first", Image: "first:1"}, {Name: "sidecar", Image: "sidecar:1", RestartPolicy: &always}}
	createPod(t, c, pod)
	running := waitPod(t, c, "inits", "running", inPhase(corev1.PodRunning))
	require.NotNil(t, running.Status.InitContainerStatuses[0].State.Terminated)
	require.NotNil(t, running.Status.InitContainerStatuses[1].State.Running)
	ended := waitPod(t, c, "inits", "ended", inPhase(corev1.PodSucceeded))
	require.NotNil(t, ended.Status.InitContainerStatuses[1].State.Terminated)
}

func testMissingImage(t *testing.T, c *Cluster) {
	pod := simulatedPod("missing", corev1.RestartPolicyAlways, nil)
	pod.Spec.Containers[1].Image = SimMissingImage + ":2"
	createPod(t, c, pod)
	waiting := waitPod(t, c, "missing", "waiting", func(pod *corev1.Pod) bool { return len(pod.Status.ContainerStatuses) == 2 })
	require.Equal(t, corev1.PodPending, waiting.Status.Phase)
	require.NotNil(t, waiting.Status.ContainerStatuses[0].State.Running)
	require.Equal(t, "ImagePullBackOff", waiting.Status.ContainerStatuses[1].State.Waiting.Reason)
	within(t, 10*time.Second, "event", func(ctx context.Context) error {
		events, err := c.Client().CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=missing,reason=Failed"})
		if err == nil && len(events.Items) == 0 {
			return fmt.Errorf("no event")
		}
		return err
	})
	setImage(t, c, "missing", 1, "found:1")
	waitPod(t, c, "missing", "running", ready)
}

func setImage(t *testing.T, c *Cluster, pod string, container int, image string) {
	t.Helper()
	patch := fmt.Appendf(nil, `[{"op":"replace","path":"/spec/containers/%d/image","value":%q}]`, container, image)
	_, err := c.Client().CoreV1().Pods("default").Patch(t.Context(), pod, types.JSONPatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
}

func testNewImage(t *testing.T, c *Cluster) {
	createPod(t, c, simulatedPod("image", corev1.RestartPolicyAlways, nil))
	before := waitPod(t, c, "image", "ready", ready)
	setImage(t, c, "image", 0, "app:2")
	after := waitPod(t, c, "image", "restarted", func(pod *corev1.Pod) bool { return pod.Status.ContainerStatuses[0].Image == "app:2" })
	require.EqualValues(t, 1, after.Status.ContainerStatuses[0].RestartCount)
	require.NotNil(t, after.Status.ContainerStatuses[0].LastTerminationState.Terminated)
	require.Equal(t, before.Status.ContainerStatuses[1], after.Status.ContainerStatuses[1])
}

func testDeletion(t *testing.T, c *Cluster) {
	pods := c.Client().CoreV1().Pods("default")
	kept := simulatedPod("kept", corev1.RestartPolicyAlways, nil)
	kept.Finalizers = []string{"example.org/kept"}
	createPod(t, c, kept)
	createPod(t, c, simulatedPod("slow", corev1.RestartPolicyAlways, map[string]string{SimStopAfter: "2000", SimStopCode: "143"}))
	createPod(t, c, simulatedPod("slower", corev1.RestartPolicyAlways, map[string]string{SimStopAfter: "60000"}))
	for _, name := range []string{"kept", "slow", "slower"} {
		waitPod(t, c, name, "ready", ready)
	}
	require.NoError(t, pods.Delete(t.Context(), "kept", metav1.DeleteOptions{}))
	ended := waitPod(t, c, "kept", "at its end with its finalizer", func(pod *corev1.Pod) bool {
		return pod.Status.Phase == corev1.PodSucceeded && pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
	})
	require.Equal(t, kept.Finalizers, ended.Finalizers)
	_, err := pods.Patch(t.Context(), "kept", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	waitGone(t, c, "kept")

	grace, begin := int64(4), time.Now()
	require.NoError(t, pods.Delete(t.Context(), "slow", metav1.DeleteOptions{}))
	require.NoError(t, pods.Delete(t.Context(), "slower", metav1.DeleteOptions{GracePeriodSeconds: &grace}))
	waitGone(t, c, "slow")
	require.GreaterOrEqual(t, time.Since(begin), 2*time.Second)
	waitGone(t, c, "slower")
	require.GreaterOrEqual(t, time.Since(begin), 3900*time.Millisecond)
}

// testDeletionAtOnce deletes pods while they are being started: what has ended stays ended,
// and what has started ends with an exit code.
func testDeletionAtOnce(t *testing.T, c *Cluster) {
	const n = 200
	pods := c.Client().CoreV1().Pods("default")
	list, err := pods.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	seen, err := pods.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	require.NoError(t, err)
	defer seen.Stop()
	errs := make(chan error, 2*n)
	go func() {
		for i := range n {
			pod := simulatedPod(fmt.Sprintf("short-%d", i), corev1.RestartPolicyAlways, nil)
			pod.Spec.NodeName = c.SimulatedNodeName(1)
			_, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
			errs <- err
			go func() { errs <- pods.Delete(t.Context(), pod.Name, metav1.DeleteOptions{}) }()
		}
	}()
	last, gone, deadline := map[types.UID]*corev1.Pod{}, 0, time.After(4*time.Minute)
	for gone < n {
		select {
		case err := <-errs:
			require.NoError(t, err)
		case event, open := <-seen.ResultChan():
			require.True(t, open, "the watch has ended")
			pod := event.Object.(*corev1.Pod)
			if before := last[pod.UID]; before != nil && ended(before) {
				require.Equal(t, before.Status.Phase, pod.Status.Phase, pod.Name)
				require.Equal(t, before.Status.ContainerStatuses, pod.Status.ContainerStatuses, pod.Name)
			} else if before != nil {
				require.GreaterOrEqual(t, len(pod.Status.ContainerStatuses), len(before.Status.ContainerStatuses), pod.Name)
			}
			last[pod.UID] = pod
			if event.Type == watch.Deleted {
				gone++
			}
		case <-deadline:
			require.Failf(t, "too slow", "%d of %d pods are gone", gone, n)
		}
	}
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func waitGone(t *testing.T, c *Cluster, name string) {
	t.Helper()
	within(t, 20*time.Second, name+" gone", func(ctx context.Context) error {
		_, err := c.Client().CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("pod %s is there (%w)", name, err)
	})
}

func testManyPods(t *testing.T, c *Cluster) {
	for i := range 300 {
		pod := simulatedPod(fmt.Sprintf("many-%d", i), corev1.RestartPolicyAlways, nil)
		pod.Labels = map[string]string{"many": "yes"}
		createPod(t, c, pod)
	}
	within(t, time.Minute, "300 pods ready", func(ctx context.Context) error {
		pods, err := c.Client().CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "many=yes"})
		if err != nil {
			return err
		}
		count := 0
		for i := range pods.Items {
			if ready(&pods.Items[i]) {
				count++
			}
		}
		if count < 300 {
			return fmt.Errorf("%d pods are ready", count)
		}
		return nil
	})
	t.Logf("simulator: %.1f CPU seconds so far", cpuSeconds(t, c.Simulator()))
}

func cpuSeconds(t *testing.T, p *Process) float64 {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID))
	require.NoError(t, err)
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	var user, system float64
	_, err = fmt.Sscan(fields[11]+" "+fields[12], &user, &system)
	require.NoError(t, err)
	const ticksPerSecond = 100
	return (user + system) / ticksPerSecond
}
