package scenarios

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

const (
	gatewayService = "liqod-gateway"
	// movedWithin is the longest time until packets pass again after the address of a gateway has moved.
	movedWithin = 10 * time.Second
)

// networkMoves: only milan dials, and rome's gateway is behind a load balancer. Its address moves to
// another one, on another node, while a pod sends a datagram each millisecond.
func networkMoves(t *testing.T, w networkWorld) {
	var from, to netPod
	for _, p := range w.settled(t) {
		if p.in == "rome" {
			from = p
		} else {
			to = p
		}
	}
	w.exposed(t, w.milan, `{"spec":{"type":"ClusterIP"}}`)
	w.exposed(t, w.rome, `{"spec":{"type":"LoadBalancer","externalTrafficPolicy":"Cluster"}}`)
	first, second := w.full.Node(w.rome.Cluster, "rome-1").Machine, w.full.Node(w.rome.Cluster, "rome-2").Machine
	at := netip.MustParseAddr(first.Address).As4()
	at[3] = 251 // no machine has it, nor the next one
	before := netip.AddrFrom4(at)
	after := before.Next()

	onHost(t, first, "ip", "addr", "add", before.String()+"/32", "dev", "eth0")
	w.balanced(t, before)
	// The gateway of rome would go on to send where it found milan before.
	former := must(w.tunnelToRome(t.Context()))(t)
	require.NoError(t, w.rome.KillGatewayPod(t.Context()))
	within(t, longest, "milan dials another gateway at the load balancer", w.dials(before, former.PeerGateway))

	got, failed := make(chan streamed, 1), make(chan error, 1)
	go func() {
		said, err := w.rome.Exec(t.Context(), netNamespace, from.name, "stream", "udp://"+to.seen["rome"]+":8080", "20s")
		var s streamed
		failed <- errors.Join(err, json.Unmarshal([]byte(said), &s))
		got <- s
	}()
	within(t, longest, "the stream has begun", func(ctx context.Context) error {
		sockets, err := w.rome.Exec(ctx, netNamespace, from.name, "cat", "/proc/net/udp")
		return lab.Wrong(err, !strings.Contains(sockets, ":1F90 01 "), "no socket is connected with port 8080:\n%s", sockets)
	})
	within(t, longest, "packets pass", func(ctx context.Context) error {
		return arrives(w.rome.Exec(ctx, netNamespace, from.name, "reach", "udp://"+to.seen["rome"]+":8080/64"))
	})
	// The node would go on to take what is on its way to the address, because it tracks the connection.
	onHost(t, first, "nft", "add table ip moved; add chain ip moved in { type filter hook prerouting priority raw; }; add rule ip moved in ip daddr "+before.String()+" drop")
	onHost(t, first, "ip", "addr", "del", before.String()+"/32", "dev", "eth0")
	onHost(t, second, "ip", "addr", "add", after.String()+"/32", "dev", "eth0")
	w.balanced(t, after)
	require.NoError(t, <-failed)
	s := <-got
	t.Logf("the address of a load balancer moved: nothing passed for %s", s.longest().Round(time.Millisecond))
	require.Positive(t, s.longest(), "the address is in use")
	require.Less(t, s.longest(), movedWithin)
	within(t, longest, "milan dials the next address", w.dials(after, former.PeerGateway))
	onHost(t, first, "nft", "delete table ip moved")
	onHost(t, second, "ip", "addr", "del", after.String()+"/32", "dev", "eth0")
}

// exposed changes the Service of a gateway, until the end of the test.
func (w networkWorld) exposed(t *testing.T, s *site.Site, change string) {
	t.Helper()
	services := s.Client().CoreV1().Services(site.Namespace)
	have := kubetest.Get(t, services, gatewayService)
	back := must(json.Marshal(map[string]any{"spec": map[string]any{
		"type": have.Spec.Type, "externalTrafficPolicy": have.Spec.ExternalTrafficPolicy, "ports": have.Spec.Ports,
	}}))(t)
	patch := func(ctx context.Context, body []byte) error {
		return second(services.Patch(ctx, gatewayService, types.MergePatchType, body, metav1.PatchOptions{}))
	}
	t.Cleanup(func() { require.NoError(t, patch(context.WithoutCancel(t.Context()), back)) })
	require.NoError(t, patch(t.Context(), []byte(change)))
}

// balanced writes the address of rome's load balancer, as that of a cloud does.
func (w networkWorld) balanced(t *testing.T, address netip.Addr) {
	t.Helper()
	services := w.rome.Client().CoreV1().Services(site.Namespace)
	have := kubetest.Get(t, services, gatewayService)
	have.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address.String()}}
	kubetest.UpdateStatus(t, services, have)
}

// dials returns a condition: milan has a tunnel to rome at an address, not to the former gateway.
func (w networkWorld) dials(address netip.Addr, former string) func(context.Context) error {
	want := netip.AddrPortFrom(address, site.TunnelPort).String()
	return func(ctx context.Context) error {
		g, err := w.tunnelToRome(ctx)
		return lab.Wrong(err, g.Value != networkingv1beta1.Connected || g.Endpoint != want || g.PeerGateway == former,
			"milan sends to gateway %s of rome at %s: %s %s", g.PeerGateway, g.Endpoint, g.Value, g.Message)
	}
}

// tunnelToRome returns how milan's gateway reaches rome.
func (w networkWorld) tunnelToRome(ctx context.Context) (networkingv1beta1.GatewayStatus, error) {
	c, err := w.milan.Liqod().NetworkingV1beta1().Connections(tenantOfRome).Get(ctx, "rome", metav1.GetOptions{})
	if err != nil {
		return networkingv1beta1.GatewayStatus{}, err
	}
	if len(c.Status.Gateways) != 1 {
		return networkingv1beta1.GatewayStatus{}, fmt.Errorf("milan has gateways %+v", c.Status.Gateways)
	}
	return c.Status.Gateways[0], nil
}

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

// TestBareHost: a gateway on a host outside of the cluster works beside the chart's gateway, and in its
// place, as a process with the rights that the chart gives to it; and so does role route on a node.
func TestBareHost(t *testing.T) {
	w := newNetworkWorld(t, site.FabricPods, nil, 2, 2)
	w.peer(t)
	w.deploy(t)
	inTurn(t, w, []part[networkWorld]{
		{"an address moves", networkMoves}, {"beside the chart's gateway", hostBeside}, {"in the place of the chart's gateway", hostAlone},
		{"killed", hostKilled}, {"role route on a node", hostRoute},
	})
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
	within(t, longest, "no gateway is a pod", lab.Together(isGone(w.rome.Client().AppsV1().Deployments(site.Namespace), "liqod-gateway"),
		lab.Number(w.rome.Client().CoreV1().Pods(site.Namespace), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=gateway"}, 0)))
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
