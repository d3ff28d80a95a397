package timed

import (
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
	// lostTime is how much of the consumer's history the restored backup lacks, at least.
	lostTime = 20 * time.Second
	// afterwards is longer: by its end the restored cluster has written as much again.
	afterwards = 40 * time.Second
)

// testRestoredConsumer restores the consumer's etcd from a backup. Pods and offloaded namespaces
// that were created after the backup are unknown at home; pods that were deleted after it exist
// again. All pods of the provider run on.
func testRestoredConsumer(t *testing.T, w *world) {
	r := w.newRun(t, prefix+"restored")
	require.NoError(t, w.offload(t.Context(), r.namespace))
	old := r.startAll(corev1.RestartPolicyAlways, "old-1", "old-2", "deleted", "twice")
	old = append(old, r.startAll(corev1.RestartPolicyNever, "old-3")...)
	backup, err := w.Rome.BackUp(t.Context())
	require.NoError(t, err)
	r.untilHome(old[0], "runs", running)
	lost := w.newRun(t, prefix+"lost") // a namespace that the backup does not know
	require.NoError(t, w.offload(t.Context(), lost.namespace))
	lost.startAll(corev1.RestartPolicyAlways, "new")
	r.startAll(corev1.RestartPolicyAlways, "new-1", "new-2")
	r.startAll(corev1.RestartPolicyNever, "new-3")
	r.delete(old[2], nil)
	r.delete(old[3], nil)
	r.startAll(corev1.RestartPolicyAlways, "twice")
	<-time.After(lostTime)
	before, lostBefore := r.remotePods(), lost.remotePods()
	require.Len(t, before, 7)

	require.NoError(t, w.Rome.Restore(t.Context(), backup))
	r.requireUnchanged(before, afterwards)
	for _, name := range []string{vkubelet, romeController} {
		require.NoError(t, w.roles[name].restart())
	}
	r.requireUnchanged(before, afterwards/4)
	lost.requireUnchanged(lostBefore, time.Second)
	shadows, unknown := w.Milan.Liqod().OffloadingV1beta1().ShadowPods(r.twin()), []string{"new-1", "new-2", "new-3", "twice"}
	for _, name := range unknown {
		shadow := kubetest.Get(t, shadows, name)
		require.NotEmpty(t, shadow.Annotations[offloadingv1beta1.KeptAnnotation], name)
	}
	// A pod that exists again at home is created again in the provider, unless its name is taken there.
	r.untilHome(old[2], "runs again", running)
	r.untilHome(old[3], "has the reason why it waits", func(p *corev1.Pod) bool {
		return p.Status.Reason == offloadingv1beta1.ReasonRemotePodKept
	})
	require.Len(t, r.remotePods(), 8)
	for _, name := range unknown { // as an administrator does
		require.NoError(t, shadows.Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	r.untilHome(old[3], "runs at last", running)
	for _, pod := range old {
		r.delete(pod, nil)
	}
	// The watch of the consumer's pods has not outlived the restoration.
	r.eventually("nothing is left in the provider", lab.Number(w.Milan.Client().CoreV1().Pods(r.twin()), metav1.ListOptions{}, 0))
}

func (r *podRun) startAll(policy corev1.RestartPolicy, names ...string) (out []*corev1.Pod) {
	r.t.Helper()
	for _, name := range names {
		out = append(out, r.start(bare(name, policy), expected{}))
	}
	return out
}

// providerPod is the part of a provider's pod that does not change while the pod runs on.
type providerPod struct {
	UID      types.UID
	Start    time.Time
	Restarts int32
	Deleted  bool
}

// remotePods are the pods of the provider by name.
func (r *podRun) remotePods() map[string]providerPod {
	r.t.Helper()
	pods := kubetest.List(r.t, r.Milan.Client().CoreV1().Pods(r.twin()))
	out := map[string]providerPod{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		p := providerPod{UID: pod.UID, Deleted: pod.DeletionTimestamp != nil}
		if at := startOf(pod); at != nil {
			p.Start, p.Restarts = at.UTC(), pod.Status.ContainerStatuses[0].RestartCount
		}
		out[pod.Name] = p
	}
	return out
}

// requireUnchanged requires for a while that each pod of before runs on.
func (r *podRun) requireUnchanged(before map[string]providerPod, long time.Duration) {
	r.t.Helper()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(long); time.Now().Before(end); <-tick.C {
		now := r.remotePods()
		for name, want := range before {
			require.Equal(r.t, want, now[name], "pod %s of the provider", name)
		}
	}
}
