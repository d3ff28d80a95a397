package engine

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
)

// TestHosted requires that the pods that the provider has offloaded to this cluster are
// recognised.
func TestHosted(t *testing.T) {
	t.Parallel()
	home := fake.NewClientset()
	kubetest.WatchFromList(home)
	h := newHosted(home, "milan")
	changed := make(chan string, 10)
	synced, err := h.watch(func(namespace string) { changed <- namespace })
	require.NoError(t, err)
	t.Cleanup(loop.Start(t.Context(), h.RunWithContext))
	require.Eventually(t, synced, time.Minute, time.Millisecond)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u1", Labels: map[string]string{
		"liqo.io/managed-by": "shadowpod", "offloading.liqo.io/origin": "milan"}}}
	kubetest.Create(t, home.CoreV1().Pods("shop"), pod)
	require.Equal(t, "shop", <-changed)
	ref := &corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "web", UID: "u1"}
	require.Eventually(t, func() bool { return h.has(ref) }, time.Minute, time.Millisecond)
	for name, other := range map[string]*corev1.ObjectReference{
		"none": nil, "of another kind": {Kind: "RemotePod", Namespace: "shop", Name: "web"}, "of another name": {Kind: "Pod", Namespace: "shop", Name: "db"},
		"of another namespace": {Kind: "Pod", Namespace: "bank", Name: "web"}, "its successor": {Kind: "Pod", Namespace: "shop", Name: "web", UID: "u2"},
	} {
		require.False(t, h.has(other), name)
	}
	// What came in between was missed: the watch broke.
	successor := pod.DeepCopy()
	successor.UID = "u2"
	kubetest.Update(t, home.CoreV1().Pods("shop"), successor)
	select {
	case namespace := <-changed:
		require.Equal(t, "shop", namespace)
	case <-time.After(time.Minute):
		require.Fail(t, "not told of another pod of the same name")
	}
	require.False(t, h.has(ref))
	ref.UID = "u2"
	require.True(t, h.has(ref))
	successor.Labels["tier"] = "web"
	kubetest.Update(t, home.CoreV1().Pods("shop"), successor)
	require.NoError(t, home.CoreV1().Pods("shop").Delete(t.Context(), "web", metav1.DeleteOptions{}))
	require.Equal(t, "shop", <-changed)
	require.False(t, h.has(ref))
	require.Empty(t, changed, "nothing is told of a pod that stays")
}

// enqueued is a reflector that records the namespaces that were enqueued.
type enqueued struct {
	reflector
	endpoints bool
	of        []string
}

func (e *enqueued) hasEndpoints() bool       { return e.endpoints }
func (e *enqueued) enqueue(namespace string) { e.of = append(e.of, namespace) }

// TestEndpointsChanged: only kinds with endpoints are enqueued, in a namespace that is reflected.
func TestEndpointsChanged(t *testing.T) {
	t.Parallel()
	slices, services := &enqueued{endpoints: true}, &enqueued{}
	e := &Engine{reflectors: []reflector{slices, services}}
	e.spaces = NewSpaces(func(context.Context, string, string) *space { return &space{} }, func(*space) {})
	e.spaces.set(t.Context(), map[string]string{"shop": "shop-rome"})
	e.EndpointsChanged("shop")
	e.EndpointsChanged("bank")
	require.Equal(t, []string{"shop"}, slices.of)
	require.Empty(t, services.of)
}
