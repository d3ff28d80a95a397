package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// A watcher begins with what is there, and sees each change until it is stopped.
func TestWatcher(t *testing.T) {
	c := fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "bench", Name: "a", ResourceVersion: "1"}})
	w, err := follow(t.Context(), newView("pods", objectsOf(c.CoreV1().Pods("bench")), one), newView("nodes", objectsOf(c.CoreV1().Nodes()), one))
	require.NoError(t, err)
	defer w.stop()
	require.NoError(t, w.wait(t.Context(), 1, 0))
	for _, name := range []string{"b", "c"} {
		_, err = c.CoreV1().Pods("bench").Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "2"}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	require.NoError(t, w.wait(t.Context(), 3, anything))
	require.NoError(t, c.CoreV1().Pods("bench").Delete(t.Context(), "a", metav1.DeleteOptions{}))
	require.NoError(t, w.wait(t.Context(), 2, 0))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorContains(t, w.wait(ctx, 1, 0), "waiting (context canceled): pods: 2, not 1")
}

func TestViews(t *testing.T) {
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0) }
	node := func(name string, s corev1.ConditionStatus) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: s}}}}
	}
	nodes := newView("node", nil, readinessOf("milan"))
	nodes.see(node("milan", corev1.ConditionTrue), false, at(0))
	nodes.see(node("other", corev1.ConditionFalse), false, at(1))
	require.Equal(t, nodeReady, nodes.sum)
	nodes.see(node("milan", corev1.ConditionFalse), false, at(4))
	nodes.see(node("milan", corev1.ConditionFalse), false, at(5))
	require.Equal(t, nodeNotReady, nodes.sum)
	require.Equal(t, at(4), nodes.last, "a heartbeat is no change")

	pod := func(name string, s corev1.ConditionStatus) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: s}}}}
	}
	pods := newView("pods", nil, ready)
	for _, name := range []string{"a", "b", "c"} {
		pods.see(pod(name, corev1.ConditionTrue), false, at(2))
	}
	pods.see(pod("a", corev1.ConditionFalse), false, at(6))
	pods.see(pod("b", corev1.ConditionTrue), true, at(7))
	pods.see(pod("c", corev1.ConditionTrue), false, at(8))
	require.Equal(t, 1, pods.sum)
	require.Equal(t, at(7), pods.last)

	slice := &discoveryv1.EndpointSlice{}
	for _, ready := range []*bool{nil, new(true), new(false)} {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Conditions: discoveryv1.EndpointConditions{Ready: ready}})
	}
	require.Equal(t, 2, endpoints(slice))
}
