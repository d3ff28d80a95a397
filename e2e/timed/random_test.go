package timed

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
)

const (
	// longestPause is the longest time between two random kills.
	longestPause = 600 * time.Millisecond
	// turn is how long a step of the rollout lasts while roles are being killed.
	turn = 8 * time.Second
	// finitePods come to an end of their own during the rollout.
	finitePods = 20
)

// testRandomKills kills the roles at random while a Deployment is rolled out and scaled,
// and other pods come to their end.
func testRandomKills(t *testing.T, w *world, replicas int32, kills int) {
	s := &stage{
		world: w, ctx: t.Context(), namespace: prefix + "storm", want: map[types.UID]destiny{},
		fallback: destiny{deleted: true, unmade: true},
	}
	require.NoError(t, w.offload(t.Context(), s.namespace))
	require.NoError(t, s.deploy("web", replicas))
	require.NoError(t, s.available("web", replicas))
	t.Logf("seed %d", *seed)
	begin, over := time.Now(), make(chan struct{})
	before := w.roles.kills()
	go func() {
		defer close(over)
		w.roles.killAtRandom(t.Context(), rand.New(rand.NewPCG(*seed, 0)), kills)
	}()
	var finite []*corev1.Pod
	for i := range finitePods {
		pod, err := s.createFinite(i)
		require.NoError(t, err)
		finite = append(finite, pod)
	}
	image := s.rollOn(t, "web", replicas, over)
	require.NoError(t, w.roles.err())
	t.Logf("%d kills in %s", w.roles.kills()-before, time.Since(begin).Round(time.Second))
	begin = time.Now()
	require.NoError(t, s.available("web", replicas))
	for _, pod := range finite {
		require.NoError(t, s.untilHome(pod, "has ended", inPhase(corev1.PodSucceeded)))
	}
	require.NoError(t, s.eventually("both clusters hold the same", func(ctx context.Context) error { return s.same(ctx, replicas, image) }))
	t.Logf("all is as asked %s after the last kill", time.Since(begin).Round(time.Millisecond))
	s.clear(t, finite)
	wrong := w.seen.judge(s.namespace, s.destiny)
	require.Empty(t, wrong)
}

// killAtRandom kills a random role at random moments.
func (r *roles) killAtRandom(ctx context.Context, random *rand.Rand, kills int) {
	names := []string{vkubelet, milanController, romeController, romeWebhook}
	for range kills {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(random.Int64N(int64(longestPause)))):
		}
		r.byName[names[random.IntN(len(names))]].kill()
	}
}

func (s *stage) deploy(name string, replicas int32) error {
	labels := map[string]string{"app": name}
	_, err := s.rome.Client().AppsV1().Deployments(s.namespace).Create(s.ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: bare("", corev1.RestartPolicyAlways).Spec},
	}}, metav1.CreateOptions{})
	return err
}

// createFinite creates a pod that ends well after a while; every other one fails first.
func (s *stage) createFinite(i int) (*corev1.Pod, error) {
	after := fmt.Sprint(1000 * (i + 1))
	if i%2 == 1 {
		return s.create(bare(fmt.Sprintf("finite-%d", i), corev1.RestartPolicyOnFailure, lab.SimRunFor, after, lab.SimExitCode, "1,0"),
			destiny{phase: corev1.PodSucceeded, restarts: 1})
	}
	return s.create(bare(fmt.Sprintf("finite-%d", i), corev1.RestartPolicyNever, lab.SimRunFor, after, lab.SimExitCode, "0"),
		destiny{phase: corev1.PodSucceeded})
}

// rollOn changes the image of a Deployment, and takes pods away and brings them back,
// until over. It returns the last image.
func (s *stage) rollOn(t *testing.T, name string, replicas int32, over <-chan struct{}) string {
	t.Helper()
	tick := time.NewTicker(turn)
	defer tick.Stop()
	for i := 2; ; i++ {
		image, scale := fmt.Sprintf("sim/web:%d", i), replicas
		if i%2 == 1 {
			scale = replicas * 2 / 3
		}
		s.set(t, name, scale, image)
		select {
		case <-over:
			s.set(t, name, replicas, image)
			return image
		case <-tick.C:
		}
	}
}

func (s *stage) set(t *testing.T, name string, replicas int32, image string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d,"template":{"spec":{"containers":[{"name":"c","image":%q}]}}}}`, replicas, image)
	_, err := s.rome.Client().AppsV1().Deployments(s.namespace).Patch(t.Context(), name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
}

// same looks whether the provider holds one pod for each at home, with the image, and no
// more than that.
func (s *stage) same(ctx context.Context, replicas int32, image string) error {
	home, err := s.rome.Client().CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	remote, err := s.milan.Client().CoreV1().Pods(s.twin()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(home.Items) != int(replicas)+finitePods || len(remote.Items) != len(home.Items) {
		return fmt.Errorf("%d pods at home and %d in the provider", len(home.Items), len(remote.Items))
	}
	for i, pod := range remote.Items {
		local := home.Items[i]
		if pod.Labels[offloadingv1beta1.LocalPodUIDLabel] != string(local.UID) || pod.Status.Phase != local.Status.Phase {
			return fmt.Errorf("pod %s is %s at home and %s in the provider", pod.Name, local.Status.Phase, pod.Status.Phase)
		}
		if pod.Labels["app"] != "" && pod.Spec.Containers[0].Image != image {
			return fmt.Errorf("pod %s has image %s", pod.Name, pod.Spec.Containers[0].Image)
		}
	}
	return nil
}

// clear takes everything away, as its users do.
func (s *stage) clear(t *testing.T, pods []*corev1.Pod) {
	t.Helper()
	err := s.rome.Client().AppsV1().Deployments(s.namespace).Delete(t.Context(), "web", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)})
	for _, pod := range pods {
		err = errors.Join(err, s.delete(pod, nil))
	}
	require.NoError(t, err)
	require.NoError(t, s.end())
}
