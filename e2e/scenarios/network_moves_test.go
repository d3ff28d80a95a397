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
