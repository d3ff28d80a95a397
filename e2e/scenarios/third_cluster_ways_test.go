package scenarios

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

// apart drops the tunnel between two clusters, and nothing else, until together.
func (w hubWorld) apart(t *testing.T, a, b *site.Site) {
	t.Helper()
	for _, pair := range [][2]*site.Site{{a, b}, {b, a}} {
		from := w.sites.Full.Nodes(pair[1].Cluster)[0].Machine.Address
		drops := lab.Drops{Arriving: []string{fmt.Sprintf("ip saddr %s meta l4proto udp", from)}}
		require.NoError(t, w.sites.Full.Nodes(pair[0].Cluster)[0].Machine.Drop(t.Context(), "apart", drops))
	}
}

func (w hubWorld) together(t *testing.T) {
	t.Helper()
	for _, s := range w.list {
		require.NoError(t, w.sites.Full.Nodes(s.Cluster)[0].Machine.Pass(t.Context(), "apart"))
	}
}

// legDown: the pod in turin is no ready endpoint in milan while the tunnel of the hub to either of the two is
// down, and is one again when it is back.
func (w hubWorld) legDown(t *testing.T) {
	for _, leg := range w.list[1:] {
		w.apart(t, w.rome, leg)
		within(t, longest, "milan knows that turin is not reached while rome and "+leg.Name+" are apart", func(ctx context.Context) error {
			known, err := w.endpoints(ctx, w.list[1])
			return lab.Wrong(err, len(known["turin"]) > 0 || len(known["milan"]) == 0, "turin is reached, or its own pod is not ready: %v", known)
		})
		w.together(t)
		w.reached(t)
	}
}

// ways waits until milan and turin know each other's pod by their own peering, or by rome.
func (w hubWorld) ways(t *testing.T, through string) {
	t.Helper()
	for _, pair := range [][2]*site.Site{{w.list[1], w.list[2]}, {w.list[2], w.list[1]}} {
		within(t, longest, fmt.Sprintf("%s reaches the pod in %s by its tunnel to %s", pair[0].Name, pair[1].Name, through), func(ctx context.Context) error {
			peer := through
			if peer == "each other" {
				peer = pair[1].Name
			}
			c, err := pair[0].Liqod().NetworkingV1beta1().Connections(corev1beta1.TenantNamespace(peer)).Get(ctx, peer, metav1.GetOptions{})
			if err != nil {
				return err
			}
			known, err := w.endpoints(ctx, pair[0])
			addresses := known[pair[1].Name]
			return lab.Wrong(err, len(addresses) == 0 || slices.ContainsFunc(addresses, func(a string) bool { return !viewed(c, a) }),
				"%s knows %v, and sees %s as %v, behind it %v", pair[0].Name, known, peer, c.Spec.Remote, c.Spec.Behind)
		})
	}
}

// viewed reports whether an address is in a range of a peer.
func viewed(c *networkingv1beta1.Connection, address string) bool {
	a, err := netip.ParseAddr(address)
	for _, m := range c.Spec.Remote {
		if p, ok := m.View.Prefix(); ok && err == nil && p.Contains(a) {
			return true
		}
	}
	return false
}

// direct: two clusters that become peers reach each other's pods of the hub's namespace without the hub, and
// by the hub while their own tunnel is down. They reach no more than before.
func (w hubWorld) direct(t *testing.T) {
	w.ways(t, "rome")
	w.peer(t, w.list[1], w.list[2])
	w.ways(t, "each other")
	w.reached(t)
	w.shared(t)
	w.apart(t, w.list[1], w.list[2])
	w.ways(t, "rome")
	w.reached(t)
	w.together(t)
	w.ways(t, "each other")
	w.reached(t)
}

// fourth: another cluster becomes one of them, and leaves again, while milan asks turin through rome:
// no request fails.
func (w hubWorld) fourth(t *testing.T) {
	paris := w.more[0]
	pods := w.settled(t)
	asking := boundPod("asks")
	tolerations := asking.Spec.Tolerations
	asking.Spec = testSpec(1)
	asking.Spec.Containers[0].Args = []string{"load", "http://" + pods["turin"].seen["milan"] + ":8080/", "20ms"}
	asking.Spec.NodeName, asking.Spec.Tolerations = "milan", tolerations
	kubetest.Create(t, w.rome.Client().CoreV1().Pods(netNamespace), asking)
	asked := func(ctx context.Context) (tally, error) {
		return tallyOf(ctx, w.list[1], w.twin(w.list[1], netNamespace), "asks")
	}
	within(t, longest, "milan asks turin", func(ctx context.Context) error { return second(asked(ctx)) })
	w.peer(t, w.rome, paris)
	w.only(t, "milan", "turin", "paris")
	w.run(t, netNamespace, "paris")
	more := w
	more.list = append(slices.Clone(w.list), paris)
	more.reached(t)
	w.given(t, 4)
	w.ends(t, "paris", "milan", "turin")
	w.given(t, 3)
	out, code, err := (&world{sites: w.sites, rome: w.rome, milan: paris}).command(t.Context(), w.rome, "unpeer", "paris", "--remote-kubeconfig", paris.Kubeconfig, "--timeout=4m")
	require.NoError(t, err)
	require.Zero(t, code, out)
	have := must(asked(t.Context()))(t)
	t.Logf("milan has asked turin: %d requests, %d failed, longest pause %s", have.Requests, have.Failed, have.Pause)
	require.Greater(t, have.Requests, 100)
	require.Zero(t, have.Failed, "%v", have.Failures)
	w.reached(t)
	require.NoError(t, w.rome.Client().CoreV1().Pods(netNamespace).Delete(t.Context(), "asks", metav1.DeleteOptions{}))
}

// TestThirdClusterNetworks: three clusters with other networks, with two of them peers of the third only
// and then of each other. After each fault, pods reach pods with nobody's help. TestThirdCluster has the
// bridge with nftables and IPv4. The rows with -all only have not passed yet, for reasons that are not known.
func TestThirdClusterNetworks(t *testing.T) {
	const with = "three clusters"
	networks := []networkRun{
		{Plugin: lab.CNIBridge, Proxy: lab.ProxyNFTables, Families: site.DualStack, With: with},
		{Plugin: lab.CNIBridge, Proxy: lab.ProxyIPTables, Families: site.DualStack, With: with},
		{Plugin: lab.CNIFlannel, Proxy: lab.ProxyNFTables, Families: site.IPv4, With: with},
		{Plugin: lab.CNIFlannel, Proxy: lab.ProxyIPTables, Families: site.IPv4, With: with},
		{Plugin: lab.CNIBridge, Proxy: lab.ProxyIPTables, Families: site.IPv4, With: with},
		{Plugin: lab.CNIKubeRouter, Proxy: lab.ProxyNFTables, Families: site.IPv4, With: with},
		{Plugin: lab.CNIKubeRouter, Proxy: lab.ProxyIPTables, Families: site.IPv4, With: with},
	}
	if *all {
		networks = append(networks,
			networkRun{Plugin: lab.CNIFlannel, Proxy: lab.ProxyNFTables, Families: site.DualStack, With: with},
			networkRun{Plugin: lab.CNIFlannel, Proxy: lab.ProxyIPTables, Families: site.DualStack, With: with})
	}
	onNetworks(t, networks, func(t *testing.T, n networkRun) {
		w := newHubWorld(t, site.World{CNI: n.Plugin, Proxy: n.Proxy, Families: n.Families, RealNodes: []int{1, 2, 1}})
		n.records(t, w.rome)
		w.share(t)
		w.reached(t)
		n.used(t, w.sites.Full, w.list[1])
		w.shared(t)
		w.disturbed(t)
		w.peer(t, w.list[1], w.list[2])
		w.disturbed(t)
		w.parted(t)
	})
}

// disturbed: pods reach pods after the roles were made again, the overlay was down, keys were replaced, and
// a node was rebooted.
func (w hubWorld) disturbed(t *testing.T) {
	t.Helper()
	for _, s := range w.list {
		require.NoError(t, s.KillGatewayPod(t.Context()))
	}
	w.reached(t)
	for _, s := range w.list {
		now := metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}
		require.NoError(t, s.Client().CoreV1().Pods(site.Namespace).DeleteCollection(t.Context(), now, metav1.ListOptions{}))
	}
	w.reached(t)
	for _, s := range w.list {
		for _, node := range w.sites.Full.Nodes(s.Cluster) {
			for _, state := range []string{"down", "up"} {
				require.NoError(t, second(node.Machine.Command(t.Context(), "ip", "link", "set", "liqod-vx", state)))
			}
		}
	}
	w.reached(t)
	for _, s := range w.list {
		out, code, err := (&world{sites: w.sites, rome: s}).command(t.Context(), s, "network", "rotate-keys")
		require.NoError(t, err)
		require.Zero(t, code, out)
	}
	w.reached(t)
	require.NoError(t, w.sites.Full.Node(w.list[1].Cluster, w.list[1].Name+"-2").Reboot(t.Context()))
	w.reached(t)
}
