package scenarios

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

// indexed is a Job of three indexes whose containers run until the test ends them.
func indexed(name string) *batchv1.Job {
	j := job(name, nil)
	j.Spec.Completions, j.Spec.Parallelism = ptr.To[int32](3), ptr.To[int32](3)
	j.Spec.CompletionMode = ptr.To(batchv1.IndexedCompletion)
	return j
}

// startJob creates a Job and returns its pods, by index, when all run.
func (c *fixture) startJob(t *testing.T, j *batchv1.Job) map[string]*corev1.Pod {
	t.Helper()
	kubetest.Create(t, c.rome.Client().BatchV1().Jobs(c.namespace), j)
	pods := map[string]*corev1.Pod{}
	for _, index := range []string{"0", "1", "2"} {
		pods[index] = c.ofIndex(t, j.Name, index, "")
	}
	return pods
}

// ofIndex waits for a running pod of a Job's index other than before.
func (c *fixture) ofIndex(t *testing.T, job, index string, before types.UID) *corev1.Pod {
	t.Helper()
	labels := batchv1.JobNameLabel + "=" + job + "," + batchv1.JobCompletionIndexAnnotation + "=" + index
	return c.untilSome(t, 40*time.Second, labels, fmt.Sprintf("index %s of job %s runs", index, job), func(pod *corev1.Pod) bool { return pod.UID != before && podRunning(pod) })
}

// untilJob waits for a condition of a Job.
func (c *fixture) untilJob(t *testing.T, name string, want batchv1.JobConditionType) (*batchv1.Job, batchv1.JobCondition) {
	t.Helper()
	var seen *batchv1.Job
	within(t, time.Minute, fmt.Sprintf("job %s is %s", name, want), lab.Is(c.rome.Client().BatchV1().Jobs(c.namespace), name, func(j *batchv1.Job) bool {
		seen = j
		return jobCondition(j, want) != nil
	}))
	return seen, *jobCondition(seen, want)
}

// jobCondition is a condition of a Job that is true, if there is one.
func jobCondition(j *batchv1.Job, kind batchv1.JobConditionType) *batchv1.JobCondition {
	for i, c := range j.Status.Conditions {
		if c.Type == kind && c.Status == corev1.ConditionTrue {
			return &j.Status.Conditions[i]
		}
	}
	return nil
}

// testIndexedJob: every index keeps its annotation, label, variable and host name, and
// the Job counts them.
func testIndexedJob(t *testing.T, w *world) {
	c := w.fixture(t, "indexed")
	for index, local := range c.startJob(t, indexed("sum")) {
		remote := c.remote(t, local.Name)
		require.Equal(t, index, remote.Annotations[batchv1.JobCompletionIndexAnnotation])
		require.Equal(t, index, remote.Labels[batchv1.JobCompletionIndexAnnotation])
		require.Equal(t, "sum-"+index, remote.Spec.Hostname)
		require.Len(t, remote.Spec.Containers[0].Env, len(local.Spec.Containers[0].Env))
		variable := remote.Spec.Containers[0].Env[0]
		require.Equal(t, "JOB_COMPLETION_INDEX", variable.Name)
		copied, ok := strings.CutPrefix(variable.ValueFrom.FieldRef.FieldPath, "metadata.annotations['")
		require.True(t, ok, "%s leads to a copy of the index", variable.ValueFrom.FieldRef.FieldPath)
		require.Equal(t, index, remote.Annotations[strings.TrimSuffix(copied, "']")])
		c.end(t, local.Name, "0")
	}
	done, _ := c.untilJob(t, "sum", batchv1.JobComplete)
	require.Equal(t, "0-2", done.Status.CompletedIndexes)
	c.removeJob(t, "sum")
}

// testJobPolicies: backoffLimitPerIndex and podFailurePolicy see the exit codes of the
// provider.
func testJobPolicies(t *testing.T, w *world) {
	c := w.fixture(t, "policies")
	j := indexed("tries")
	j.Spec.BackoffLimit, j.Spec.BackoffLimitPerIndex = nil, ptr.To[int32](1)
	j.Spec.PodFailurePolicy = onExit(batchv1.PodFailurePolicyActionFailIndex, 43)
	pods := c.startJob(t, j)
	c.end(t, pods["0"].Name, "0")
	c.end(t, pods["1"].Name, "1")
	c.end(t, pods["2"].Name, "43")

	whole := job("whole", map[string]string{lab.SimExitCode: "42"})
	whole.Spec.BackoffLimit, whole.Spec.PodFailurePolicy = ptr.To[int32](6), onExit(batchv1.PodFailurePolicyActionFailJob, 42)
	kubetest.Create(t, w.rome.Client().BatchV1().Jobs(c.namespace), whole)
	failed, why := c.untilJob(t, "whole", batchv1.JobFailed)
	require.Equal(t, batchv1.JobReasonPodFailurePolicy, why.Reason)
	require.EqualValues(t, 1, failed.Status.Failed, "the first failure ends it")

	again := c.ofIndex(t, "tries", "1", pods["1"].UID)
	require.Equal(t, "1", c.remote(t, again.Name).Annotations[batchv1.JobIndexFailureCountAnnotation])
	c.end(t, again.Name, "1")
	failed, why = c.untilJob(t, "tries", batchv1.JobFailed)
	require.Equal(t, batchv1.JobReasonFailedIndexes, why.Reason)
	require.Equal(t, "0", failed.Status.CompletedIndexes)
	require.Equal(t, "1,2", *failed.Status.FailedIndexes)
	require.EqualValues(t, 3, failed.Status.Failed, "index 1 twice, index 2 once")
	require.NoError(t, w.rome.Client().BatchV1().Jobs(c.namespace).Delete(t.Context(), "whole", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}))
	c.removeJob(t, "tries")
}

func onExit(action batchv1.PodFailurePolicyAction, code int32) *batchv1.PodFailurePolicy {
	return &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
		Action: action,
		OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
			ContainerName: ptr.To("c"), Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{code},
		},
	}}}
}

// testSuccessPolicy: the success of one index ends the Job, and its other pods go in the
// provider too.
func testSuccessPolicy(t *testing.T, w *world) {
	c := w.fixture(t, "success")
	j := indexed("first")
	j.Spec.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededIndexes: ptr.To("1")}}}
	pods := c.startJob(t, j)
	c.end(t, pods["1"].Name, "0")
	done, why := c.untilJob(t, "first", batchv1.JobComplete)
	require.Equal(t, batchv1.JobReasonSuccessPolicy, why.Reason)
	require.Equal(t, "1", done.Status.CompletedIndexes)
	for _, index := range []string{"0", "2"} {
		w.absent(t, w.milan, 20*time.Second, c.twin, pods[index].Name)
	}
	c.removeJob(t, "first")
}

// testCronJobs: Forbid waits for the end of the pod in the provider, Replace for its
// removal there.
func testCronJobs(t *testing.T, w *world) {
	c := w.fixture(t, "cron")
	crons := w.rome.Client().BatchV1().CronJobs(c.namespace)
	now := time.Now().UTC()
	first, second := now.Add(-2*time.Hour), now.Add(-time.Hour)
	for _, policy := range []batchv1.ConcurrencyPolicy{batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent} {
		cron := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: cronName(policy)}, Spec: batchv1.CronJobSpec{
			Schedule: yearly(first), TimeZone: ptr.To("Etc/UTC"), ConcurrencyPolicy: policy,
			JobTemplate: batchv1.JobTemplateSpec{Spec: job("", map[string]string{lab.SimStopAfter: "1000"}).Spec},
		}}
		cron.Spec.JobTemplate.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](10)
		kubetest.Create(t, crons, cron)
		// A last run before the first time makes that one due.
		kubetest.Patch(t, crons, cron.Name, types.MergePatchType, fmt.Appendf(nil, `{"status":{"lastScheduleTime":%q}}`, now.Add(-3*time.Hour).Format(time.RFC3339)), "status")
	}
	before := map[batchv1.ConcurrencyPolicy]*corev1.Pod{}
	for _, policy := range []batchv1.ConcurrencyPolicy{batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent} {
		before[policy] = c.ofCron(t, policy, "")
		kubetest.Patch(t, crons, cronName(policy), types.MergePatchType, fmt.Appendf(nil, `{"spec":{"schedule":%q}}`, yearly(second)))
		c.wakeCron(t, policy)
	}
	replaced := c.ofCron(t, batchv1.ReplaceConcurrent, before[batchv1.ReplaceConcurrent].UID)
	w.absent(t, w.milan, 20*time.Second, c.twin, before[batchv1.ReplaceConcurrent].Name)
	within(t, 20*time.Second, "Forbid says that it waits", hasSome(w.rome.Client().CoreV1().Events(c.namespace), "reason=JobAlreadyActive", 1))
	c.end(t, before[batchv1.ForbidConcurrent].Name, "0")
	waited := c.ofCron(t, batchv1.ForbidConcurrent, before[batchv1.ForbidConcurrent].UID)
	for _, pod := range []*corev1.Pod{replaced, waited} {
		c.end(t, pod.Name, "0")
		c.untilLocal(t, 20*time.Second, pod.Name, "ends", inPhase(corev1.PodSucceeded))
	}
	require.NoError(t, crons.DeleteCollection(t.Context(), metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}, metav1.ListOptions{}))
	within(t, time.Minute, "everything is gone", w.gone(c.namespace, c.twin))
}

func cronName(policy batchv1.ConcurrencyPolicy) string {
	return map[batchv1.ConcurrencyPolicy]string{batchv1.ForbidConcurrent: "forbid", batchv1.ReplaceConcurrent: "replace"}[policy]
}

// yearly is a schedule whose most recent time is at.
func yearly(at time.Time) string {
	return fmt.Sprintf("%d %d %d %d *", at.Minute(), at.Hour(), at.Day(), at.Month())
}

// wakeCron has the controller look at a CronJob again.
func (c *fixture) wakeCron(t *testing.T, policy batchv1.ConcurrencyPolicy) {
	t.Helper()
	kubetest.Patch(t, c.rome.Client().BatchV1().CronJobs(c.namespace), cronName(policy), types.MergePatchType, []byte(`{"metadata":{"annotations":{"example.org/again":"yes"}}}`))
}

// ofCron waits for a running pod of a CronJob other than before.
func (c *fixture) ofCron(t *testing.T, policy batchv1.ConcurrencyPolicy, before types.UID) *corev1.Pod {
	t.Helper()
	return c.untilSome(t, 40*time.Second, "", fmt.Sprintf("a pod of CronJob %s runs", cronName(policy)), func(pod *corev1.Pod) bool {
		return pod.UID != before && podRunning(pod) && pod.DeletionTimestamp == nil && strings.HasPrefix(pod.Name, cronName(policy)+"-")
	})
}
