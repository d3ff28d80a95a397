package pod

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	liqodfake "github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/reasons"
)

const quiet = "oslo" // a consumer beside origin

// TestRun drives the Enforcer through its informers: a creation, a namespace that becomes a
// twin, a loss, and a second term of leadership.
func TestRun(t *testing.T) {
	notYet := twin(func(ns *corev1.Namespace) { ns.Labels = nil })
	shadow := newShadow(always, func(s *offloadingv1beta1.ShadowPod) { s.CreationTimestamp = metav1.Now() })
	core, liqod := fake.NewClientset(notYet), liqodfake.NewSimpleClientset(shadow)
	var made atomic.Int64
	core.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		pod := a.(clienttesting.CreateAction).GetObject().(*corev1.Pod)
		pod.UID = types.UID("made-" + string(rune('0'+made.Add(1))))
		return false, nil, nil
	})
	ctx := t.Context()
	e := started(t, core, liqod, nil)
	lead := func() (stop func()) {
		return kubetest.Run(t, func(ctx context.Context) error { return e.Run(ctx, 2) })
	}
	uid := func() types.UID {
		pod, err := core.CoreV1().Pods(testNamespace).Get(ctx, testName, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return ""
		}
		require.NoError(t, err)
		return pod.UID
	}
	becomes := func(want types.UID) {
		t.Helper()
		require.Eventually(t, func() bool { return uid() == want }, time.Minute, 5*time.Millisecond)
	}

	stop := lead()
	require.Eventually(t, func() bool {
		s, err := liqod.OffloadingV1beta1().ShadowPods(testNamespace).Get(ctx, testName, metav1.GetOptions{})
		return err == nil && len(s.Status.Conditions) == 1 && s.Status.Conditions[0].Reason == reasons.NotTwinNamespace
	}, time.Minute, 5*time.Millisecond)
	kubetest.Update(t, core.CoreV1().Namespaces(), twin())
	becomes("made-1")
	require.NoError(t, core.CoreV1().Pods(testNamespace).Delete(ctx, testName, metav1.DeleteOptions{}))
	becomes("made-2")
	stop()

	require.NoError(t, core.CoreV1().Pods(testNamespace).Delete(ctx, testName, metav1.DeleteOptions{}))
	require.Eventually(t, func() bool { return len(e.cfg.Pods.GetIndexer().List()) == 0 }, time.Minute, 5*time.Millisecond)
	require.Empty(t, uid(), "who does not lead writes nothing")
	stop = lead()
	becomes("made-3")
	s := kubetest.Get(t, liqod.OffloadingV1beta1().ShadowPods(testNamespace), testName)
	require.Equal(t, types.UID("made-2"), s.Status.Replaced)
	require.Equal(t, []offloadingv1beta1.ContainerRestarts{{Name: "main", Count: 2}}, s.Status.Restarts)
	stop()
}

// TestRunWithAQuota: of 20 ShadowPods with 300m each, three have pods under a Quota of one CPU,
// also across terms. As pods end, all others get theirs.
func TestRunWithAQuota(t *testing.T) {
	core, liqod := fake.NewClientset(twin()), liqodfake.NewSimpleClientset(&offloadingv1beta1.Quota{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1beta1.TenantNamespace(origin), Name: "q"}, Spec: offloadingv1beta1.QuotaSpec{Resources: cpu("1")},
	})
	const all = 20
	begin := metav1.Now()
	for i := range all {
		require.NoError(t, liqod.Tracker().Add(newShadow(never, requests("300m"), func(s *offloadingv1beta1.ShadowPod) {
			s.Name = fmt.Sprintf("p-%02d", i)
			s.UID, s.CreationTimestamp = types.UID(s.Name), metav1.NewTime(begin.Add(time.Duration(i-all)*time.Second))
		})))
	}
	var mu sync.Mutex
	var made []string
	core.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		pod := a.(clienttesting.CreateAction).GetObject().(*corev1.Pod)
		mu.Lock()
		defer mu.Unlock()
		made = append(made, pod.Name)
		pod.UID = types.UID("made-" + pod.Name)
		return false, nil, nil
	})
	e := started(t, core, liqod, nil)
	lead := func() (stop func()) {
		return kubetest.Run(t, func(ctx context.Context) error { return e.Run(ctx, 4) })
	}
	running := func() (pods []corev1.Pod) {
		list := kubetest.List(t, core.CoreV1().Pods(testNamespace))
		for _, pod := range list.Items {
			if pod.Status.Phase != corev1.PodSucceeded {
				pods = append(pods, pod)
			}
		}
		require.LessOrEqual(t, len(pods), 3)
		return pods
	}
	stop := lead()
	for n := 0; n < all; {
		require.Eventually(t, func() bool { return len(running()) == min(3, all-n) }, time.Minute, 5*time.Millisecond, "%d have ended", n)
		if n%5 == 4 {
			stop()
			stop = lead()
		}
		ended := running()[n%min(3, all-n)]
		ended.Status.Phase = corev1.PodSucceeded
		kubetest.UpdateStatus(t, core.CoreV1().Pods(testNamespace), &ended)
		n++
	}
	stop()
	require.Len(t, made, all)
	slices.Sort(made)
	require.Len(t, slices.Compact(made), all, "each once")
}

// TestRunOfAConsumerThatFloods: every sync of one consumer's 200 ShadowPods takes for ever.
// The ShadowPod of another consumer gets its pod.
func TestRunOfAConsumerThatFloods(t *testing.T) {
	spaces := []runtime.Object{twin(), twin(func(ns *corev1.Namespace) {
		ns.Name, ns.Labels[corev1beta1.RemoteClusterIDLabel] = quiet, quiet
	})}
	core, liqod := fake.NewClientset(spaces...), liqodfake.NewSimpleClientset()
	shadowIn := func(namespace, consumer, name string) {
		s := newShadow(always, func(s *offloadingv1beta1.ShadowPod) {
			s.Namespace, s.Name, s.UID, s.CreationTimestamp = namespace, name, types.UID(name), metav1.Now()
			s.Labels[offloadingv1beta1.OriginLabel] = consumer
		})
		require.NoError(t, liqod.Tracker().Add(s))
	}
	for i := range 200 {
		shadowIn(testNamespace, origin, fmt.Sprintf("flood-%d", i))
	}
	shadowIn(quiet, quiet, "wanted")
	var held atomic.Int64
	e := started(t, core, liqod, func(c *Config) {
		c.Harden = func(consumer string, _ *corev1.PodSpec) error {
			if consumer == origin {
				held.Add(1)
				<-t.Context().Done()
			}
			return nil
		}
	})
	kubetest.Run(t, func(ctx context.Context) error { return e.Run(ctx, 4) })
	require.Eventually(t, func() bool { return held.Load() == 4 }, time.Minute, 5*time.Millisecond, "it has its workers")
	require.Eventually(t, func() bool {
		_, err := core.CoreV1().Pods(quiet).Get(t.Context(), "wanted", metav1.GetOptions{})
		return err == nil
	}, time.Minute, 5*time.Millisecond)
	require.EqualValues(t, 4, held.Load(), "and no more")
}

// TestKeysBelongToConsumers: the keys of a consumer take turns with those of others, also
// while its namespace is not in the cache.
func TestKeysBelongToConsumers(t *testing.T) {
	r := newRig(t, newShadow(always))
	require.Equal(t, origin, r.e.consumer(r.key()))
	require.NoError(t, r.spaces.GetIndexer().Delete(twin()))
	require.Equal(t, origin, r.e.consumer(r.key()))
	require.Empty(t, r.e.consumer(loop.Key{Namespace: "gone", Name: "p"}))
}
