package trust

import (
	"fmt"
	"slices"
	"strings"
)

// usualWords are last parts of the names of namespaces in which products are usually
// installed, such as cert-manager, istio-system, rook-ceph and open-cluster-management.
var usualWords = []string{
	"admin", "agent", "api", "apiserver", "apps", "auth", "authentication", "autoscaler", "backend", "backup", "build", "cd", "ceph",
	"chains", "ci", "cloud", "cloudwatch", "cluster", "cni", "config", "console", "control", "controller", "controllers", "core", "csi",
	"dashboard", "data", "database", "db", "default", "dev", "discovery", "dns", "driver", "engine", "etcd", "eventing", "events",
	"exporter", "flannel", "frontend", "gateway", "gitops", "grafana", "health", "identity", "infra", "ingress", "injector", "internal",
	"jaeger", "kafka", "kubernetes", "lb", "lease", "logging", "logs", "management", "manager", "marketplace", "mesh", "metrics",
	"monitoring", "multicluster", "net", "network", "nginx", "node", "ns", "observability", "operator", "operators", "pipeline",
	"pipelines", "platform", "plugin", "policy", "prod", "production", "prometheus", "provisioner", "proxy", "public", "registry",
	"release", "repository", "rollouts", "runner", "runners", "scheduler", "secrets", "security", "server", "service", "services",
	"serving", "stack", "staging", "storage", "store", "system", "telemetry", "tenant", "test", "testing", "tools", "ui", "updater",
	"vault", "viz", "vpn", "webhook", "workers", "workflows", "workloads",
}

// CheckChosenID returns an error if a cluster may not become a peer under an id that it has
// chosen itself. A peer may name its twin namespaces <any>-<id>: such a name must be that of
// no product and of no namespace of others, and lead to a single peer. peers are the ids of
// the other peers, namespaces the names of namespaces that belong to no peer. The error is
// the same for all reasons: it does not disclose names to the peer.
func CheckChosenID(id string, peers, namespaces []string) error {
	ends := func(name string) bool { return strings.HasSuffix(name, "-"+id) }
	if slices.Contains(usualWords, id) || slices.ContainsFunc(namespaces, ends) ||
		slices.ContainsFunc(peers, func(peer string) bool { return ends(peer) || strings.HasSuffix(id, "-"+peer) }) {
		return fmt.Errorf("the cluster id %s is not accepted: its namespaces here would end in -%s, as those of products, of others or of another peer do or may do. Use another id (discovery.config.clusterID), or a token that was made for this id (liqod token create --for %s)", id, id, id)
	}
	return nil
}
