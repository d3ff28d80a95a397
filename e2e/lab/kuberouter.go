package lab

import "context"

// KubeRouterMode says which of its jobs kube-router has on the nodes.
type KubeRouterMode string

// Modes. The job of the router, which would take the place of the bridge plugin, is none of
// them: e2e/tools/kube-router leaves it out, and node-init.sh has no arguments for it.
const (
	// KubeRouterOff: nothing enforces NetworkPolicies.
	KubeRouterOff KubeRouterMode = ""
	// KubeRouterFirewall enforces the NetworkPolicies of the cluster.
	KubeRouterFirewall KubeRouterMode = "firewall"
)

// buildKubeRouter returns the path of kube-router, which is built once per state of its folder.
func buildKubeRouter(ctx context.Context, l *Lab) (string, error) {
	source, err := toolDir(ctx, "kube-router")
	if err != nil {
		return "", err
	}
	return BuildTool(ctx, ToolOptions{Source: source, Name: "kube-router", LDFlags: "-s -w", Log: l.Logf})
}
