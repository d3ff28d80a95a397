package timed

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

// scenario creates pods in a namespace, changes them, and deletes all that it has created.
type scenario struct {
	name string
	run  func(*podRun)
	// outside are the roles whose writes outside of the namespaces of all runs belong to the
	// scenario. Such a scenario runs alone.
	outside []string
	// own: it creates its namespace itself.
	own bool
}

// scenarios are those that -only selects.
func scenarios() []scenario {
	return slices.DeleteFunc(allScenarios(), func(s scenario) bool { return !strings.Contains(s.name, *only) })
}

func allScenarios() []scenario {
	return []scenario{
		{name: "Always, changed", run: runChanged},
		{name: "Always, container restarts", run: runRestarts},
		{name: "Always, deleted", run: deleted(corev1.RestartPolicyAlways)},
		{name: "OnFailure, deleted", run: deleted(corev1.RestartPolicyOnFailure)},
		{name: "Never, deleted", run: deleted(corev1.RestartPolicyNever)},
		{name: "Always, deleted by force", run: runForced},
		{name: "Always, created again with its name", run: runSuccessor},
		{name: "OnFailure, succeeds", run: ending(corev1.RestartPolicyOnFailure, "0", corev1.PodSucceeded, 0, 0)},
		{name: "OnFailure, succeeds at the second try", run: ending(corev1.RestartPolicyOnFailure, "1,0", corev1.PodSucceeded, 0, 1)},
		{name: "Never, succeeds", run: ending(corev1.RestartPolicyNever, "0", corev1.PodSucceeded, 0, 0)},
		{name: "Never, fails", run: ending(corev1.RestartPolicyNever, "3", corev1.PodFailed, 3, 0)},
		{name: "Always, deleted in the provider", run: replaced(corev1.RestartPolicyAlways)},
		{name: "OnFailure, deleted in the provider", run: replaced(corev1.RestartPolicyOnFailure)},
		{name: "Never, deleted in the provider", run: runLost},
		{name: "refused by a quota of the provider", run: runRefused},
		{name: "Deployment", run: runDeployment},
		{name: "Job", run: runJob},
		{name: "namespace", run: runNamespace, outside: []string{romeController, milanController}, own: true},
		{name: "roles start", run: runStart, outside: []string{vkubelet, romeController, milanController, romeWebhook}},
		{name: "webhook's certificate", run: runCertificate, outside: []string{romeController}},
	}
}

// runChanged: labels, image and resources of a running pod change.
func runChanged(r *podRun) {
	pod := bare(r.name("changed"), corev1.RestartPolicyAlways)
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
	created := r.start(pod, expected{restarts: 1})
	r.patch(created, `{"metadata":{"labels":{"tier":"gold"},"annotations":{"note":"more"}}}`)
	r.untilRemote(created, "has the label", func(p *corev1.Pod) bool { return p.Labels["tier"] == "gold" })
	r.patch(created, `{"spec":{"containers":[{"name":"c","image":"sim/web:2"}]}}`)
	r.untilHome(created, "runs the other image", restarted(1))
	r.patch(created, `{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"250m"}}}]}}`, "resize")
	r.untilHome(created, "has the other resources", func(p *corev1.Pod) bool {
		have := p.Status.ContainerStatuses[0].Resources
		return have != nil && have.Requests.Cpu().String() == "250m"
	})
	r.delete(created, nil)
}

func runRestarts(r *podRun) {
	pod := r.start(bare(r.name("restarts"), corev1.RestartPolicyAlways, lab.SimExitCode, "1"), expected{restarts: -1})
	r.untilHome(pod, "has restarted", restarted(2))
	r.delete(pod, nil)
}

// deleted: a running pod is deleted, takes 300 ms to end, and ends with code 3.
func deleted(policy corev1.RestartPolicy) func(*podRun) {
	return func(r *podRun) {
		r.delete(r.start(bare(r.name("deleted"), policy, lab.SimStopAfter, "300", lab.SimStopCode, "3"), expected{}), nil)
	}
}

func runForced(r *podRun) {
	r.delete(r.start(bare(r.name("forced"), corev1.RestartPolicyAlways), expected{}), ptr.To[int64](0))
}

// runSuccessor: a pod of the same name is created as soon as the name is free at home.
func runSuccessor(r *podRun) {
	pod := r.start(bare(r.name("again"), corev1.RestartPolicyAlways, lab.SimStopAfter, "300"), expected{})
	r.expect(pod.UID, func(e *expected) { e.deleted = true })
	require.NoError(r.t, r.Rome.Client().CoreV1().Pods(r.namespace).Delete(r.t.Context(), pod.Name, metav1.DeleteOptions{}))
	r.delete(r.start(bare(pod.Name, corev1.RestartPolicyAlways), expected{}), nil)
}

// ending: a pod ends by itself, stays ended, and is deleted.
func ending(policy corev1.RestartPolicy, codes string, phase corev1.PodPhase, code, restarts int32) func(*podRun) {
	return func(r *podRun) {
		want := expected{phase: phase, code: code, restarts: restarts}
		pod := r.create(bare(r.name("ends"), policy, lab.SimExitCode, codes, lab.SimRunFor, "300"), want)
		r.untilHome(pod, "has ended", inPhase(phase))
		r.delete(pod, nil)
	}
}

// replaced: a pod is deleted in the provider, and is created there again. The scenario waits
// until home shows the container of the new pod. Its restart count is not compared: a vkubelet
// that was dead meanwhile has not seen the deletion.
func replaced(policy corev1.RestartPolicy) func(*podRun) {
	return func(r *podRun) {
		pod := r.start(bare(r.name("evicted"), policy, lab.SimStopCode, "143"), expected{replaced: 1})
		before := kubetest.Get(r.t, r.Milan.Client().CoreV1().Pods(r.twin()), pod.Name)
		r.deleteRemote(pod)
		var after *corev1.Pod
		r.untilRemote(pod, "runs again", func(p *corev1.Pod) bool {
			after = p
			return p.UID != before.UID && running(p)
		})
		r.untilHome(pod, "is shown to run again", func(p *corev1.Pod) bool {
			return running(p) && p.Status.PodIP == after.Status.PodIP && startOf(p).Equal(startOf(after))
		})
		r.delete(pod, nil)
	}
}

// startOf is when the first container began to run, nil if it does not run.
func startOf(pod *corev1.Pod) *metav1.Time {
	if len(pod.Status.ContainerStatuses) == 0 || pod.Status.ContainerStatuses[0].State.Running == nil {
		return nil
	}
	return &pod.Status.ContainerStatuses[0].State.Running.StartedAt
}

func runLost(r *podRun) {
	pod := r.start(bare(r.name("lost"), corev1.RestartPolicyNever, lab.SimStopCode, "143"), expected{lost: true})
	r.deleteRemote(pod)
	r.untilHome(pod, "is lost", inPhase(corev1.PodFailed))
	r.delete(pod, nil)
}

// runRefused: a quota of the provider leaves no room for a pod until it is deleted.
func runRefused(r *podRun) {
	quotas := r.Milan.Client().CoreV1().ResourceQuotas(r.twin())
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "none"}}
	quota.Spec.Hard = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}
	_, err := quotas.Create(r.t.Context(), quota, metav1.CreateOptions{})
	require.True(r.t, err == nil || apierrors.IsAlreadyExists(err), err)
	r.eventually("the quota counts", lab.Is(quotas, "none", func(q *corev1.ResourceQuota) bool { return len(q.Status.Used) > 0 }))
	pod := r.create(bare(r.name("refused"), corev1.RestartPolicyAlways), expected{})
	r.untilHome(pod, "is refused", func(p *corev1.Pod) bool { return p.Status.Reason != "" })
	require.NoError(r.t, quotas.Delete(r.t.Context(), "none", metav1.DeleteOptions{}))
	r.untilHome(pod, "runs", running)
	r.delete(pod, nil)
}

// runDeployment: a Deployment is rolled out, scaled down and deleted.
func runDeployment(r *podRun) {
	r.others = expected{deleted: true, uncreated: true}
	name := r.name("web")
	r.deploy(name, 2)
	r.available(name, 2)
	for _, patch := range []string{`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"sim/web:2"}]}}}}`, `{"spec":{"replicas":1}}`} {
		kubetest.Patch(r.t, r.Rome.Client().AppsV1().Deployments(r.namespace), name, types.StrategicMergePatchType, []byte(patch))
	}
	r.available(name, 1)
	r.deleteDeployment(name)
}

func runJob(r *podRun) {
	r.others = expected{phase: corev1.PodSucceeded, deleted: true}
	template := bare("", corev1.RestartPolicyNever, lab.SimExitCode, "0", lab.SimRunFor, "300")
	jobs := r.Rome.Client().BatchV1().Jobs(r.namespace)
	kubetest.Create(r.t, jobs, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: r.name("job")}, Spec: batchv1.JobSpec{
		Completions: ptr.To[int32](2), Parallelism: ptr.To[int32](2),
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: template.Annotations}, Spec: template.Spec},
	}})
	r.eventually("the job is complete", lab.Is(jobs, r.name("job"), func(job *batchv1.Job) bool {
		return job.Status.Succeeded == 2 && job.Status.Failed == 0 && job.Status.CompletionTime != nil
	}))
	require.NoError(r.t, jobs.Delete(r.t.Context(), r.name("job"), metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}))
}

// runNamespace: a namespace is offloaded, used, and no longer offloaded.
func runNamespace(r *podRun) {
	require.NoError(r.t, r.offload(r.t.Context(), r.namespace))
	r.delete(r.start(bare(r.name("guest"), corev1.RestartPolicyAlways), expected{}), nil)
	offloadings := r.Rome.Liqod().OffloadingV1beta1().NamespaceOffloadings(r.namespace)
	require.NoError(r.t, offloadings.Delete(r.t.Context(), offloadingv1beta1.NamespaceOffloadingName, metav1.DeleteOptions{}))
	r.eventually("the namespace is no longer offloaded", lab.Together(lab.Gone(offloadings, offloadingv1beta1.NamespaceOffloadingName),
		lab.Gone(r.Milan.Client().CoreV1().Namespaces(), r.twin())))
	require.NoError(r.t, r.Rome.Client().CoreV1().Namespaces().Delete(r.t.Context(), r.namespace, metav1.DeleteOptions{}))
}

// runStart: every role is killed while a pod runs, so that its writes at start are recorded.
func runStart(r *podRun) {
	pod := r.start(bare(r.name("old"), corev1.RestartPolicyAlways), expected{})
	for _, name := range []string{vkubelet, romeController, milanController, romeWebhook} {
		require.NoError(r.t, r.roles[name].restart())
	}
	next := r.start(bare(r.name("new"), corev1.RestartPolicyAlways), expected{})
	r.delete(pod, nil)
	r.delete(next, nil)
}

// runCertificate: the Secret with the webhook's certificate is deleted, and the controller makes another.
func runCertificate(r *podRun) {
	const name = "liqod-webhook-certs"
	secrets := r.Rome.Client().CoreV1().Secrets(site.Namespace)
	before := kubetest.Get(r.t, secrets, name)
	require.NoError(r.t, secrets.Delete(r.t.Context(), name, metav1.DeleteOptions{}))
	r.eventually("there is another certificate, and the API server trusts it", func(ctx context.Context) error {
		secret, err := secrets.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if secret.UID == before.UID {
			return errors.New("it is still the old one")
		}
		_, err = r.Rome.Client().CoreV1().Pods(r.namespace).Create(ctx, bare("dry", corev1.RestartPolicyAlways), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
	r.delete(r.start(bare(r.name("trusted"), corev1.RestartPolicyAlways), expected{}), nil)
}
