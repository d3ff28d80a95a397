package scenarios

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
)

// networkRun is a network that the packets of a test are sent over. `go run ./hack
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

// onNetworks runs a test on each network; without -all on one of them, another one with each sample.
func onNetworks(t *testing.T, networks []networkRun, test func(*testing.T, networkRun)) {
	t.Helper()
	if !*all {
		sample := must(strconv.Atoi(cmp.Or(os.Getenv("LAB_SAMPLE"), "0")))(t)
		networks = []networkRun{networks[sample%len(networks)]}
	}
	for _, n := range networks {
		t.Run(fmt.Sprint(n.Plugin, " ", n.Proxy, " ", n.Families), func(t *testing.T) { test(t, n) })
	}
}

// TestNetworks: pods reach pods of the other cluster by name and by address with each network plugin, each mode
// of kube-proxy, and addresses of either family or of both. Gateways are reached by the first, by nodes too where
// that is IPv6. TestNetwork has the bridge with nftables and IPv4.
func TestNetworks(t *testing.T) {
	onNetworks(t, []networkRun{
		{Plugin: lab.CNIFlannel, Proxy: lab.ProxyNFTables, Families: site.DualStack},
		{Plugin: lab.CNIBridge, Proxy: lab.ProxyNFTables, Families: site.DualStack},
		{Plugin: lab.CNIBridge, Proxy: lab.ProxyNFTables, Families: site.DualStackIPv6},
		{Plugin: lab.CNIBridge, Proxy: lab.ProxyNFTables, Families: site.IPv6},
		{Plugin: lab.CNIBridge, Proxy: lab.ProxyIPTables, Families: site.IPv4},
		{Plugin: lab.CNIFlannel, Proxy: lab.ProxyNFTables, Families: site.IPv4},
		{Plugin: lab.CNIFlannel, Proxy: lab.ProxyIPTables, Families: site.IPv4},
		{Plugin: lab.CNIKubeRouter, Proxy: lab.ProxyNFTables, Families: site.IPv4},
		{Plugin: lab.CNIKubeRouter, Proxy: lab.ProxyIPTables, Families: site.IPv4},
	}, func(t *testing.T, n networkRun) {
		w := newNetworkWorldOf(t, site.World{
			Clusters: []string{"rome", "milan"}, RealNodes: []int{2, 2}, Fabric: site.FabricProcesses, Families: n.Families, CNI: n.Plugin, Proxy: n.Proxy,
			Adjust: func(o *lab.ClusterOptions) { o.Audit = false },
		})
		n.records(t, w.rome)
		w.peer(t)
		w.deploy(t)
		n.used(t, w.full, w.rome, w.milan)
		t.Run("pods reach pods", func(t *testing.T) { networkReached(t, w) })
		t.Run("origin's API server", func(t *testing.T) { networkOrigin(t, w) })
		t.Run("roles restarted", func(t *testing.T) { networkRestarts(t, w) })
		t.Run("rebooted", func(t *testing.T) { networkReboots(t, w) })
	})
}

// used requires that the nodes have, of each family, the routes and rules of the network plugin and of kube-proxy.
func (n networkRun) used(t *testing.T, full *lab.Full, list ...*site.Site) {
	t.Helper()
	for _, s := range list {
		for _, node := range full.Nodes(s.Cluster) {
			for _, cidr := range s.Options.PodCIDRs() {
				version, six := "-4", ""
				if family(cidr) == "6" {
					version, six = "-6", "6"
				}
				routes := must(node.Machine.Command(t.Context(), "ip", version, "-N", "route"))(t)
				require.Equal(t, n.Plugin == lab.CNIFlannel, strings.Contains(routes, "dev flannel"), routes)
				require.Equal(t, n.Plugin == lab.CNIKubeRouter, strings.Contains(routes, "dev kube-bridge"), routes)
				require.Equal(t, n.Plugin == lab.CNIKubeRouter, strings.Contains(routes, "proto 17 "), routes)
				tables := must(node.Machine.Command(t.Context(), "nft", "list", "tables"))(t)
				require.Equal(t, n.Proxy == lab.ProxyNFTables, strings.Contains(tables, "table ip"+six+" kube-proxy"), tables)
				chains := must(node.Machine.Command(t.Context(), "ip"+six+"tables-save", "-t", "nat"))(t)
				require.Equal(t, n.Proxy == lab.ProxyIPTables, strings.Contains(chains, "-A KUBE-SERVICES "))
			}
		}
	}
}

// records writes the result of the test into the folder that LAB_NETWORKS names, if it is set.
func (n networkRun) records(t *testing.T, s *site.Site) {
	t.Helper()
	dir := os.Getenv("LAB_NETWORKS")
	if dir == "" {
		return
	}
	version := must(s.Client().Discovery().ServerVersion())(t)
	n.Kubernetes = version.GitVersion
	t.Cleanup(func() {
		n.Passed = !t.Failed()
		data := must(json.MarshalIndent(n, "", "  "))(t)
		name := strings.Join(strings.Fields(strings.ReplaceAll(fmt.Sprintln(n.Plugin, n.Proxy, n.Families, n.With), ",", "")), "-") + ".json"
		require.NoError(t, os.WriteFile(filepath.Join(dir, strings.ToLower(name)), append(data, '\n'), 0o644))
	})
}
