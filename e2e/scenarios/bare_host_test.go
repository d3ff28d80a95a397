package scenarios

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

// TestBareHost: a gateway on a host outside of the cluster works beside the chart's gateway, and in its
// place, as a process with the rights that the chart gives to it; and so does role route on a node.
func TestBareHost(t *testing.T) {
	w := newNetworkWorld(t, site.FabricPods, nil, 2, 2)
	w.peer(t)
	w.deploy(t)
	t.Run("an address moves", func(t *testing.T) { networkMoves(t, w) })
	t.Run("beside the chart's gateway", func(t *testing.T) { hostBeside(t, w) })
	t.Run("in the place of the chart's gateway", func(t *testing.T) { hostAlone(t, w) })
	t.Run("killed", func(t *testing.T) { hostKilled(t, w) })
	t.Run("role route on a node", func(t *testing.T) { hostRoute(t, w) })
	t.Run("checked", func(t *testing.T) {
		require.NoError(t, w.rome.Client().CoordinationV1().Leases(site.Namespace).Delete(t.Context(), "liqod-gateway-1", metav1.DeleteOptions{}))
		w.done(t, w.rome, "network", "check")
	})
}

// hostBeside: milan gets the gateway outside beside the one of the chart.
func hostBeside(t *testing.T, w networkWorld) {
	require.NoError(t, w.rome.SetGateways(t.Context(), 1))
	require.NoError(t, w.rome.StartOutside(t.Context()))
	within(t, longest, "both gateways of rome have tunnels", func(ctx context.Context) error {
		pods, outside, err := w.tunnels(ctx)
		return lab.Wrong(err, len(pods) != 1 || len(outside) != 1, "gateways that are pods: %v, outside: %v", pods, outside)
	})
	w.reached(t, "with a gateway outside, too")
}

// hostAlone: without the chart's gateway, nothing but the gateway outside leads to milan.
func hostAlone(t *testing.T, w networkWorld) {
	require.NoError(t, w.rome.SetGateways(t.Context(), 0))
	within(t, longest, "no gateway is a pod", func(ctx context.Context) error {
		_, err := w.rome.Client().AppsV1().Deployments(site.Namespace).Get(ctx, "liqod-gateway", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("the Deployment is there: %v", err)
		}
		return lab.Number(w.rome.Client().CoreV1().Pods(site.Namespace), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=gateway"}, 0)(ctx)
	})
	w.reached(t, "with the gateway outside alone")
}

// hostKilled: the gateway goes on after a kill, now with a client certificate in its kubeconfig.
func hostKilled(t *testing.T, w networkWorld) {
	kubeconfig := must(w.rome.KubeconfigForUser("system:serviceaccount:" + site.Namespace + ":liqod-gateway-" + site.Outside))(t)
	args, replaced := w.rome.Fabric.Gateway().Options.Args, false
	for i, arg := range args {
		if strings.HasPrefix(arg, "--kubeconfig=") {
			args[i], replaced = "--kubeconfig="+kubeconfig, true
		}
	}
	require.True(t, replaced)
	require.NoError(t, w.rome.Fabric.RestartGateway())
	w.reached(t, "after the gateway outside was killed")
}

// tunnels returns the gateways of rome with a tunnel to milan: those of the chart, and others.
func (w networkWorld) tunnels(ctx context.Context) (pods, outside []string, err error) {
	c, err := w.rome.Liqod().NetworkingV1beta1().Connections(tenantOfMilan).Get(ctx, "milan", metav1.GetOptions{})
	if err != nil {
		return nil, nil, err
	}
	for _, g := range c.Status.Gateways {
		switch {
		case g.Value != networkingv1beta1.Connected:
		case strings.HasPrefix(g.Name, "liqod-gateway-"):
			pods = append(pods, g.Name)
		default:
			outside = append(outside, g.Name)
		}
	}
	return pods, outside, nil
}

// hostRoute: the label of a node takes the pod of role route away, and a process there does its work.
func hostRoute(t *testing.T, w networkWorld) {
	const node = "rome-2"
	kubetest.Patch(t, w.rome.Client().CoreV1().Nodes(), node, types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"networking.liqo.io/route":"host"}}}`))
	within(t, longest, "role route has no pod on the node", lab.Number(w.rome.Client().CoreV1().Pods(site.Namespace), metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/component=route", FieldSelector: "spec.nodeName=" + node}, 0))
	require.NoError(t, w.rome.StartRoute(t.Context(), node))
	onHost(t, w.full.Node(w.rome.Cluster, node).Machine, "nft", "delete", "table", "inet", "liqod")
	w.reached(t, "after the table of the node was deleted")
}
