package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestReadinessWatch(t *testing.T) {
	begin := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }
	node := func(name string, s corev1.ConditionStatus) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: s}}}}
	}
	pod := func(name string, s corev1.ConditionStatus) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: s}}}}
	}
	slice := func(ready ...*bool) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
		for _, r := range ready {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Conditions: discoveryv1.EndpointConditions{Ready: r}})
		}
		return s
	}
	r := &readinessWatch{news: make(chan struct{}, 1), pods: map[string]bool{}, slices: map[string]int{}}
	r.see(node("milan", corev1.ConditionTrue), "milan", false, at(0))
	r.see(node("other", corev1.ConditionFalse), "milan", false, at(1))
	require.Equal(t, corev1.ConditionTrue, r.node)
	for _, name := range []string{"a", "b", "c"} {
		r.see(pod(name, corev1.ConditionTrue), "milan", false, at(2))
	}
	r.see(slice(nil, new(true), new(false)), "milan", false, at(3))
	require.Equal(t, 3, r.readyPods())
	require.Equal(t, 2, r.readyEndpoints())

	r.see(node("milan", corev1.ConditionFalse), "milan", false, at(4))
	r.see(node("milan", corev1.ConditionFalse), "milan", false, at(5))
	require.Equal(t, at(4), r.nodeAt(), "a heartbeat is no change")
	r.see(pod("a", corev1.ConditionFalse), "milan", false, at(6))
	r.see(pod("b", corev1.ConditionTrue), "milan", true, at(7))
	r.see(pod("c", corev1.ConditionTrue), "milan", false, at(8))
	r.see(slice(new(false), new(false), new(false)), "milan", false, at(9))
	require.Equal(t, 1, r.readyPods())
	require.Zero(t, r.readyEndpoints())
	pods, endpoints := r.lastChanges()
	require.Equal(t, []time.Time{at(7), at(9)}, []time.Time{pods, endpoints})

	require.NoError(t, r.wait(t.Context(), func() bool { return true }))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorContains(t, r.wait(ctx, func() bool { return false }), "Ready=False, ready pods: 1, ready endpoints: 0")
	r.fail(errors.New("the watch ended"))
	require.ErrorContains(t, r.wait(t.Context(), func() bool { return false }), "the watch ended")
}

func TestOutageReport(t *testing.T) {
	_, err := parse([]string{"--outage-pods=0"}, &strings.Builder{})
	require.ErrorContains(t, err, "--outage-pods is 0: at least 1 is accepted")
	o, err := parse([]string{"--only=outage", "--outage-pods=300", "--out=x"}, &strings.Builder{})
	require.NoError(t, err)
	require.Equal(t, outageOptions{pods: 300, out: "x"}, o.outage)
	require.Equal(t, []float64{1, 8}, []float64{outageGoal(300), outageGoal(301)})
	var out strings.Builder
	(&outage{Pods: 3000, Lost: swing{Verdict: 3.2, Pods: 7, Endpoints: 7.5}, Back: swing{Verdict: 1, Pods: 6, Endpoints: 6.5}}).print(&out)
	require.Contains(t, out.String(), "with 3000 pods; goals after the verdict: 8 s; pods that are others afterwards: 0")
	lost, back := strings.Index(out.String(), "lost  3.20 s"), strings.Index(out.String(), "back  1.00 s")
	require.Positive(t, lost)
	require.Greater(t, back, lost)
}
