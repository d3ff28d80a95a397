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
	return Create(t, pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", Finalizers: finalizers}, Status: corev1.PodStatus{Phase: corev1.PodRunning}})
}

func TestServerKeepsVersions(t *testing.T) {
	t.Parallel()
	pods, ctx := servedPods(t), t.Context()
	pod := created(t, pods)
	require.Empty(t, pod.Status, "a create has no status")
	require.NotEmpty(t, pod.UID)
	require.Equal(t, int64(1), pod.Generation)
	require.True(t, pod.CreationTimestamp.Time.Equal(start))

	require.Equal(t, pod.ResourceVersion, Update(t, pods, pod).ResourceVersion, "nothing has changed")

	changed := pod.DeepCopy()
	changed.Spec.NodeName, changed.Status.Phase, changed.Generation = "node", corev1.PodFailed, 9
	changed = Update(t, pods, changed)
	require.Equal(t, int64(2), changed.Generation)
	require.Empty(t, changed.Status, "the status is apart")
	_, err := pods.Update(ctx, pod, metav1.UpdateOptions{})
	require.True(t, apierrors.IsConflict(err), "%v", err)

	reported := changed.DeepCopy()
	reported.Spec.NodeName, reported.Status.Phase = "another", corev1.PodRunning
	reported = UpdateStatus(t, pods, reported)
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
	merge := func(body string, sub ...string) *corev1.Pod {
		return Patch(t, pods, "p", types.MergePatchType, []byte(body), sub...)
	}
	have := merge(`{"metadata":{"labels":{"a":"1","b":"2"}}}`)
	require.Equal(t, map[string]string{"a": "1", "b": "2"}, have.Labels)
	have = merge(`{"metadata":{"labels":{"a":null}}}`)
	require.Equal(t, map[string]string{"b": "2"}, have.Labels)
	have = merge(`{"spec":{"nodeName":"x"},"status":{"phase":"Running"}}`, "status")
	require.Equal(t, corev1.PodRunning, have.Status.Phase)
	require.Empty(t, have.Spec.NodeName)
	for _, body := range []string{`{"metadata":{"resourceVersion":"` + pod.ResourceVersion + `","labels":{"a":"1"}}}`, `{"metadata":{"uid":"another"}}`} {
		_, err := pods.Patch(ctx, "p", types.MergePatchType, []byte(body), metav1.PatchOptions{})
		require.True(t, apierrors.IsConflict(err), "%v", err)
	}
	_, err := pods.Patch(ctx, "q", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	have = Patch(t, pods, "p", types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"b":"3"}}}`))
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
	held := Get(t, pods, "p")
	require.NotNil(t, held.DeletionTimestamp)
	require.NotEqual(t, pod.ResourceVersion, held.ResourceVersion)
	require.NoError(t, pods.Delete(ctx, "p", metav1.DeleteOptions{}))
	require.Equal(t, held, Get(t, pods, "p"), "once is enough")

	require.Equal(t, []corev1.Pod{*held}, List(t, pods).Items)
	require.Empty(t, List(t, pods, metav1.ListOptions{LabelSelector: "a=2"}).Items)
	Patch(t, pods, "p", types.MergePatchType, []byte(`{"metadata":{"finalizers":[]}}`))
	require.Nil(t, Find(t, pods, "p"))
	created(t, pods)
	require.NoError(t, pods.Delete(ctx, "p", metav1.DeleteOptions{}))
	require.Empty(t, List(t, pods).Items)
}
