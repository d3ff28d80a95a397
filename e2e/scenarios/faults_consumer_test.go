package scenarios

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqod/liqod/e2e/lab"
)

// TestFaultsHome strikes the consumer: its API server, and its vkubelet.
func TestFaultsHome(t *testing.T) {
	w := newAdjustedWorld(t, steadyNodes("milan"))
	w.deploy(t, "shop", 5)
	t.Run("consumer", func(t *testing.T) {
		for i, f := range faults() {
			t.Run(f.name, func(t *testing.T) { testConsumerAway(t, w, f, 5+int32(i)) })
		}
	})
	t.Run("vkubelet", func(t *testing.T) { testFaultsVKubelet(t, w) })
}

// testConsumerAway loses a pod in the provider while the consumer's API server is away,
// and changes what is asked for: before the end for those who can, and right after.
func testConsumerAway(t *testing.T, w *world, f fault, replicas int32) {
	w.createPod(t, "shop", boundPod("leaver"))
	within(t, 20*time.Second, "a bare pod runs", w.podReady("shop", "leaver"))
	before := lives(t, w.milan.Cluster, "shop-rome")
	require.Len(t, before, int(replicas)+1)
	delete(before, "leaver")
	lost := slices.Sorted(maps.Keys(before))[0]

	f.strike(w.rome.Cluster)
	require.NoError(t, w.milan.Client().CoreV1().Pods("shop-rome").Delete(t.Context(), lost, metav1.DeleteOptions{}))
	by(t, time.Now(), 2*promptly, "pod lost in the provider runs again", w.succeeded(before[lost], lost))
	delete(before, lost)
	if f.aside {
		w.scale(t, "shop", "web", replicas+1)
		require.NoError(t, w.rome.Client().CoreV1().Pods("shop").Delete(t.Context(), "leaver", metav1.DeleteOptions{}))
	}
	hold(t, outage(), "nothing stops in the provider", lab.All(w.milan.Client().CoreV1().Pods("shop-rome"), metav1.ListOptions{}, func(pod *corev1.Pod) bool {
		return podReady(pod) == corev1.ConditionTrue && pod.DeletionTimestamp == nil
	}))

	require.NoError(t, f.heal(t.Context(), w.rome.Cluster))
	begin := time.Now()
	if !f.aside {
		w.scale(t, "shop", "web", replicas+1)
		require.NoError(t, w.rome.Client().CoreV1().Pods("shop").Delete(t.Context(), "leaver", metav1.DeleteOptions{}))
	}
	w.createPod(t, "shop", boundPod("joiner"))
	testCaughtUp(t, w, f, begin, replicas+1)
	hold(t, 3*time.Second, "node Ready", w.node("milan", corev1.ConditionTrue))
	require.NoError(t, w.ready("shop", corev1.ConditionTrue)(t.Context()))
	requireLiving(t, before, lives(t, w.milan.Cluster, "shop-rome"))
	require.NoError(t, w.rome.Client().CoreV1().Pods("shop").Delete(t.Context(), "joiner", metav1.DeleteOptions{}))
	within(t, 20*time.Second, "the other bare pod is gone too", w.podGone("shop", "joiner"))
}

func testCaughtUp(t *testing.T, w *world, f fault, begin time.Time, replicas int32) {
	t.Helper()
	by(t, begin, promptly, "node Ready", w.node("milan", corev1.ConditionTrue))
	by(t, begin, promptly, "pod of the outage gone", w.podGone("shop", "leaver"))
	by(t, begin, promptly, "pod bound after the outage runs", w.podReady("shop", "joiner"))
	by(t, begin, promptly, "pods at home Ready=True", w.ready("shop", corev1.ConditionTrue))
	if !f.aside {
		// The consumer's own controller manager has lost its API server too, and takes its time.
		within(t, 2*time.Minute, "pods of the Deployment scheduled", w.bound(w.rome.Cluster, "shop", int(replicas)+1, true)) // and the joiner
		begin = time.Now()
	}
	by(t, begin, promptly, "Deployment scaled", w.available("web", "shop", replicas))
}

// succeeded looks in the provider for the pod that follows a lost one.
func (w *world) succeeded(lost life, name string) func(context.Context) error {
	return lab.Is(w.milan.Client().CoreV1().Pods("shop-rome"), name, func(pod *corev1.Pod) bool {
		return pod.UID != lost.UID && podReady(pod) == corev1.ConditionTrue
	})
}

func (w *world) createPod(t *testing.T, namespace string, pod *corev1.Pod) {
	t.Helper()
	within(t, 20*time.Second, "a pod is taken", lab.Creates(w.rome.Client().CoreV1().Pods(namespace), pod))
}

// podGone looks for a pod in both clusters.
func (w *world) podGone(namespace, name string) func(context.Context) error {
	return func(ctx context.Context) error {
		for cluster, in := range map[*lab.Cluster]string{w.rome.Cluster: namespace, w.milan.Cluster: namespace + "-rome"} {
			_, err := cluster.Client().CoreV1().Pods(in).Get(ctx, name, metav1.GetOptions{})
			if err == nil {
				return fmt.Errorf("pod %s/%s is there", in, name)
			}
			if !apierrors.IsNotFound(err) {
				return err
			}
		}
		return nil
	}
}
