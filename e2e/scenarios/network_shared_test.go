package scenarios

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

const netApart = "net-apart"

// networkShared: a pod of a namespace that is not offloaded is closed to the peer, opens when
// an EndpointSlice of an offloaded namespace names it, and closes with that EndpointSlice. Its own
// connections to the peer pass all the time.
func networkShared(t *testing.T, w networkWorld) {
	pods := must(w.netPods(t.Context()))(t)
	var here, there netPod
	for _, p := range pods {
		if p.in == "rome" {
			here = p
		} else {
			there = p
		}
	}
	home := w.rome.Client()
	kubetest.Create(t, home.CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: netApart}})
	kubetest.Create(t, home.CoreV1().Pods(netApart), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "apart"}, Spec: testSpec(1, "serve")})
	var own string
	within(t, longest, "the pod runs", func(ctx context.Context) error {
		p, err := home.CoreV1().Pods(netApart).Get(ctx, "apart", metav1.GetOptions{})
		if err == nil && podReady(p) != corev1.ConditionTrue {
			err = fmt.Errorf("pod apart is not Ready: %+v", p.Status)
		}
		if err == nil {
			own = p.Status.PodIP
		}
		return err
	})
	view := beside(here.seen["milan"], own)
	asks := func(ctx context.Context) error {
		return arrives(w.milan.Exec(ctx, netTwin, there.name, "reach", "tcp://"+view+":8080/0"))
	}
	answered := func(ctx context.Context) error {
		return arrives(w.rome.Exec(ctx, netApart, "apart", "reach", "tcp://"+there.seen["rome"]+":8080/0", "udp://"+there.seen["rome"]+":8080/64", "icmp://"+there.seen["rome"]+"/64"))
	}
	within(t, longest, "the pod reaches the peer", answered)
	require.ErrorContains(t, asks(t.Context()), view, "a pod that is not shared")

	port := int32(8080)
	endpointSlices := home.DiscoveryV1().EndpointSlices(netNamespace)
	kubetest.Create(t, endpointSlices, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "apart"},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{own}}},
		Ports:       []discoveryv1.EndpointPort{{Port: &port}},
	})
	within(t, longest, "a shared pod is reached", asks)
	require.NoError(t, endpointSlices.Delete(t.Context(), "apart", metav1.DeleteOptions{}))
	within(t, longest, "a pod that is no longer shared is closed", func(ctx context.Context) error {
		return lab.Wrong(nil, asks(ctx) == nil, "%s still answers", view)
	})
	require.NoError(t, answered(t.Context()), "the pod still reaches the peer")
	require.NoError(t, home.CoreV1().Namespaces().Delete(t.Context(), netApart, metav1.DeleteOptions{}))
	within(t, longest, "the namespace is gone", isGone(home.CoreV1().Namespaces(), netApart))
}

// beside returns the address under which a cluster would see a pod, if it saw it: the range in which it
// sees another pod of the same cluster, a /16 or a /56, and there the place of the pod's own address.
func beside(seen, own string) string {
	view, place := netip.MustParseAddr(seen).AsSlice(), netip.MustParseAddr(own).AsSlice()
	network := 2
	if len(view) == net.IPv6len {
		network = 7
	}
	out, _ := netip.AddrFromSlice(slices.Concat(view[:network], place[network:]))
	return out.String()
}

// arrivals are what a command reach says of each target.
func arrivals(said string, err error) (all []arrival, _ error) {
	if err == nil {
		err = json.Unmarshal([]byte(said), &all)
	}
	return all, err
}

// arrives reports what has not arrived of the targets of a command reach.
func arrives(said string, err error) error {
	all, err := arrivals(said, err)
	for _, a := range all {
		if a.Problem != "" {
			return fmt.Errorf("%s: %s", a.Target, a.Problem)
		}
	}
	return err
}
