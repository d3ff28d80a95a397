package pod

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/reasons"
)

const (
	createWrite = "create pods"
	patchWrite  = "patch pods"
	resizeWrite = "patch pods/resize"
	deleteWrite = "delete pods"
	statusWrite = "update shadowpods/status"
)

func (r *rig) enforced() *metav1.Condition {
	return meta.FindStatusCondition(r.shadow().Status.Conditions, offloadingv1beta1.ShadowPodEnforced)
}

func TestOneWritePerPodAndNoneWhileItRuns(t *testing.T) {
	r := newRig(t, newShadow(always))
	since := testTime().Add(-time.Hour)
	r.e.since.Store(&since)
	r.settle()
	require.Equal(t, []string{createWrite}, r.writes)
	for _, mod := range []podMod{pending, running, func(p *corev1.Pod) { p.Status.ContainerStatuses[0].RestartCount++ }} {
		r.change(mod)
		r.settle()
	}
	r.restart()
	r.settle()
	require.Equal(t, []string{createWrite}, r.writes, "a running pod costs nothing, a restart neither")
	require.Zero(t, r.reads, "nothing is read that the caches have")
	require.Len(t, r.events.Events, 0)
}

// TestNothingIsReadForPodsOfTheTerm: a ShadowPod that was created after this process began to
// lead has no pod of an earlier leader. Any other is looked at live, for ten seconds.
func TestNothingIsReadForPodsOfTheTerm(t *testing.T) {
	for name, tc := range map[string]struct {
		head  string
		fails error
		reads int
	}{
		"created after the begin":  {head: "1000"},
		"created before the begin": {head: "1001", reads: 2},
		"no version":               {head: "", reads: 2},
		"no answer":                {fails: errCrash, reads: 2},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, newShadow(always))
			r.liqod.PrependReactor("list", "shadowpods", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, &offloadingv1beta1.ShadowPodList{ListMeta: metav1.ListMeta{ResourceVersion: tc.head}}, tc.fails
			})
			r.e.head.Store(r.e.newest(t.Context()))
			since := testTime().Add(-2 * time.Second)
			r.e.since.Store(&since)
			r.reads = 0
			r.settle()
			require.Equal(t, []string{createWrite}, r.writes)
			require.Equal(t, tc.reads, r.reads)
		})
	}
}

// TestCrashAnywhere kills the process at every write, before and after the API server
// applies it, in the life of a pod that is lost and in the life of a pod that ends.
func TestCrashAnywhere(t *testing.T) {
	for _, policy := range []corev1.RestartPolicy{always, onFailure, never} {
		for at := range 7 {
			for _, late := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s lost, crash at %d, done %t", policy, at, late), func(t *testing.T) {
					r := newRig(t, newShadow(policy))
					r.crashAt, r.lateFor = at, late
					r.settle()
					r.change(running)
					first := r.pod().UID
					r.settle()
					r.deletePod(30)
					r.settle()
					r.change(exited(143, -5*time.Second))
					r.settle()
					r.somebody(func() { _ = r.remove(metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}) })
					r.settle()

					s := r.shadow()
					if policy == never {
						require.Nil(t, r.pod())
						require.Equal(t, corev1.PodFailed, s.Status.Phase)
						require.Equal(t, offloadingv1beta1.ReasonRemotePodLost, s.Status.PodStatus.Reason)
						return
					}
					require.NotNil(t, r.pod())
					require.NotEqual(t, first, r.pod().UID)
					require.Equal(t, first, s.Status.Replaced)
					require.Equal(t, []offloadingv1beta1.ContainerRestarts{{Name: "main", Count: 3}}, s.Status.Restarts)
					require.Empty(t, s.Status.Phase)
				})
				t.Run(fmt.Sprintf("%s ends, crash at %d, done %t", policy, at, late), func(t *testing.T) {
					r := newRig(t, newShadow(policy))
					r.crashAt, r.lateFor = at, late
					r.settle()
					r.change(running, exited(0, 0))
					r.settle()
					require.Equal(t, corev1.PodSucceeded, r.shadow().Status.Phase)
					require.Equal(t, "c://1", r.shadow().Status.PodStatus.ContainerStatuses[0].ContainerID)
					require.Empty(t, r.pod().Finalizers)
					r.deletePod(0)
					r.restart()
					r.settle()
					require.Nil(t, r.pod(), "an ended pod stays ended")
				})
			}
		}
	}
}

// TestALossIsCountedWhenItsEventIsLate: the cache drops a pod before the handler of the
// event runs, and after an interrupted watch the event names the replacement only.
func TestALossIsCountedWhenItsEventIsLate(t *testing.T) {
	for name, told := range map[string]func(r *rig, was *corev1.Pod){
		"late":   func(r *rig, was *corev1.Pod) { r.e.podGone(was) },
		"merged": func(r *rig, was *corev1.Pod) { r.e.podChanged(was, r.pod()) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRunningRig(t, always)
			was := r.pod()
			r.settle()
			r.deletePod(0)
			require.NoError(t, r.pods.GetIndexer().Delete(was))
			require.NoError(t, r.e.sync(t.Context(), r.key()))
			is := r.pod()
			require.NotEqual(t, was.UID, is.UID)
			require.Empty(t, r.shadow().Status.Restarts)

			told(r, was)
			r.settle()
			require.Equal(t, was.UID, r.shadow().Status.Replaced)
			require.Equal(t, []offloadingv1beta1.ContainerRestarts{{Name: "main", Count: 3}}, r.shadow().Status.Restarts)
			r.restart()
			r.settle()
			require.Equal(t, []string{createWrite, createWrite, statusWrite}, r.writes)
			require.Equal(t, is.UID, r.pod().UID)
			require.Empty(t, r.e.memory.lost)
		})
	}
}

// TestOrphansAreDeleted: neither the deletion of a ShadowPod with propagation policy Orphan
// nor the adoption of its pod by a controller of the provider frees the pod.
func TestOrphansAreDeleted(t *testing.T) {
	for name, freed := range map[string]podMod{"orphaned": orphaned, "adopted": adopted} {
		t.Run(name, func(t *testing.T) {
			r := newRunningRig(t, always)
			r.settle()
			r.change(freed)
			r.settle()
			require.Equal(t, []string{createWrite, patchWrite}, r.writes)
			owner := metav1.GetControllerOf(r.pod())
			require.Equal(t, controlledBy(twin()), *owner, "the owner reference is restored")
			require.Len(t, r.pod().OwnerReferences, 1)

			r.change(freed)
			r.somebody(func() {
				require.NoError(t, r.liqod.OffloadingV1beta1().ShadowPods(testNamespace).Delete(t.Context(), testName, metav1.DeleteOptions{}))
			})
			r.settle()
			require.Equal(t, []string{createWrite, patchWrite, deleteWrite}, r.writes)
		})
	}
}

func TestAnAlwaysPodThatVanishesIsMadeAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		restart bool
		want    []offloadingv1beta1.ContainerRestarts
	}{
		"its last state was seen":     {false, []offloadingv1beta1.ContainerRestarts{{Name: "main", Count: 3}}},
		"nobody saw it, a new leader": {true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRunningRig(t, always, old)
			first := r.pod().UID
			r.settle()
			r.deletePod(0)
			if tc.restart {
				r.restart()
			}
			r.settle()
			require.NotNil(t, r.pod())
			require.NotEqual(t, first, r.pod().UID)
			require.Equal(t, tc.want, r.shadow().Status.Restarts)
			count := len(r.writes)
			r.restart()
			r.settle()
			require.Len(t, r.writes, count)
		})
	}
}

func TestEachLossIsCountedOnce(t *testing.T) {
	r := newRig(t, newShadow(always))
	for i := range 3 {
		r.settle()
		r.change(running)
		r.settle()
		r.deletePod(0)
		r.settle()
		require.Equal(t, int32(3*(i+1)), r.shadow().Status.Restarts[0].Count)
	}
	require.Len(t, r.events.Events, 3)
}

// TestNoEventOfAPodThatIsNotMadeAgain: the vkubelet has deleted the ShadowPod, and the pod
// has ended before the cache shows that. Nothing is created or recorded, and no event says so.
func TestNoEventOfAPodThatIsNotMadeAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		policy corev1.RestartPolicy
		end    podMod
	}{
		"it would be created again": {always, exited(143, 0)},
		"it would have failed":      {never, reason(reasons.NodeLost)},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRunningRig(t, tc.policy, old)
			r.settle()
			r.deleteShadow()
			r.deletePod(30)
			r.change(tc.end)
			if tc.policy == never {
				r.change(forced)
			}
			r.refreshPod()
			require.NoError(t, r.e.sync(t.Context(), r.key()))
			require.Contains(t, r.writes, statusWrite, "the cache still has the ShadowPod")
			require.Empty(t, r.events.Events)
			r.settle()
			require.Equal(t, 1, countOf(r.writes, createWrite))
		})
	}
}

func TestStaleCaches(t *testing.T) {
	t.Run("the pod exists, its event has not come", func(t *testing.T) {
		r := newRig(t, newShadow(always))
		require.NoError(t, r.e.sync(t.Context(), r.key()))
		made := r.pod().UID
		require.NoError(t, r.e.sync(t.Context(), r.key()), "the cache has no pod yet")
		require.Equal(t, made, r.pod().UID)
		require.Equal(t, []string{createWrite}, r.writes)
		require.Nil(t, r.enforced())
	})
	for name, led := range map[string]time.Duration{"we lead": time.Hour, "we have just begun to lead": 0} {
		t.Run("the pod and the ShadowPod are gone, no cache has it, "+name, func(t *testing.T) {
			r := newRig(t, newShadow(never))
			since := testTime().Add(-led)
			r.e.since.Store(&since)
			require.NoError(t, r.e.sync(t.Context(), r.key()))
			r.deleteShadow()
			require.NoError(t, r.core.CoreV1().Pods(testNamespace).Delete(t.Context(), testName, metav1.DeleteOptions{}))
			r.writes = nil
			require.NoError(t, r.e.sync(t.Context(), r.key()))
			require.NotContains(t, r.writes, createWrite, "it does not run again")
		})
	}
	t.Run("the end is recorded, the cache has it not, the pod is gone", func(t *testing.T) {
		r := newRig(t, newShadow(never, old))
		r.somebody(func() { r.changeShadow(ended(corev1.PodSucceeded)) })
		require.NoError(t, r.e.sync(t.Context(), r.key()))
		require.Nil(t, r.pod())
		require.Empty(t, r.writes)
	})
	t.Run("the ShadowPod is gone, the cache has it still", func(t *testing.T) {
		r := newRig(t, newShadow(always, old))
		r.deleteShadow()
		require.NoError(t, r.e.sync(t.Context(), r.key()))
		require.Empty(t, r.writes)
	})
	t.Run("the ShadowPod exists, the cache has it not", func(t *testing.T) {
		s := newShadow(always)
		r := newRig(t, s, podOf(s))
		require.NoError(t, r.shadows.GetIndexer().Delete(s))
		require.Error(t, r.e.sync(t.Context(), r.key()), "it is looked at again")
		r.clock.SetTime(testTime().Add(time.Hour))
		require.NoError(t, r.e.sync(t.Context(), r.key()))
		require.Empty(t, r.writes)
		require.NotNil(t, r.pod())
	})
	t.Run("the status was written by another", func(t *testing.T) {
		s := newShadow(never)
		r := newRig(t, s, podOf(s, exited(0, 0)))
		r.changeShadow(replaced("x"))
		require.True(t, apierrors.IsConflict(r.e.sync(t.Context(), r.key())))
		require.Empty(t, r.shadow().Status.Phase)
	})
	t.Run("the pod changed before it is released", func(t *testing.T) {
		s := newShadow(never, ended(corev1.PodSucceeded))
		r := newRig(t, s, podOf(s, exited(0, 0)))
		r.change(func(p *corev1.Pod) { p.Finalizers = append(p.Finalizers, "other.io/x") })
		require.True(t, apierrors.IsConflict(r.e.sync(t.Context(), r.key())))
		r.settle()
		require.Equal(t, []string{"other.io/x"}, r.pod().Finalizers)
	})
}

func TestALabelTornOffIsNotALoss(t *testing.T) {
	for _, policy := range []corev1.RestartPolicy{always, never} {
		r := newRunningRig(t, policy)
		r.settle()
		uid := r.pod().UID
		r.change(func(p *corev1.Pod) { delete(p.Labels, offloadingv1beta1.ManagedByLabel) })
		// An informer with a label selector reports an object whose label was removed as
		// deleted.
		for _, pod := range r.e.pods.List() {
			require.NoError(t, r.pods.GetIndexer().Delete(pod))
			r.e.podGone(pod)
		}
		r.settle()
		require.Equal(t, uid, r.pod().UID)
		require.Equal(t, offloadingv1beta1.ManagedByShadowPod, r.pod().Labels[offloadingv1beta1.ManagedByLabel])
		require.Equal(t, offloadingv1beta1.ShadowPodStatus{}, r.shadow().Status)
		require.Equal(t, []string{createWrite, patchWrite}, r.writes)
	}
}

func TestASuccessorWaitsForItsPredecessor(t *testing.T) {
	for _, policy := range []corev1.RestartPolicy{always, never} {
		before := newShadow(policy, func(s *offloadingv1beta1.ShadowPod) {
			s.UID = "shadow-0"
			s.Labels[offloadingv1beta1.LocalPodUIDLabel] = "local-0"
		})
		r := newRig(t, newShadow(policy), podOf(before))
		require.Error(t, r.e.sync(t.Context(), r.key()), "the vkubelet may delete it first")
		require.Empty(t, r.writes)
		r.clock.SetTime(testTime().Add(leaveDelay))
		require.NoError(t, r.e.sync(t.Context(), r.key()))
		require.Equal(t, []string{deleteWrite}, r.writes)
		require.NotNil(t, r.pod().DeletionTimestamp)
		require.Equal(t, int64(30), *r.pod().DeletionGracePeriodSeconds, "with its own grace")

		r.settle()
		require.Equal(t, []string{deleteWrite}, r.writes, "it runs on to its end")
		r.change(exited(0, -time.Second))
		r.settle()
		r.somebody(func() { _ = r.remove(metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}) })
		r.settle()
		require.Equal(t, "local-1", r.pod().Labels[offloadingv1beta1.LocalPodUIDLabel])
		require.Equal(t, offloadingv1beta1.ShadowPodStatus{}, r.shadow().Status, "the predecessor's end is not ours")
	}
}

func TestPodsWithoutShadowPodGo(t *testing.T) {
	for name, tc := range map[string]struct {
		policy corev1.RestartPolicy
		pod    []podMod
		gone   bool
	}{
		"Always, running": {always, nil, false},
		"Never, ended":    {never, []podMod{exited(0, 0)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil, podOf(newShadow(tc.policy), tc.pod...))
			r.settle()
			require.Equal(t, 1, countOf(r.writes, deleteWrite))
			if tc.gone {
				require.Nil(t, r.pod())
				return
			}
			r.change(exited(143, 0))
			r.settle()
			require.NotNil(t, r.pod(), "the kubelet has the last word")
			r.somebody(func() { _ = r.remove(metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}) })
			require.Nil(t, r.pod())
		})
	}
}

func countOf(list []string, want string) int {
	n := 0
	for _, s := range list {
		if s == want {
			n++
		}
	}
	return n
}

func TestTheVkubeletDeletesFirst(t *testing.T) {
	r := newRunningRig(t, always)
	r.deleteShadow()
	r.refresh()
	require.Error(t, r.e.sync(t.Context(), r.key()))
	r.deletePod(300)
	r.settle()
	require.Equal(t, []string{createWrite}, r.writes)
	require.Equal(t, int64(300), *r.pod().DeletionGracePeriodSeconds)
	r.deletePod(0)
	r.settle()
	require.Nil(t, r.pod())
	require.Empty(t, r.e.memory.lost)
	require.Zero(t, r.e.memory.leaving.Len())
	require.Zero(t, r.e.memory.refusals.Len())
}

func TestChangesFollow(t *testing.T) {
	r := newRig(t, newShadow(always))
	r.settle()
	r.change(running, func(p *corev1.Pod) { p.Annotations["cni"] = "10.0.0.1" })
	r.changeShadow(image("img:2"), requests("2"), func(s *offloadingv1beta1.ShadowPod) {
		s.Labels["app"] = "web2"
		delete(s.Annotations, "note")
	})
	r.settle()
	pod := r.pod()
	require.Equal(t, "img:2", pod.Spec.Containers[0].Image)
	require.Equal(t, "2", pod.Spec.Containers[0].Resources.Requests.Cpu().String())
	require.Equal(t, "web2", pod.Labels["app"])
	require.NotContains(t, pod.Annotations, "note")
	require.Equal(t, "10.0.0.1", pod.Annotations["cni"])
	require.Equal(t, []string{createWrite, resizeWrite, patchWrite}, r.writes)
}

func TestResizeOfTheWholePod(t *testing.T) {
	asked := func(q string) *corev1.ResourceRequirements { return &corev1.ResourceRequirements{Requests: cpu(q)} }
	whole := func(q string) shadowMod {
		return func(s *offloadingv1beta1.ShadowPod) { s.Spec.Pod.Resources = asked(q); s.Generation++ }
	}
	r := newRunningRig(t, always, whole("1"))
	r.changeShadow(whole("2"))
	r.settle()
	require.Equal(t, "2", r.pod().Spec.Resources.Requests.Cpu().String())
	require.Equal(t, []string{createWrite, resizeWrite, patchWrite}, r.writes)

	r.resized = func(p *corev1.Pod) { p.Spec.Resources = asked("2") } // as API servers before 1.36
	applied := readApplied(r.pod()).Resources
	r.changeShadow(whole("3"))
	for range 3 {
		r.refresh()
		require.ErrorContains(t, r.e.sync(t.Context(), r.key()), "again in")
	}
	require.Equal(t, 2, countOf(r.writes, resizeWrite), "not asked again before its time")
	require.Equal(t, reasons.UpdateRefused, r.enforced().Reason)
	require.Contains(t, r.enforced().Message, "spec.resources")
	require.Equal(t, applied, readApplied(r.pod()).Resources, "it is not taken for applied")
	r.resized = nil
	r.clock.SetTime(r.clock.Now().Add(time.Minute))
	r.settle()
	require.Equal(t, "3", r.pod().Spec.Resources.Requests.Cpu().String())
	require.Nil(t, r.enforced())
}

func TestARefusedResizeKeepsNothingBack(t *testing.T) {
	r := newRunningRig(t, always)
	r.refuse[resizeWrite] = apierrors.NewForbidden(corev1.Resource("pods"), testName, errors.New("exceeded quota"))
	r.changeShadow(image("img:2"), requests("2"))
	r.settle()
	require.Equal(t, "img:2", r.pod().Spec.Containers[0].Image)
	require.Equal(t, reasons.UpdateRefused, r.enforced().Reason)
	require.Equal(t, 1, countOf(r.writes, patchWrite), "what was taken is not sent again")
	delete(r.refuse, resizeWrite)
	r.settle()
	require.Equal(t, "2", r.pod().Spec.Containers[0].Resources.Requests.Cpu().String())
	require.Nil(t, r.enforced())
}

// TestShadowsWithClaims: a StorageClass event queues only the ShadowPods that have
// ephemeral volumes.
func TestShadowsWithClaims(t *testing.T) {
	r := newRig(t, newShadow(always, func(s *offloadingv1beta1.ShadowPod) {
		s.Spec.Pod.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
	}))
	require.Equal(t, []loop.Key{{Namespace: testNamespace, Name: testName}}, r.e.indexed(refusedIndex, withClaims))
	r = newRig(t, newShadow(always))
	require.Empty(t, r.e.indexed(refusedIndex, withClaims))
}
