package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
)

// CNI is the network plugin of the nodes: by which ways pods of a cluster reach each other.
type CNI string

// Plugins. All give pods addresses of their Node's podCIDR, and all but one put them on a bridge.
const (
	// CNIBridge: the lab gives the nodes routes to each other's pods.
	CNIBridge CNI = "bridge"
	// CNIPointToPoint: each pod has a link and a route of its own on its node, as with most plugins of
	// clouds. The lab gives the nodes routes to each other's pods.
	CNIPointToPoint CNI = "ptp"
	// CNIFlannel: flannel's overlay, with its VXLAN backend and its masquerading.
	CNIFlannel CNI = "flannel"
	// CNIKubeRouter: kube-router gives the nodes routes by BGP, masquerades, and enforces
	// NetworkPolicies.
	CNIKubeRouter CNI = "kube-router"
)

// ProxyMode is that of kube-proxy.
type ProxyMode string

// Modes of kube-proxy.
const (
	ProxyNFTables ProxyMode = "nftables"
	ProxyIPTables ProxyMode = "iptables"
)

// KubeRouterMode says whether kube-router runs beside another network plugin.
type KubeRouterMode string

// Modes. The third one, the router, is CNIKubeRouter.
const (
	// KubeRouterOff: nothing enforces NetworkPolicies.
	KubeRouterOff KubeRouterMode = ""
	// KubeRouterFirewall enforces the NetworkPolicies of the cluster.
	KubeRouterFirewall KubeRouterMode = "firewall"
	kubeRouterRouter   KubeRouterMode = "router"
)

// prepareNetwork fills in what the options leave open, and builds the programs that they need,
// each once per state of its folder.
func (f *Full) prepareNetwork(ctx context.Context) (err error) {
	setDefault(&f.opts.CNI, CNIBridge)
	setDefault(&f.opts.Proxy, ProxyNFTables)
	if !f.opts.CNI.routed() && !f.opts.Network.Isolated {
		return fmt.Errorf("only an isolated network is possible with %s: the lab has no routes between the pods of its clusters", f.opts.CNI)
	}
	if f.opts.CNI == CNIKubeRouter {
		f.opts.KubeRouter = kubeRouterRouter
	}
	if f.opts.KubeRouter != KubeRouterOff {
		if f.kubeRouter, err = buildTool(ctx, "kube-router", f.lab.Logf); err != nil {
			return err
		}
	}
	if f.opts.CNI == CNIFlannel {
		f.flannel, err = buildTool(ctx, "flannel", f.lab.Logf)
	}
	return err
}

// networkEnv is what the first process of the node needs to start the programs of its network.
func (n *Node) networkEnv() map[string]string {
	_, network := n.full.kubeconfigs(n.cluster)
	return map[string]string{
		"KUBE_ROUTER": n.full.kubeRouter, "KUBE_ROUTER_MODE": string(n.full.opts.KubeRouter), "FLANNEL": n.full.flannel,
		"FLANNEL_CONFIG": filepath.Join(n.Dir, "flannel.json"), "NETWORK_KUBECONFIG": network, "SERVICE_RANGE": n.cluster.Options.ServiceCIDR,
	}
}

// flannelConfig is flannel's net-conf.json. Its rules are of the kind that kube-proxy writes.
func (n *Node) flannelConfig() ([]byte, error) {
	config := map[string]any{"EnableNFTables": n.full.opts.Proxy == ProxyNFTables, "Backend": map[string]string{"Type": "vxlan"}, "EnableIPv4": false}
	for _, cidr := range n.cluster.Options.PodCIDRs() {
		if isIPv6(cidr) {
			config["EnableIPv6"], config["IPv6Network"] = true, cidr
		} else {
			config["EnableIPv4"], config["Network"] = true, cidr
		}
	}
	return json.Marshal(config)
}

// isIPv6 says so of an address or a range, and of a list if its first member is of IPv6.
func isIPv6(text string) bool {
	first, _, _ := strings.Cut(text, ",")
	return strings.Contains(first, ":")
}

// routed says that the lab gives the nodes routes to each other's pods.
func (c CNI) routed() bool { return c == CNIBridge || c == CNIPointToPoint }

// bridge is the name of the device that the pods of a node are on: kube-router has it built in.
func (c CNI) bridge() string {
	if c == CNIKubeRouter {
		return "kube-bridge"
	}
	return "cni0"
}
