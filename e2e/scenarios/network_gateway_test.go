package scenarios

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

// gatewayGrace is how long the provider counts as reached that no gateway tells of.
const gatewayGrace = 20 * time.Second

// partitionGatewayGone: while no gateway of home can tell whether packets reach the provider,
// the pods there stay Ready for the grace period and no longer. They are Ready again, and the
// same, when the gateway is back.
func partitionGatewayGone(t *testing.T, w partitionWorld) {
	within(t, longest, "the network works", w.networkUnavailable(corev1.ConditionFalse, nil))
	before := w.podsAtHome(t)

	w.rome.Fabric.Gateway().Kill()
	var unknown, down corev1.NodeCondition
	within(t, longest, "nobody can tell", w.networkUnavailable(corev1.ConditionUnknown, &unknown))
	within(t, longest, "it counts as down", w.networkUnavailable(corev1.ConditionTrue, &down))
	require.Equal(t, unknown.Reason, down.Reason)
	within(t, soon, "no pod over there is ready, and no endpoint", func(ctx context.Context) error {
		return errors.Join(w.podsStand(ctx, corev1.ConditionFalse), w.endpoints(ctx, w.rome, false))
	})
	for name, pod := range w.podsAtHome(t) {
		ready := podCondition(&pod, corev1.PodReady)
		if pod.Spec.NodeName != w.milan.Name {
			require.Equal(t, corev1.ConditionTrue, ready.Status, "%s runs at home", name)
			continue
		}
		require.Equal(t, "NetworkUnavailable", ready.Reason)
		for _, at := range []metav1.Time{down.LastTransitionTime, ready.LastTransitionTime} {
			require.GreaterOrEqual(t, at.Sub(unknown.LastTransitionTime.Time), gatewayGrace-time.Second, "nothing changes before; times are whole seconds")
		}
	}

	require.NoError(t, w.rome.Fabric.RestartGateway())
	within(t, longest, "the network works again", w.networkUnavailable(corev1.ConditionFalse, nil))
	w.whole(t)
	after := w.podsAtHome(t)
	for name, pod := range before {
		require.Equal(t, pod.UID, after[name].UID)
		require.Zero(t, restarts(ptr.To(after[name])))
	}
}

// networkUnavailable waits for a status of the virtual node's condition, and keeps that.
func (w networkWorld) networkUnavailable(want corev1.ConditionStatus, keep *corev1.NodeCondition) func(context.Context) error {
	return lab.That(w.rome.Client().CoreV1().Nodes(), "milan", func(node *corev1.Node) error {
		c := nodeCondition(node, corev1.NodeNetworkUnavailable)
		if c.Status != want {
			return fmt.Errorf("condition NetworkUnavailable: %+v", c)
		}
		if keep != nil {
			*keep = c
		}
		return nil
	})
}

// podsAtHome returns the pods of home by name.
func (w networkWorld) podsAtHome(t *testing.T) map[string]corev1.Pod {
	t.Helper()
	out := map[string]corev1.Pod{}
	for _, pod := range kubetest.List(t, w.rome.Client().CoreV1().Pods(netNamespace)).Items {
		out[pod.Name] = pod
	}
	return out
}
