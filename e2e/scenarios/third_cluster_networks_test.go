package scenarios

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
)

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
