package kubetest

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestRequests: each request does what its name says.
func TestRequests(t *testing.T) {
	t.Parallel()
	pods := servedPods(t)
	pod := Create(t, pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n"}})
	pod.Spec.NodeName = "node"
	pod = Update(t, pods, pod)
	pod.Status.Phase = corev1.PodRunning
	UpdateStatus(t, pods, pod)
	Patch(t, pods, "p", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"1"}}}`))
	Patch(t, pods, "p", types.MergePatchType, []byte(`{"status":{"message":"fine"}}`), "status")
	have := Get(t, pods, "p")
	require.Equal(t, "node", have.Spec.NodeName)
	require.Equal(t, corev1.PodStatus{Phase: corev1.PodRunning, Message: "fine"}, have.Status)
	require.Equal(t, map[string]string{"a": "1"}, have.Labels)
	require.Equal(t, []corev1.Pod{*have}, List(t, pods).Items)
	require.Empty(t, List(t, pods, metav1.ListOptions{LabelSelector: "a=2"}).Items)
}
