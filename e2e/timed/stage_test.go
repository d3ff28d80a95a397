package timed

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/liqod/liqod/e2e/lab"
)

// patience is granted to each step of a life: several roles may be killed on the way.
const patience = 90 * time.Second

// stage is where one life is played: a namespace and its twin.
type stage struct {
	*world
	ctx context.Context
	// namespace, and number, which makes the names of the life's objects its own.
	namespace string
	number    int64

	mu sync.Mutex
	// want has the destinies of single pods, fallback that of all others.
	want     map[types.UID]destiny
	fallback destiny
}

func (s *stage) twin() string { return twinOf(s.namespace) }

func (s *stage) destiny(uid types.UID) destiny {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d, known := s.want[uid]; known {
		return d
	}
	return s.fallback
}

func (s *stage) name(base string) string { return fmt.Sprintf("%s-%d", base, s.number) }

// eventually waits for a condition, with the patience of a step.
func (s *stage) eventually(what string, cond func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	if err := lab.Eventually(ctx, cond); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
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

// create creates a pod; a webhook that is being killed only delays it.
func (s *stage) create(pod *corev1.Pod, want destiny) (*corev1.Pod, error) {
	var created *corev1.Pod
	err := s.eventually("creating pod "+pod.Name, func(ctx context.Context) (err error) {
		created, err = s.rome.Client().CoreV1().Pods(s.namespace).Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.want[created.UID] = want
	return created, nil
}

// change says that more may happen to a pod from now on.
func (s *stage) change(uid types.UID, by func(*destiny)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.want[uid]
	by(&d)
	s.want[uid] = d
}

func (s *stage) untilHome(pod *corev1.Pod, what string, is func(*corev1.Pod) bool) error {
	return s.untilPod(s.rome.Cluster, s.namespace, pod, what, func(p *corev1.Pod) bool { return p.UID == pod.UID && is(p) })
}

func (s *stage) untilRemote(pod *corev1.Pod, what string, is func(*corev1.Pod) bool) error {
	return s.untilPod(s.milan.Cluster, s.twin(), pod, what, is)
}

func (s *stage) untilPod(c *lab.Cluster, namespace string, pod *corev1.Pod, what string, is func(*corev1.Pod) bool) error {
	return s.eventually(fmt.Sprintf("pod %s of %s %s", pod.Name, c.Name, what), func(ctx context.Context) error {
		have, err := c.Client().CoreV1().Pods(namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !is(have) {
			return fmt.Errorf("it is %s", summary(have))
		}
		return nil
	})
}

// summary is what matters of a pod's state.
func summary(pod *corev1.Pod) string {
	out := fmt.Sprintf("%s %s %s, deleted %s", pod.Status.Phase, pod.Status.Reason, pod.Status.Message, pod.DeletionTimestamp)
	for _, c := range pod.Status.ContainerStatuses {
		out += fmt.Sprintf("; %s restarted %d times: %s", c.Name, c.RestartCount, c.State.String())
	}
	return out
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

// run creates a pod and waits until it runs, as far as both clusters know.
func (s *stage) run(pod *corev1.Pod, want destiny) (*corev1.Pod, error) {
	created, err := s.create(pod, want)
	if err != nil {
		return nil, err
	}
	return created, s.untilHome(created, "runs", running)
}

func (s *stage) patch(pod *corev1.Pod, data string, subresource ...string) error {
	_, err := s.rome.Client().CoreV1().Pods(s.namespace).Patch(s.ctx, pod.Name, types.StrategicMergePatchType, []byte(data), metav1.PatchOptions{}, subresource...)
	return err
}

// delete deletes a pod at home, as its user, and waits until nothing of it is left.
func (s *stage) delete(pod *corev1.Pod, grace *int64) error {
	s.change(pod.UID, func(d *destiny) { d.deleted, d.forced = true, grace != nil && *grace == 0 })
	err := s.rome.Client().CoreV1().Pods(s.namespace).Delete(s.ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: grace})
	if err != nil {
		return fmt.Errorf("deleting pod %s: %w", pod.Name, err)
	}
	return s.absent(pod.Name)
}

// absent waits until a name is free on both sides.
func (s *stage) absent(name string) error {
	return s.eventually("nothing is left of "+name, func(ctx context.Context) error {
		_, home := s.rome.Client().CoreV1().Pods(s.namespace).Get(ctx, name, metav1.GetOptions{})
		_, remote := s.milan.Client().CoreV1().Pods(s.twin()).Get(ctx, name, metav1.GetOptions{})
		_, shadow := s.milan.Liqod().OffloadingV1beta1().ShadowPods(s.twin()).Get(ctx, name, metav1.GetOptions{})
		return errors.Join(isGone("the pod at home", home), isGone("the pod in the provider", remote), isGone("the ShadowPod", shadow))
	})
}

func isGone(what string, err error) error {
	if err == nil {
		return fmt.Errorf("%s is there", what)
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// evict deletes a pod in the provider, as somebody there may.
func (s *stage) evict(pod *corev1.Pod) error {
	err := s.milan.Client().CoreV1().Pods(s.twin()).Delete(s.ctx, pod.Name, metav1.DeleteOptions{})
	if err != nil {
		return fmt.Errorf("evicting pod %s: %w", pod.Name, err)
	}
	return nil
}

// end waits until the stage is empty, and the observer has seen it.
func (s *stage) end() error {
	return s.eventually("the stage is empty", func(ctx context.Context) error {
		shadows, err := s.milan.Liqod().OffloadingV1beta1().ShadowPods(s.twin()).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(shadows.Items) > 0 {
			return fmt.Errorf("%d ShadowPods are left", len(shadows.Items))
		}
		return errors.Join(s.seen.empty(s.namespace), s.seen.empty(s.twin()))
	})
}
