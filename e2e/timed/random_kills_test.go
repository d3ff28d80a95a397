package timed

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

const (
	// longestPause is the longest time between two random kills.
	longestPause = 600 * time.Millisecond
	// rolloutStep is how long a step of the rollout lasts while roles are being killed.
	rolloutStep = 8 * time.Second
	// endingPods end by themselves during the rollout.
	endingPods = 20
)

// testRandomKills kills the roles at random while a Deployment is rolled out and scaled, and
// other pods end by themselves.
func testRandomKills(t *testing.T, w *world, replicas int32, kills int) {
	r := w.newRun(t, prefix+"random")
	r.others = expected{deleted: true, uncreated: true}
	require.NoError(t, w.offload(t.Context(), r.namespace))
	r.deploy("web", replicas)
	r.available("web", replicas)
	t.Logf("seed %d", *seed)
	begin, killed, before := time.Now(), make(chan struct{}), w.roles.kills()
	go func() {
		defer close(killed)
		w.roles.killAtRandom(t.Context(), rand.New(rand.NewPCG(*seed, 0)), kills)
	}()
	var ending []*corev1.Pod
	for i := range endingPods {
		ending = append(ending, r.createEnding(i))
	}
	image := r.rollOut("web", replicas, killed)
	require.NoError(t, w.roles.err())
	t.Logf("%d kills in %s", w.roles.kills()-before, time.Since(begin).Round(time.Second))
	begin = time.Now()
	r.available("web", replicas)
	for _, pod := range ending {
		r.untilHome(pod, "has ended", inPhase(corev1.PodSucceeded))
	}
	r.eventually("both clusters hold the same", func(ctx context.Context) error { return r.equal(ctx, replicas, image) })
	t.Logf("both clusters are equal %s after the last kill", time.Since(begin).Round(time.Millisecond))
	r.deleteDeployment("web")
	for _, pod := range ending {
		r.delete(pod, nil)
	}
	r.end()
	require.Empty(t, w.pods.check(r.namespace, r.expected))
}

// killAtRandom kills a random role at random moments.
func (r roles) killAtRandom(ctx context.Context, random *rand.Rand, kills int) {
	names := []string{vkubelet, milanController, romeController, romeWebhook}
	for range kills {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(random.Int64N(int64(longestPause)))):
		}
		r[names[random.IntN(len(names))]].kill()
	}
}

// createEnding creates a pod that succeeds after a while; each other one fails before.
func (r *podRun) createEnding(i int) *corev1.Pod {
	name, after := fmt.Sprintf("ending-%d", i), fmt.Sprint(1000*(i+1))
	if i%2 == 1 {
		return r.create(bare(name, corev1.RestartPolicyOnFailure, lab.SimRunFor, after, lab.SimExitCode, "1,0"), expected{phase: corev1.PodSucceeded, restarts: 1})
	}
	return r.create(bare(name, corev1.RestartPolicyNever, lab.SimRunFor, after, lab.SimExitCode, "0"), expected{phase: corev1.PodSucceeded})
}

// rollOut changes the image of a Deployment, and scales it down and up, until over is closed.
// It returns the last image.
func (r *podRun) rollOut(name string, replicas int32, over <-chan struct{}) string {
	r.t.Helper()
	tick := time.NewTicker(rolloutStep)
	defer tick.Stop()
	for i := 2; ; i++ {
		image, scale := fmt.Sprintf("sim/web:%d", i), replicas
		if i%2 == 1 {
			scale = replicas * 2 / 3
		}
		r.set(name, scale, image)
		select {
		case <-over:
			r.set(name, replicas, image)
			return image
		case <-tick.C:
		}
	}
}

func (r *podRun) set(name string, replicas int32, image string) {
	r.t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d,"template":{"spec":{"containers":[{"name":"c","image":%q}]}}}}`, replicas, image)
	kubetest.Patch(r.t, r.Rome.Client().AppsV1().Deployments(r.namespace), name, types.StrategicMergePatchType, patch)
}

// equal requires one pod in the provider for each at home, with the image, and no other pod.
func (r *podRun) equal(ctx context.Context, replicas int32, image string) error {
	home, err := r.Rome.Client().CoreV1().Pods(r.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	remote, err := r.Milan.Client().CoreV1().Pods(r.twin()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(home.Items) != int(replicas)+endingPods || len(remote.Items) != len(home.Items) {
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
