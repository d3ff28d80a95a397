package timed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
)

const (
	// between is what is left to the clusters between the backup and its restoration, so
	// that much is lost.
	between = 20 * time.Second
	// afterwards is longer: by its end the restored cluster has written as much again.
	afterwards = 40 * time.Second
)

// testRestoredConsumer: the consumer's etcd is restored from a backup. Pods that were
// created since are unknown at home, as are namespaces that were offloaded since; pods that
// were deleted since are there again. What runs in the provider runs on.
func testRestoredConsumer(t *testing.T, w *world) {
	s := &stage{world: w, ctx: t.Context(), namespace: prefix + "restored", want: map[types.UID]destiny{}}
	require.NoError(t, w.offload(t.Context(), s.namespace))
	old := s.runAll(t, corev1.RestartPolicyAlways, "old-1", "old-2", "leaver", "twice")
	old = append(old, s.runAll(t, corev1.RestartPolicyNever, "old-3")...)
	backup := backUp(t, w.rome.Cluster)
	require.NoError(t, s.untilHome(old[0], "runs", running))
	lost := s.offloadAnother(t)
	s.runAll(t, corev1.RestartPolicyAlways, "new-1", "new-2")
	s.runAll(t, corev1.RestartPolicyNever, "new-3")
	require.NoError(t, s.delete(old[2], nil))
	require.NoError(t, s.delete(old[3], nil))
	s.runAll(t, corev1.RestartPolicyAlways, "twice")
	<-time.After(between)
	before, elsewhere := s.there(t), lost.there(t)
	require.Len(t, before, 7)

	restore(t, w.rome.Cluster, backup)
	s.requireUnmoved(t, before, afterwards)
	for _, name := range []string{vkubelet, romeController} {
		require.NoError(t, w.roles.byName[name].again())
	}
	s.requireUnmoved(t, before, afterwards/4)
	lost.requireUnmoved(t, elsewhere, time.Second)
	for _, name := range []string{"new-1", "new-2", "new-3", "twice"} {
		shadow, err := w.milan.Liqod().OffloadingV1beta1().ShadowPods(s.twin()).Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		require.NotEmpty(t, shadow.Annotations[offloadingv1beta1.KeptAnnotation], name)
	}
	// What is there again is asked for again, and runs, but where its name is taken.
	require.NoError(t, s.untilHome(old[2], "runs again", running))
	require.NoError(t, s.untilHome(old[3], "is told why it waits", func(p *corev1.Pod) bool {
		return p.Status.Reason == offloadingv1beta1.ReasonRemotePodKept
	}))
	require.Len(t, s.there(t), 8)
	// Who knows better decides.
	shadows := w.milan.Liqod().OffloadingV1beta1().ShadowPods(s.twin())
	for _, name := range []string{"new-1", "new-2", "new-3", "twice"} {
		require.NoError(t, shadows.Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	require.NoError(t, s.untilHome(old[3], "runs at last", running))
	for _, pod := range old {
		require.NoError(t, s.delete(pod, nil))
	}
	// The observer's watch of the consumer has not outlived the loss.
	require.NoError(t, s.eventually("nothing is left in the provider", func(ctx context.Context) error {
		pods, err := w.milan.Client().CoreV1().Pods(s.twin()).List(ctx, metav1.ListOptions{})
		if err == nil && len(pods.Items) > 0 {
			err = fmt.Errorf("%d pods are left", len(pods.Items))
		}
		return err
	}))
}

// offloadAnother offloads a namespace that the backup does not know, and runs a pod there.
func (s *stage) offloadAnother(t *testing.T) *stage {
	t.Helper()
	lost := &stage{world: s.world, ctx: s.ctx, namespace: prefix + "lost", want: map[types.UID]destiny{}}
	require.NoError(t, s.offload(t.Context(), lost.namespace))
	lost.runAll(t, corev1.RestartPolicyAlways, "new")
	return lost
}

func (s *stage) runAll(t *testing.T, policy corev1.RestartPolicy, names ...string) []*corev1.Pod {
	t.Helper()
	var out []*corev1.Pod
	for _, name := range names {
		pod, err := s.run(bare(name, policy), destiny{})
		require.NoError(t, err)
		out = append(out, pod)
	}
	return out
}

// standing is what must not change while a pod runs on.
type standing struct {
	UID      types.UID
	Start    time.Time
	Restarts int32
	Leaving  bool
}

// there returns what runs in the provider, by name.
func (s *stage) there(t *testing.T) map[string]standing {
	t.Helper()
	pods, err := s.milan.Client().CoreV1().Pods(s.twin()).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	out := map[string]standing{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		one := standing{UID: pod.UID, Leaving: pod.DeletionTimestamp != nil}
		if at := startOf(pod); at != nil {
			one.Start, one.Restarts = at.UTC(), pod.Status.ContainerStatuses[0].RestartCount
		}
		out[pod.Name] = one
	}
	return out
}

// requireUnmoved requires for a while that each pod of before runs on.
func (s *stage) requireUnmoved(t *testing.T, before map[string]standing, long time.Duration) {
	t.Helper()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(long); time.Now().Before(end); <-tick.C {
		now := s.there(t)
		for name, want := range before {
			require.Equal(t, want, now[name], "pod %s of the provider", name)
		}
	}
}

// backUp copies the data of a cluster's etcd while the cluster is stopped.
func backUp(t *testing.T, c *lab.Cluster) string {
	t.Helper()
	backup := filepath.Join(c.Dir, "etcd-backup")
	c.KillControlPlane()
	require.NoError(t, os.CopyFS(backup, os.DirFS(filepath.Join(c.Dir, "etcd"))))
	require.NoError(t, c.StartControlPlane(t.Context()))
	return backup
}

func restore(t *testing.T, c *lab.Cluster, backup string) {
	t.Helper()
	data := filepath.Join(c.Dir, "etcd")
	c.KillControlPlane()
	require.NoError(t, errors.Join(os.RemoveAll(data), os.Rename(backup, data)), fmt.Sprintf("restoring %s", data))
	require.NoError(t, c.StartControlPlane(t.Context()))
}
