package scenarios

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/site"
)

// TestGatewayGone: while no gateway of home can tell whether packets reach the provider, the
// pods there stay Ready for the grace period and no longer. They are Ready again, and the
// same, when the gateway is back.
func TestGatewayGone(t *testing.T) {
	const grace = 20 * time.Second
	w := newNetworkWorld(t, site.FabricProcesses, map[string]any{"health": map[string]any{"unknownGrace": grace.String()}}, 1, 1)
	w.peer(t)
	w.offload(t, netNamespace, offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsRemote})
	home := w.rome.Client()
	_, err := home.CoreV1().Services(netNamespace).Create(t.Context(), netService("all", ""), metav1.CreateOptions{})
	require.NoError(t, err)
	d := webDeployment("web", 2)
	d.Spec.Template.Labels["net"] = "pod"
	_, err = home.AppsV1().Deployments(netNamespace).Create(t.Context(), d, metav1.CreateOptions{})
	require.NoError(t, err)
	within(t, longest, "web is available", w.available("web", netNamespace, 2))
	within(t, longest, "the network works", w.networkUnavailable(corev1.ConditionFalse, nil))
	before := w.podsAtHome(t)

	w.rome.Fabric.Gateway().Kill()
	var unknown, down corev1.NodeCondition
	within(t, longest, "nobody can tell", w.networkUnavailable(corev1.ConditionUnknown, &unknown))
	within(t, longest, "it counts as down", w.networkUnavailable(corev1.ConditionTrue, &down))
	require.Equal(t, unknown.Reason, down.Reason)
	within(t, soon, "no pod is ready, and no endpoint", w.netReady(0))
	for _, pod := range w.podsAtHome(t) {
		ready := podCondition(&pod, corev1.PodReady)
		require.Equal(t, "NetworkUnavailable", ready.Reason)
		for _, at := range []metav1.Time{down.LastTransitionTime, ready.LastTransitionTime} {
			require.GreaterOrEqual(t, at.Sub(unknown.LastTransitionTime.Time), grace-time.Second, "nothing changes before; times are whole seconds")
		}
	}

	require.NoError(t, w.rome.Fabric.RestartGateway())
	within(t, longest, "the network works again", w.networkUnavailable(corev1.ConditionFalse, nil))
	within(t, soon, "all are ready", w.netReady(2))
	after := w.podsAtHome(t)
	for name, pod := range before {
		require.Equal(t, pod.UID, after[name].UID)
		require.Zero(t, restarts(ptr.To(after[name])))
	}
}

// networkUnavailable waits for a status of the virtual node's condition, and keeps that.
func (w networkWorld) networkUnavailable(want corev1.ConditionStatus, keep *corev1.NodeCondition) func(context.Context) error {
	return func(ctx context.Context) error {
		node, err := w.rome.Client().CoreV1().Nodes().Get(ctx, "milan", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if c.Type != corev1.NodeNetworkUnavailable {
				continue
			}
			if c.Status != want {
				return fmt.Errorf("%s is %s (%s: %s)", c.Type, c.Status, c.Reason, c.Message)
			}
			if keep != nil {
				*keep = c
			}
			return nil
		}
		return fmt.Errorf("the node has no condition %s", corev1.NodeNetworkUnavailable)
	}
}

// podsAtHome returns the pods of home by name.
func (w networkWorld) podsAtHome(t *testing.T) map[string]corev1.Pod {
	t.Helper()
	list, err := w.rome.Client().CoreV1().Pods(netNamespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	out := map[string]corev1.Pod{}
	for _, pod := range list.Items {
		out[pod.Name] = pod
	}
	return out
}

// netReady waits until a number of pods, and of endpoints of their Service, are ready at home.
func (w networkWorld) netReady(want int) func(context.Context) error {
	return func(ctx context.Context) error {
		slices, err := w.rome.Client().DiscoveryV1().EndpointSlices(netNamespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=all"})
		if err != nil {
			return err
		}
		endpoints := 0
		for _, s := range slices.Items {
			for _, e := range s.Endpoints {
				if ptr.Deref(e.Conditions.Ready, true) {
					endpoints++
				}
			}
		}
		list, err := w.rome.Client().CoreV1().Pods(netNamespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		pods := 0
		for i := range list.Items {
			if podCondition(&list.Items[i], corev1.PodReady).Status == corev1.ConditionTrue {
				pods++
			}
		}
		if pods != want || endpoints != want {
			return fmt.Errorf("%d pods and %d endpoints are ready", pods, endpoints)
		}
		return nil
	}
}
