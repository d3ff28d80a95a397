package roles

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/lease"
)

// recorded waits for a number of events.
func recorded(t *testing.T, core kubernetes.Interface, n int) (events []corev1.Event) {
	t.Helper()
	require.Eventually(t, func() bool {
		events = kubetest.List(t, core.CoreV1().Events("shop")).Items
		return len(events) == n
	}, time.Minute, 5*time.Millisecond)
	return events
}

// An API server takes events of any length, and keeps each for an hour.
func TestEventsAreShort(t *testing.T) {
	core := fake.NewClientset()
	recorder, stop := newRecorder(home{plain: clients{kube: core}}, corev1.EventSource{Component: "test"})
	t.Cleanup(stop)
	long := strings.Repeat("no ", 1<<20)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	recorder.Event(pod, corev1.EventTypeWarning, "One", long)
	recorder.Eventf(pod, corev1.EventTypeWarning, "Two", "in cluster %s: %s", "milan", long)
	recorder.AnnotatedEventf(pod, map[string]string{"a": "b"}, corev1.EventTypeWarning, "Three", "%s", long)
	for _, e := range recorded(t, core, 3) {
		require.LessOrEqual(t, len(e.Message), 1024, e.Reason)
	}
}

// TestEventsPassNoFence: a role that has lost its Lease records what it saw before.
func TestEventsPassNoFence(t *testing.T) {
	core := fake.NewClientset()
	fenced := fake.NewClientset()
	fenced.PrependReactor("*", "*", func(k8stesting.Action) (bool, runtime.Object, error) { return true, nil, lease.ErrFenced })
	recorder, stop := newRecorder(home{plain: clients{kube: core}, fenced: clients{kube: fenced}}, corev1.EventSource{Component: "test"})
	t.Cleanup(stop)
	for _, name := range []string{"first", "second"} {
		recorder.Event(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}, corev1.EventTypeWarning, "Unschedulable", "no node has room")
	}
	recorded(t, core, 2)
}
