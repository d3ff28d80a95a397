package kubetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
)

var start = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

func servedPods(t *testing.T) typedcorev1.PodInterface {
	t.Helper()
	c := fake.NewClientset()
	c.PrependReactor("*", "*", NewServer(c.Tracker(), clocktesting.NewFakeClock(start)).React)
	return c.CoreV1().Pods("n")
}

func created(t *testing.T, pods typedcorev1.PodInterface, finalizers ...string) *corev1.Pod {
	t.Helper()
	pod, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", Finalizers: finalizers}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return pod
}

func TestServerKeepsVersions(t *testing.T) {
	t.Parallel()
	pods, ctx := servedPods(t), t.Context()
	pod := created(t, pods)
	require.Empty(t, pod.Status, "a create has no status")
	require.NotEmpty(t, pod.UID)
	require.Equal(t, int64(1), pod.Generation)
	require.True(t, pod.CreationTimestamp.Time.Equal(start))

	same, err := pods.Update(ctx, pod, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Equal(t, pod.ResourceVersion, same.ResourceVersion, "nothing has changed")

	changed := pod.DeepCopy()
	changed.Spec.NodeName, changed.Status.Phase, changed.Generation = "node", corev1.PodFailed, 9
	changed, err = pods.Update(ctx, changed, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Equal(t, int64(2), changed.Generation)
	require.Empty(t, changed.Status, "the status is apart")
	_, err = pods.Update(ctx, pod, metav1.UpdateOptions{})
	require.True(t, apierrors.IsConflict(err), "%v", err)

	reported := changed.DeepCopy()
	reported.Spec.NodeName, reported.Status.Phase = "another", corev1.PodRunning
	reported, err = pods.UpdateStatus(ctx, reported, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Equal(t, "node", reported.Spec.NodeName)
	require.Equal(t, corev1.PodRunning, reported.Status.Phase)
	require.Equal(t, int64(2), reported.Generation)

	successor := reported.DeepCopy()
	successor.UID, successor.ResourceVersion = "another", ""
	_, err = pods.UpdateStatus(ctx, successor, metav1.UpdateOptions{})
	require.True(t, apierrors.IsConflict(err), "%v", err)
	_, err = pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n"}}, metav1.CreateOptions{})
	require.True(t, apierrors.IsAlreadyExists(err), "%v", err)
	_, err = pods.Create(ctx, reported, metav1.CreateOptions{})
	require.True(t, apierrors.IsBadRequest(err), "%v", err)
}

func TestServerPatches(t *testing.T) {
	t.Parallel()
	pods, ctx := servedPods(t), t.Context()
	pod := created(t, pods)
	patch := func(body string, sub ...string) (*corev1.Pod, error) {
		return pods.Patch(ctx, "p", types.MergePatchType, []byte(body), metav1.PatchOptions{}, sub...)
	}
	have, err := patch(`{"metadata":{"labels":{"a":"1","b":"2"}}}`)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "1", "b": "2"}, have.Labels)
	have, err = patch(`{"metadata":{"labels":{"a":null}}}`)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"b": "2"}, have.Labels)
	have, err = patch(`{"spec":{"nodeName":"x"},"status":{"phase":"Running"}}`, "status")
	require.NoError(t, err)
	require.Equal(t, corev1.PodRunning, have.Status.Phase)
	require.Empty(t, have.Spec.NodeName)
	_, err = patch(`{"metadata":{"resourceVersion":"` + pod.ResourceVersion + `","labels":{"a":"1"}}}`)
	require.True(t, apierrors.IsConflict(err), "%v", err)
	_, err = patch(`{"metadata":{"uid":"another"}}`)
	require.True(t, apierrors.IsConflict(err), "%v", err)
	_, err = pods.Patch(ctx, "q", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	have, err = pods.Patch(ctx, "p", types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"b":"3"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"b": "3"}, have.Labels)
}

func TestServerDeletes(t *testing.T) {
	t.Parallel()
	pods, ctx := servedPods(t), t.Context()
	pod := created(t, pods, "keep")
	other := types.UID("another")
	err := pods.Delete(ctx, "p", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}})
	require.True(t, apierrors.IsConflict(err), "%v", err)
	require.NoError(t, pods.Delete(ctx, "p", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}}))
	held, err := pods.Get(ctx, "p", metav1.GetOptions{})
	require.NoError(t, err)
	require.NotNil(t, held.DeletionTimestamp)
	require.NotEqual(t, pod.ResourceVersion, held.ResourceVersion)
	require.NoError(t, pods.Delete(ctx, "p", metav1.DeleteOptions{}))
	again, err := pods.Get(ctx, "p", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, held, again, "once is enough")

	_, err = pods.Patch(ctx, "p", types.MergePatchType, []byte(`{"metadata":{"finalizers":[]}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	_, err = pods.Get(ctx, "p", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	created(t, pods)
	require.NoError(t, pods.Delete(ctx, "p", metav1.DeleteOptions{}))
	list, err := pods.List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, list.Items)
}
