package scenarios

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
)

const (
	stormSeed     = 3
	killsPerRole  = 10
	stormReplicas = 50
	finitePods    = 20
)

// TestFaultsRestarts kills every role again and again while a Deployment is rolled out
// and pods come to their end.
func TestFaultsRestarts(t *testing.T) {
	w := newWorld(t)
	w.deploy(t, "storm", stormReplicas)
	o := w.observe(t, "storm")
	begin := time.Now()
	over := make(chan struct{})
	var wg sync.WaitGroup
	for i, target := range []**lab.Process{&w.rome.Controller, &w.milan.Controller, &w.rome.Webhook, w.rome.VKubelet("milan")} {
		wg.Go(func() { w.killAgain(t, target, rand.New(rand.NewPCG(stormSeed, uint64(i)))) })
	}
	go func() {
		defer close(over)
		wg.Wait()
	}()
	for i := range finitePods {
		w.createPod(t, "storm", finitePod(i))
	}
	image := w.rollOn(t, over)
	t.Logf("%d kills in %s", 4*killsPerRole, time.Since(begin).Round(time.Millisecond))
	within(t, 2*time.Minute, "rollout", w.available("web", "storm", stormReplicas))
	within(t, time.Minute, "ended pods are known at home", w.finished("storm"))
	within(t, time.Minute, "both clusters hold the same", w.same("storm", image))
	o.end(t)
}

// killAgain kills a process at random times and starts it again.
func (w *world) killAgain(t *testing.T, target **lab.Process, random *rand.Rand) {
	for range killsPerRole {
		select {
		case <-t.Context().Done():
			return
		case <-time.After(time.Second + time.Duration(random.Int64N(int64(8*time.Second)))):
		}
		if err := w.sites.Restart(target); err != nil {
			t.Errorf("starting a role again: %v", err)
			return
		}
	}
}

// rollOn changes the image of the Deployment until over, and returns the last one.
func (w *world) rollOn(t *testing.T, over <-chan struct{}) string {
	t.Helper()
	tick := time.NewTicker(8 * time.Second)
	defer tick.Stop()
	for i := 2; ; i++ {
		image := fmt.Sprintf("sim/web:%d", i)
		patch := fmt.Appendf(nil, `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":%q}]}}}}`, image)
		_, err := w.rome.Client().AppsV1().Deployments("storm").Patch(t.Context(), "web", types.StrategicMergePatchType, patch, metav1.PatchOptions{})
		require.NoError(t, err)
		select {
		case <-over:
			return image
		case <-tick.C:
		}
	}
}

// finitePod ends well after a while; every other one fails first where it may.
func finitePod(i int) *corev1.Pod {
	pod := boundPod(fmt.Sprintf("finite-%d", i))
	pod.Annotations = map[string]string{lab.SimRunFor: fmt.Sprint(1000 * (i + 1)), lab.SimExitCode: "0"}
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	if i%2 == 1 {
		pod.Annotations[lab.SimExitCode] = "1,0"
		pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	}
	return pod
}

// finished looks for the good end, at home, of every pod that has one.
func (w *world) finished(namespace string) func(context.Context) error {
	return func(ctx context.Context) error {
		for i := range finitePods {
			pod, err := w.rome.Client().CoreV1().Pods(namespace).Get(ctx, fmt.Sprintf("finite-%d", i), metav1.GetOptions{})
			if err != nil {
				return err
			}
			if pod.Status.Phase != corev1.PodSucceeded {
				return fmt.Errorf("pod %s: %s: %+v", pod.Name, pod.Status.Phase, pod.Status.ContainerStatuses)
			}
		}
		return nil
	}
}

// same looks whether the provider holds one pod for each at home, and none more.
func (w *world) same(namespace, image string) func(context.Context) error {
	return func(ctx context.Context) error {
		home, err := w.rome.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		remote, err := w.milan.Client().CoreV1().Pods(namespace+"-rome").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(home.Items) != stormReplicas+finitePods || len(remote.Items) != len(home.Items) {
			return fmt.Errorf("%d pods at home and %d in the provider", len(home.Items), len(remote.Items))
		}
		for i, pod := range remote.Items {
			if local := home.Items[i]; pod.Labels[offloadingv1beta1.LocalPodUIDLabel] != string(local.UID) || pod.Status.Phase != local.Status.Phase {
				return fmt.Errorf("pod %s is %s at home and %s in the provider", pod.Name, local.Status.Phase, pod.Status.Phase)
			}
			if pod.Labels["app"] == "web" && pod.Spec.Containers[0].Image != image {
				return fmt.Errorf("pod %s has image %s", pod.Name, pod.Spec.Containers[0].Image)
			}
		}
		return nil
	}
}

// observer watches the provider's pods of a namespace for what must never be.
type observer struct {
	w         *world
	namespace string
	cancel    context.CancelFunc
	done      chan struct{}

	events int
	// By local UID: the pods made for it, and whether it has ended.
	made  map[string]map[types.UID]bool
	ended map[string]bool
	wrong []string
}

// observe begins before the first fault and ends with end.
func (w *world) observe(t *testing.T, namespace string) *observer {
	t.Helper()
	o := &observer{w: w, namespace: namespace, done: make(chan struct{}), made: map[string]map[types.UID]bool{}, ended: map[string]bool{}}
	pods := w.milan.Client().CoreV1().Pods(namespace + "-rome")
	list, err := pods.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for i := range list.Items {
		o.see(t.Context(), &list.Items[i], false)
	}
	ctx, cancel := context.WithCancel(t.Context())
	o.cancel = cancel
	stream, err := pods.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	require.NoError(t, err)
	go func() {
		defer close(o.done)
		defer stream.Stop()
		for event := range stream.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			if ctx.Err() != nil {
				return
			}
			if !ok {
				o.say("the watch ended: %v", event.Object)
				return
			}
			o.see(ctx, pod, event.Type == "DELETED")
		}
	}()
	return o
}

// end requires that nothing was wrong.
func (o *observer) end(t *testing.T) {
	t.Helper()
	select {
	case <-o.done:
		o.say("the watch ended early")
	default:
	}
	o.cancel()
	<-o.done
	require.Empty(t, o.wrong)
	require.Greater(t, o.events, stormReplicas)
	t.Logf("%d events about %d pods", o.events, len(o.made))
}

func (o *observer) see(ctx context.Context, pod *corev1.Pod, deleted bool) {
	o.events++
	local := pod.Labels[offloadingv1beta1.LocalPodUIDLabel]
	if o.made[local] == nil {
		o.made[local] = map[types.UID]bool{}
	}
	o.made[local][pod.UID] = true
	if len(o.made[local]) > 1 {
		o.say("pod %s was made %d times for local pod %s", pod.Name, len(o.made[local]), local)
	}
	switch over := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed; {
	case over:
		o.ended[local] = true
	case o.ended[local]:
		o.say("pod %s had ended, and is %s", pod.Name, pod.Status.Phase)
	case deleted || pod.DeletionTimestamp != nil:
		o.leaving(ctx, pod, local)
	}
}

// leaving is about a running pod that goes: its local pod must have been asked to.
func (o *observer) leaving(ctx context.Context, pod *corev1.Pod, local string) {
	have, err := o.w.rome.Client().CoreV1().Pods(o.namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), ctx.Err() != nil:
	case err != nil:
		o.say("reading pod %s: %v", pod.Name, err)
	case string(have.UID) == local && have.DeletionTimestamp == nil:
		o.say("pod %s is deleted in the provider, and not at home", pod.Name)
	}
}

func (o *observer) say(format string, args ...any) {
	o.wrong = append(o.wrong, fmt.Sprintf(format, args...))
}
