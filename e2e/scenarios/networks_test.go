package scenarios

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
)

// networkRun is a network that the packets of TestNetwork were sent over. `go run ./hack
// networks` writes those of docs/networks into docs/platforms.md.
type networkRun struct {
	Kubernetes string        `json:"kubernetes"`
	Plugin     lab.CNI       `json:"plugin"`
	Proxy      lab.ProxyMode `json:"proxy"`
	Families   site.Families `json:"families"`
	// With is what else is unusual.
	With   string `json:"with,omitempty"`
	Passed bool   `json:"passed"`
}

// TestNetworkBridgeIPTables and the next ones: pods reach pods of the other cluster by name and
// by address with each network plugin and each mode of kube-proxy. TestNetwork has the bridge
// with nftables.
func TestNetworkBridgeIPTables(t *testing.T) {
	testNetworkOf(t, lab.CNIBridge, lab.ProxyIPTables, site.IPv4)
}

func TestNetworkFlannelNFTables(t *testing.T) {
	testNetworkOf(t, lab.CNIFlannel, lab.ProxyNFTables, site.IPv4)
}

func TestNetworkFlannelIPTables(t *testing.T) {
	testNetworkOf(t, lab.CNIFlannel, lab.ProxyIPTables, site.IPv4)
}

func TestNetworkKubeRouterNFTables(t *testing.T) {
	testNetworkOf(t, lab.CNIKubeRouter, lab.ProxyNFTables, site.IPv4)
}

func TestNetworkKubeRouterIPTables(t *testing.T) {
	testNetworkOf(t, lab.CNIKubeRouter, lab.ProxyIPTables, site.IPv4)
}

// TestNetworkDualStack and the next ones: pods, Services and nodes have addresses of both families,
// or of IPv6 alone. Gateways are reached by the first, by nodes too where that is IPv6.
func TestNetworkDualStack(t *testing.T) {
	testNetworkOf(t, lab.CNIBridge, lab.ProxyNFTables, site.DualStack)
}

func TestNetworkDualStackIPv6(t *testing.T) {
	testNetworkOf(t, lab.CNIBridge, lab.ProxyNFTables, site.DualStackIPv6)
}

func TestNetworkIPv6(t *testing.T) {
	testNetworkOf(t, lab.CNIBridge, lab.ProxyNFTables, site.IPv6)
}

func TestNetworkFlannelNFTablesDualStack(t *testing.T) {
	testNetworkOf(t, lab.CNIFlannel, lab.ProxyNFTables, site.DualStack)
}

func testNetworkOf(t *testing.T, plugin lab.CNI, proxy lab.ProxyMode, families site.Families) {
	w := newNetworkWorldOf(t, site.World{
		Clusters: []string{"rome", "milan"}, RealNodes: []int{2, 2}, Fabric: site.FabricProcesses, Families: families, CNI: plugin, Proxy: proxy,
		Adjust: func(o *lab.ClusterOptions) { o.Audit = false },
	})
	w.records(t, networkRun{Plugin: plugin, Proxy: proxy, Families: families})
	w.peer(t)
	w.deploy(t)
	w.uses(t, plugin, proxy)
	t.Run("pods reach pods", func(t *testing.T) { networkReached(t, w) })
	t.Run("origin's API server", func(t *testing.T) { networkOrigin(t, w) })
	t.Run("roles restarted", func(t *testing.T) { networkRestarts(t, w) })
	t.Run("rebooted", func(t *testing.T) { networkReboots(t, w) })
}

// uses requires that the nodes have the routes and rules of the network plugin and of kube-proxy.
func (w networkWorld) uses(t *testing.T, plugin lab.CNI, proxy lab.ProxyMode) {
	t.Helper()
	for _, s := range []*site.Site{w.rome, w.milan} {
		for _, node := range w.full.Nodes(s.Cluster) {
			routes, err := node.Machine.Command(t.Context(), "ip", "-N", "route")
			require.NoError(t, err)
			require.Equal(t, plugin == lab.CNIFlannel, strings.Contains(routes, "dev flannel"), routes)
			require.Equal(t, plugin == lab.CNIKubeRouter, strings.Contains(routes, "dev kube-bridge"), routes)
			require.Equal(t, plugin == lab.CNIKubeRouter, strings.Contains(routes, "proto 17 "), routes)
			tables, err := node.Machine.Command(t.Context(), "nft", "list", "tables")
			require.NoError(t, err)
			require.Equal(t, proxy == lab.ProxyNFTables, strings.Contains(tables, "kube-proxy"), tables)
			chains, err := node.Machine.Command(t.Context(), "iptables-save", "-t", "nat")
			require.NoError(t, err)
			require.Equal(t, proxy == lab.ProxyIPTables, strings.Contains(chains, "-A KUBE-SERVICES "))
		}
	}
}

// records writes the result of the test into the folder that LAB_NETWORKS names, if it is set.
func (w networkWorld) records(t *testing.T, run networkRun) {
	t.Helper()
	recordsNetwork(t, w.rome, run)
}

func recordsNetwork(t *testing.T, s *site.Site, run networkRun) {
	t.Helper()
	dir := os.Getenv("LAB_NETWORKS")
	if dir == "" {
		return
	}
	version, err := s.Client().Discovery().ServerVersion()
	require.NoError(t, err)
	run.Kubernetes = version.GitVersion
	t.Cleanup(func() {
		run.Passed = !t.Failed()
		data, err := json.MarshalIndent(run, "", "  ")
		require.NoError(t, err)
		name := strings.Join(strings.Fields(strings.ReplaceAll(fmt.Sprintln(run.Plugin, run.Proxy, run.Families, run.With), ",", "")), "-") + ".json"
		require.NoError(t, os.WriteFile(filepath.Join(dir, strings.ToLower(name)), append(data, '\n'), 0o644))
	})
}
