package scenarios

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

func testDeployment(t *testing.T, w *world) {
	ctx := t.Context()
	c := w.fixture(t, "rollout")
	deployments := w.rome.Client().AppsV1().Deployments("rollout")
	d := kubetest.Create(t, deployments, deployment("web", 10))
	within(t, time.Minute, "10 pods run in the provider", w.available("web", "rollout", 10))
	require.NoError(t, c.images("sim/web:1", 10)(ctx))
	first := d.Spec.Template

	for _, step := range []struct{ what, image string }{{"rollout", "sim/web:2"}, {"rollback", "sim/web:1"}} {
		require.NoError(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error { // its controller writes it, too
			return lab.Changes(deployments, "web", func(d *appsv1.Deployment) {
				d.Spec.Template = *first.DeepCopy()
				d.Spec.Template.Spec.Containers[0].Image = step.image
			})(ctx)
		}))
		within(t, time.Minute, step.what, w.available("web", "rollout", 10))
		within(t, 30*time.Second, step.what+" in the provider", c.images(step.image, 10))
	}
	sets := kubetest.List(t, w.rome.Client().AppsV1().ReplicaSets("rollout"))
	require.Len(t, sets.Items, 2, "the rollback uses the first ReplicaSet again")

	require.NoError(t, deployments.Delete(ctx, "web", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}))
	c.isEmpty(t)
}

func (c *fixture) images(image string, want int) func(context.Context) error {
	pods, all := c.milan.Client().CoreV1().Pods(c.twin), metav1.ListOptions{}
	return lab.Together(lab.Number(pods, all, want), lab.All(pods, all, func(pod *corev1.Pod) bool { return pod.Spec.Containers[0].Image == image }))
}

func testStatefulSet(t *testing.T, w *world) {
	c := w.fixture(t, "db")
	template := deployment("db", 3).Spec
	template.Template.Annotations = map[string]string{lab.SimStopAfter: "1500"}
	template.Template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](10)
	kubetest.Create(t, w.rome.Client().AppsV1().StatefulSets("db"), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec:       appsv1.StatefulSetSpec{Replicas: ptr.To[int32](3), Selector: template.Selector, Template: template.Template, ServiceName: "db"},
	})
	ready := lab.Is(w.rome.Client().AppsV1().StatefulSets("db"), "db", func(s *appsv1.StatefulSet) bool {
		return s.Status.ReadyReplicas == 3 && s.Status.CurrentReplicas == 3
	})
	within(t, time.Minute, "3 pods, one after the other", ready)
	for i := 1; i < 3; i++ {
		before, name := fmt.Sprintf("db-%d", i-1), fmt.Sprintf("db-%d", i)
		readyAt := c.home.first(func(m moment) bool { return m.pod.Name == before && podRunning(m.pod) })
		require.Greater(t, c.home.first(func(m moment) bool { return m.pod.Name == name }), readyAt, "%s waits for %s", name, before)
	}

	old, oldRemote := c.local(t, "db-1"), c.remote(t, "db-1")
	require.Equal(t, "1", oldRemote.Labels[appsv1.PodIndexLabel])
	require.Equal(t, "db-1", oldRemote.Labels[appsv1.StatefulSetPodNameLabel])
	require.Equal(t, "db-1", oldRemote.Spec.Hostname)
	require.Equal(t, "db", oldRemote.Spec.Subdomain)
	require.NoError(t, w.rome.Client().CoreV1().Pods("db").Delete(t.Context(), "db-1", metav1.DeleteOptions{}))
	c.untilLocal(t, time.Minute, "db-1", "has a successor that runs", func(p *corev1.Pod) bool { return p.UID != old.UID && podRunning(p) })
	within(t, 30*time.Second, "3 pods again", ready)
	successor := c.remote(t, "db-1")
	require.Equal(t, string(c.local(t, "db-1").UID), successor.Labels[offloadingv1beta1.LocalPodUIDLabel])
	goneAt := c.provider.first(func(m moment) bool { return m.pod.UID == oldRemote.UID && m.kind == watch.Deleted })
	require.GreaterOrEqual(t, goneAt, 0)
	require.Greater(t, c.provider.first(func(m moment) bool { return m.pod.UID == successor.UID }), goneAt, "the successor waits for the predecessor")
	require.Zero(t, restarts(c.local(t, "db-1")), "a successor is another pod")

	require.NoError(t, w.rome.Client().AppsV1().StatefulSets("db").Delete(t.Context(), "db", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}))
	c.isEmpty(t)
}

func job(name string, annotations map[string]string) *batchv1.Job {
	spec := podSpec("sim/task:1")
	spec.RestartPolicy = corev1.RestartPolicyNever
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: batchv1.JobSpec{
			Completions: ptr.To[int32](1), Parallelism: ptr.To[int32](1), BackoffLimit: ptr.To[int32](0),
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}, Spec: spec},
		},
	}
}

// runJob creates a job and waits for a condition of it.
func (c *fixture) runJob(t *testing.T, j *batchv1.Job, want batchv1.JobConditionType) *batchv1.Job {
	t.Helper()
	kubetest.Create(t, c.rome.Client().BatchV1().Jobs(c.namespace), j)
	seen, _ := c.untilJob(t, j.Name, want)
	return seen
}

func (c *fixture) removeJob(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, c.rome.Client().BatchV1().Jobs(c.namespace).Delete(t.Context(), name, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}))
	c.isEmpty(t)
}

func testJobCompletes(t *testing.T, w *world) {
	c := w.fixture(t, "batch")
	j := job("sum", map[string]string{lab.SimExitCode: "0", lab.SimRunFor: "500"})
	j.Spec.Completions, j.Spec.Parallelism = ptr.To[int32](6), ptr.To[int32](3)
	begin := time.Now()
	done := c.runJob(t, j, batchv1.JobComplete)
	require.EqualValues(t, 6, done.Status.Succeeded)
	require.Zero(t, done.Status.Failed)
	within(t, 5*time.Second, "the provider has done its part", lab.All(w.milan.Client().CoreV1().Pods(c.twin), metav1.ListOptions{}, func(pod *corev1.Pod) bool { return len(pod.Finalizers) == 0 }))
	requireWrites(t, map[string]int{
		"create shadowpods": 6, "create pods": 6, "update shadowpods/status": 6, "patch pods": 6,
	}, w.writes(t, w.milan.Audited, c.twin, begin), "beside the two creates, the end and its release")
	w.requireStatusWrites(t, c, begin, 6, map[string]int{})
	c.removeJob(t, "sum")
}

func testJobFails(t *testing.T, w *world) {
	c := w.fixture(t, "failing")
	j := job("bad", map[string]string{lab.SimExitCode: "3"})
	j.Spec.BackoffLimit = ptr.To[int32](1)
	done := c.runJob(t, j, batchv1.JobFailed)
	require.EqualValues(t, 2, done.Status.Failed, "the first try and one more")
	pods := kubetest.List(t, w.rome.Client().CoreV1().Pods(c.namespace))
	require.Len(t, pods.Items, 2)
	for i := range pods.Items {
		require.EqualValues(t, 3, exitCode(&pods.Items[i]))
	}
	c.removeJob(t, "bad")
}

// testJobReplacement: with podReplacementPolicy Failed a pod is replaced when it has
// ended, not when its deletion begins.
func testJobReplacement(t *testing.T, w *world) {
	c := w.fixture(t, "replaced")
	j := job("long", map[string]string{lab.SimStopAfter: "2000", lab.SimStopCode: "143"})
	j.Spec.PodReplacementPolicy, j.Spec.BackoffLimit = ptr.To(batchv1.Failed), ptr.To[int32](3)
	j.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](10)
	kubetest.Create(t, w.rome.Client().BatchV1().Jobs(c.namespace), j)
	first := c.onlyPod(t, "")
	require.NoError(t, w.rome.Client().CoreV1().Pods(c.namespace).Delete(t.Context(), first.Name, metav1.DeleteOptions{}))
	second := c.onlyPod(t, first.Name)
	endedAt := c.home.first(func(m moment) bool { return m.pod.UID == first.UID && endedPod(m.pod) })
	require.GreaterOrEqual(t, endedAt, 0, "the first pod ends")
	require.Greater(t, c.home.first(func(m moment) bool { return m.pod.UID == second.UID }), endedAt, "the second comes after its end")
	require.EqualValues(t, 143, exitCode(c.home.last(t.Context(), t, first.UID)))
	c.removeJob(t, "long")
}

// testJobEvicted: a Job that forgives disruptions replaces a pod that was evicted in the
// provider without counting a failure.
func testJobEvicted(t *testing.T, w *world) {
	c := w.fixture(t, "forgiving")
	j := job("calm", nil)
	j.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
		Action:          batchv1.PodFailurePolicyActionIgnore,
		OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}},
	}}}
	jobs := w.rome.Client().BatchV1().Jobs(c.namespace)
	kubetest.Create(t, jobs, j)
	first := c.onlyPod(t, "")
	require.NoError(t, w.milan.Client().PolicyV1().Evictions(c.twin).Evict(t.Context(),
		&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: c.twin, Name: first.Name}}))
	second := c.onlyPod(t, first.Name)
	c.end(t, second.Name, "0")
	within(t, 30*time.Second, "the Job is done", lab.Is(jobs, "calm", func(have *batchv1.Job) bool {
		return have.Status.Succeeded == 1 && have.Status.Failed == 0
	}))
	c.removeJob(t, "calm")
}

// onlyPod waits for the one pod that runs and has another name.
func (c *fixture) onlyPod(t *testing.T, not string) *corev1.Pod {
	t.Helper()
	return c.untilSome(t, time.Minute, "", "a pod other than "+not+" runs", func(pod *corev1.Pod) bool { return pod.Name != not && podRunning(pod) })
}
