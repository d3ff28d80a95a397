package timed

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

// patience is the deadline of each step of a run: several roles may be killed meanwhile.
const patience = 90 * time.Second

// podRun is a run of a scenario in a namespace of rome and its twin in milan. Its methods end
// the test if a step fails.
type podRun struct {
	*world
	t         *testing.T
	namespace string
	number    int64 // makes the names of the run's objects unique

	mu sync.Mutex
	// want is what is expected of single pods, others what is expected of all others.
	want   map[types.UID]expected
	others expected
}

func (w *world) newRun(t *testing.T, namespace string) *podRun {
	return &podRun{world: w, t: t, namespace: namespace, number: w.number.Add(1), want: map[types.UID]expected{}}
}

func (r *podRun) twin() string { return twinOf(r.namespace) }

func (r *podRun) expected(uid types.UID) expected {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, known := r.want[uid]; known {
		return e
	}
	return r.others
}

// expect changes what is expected of a pod from now on.
func (r *podRun) expect(uid types.UID, change func(*expected)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.want[uid]
	change(&e)
	r.want[uid] = e
}

func (r *podRun) name(base string) string { return fmt.Sprintf("%s-%d", base, r.number) }

// eventually waits for a condition.
func (r *podRun) eventually(what string, cond func(context.Context) error) {
	r.t.Helper()
	require.NoError(r.t, lab.Within(r.t.Context(), patience, cond), what)
}

// bare is a pod with a restart policy, and annotations for the simulator in pairs.
func bare(name string, policy corev1.RestartPolicy, annotations ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}, Spec: corev1.PodSpec{
		RestartPolicy: policy, TerminationGracePeriodSeconds: ptr.To[int64](2),
		Containers: []corev1.Container{{Name: "c", Image: "sim/web:1"}},
	}}
	for i := 0; i+1 < len(annotations); i += 2 {
		pod.Annotations[annotations[i]] = annotations[i+1]
	}
	return pod
}

// create creates a pod. It tries again while the webhook is being killed.
func (r *podRun) create(pod *corev1.Pod, want expected) (created *corev1.Pod) {
	r.t.Helper()
	r.eventually("creating pod "+pod.Name, func(ctx context.Context) (err error) {
		created, err = r.Rome.Client().CoreV1().Pods(r.namespace).Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
	r.expect(created.UID, func(e *expected) { *e = want })
	return created
}

// start creates a pod and waits until it runs.
func (r *podRun) start(pod *corev1.Pod, want expected) *corev1.Pod {
	r.t.Helper()
	created := r.create(pod, want)
	r.untilHome(created, "runs", running)
	return created
}

func (r *podRun) untilHome(pod *corev1.Pod, what string, is func(*corev1.Pod) bool) {
	r.t.Helper()
	r.untilPod(r.Rome.Cluster, r.namespace, pod, what, func(p *corev1.Pod) bool { return p.UID == pod.UID && is(p) })
}

func (r *podRun) untilRemote(pod *corev1.Pod, what string, is func(*corev1.Pod) bool) {
	r.t.Helper()
	r.untilPod(r.Milan.Cluster, r.twin(), pod, what, is)
}

func (r *podRun) untilPod(c *lab.Cluster, namespace string, pod *corev1.Pod, what string, is func(*corev1.Pod) bool) {
	r.t.Helper()
	r.eventually(fmt.Sprintf("pod %s of %s %s", pod.Name, c.Name, what), lab.Is(c.Client().CoreV1().Pods(namespace), pod.Name, is))
}

func running(pod *corev1.Pod) bool {
	if pod.Status.Phase != corev1.PodRunning {
		return false
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func inPhase(want corev1.PodPhase) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool { return pod.Status.Phase == want }
}

func restarted(atLeast int32) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool {
		return running(pod) && len(pod.Status.ContainerStatuses) > 0 && pod.Status.ContainerStatuses[0].RestartCount >= atLeast
	}
}

func (r *podRun) patch(pod *corev1.Pod, data string, subresource ...string) {
	r.t.Helper()
	kubetest.Patch(r.t, r.Rome.Client().CoreV1().Pods(r.namespace), pod.Name, types.StrategicMergePatchType, []byte(data), subresource...)
}

// delete deletes a pod at home, as its user, and waits until nothing of it is left in both clusters.
func (r *podRun) delete(pod *corev1.Pod, grace *int64) {
	r.t.Helper()
	r.expect(pod.UID, func(e *expected) { e.deleted, e.forced = true, grace != nil && *grace == 0 })
	require.NoError(r.t, r.Rome.Client().CoreV1().Pods(r.namespace).Delete(r.t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: grace}))
	r.eventually("nothing is left of "+pod.Name, lab.Together(lab.Gone(r.Rome.Client().CoreV1().Pods(r.namespace), pod.Name),
		lab.Gone(r.Milan.Client().CoreV1().Pods(r.twin()), pod.Name), lab.Gone(r.Milan.Liqod().OffloadingV1beta1().ShadowPods(r.twin()), pod.Name)))
}

// deleteRemote deletes a pod in the provider, as a user there may.
func (r *podRun) deleteRemote(pod *corev1.Pod) {
	r.t.Helper()
	require.NoError(r.t, r.Milan.Client().CoreV1().Pods(r.twin()).Delete(r.t.Context(), pod.Name, metav1.DeleteOptions{}))
}

func (r *podRun) deploy(name string, replicas int32) {
	r.t.Helper()
	labels := map[string]string{"app": name}
	kubetest.Create(r.t, r.Rome.Client().AppsV1().Deployments(r.namespace), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: bare("", corev1.RestartPolicyAlways).Spec},
	}})
}

func (r *podRun) available(name string, want int32) {
	r.t.Helper()
	r.eventually(fmt.Sprintf("deployment %s has %d pods", name, want), lab.Is(r.Rome.Client().AppsV1().Deployments(r.namespace), name, func(d *appsv1.Deployment) bool {
		return d.Status.ObservedGeneration == d.Generation && d.Status.UpdatedReplicas == want && d.Status.AvailableReplicas == want && d.Status.Replicas == want
	}))
}

func (r *podRun) deleteDeployment(name string) {
	r.t.Helper()
	foreground := metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}
	require.NoError(r.t, r.Rome.Client().AppsV1().Deployments(r.namespace).Delete(r.t.Context(), name, foreground))
}

// end waits until both namespaces are empty, and the watch has seen that.
func (r *podRun) end() {
	r.t.Helper()
	r.eventually("nothing is left of the run", lab.Those(r.Milan.Liqod().OffloadingV1beta1().ShadowPods(r.twin()), metav1.ListOptions{}, func(shadows *offloadingv1beta1.ShadowPodList) error {
		if len(shadows.Items) > 0 {
			return fmt.Errorf("%d ShadowPods are left", len(shadows.Items))
		}
		return errors.Join(r.pods.empty(r.namespace), r.pods.empty(r.twin()))
	}))
}
