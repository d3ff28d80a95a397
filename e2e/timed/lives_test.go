package timed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

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
)

// life is a short script, from nothing to nothing.
type life struct {
	name string
	play func(*stage) error
	// everywhere are the roles whose writes outside of the stages belong to the life. Such
	// lives are played one at a time.
	everywhere []string
	// own: it is played in a namespace of its own, which it makes itself.
	own bool
}

// lives are those that were asked for.
func lives() []life {
	return slices.DeleteFunc(allLives(), func(l life) bool { return !strings.Contains(l.name, *onlyLives) })
}

func allLives() []life {
	return []life{
		{name: "Always, changed", play: playChanged},
		{name: "Always, container restarts", play: playRestarts},
		{name: "Always, deleted", play: deletion(corev1.RestartPolicyAlways)},
		{name: "OnFailure, deleted", play: deletion(corev1.RestartPolicyOnFailure)},
		{name: "Never, deleted", play: deletion(corev1.RestartPolicyNever)},
		{name: "Always, deleted by force", play: playForced},
		{name: "Always, followed by its like", play: playSuccessor},
		{name: "OnFailure, ends well", play: ending(corev1.RestartPolicyOnFailure, "0", corev1.PodSucceeded, 0, 0)},
		{name: "OnFailure, ends well at the second try", play: ending(corev1.RestartPolicyOnFailure, "1,0", corev1.PodSucceeded, 0, 1)},
		{name: "Never, ends well", play: ending(corev1.RestartPolicyNever, "0", corev1.PodSucceeded, 0, 0)},
		{name: "Never, fails", play: ending(corev1.RestartPolicyNever, "3", corev1.PodFailed, 3, 0)},
		{name: "Always, evicted there", play: eviction(corev1.RestartPolicyAlways)},
		{name: "OnFailure, evicted there", play: eviction(corev1.RestartPolicyOnFailure)},
		{name: "Never, evicted there", play: playLost},
		{name: "refused there for a while", play: playRefused},
		{name: "Deployment", play: playDeployment},
		{name: "Job", play: playJob},
		{name: "namespace", play: playNamespace, everywhere: []string{romeController, milanController}, own: true},
		{name: "roles start", play: playStart, everywhere: []string{vkubelet, romeController, milanController, romeWebhook}},
		{name: "webhook's certificate", play: playCertificate, everywhere: []string{romeWebhook}},
	}
}

// playChanged: labels, image and resources of a running pod change.
func playChanged(s *stage) error {
	pod := bare(s.name("changed"), corev1.RestartPolicyAlways)
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
	created, err := s.run(pod, destiny{restarts: 1})
	if err != nil {
		return err
	}
	if err := s.patch(created, `{"metadata":{"labels":{"tier":"gold"},"annotations":{"note":"more"}}}`); err != nil {
		return err
	}
	if err := s.untilRemote(created, "has the label", func(p *corev1.Pod) bool { return p.Labels["tier"] == "gold" }); err != nil {
		return err
	}
	if err := s.patch(created, `{"spec":{"containers":[{"name":"c","image":"sim/web:2"}]}}`); err != nil {
		return err
	}
	if err := s.untilHome(created, "runs the other image", restarted(1)); err != nil {
		return err
	}
	if err := s.patch(created, `{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"250m"}}}]}}`, "resize"); err != nil {
		return err
	}
	err = s.untilHome(created, "has the other resources", func(p *corev1.Pod) bool {
		have := p.Status.ContainerStatuses[0].Resources
		return have != nil && have.Requests.Cpu().String() == "250m"
	})
	if err != nil {
		return err
	}
	return s.delete(created, nil)
}

func playRestarts(s *stage) error {
	pod, err := s.run(bare(s.name("restarts"), corev1.RestartPolicyAlways, lab.SimExitCode, "1"), destiny{restarts: -1})
	if err != nil {
		return err
	}
	if err := s.untilHome(pod, "has restarted", restarted(2)); err != nil {
		return err
	}
	return s.delete(pod, nil)
}

// deletion: a running pod is deleted, takes its time, and ends with a code of its own.
func deletion(policy corev1.RestartPolicy) func(*stage) error {
	return func(s *stage) error {
		pod, err := s.run(bare(s.name("deleted"), policy, lab.SimStopAfter, "300", lab.SimStopCode, "3"), destiny{})
		if err != nil {
			return err
		}
		return s.delete(pod, nil)
	}
}

func playForced(s *stage) error {
	pod, err := s.run(bare(s.name("forced"), corev1.RestartPolicyAlways), destiny{})
	if err != nil {
		return err
	}
	return s.delete(pod, ptr.To[int64](0))
}

// playSuccessor: a pod of the same name follows as soon as the name is free at home.
func playSuccessor(s *stage) error {
	pod, err := s.run(bare(s.name("again"), corev1.RestartPolicyAlways, lab.SimStopAfter, "300"), destiny{})
	if err != nil {
		return err
	}
	s.change(pod.UID, func(d *destiny) { d.deleted = true })
	if err := s.rome.Client().CoreV1().Pods(s.namespace).Delete(s.ctx, pod.Name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	next, err := s.run(bare(pod.Name, corev1.RestartPolicyAlways), destiny{})
	if err != nil {
		return err
	}
	return s.delete(next, nil)
}

// ending: a pod ends by itself, stays so, and is deleted.
func ending(policy corev1.RestartPolicy, codes string, phase corev1.PodPhase, code, restarts int32) func(*stage) error {
	return func(s *stage) error {
		want := destiny{phase: phase, code: code, restarts: restarts}
		pod, err := s.create(bare(s.name("ends"), policy, lab.SimExitCode, codes, lab.SimRunFor, "300"), want)
		if err != nil {
			return err
		}
		if err := s.untilHome(pod, "has ended", inPhase(phase)); err != nil {
			return err
		}
		return s.delete(pod, nil)
	}
}

// eviction: a pod is deleted in the provider, and runs there again.
func eviction(policy corev1.RestartPolicy) func(*stage) error {
	return func(s *stage) error {
		pod, err := s.run(bare(s.name("evicted"), policy, lab.SimStopCode, "143"), destiny{replaced: 1})
		if err != nil {
			return err
		}
		if err := s.evictAndAwait(pod); err != nil {
			return err
		}
		return s.delete(pod, nil)
	}
}

// evictAndAwait waits until home shows the container that runs in the provider after the
// eviction. Its restart count says nothing: whoever was dead meanwhile does not know it.
func (s *stage) evictAndAwait(pod *corev1.Pod) error {
	before, err := s.milan.Client().CoreV1().Pods(s.twin()).Get(s.ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := s.evict(pod); err != nil {
		return err
	}
	var there *corev1.Pod
	err = s.untilRemote(pod, "runs again", func(p *corev1.Pod) bool {
		there = p
		return p.UID != before.UID && running(p)
	})
	if err != nil {
		return err
	}
	return s.untilHome(pod, "is shown to run again", func(p *corev1.Pod) bool {
		return running(p) && p.Status.PodIP == there.Status.PodIP && startOf(p).Equal(startOf(there))
	})
}

// startOf is when the first container began to run, nil if it does not.
func startOf(pod *corev1.Pod) *metav1.Time {
	if len(pod.Status.ContainerStatuses) == 0 || pod.Status.ContainerStatuses[0].State.Running == nil {
		return nil
	}
	return &pod.Status.ContainerStatuses[0].State.Running.StartedAt
}

func playLost(s *stage) error {
	pod, err := s.run(bare(s.name("lost"), corev1.RestartPolicyNever, lab.SimStopCode, "143"), destiny{lost: true})
	if err != nil {
		return err
	}
	if err := s.evict(pod); err != nil {
		return err
	}
	if err := s.untilHome(pod, "is lost", inPhase(corev1.PodFailed)); err != nil {
		return err
	}
	return s.delete(pod, nil)
}

// playRefused: the provider's quota leaves no room, and then does.
func playRefused(s *stage) error {
	quotas := s.milan.Client().CoreV1().ResourceQuotas(s.twin())
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "none"}}
	quota.Spec.Hard = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}
	if _, err := quotas.Create(s.ctx, quota, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	err := s.eventually("the quota counts", func(ctx context.Context) error {
		q, err := quotas.Get(ctx, "none", metav1.GetOptions{})
		if err == nil && len(q.Status.Used) == 0 {
			err = errors.New("nothing is counted yet")
		}
		return err
	})
	if err != nil {
		return err
	}
	pod, err := s.create(bare(s.name("refused"), corev1.RestartPolicyAlways), destiny{})
	if err != nil {
		return err
	}
	refused := s.untilHome(pod, "is refused", func(p *corev1.Pod) bool { return p.Status.Reason != "" })
	if err := errors.Join(refused, quotas.Delete(s.ctx, "none", metav1.DeleteOptions{})); err != nil {
		return err
	}
	if err := s.untilHome(pod, "runs", running); err != nil {
		return err
	}
	return s.delete(pod, nil)
}

// playDeployment: pods are replaced one by one, taken away, and replaced when deleted.
func playDeployment(s *stage) error {
	s.fallback = destiny{deleted: true, unmade: true}
	deployments := s.rome.Client().AppsV1().Deployments(s.namespace)
	if err := s.deploy(s.name("web"), 2); err != nil {
		return err
	}
	if err := s.available(s.name("web"), 2); err != nil {
		return err
	}
	for _, patch := range []string{`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"sim/web:2"}]}}}}`, `{"spec":{"replicas":1}}`} {
		if _, err := deployments.Patch(s.ctx, s.name("web"), types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	if err := s.available(s.name("web"), 1); err != nil {
		return err
	}
	return deployments.Delete(s.ctx, s.name("web"), metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)})
}

func (s *stage) available(name string, want int32) error {
	return s.eventually(fmt.Sprintf("deployment %s has %d pods", name, want), func(ctx context.Context) error {
		d, err := s.rome.Client().AppsV1().Deployments(s.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if d.Status.ObservedGeneration != d.Generation || d.Status.UpdatedReplicas != want || d.Status.AvailableReplicas != want || d.Status.Replicas != want {
			return fmt.Errorf("it is %+v", d.Status)
		}
		return nil
	})
}

func playJob(s *stage) error {
	s.fallback = destiny{phase: corev1.PodSucceeded, deleted: true}
	template := bare("", corev1.RestartPolicyNever, lab.SimExitCode, "0", lab.SimRunFor, "300")
	jobs := s.rome.Client().BatchV1().Jobs(s.namespace)
	_, err := jobs.Create(s.ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: s.name("job")}, Spec: batchv1.JobSpec{
		Completions: ptr.To[int32](2), Parallelism: ptr.To[int32](2),
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: template.Annotations}, Spec: template.Spec},
	}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	err = s.eventually("the job is complete", func(ctx context.Context) error {
		job, err := jobs.Get(ctx, s.name("job"), metav1.GetOptions{})
		if err != nil {
			return err
		}
		if job.Status.Succeeded != 2 || job.Status.Failed != 0 || job.Status.CompletionTime == nil {
			return fmt.Errorf("it is %+v", job.Status)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return jobs.Delete(s.ctx, s.name("job"), metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)})
}

// playNamespace: a namespace is offloaded, used, and no longer offloaded.
func playNamespace(s *stage) error {
	if err := s.offload(s.ctx, s.namespace); err != nil {
		return err
	}
	pod, err := s.run(bare(s.name("guest"), corev1.RestartPolicyAlways), destiny{})
	if err != nil {
		return err
	}
	if err := s.delete(pod, nil); err != nil {
		return err
	}
	offloadings := s.rome.Liqod().OffloadingV1beta1().NamespaceOffloadings(s.namespace)
	if err := offloadings.Delete(s.ctx, offloadingv1beta1.NamespaceOffloadingName, metav1.DeleteOptions{}); err != nil {
		return err
	}
	err = s.eventually("the namespace is no longer offloaded", func(ctx context.Context) error {
		_, offloading := offloadings.Get(ctx, offloadingv1beta1.NamespaceOffloadingName, metav1.GetOptions{})
		_, twin := s.milan.Client().CoreV1().Namespaces().Get(ctx, s.twin(), metav1.GetOptions{})
		return errors.Join(isGone("the NamespaceOffloading", offloading), isGone("the twin namespace", twin))
	})
	return errors.Join(err, s.rome.Client().CoreV1().Namespaces().Delete(s.ctx, s.namespace, metav1.DeleteOptions{}))
}

// playStart: every role is killed while a pod runs, and does what it does at its start.
func playStart(s *stage) error {
	pod, err := s.run(bare(s.name("old"), corev1.RestartPolicyAlways), destiny{})
	if err != nil {
		return err
	}
	for _, name := range []string{vkubelet, romeController, milanController, romeWebhook} {
		if err := s.roles.byName[name].again(); err != nil {
			return err
		}
	}
	next, err := s.run(bare(s.name("new"), corev1.RestartPolicyAlways), destiny{})
	if err != nil {
		return err
	}
	if err := s.delete(pod, nil); err != nil {
		return err
	}
	return s.delete(next, nil)
}

// playCertificate: the webhook has lost its certificate, and makes another.
func playCertificate(s *stage) error {
	secrets := s.rome.Client().CoreV1().Secrets(site.Namespace)
	before, err := secrets.Get(s.ctx, certificateSecret, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := secrets.Delete(s.ctx, certificateSecret, metav1.DeleteOptions{}); err != nil {
		return err
	}
	err = s.eventually("there is another certificate, and the API server trusts it", func(ctx context.Context) error {
		secret, err := secrets.Get(ctx, certificateSecret, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if secret.UID == before.UID {
			return errors.New("it is still the old one")
		}
		_, err = s.rome.Client().CoreV1().Pods(s.namespace).Create(ctx, bare("asked", corev1.RestartPolicyAlways), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
	if err != nil {
		return err
	}
	pod, err := s.run(bare(s.name("trusted"), corev1.RestartPolicyAlways), destiny{})
	if err != nil {
		return err
	}
	return s.delete(pod, nil)
}

const certificateSecret = "liqod-webhook-certs"
