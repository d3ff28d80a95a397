package virtualnode

import (
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// verdict is what an autoscaler or cloud controller does with a Node of a providerID.
type verdict string

const (
	// notMine: it leaves the Node alone.
	notMine verdict = "not mine"
	// logs: it leaves the Node alone, and logs an error each time.
	logs verdict = "logs an error"
	// stops: it stops scaling all nodes of the cluster.
	stops verdict = "stops"
	// deletes: it deletes the Node when it is not Ready.
	deletes verdict = "deletes"
	// confuses: it may take the Node for one of its own.
	confuses verdict = "confuses"
)

// idRules are the rules by which others read spec.providerID.
var idRules = map[string]struct {
	rule func(id string) verdict
	// chosen and none are the verdicts on the form of liqod, and on a Node without a providerID.
	chosen, none verdict
}{
	// kubernetes/autoscaler, cluster-autoscaler/cloudprovider/gce/gce_cloud_provider.go,
	// GceRefFromProviderId at commit 02f3465: its error is that of NodeGroupForNode and
	// HasInstance. mig_info_provider.go, findMigWithMatchingBasename at commit 03714c1: an id
	// belongs to a group of the same project, so none without a project.
	"cluster-autoscaler, GCE, to 1.35": {autoscalerGCE, notMine, stops},
	// kubernetes/autoscaler, pull request 10274 (2026-09), by its description: other ids than
	// those of GCE, and none, are unmanaged.
	"cluster-autoscaler, GCE, since 2026-09": {ofScheme("gce://"), notMine, notMine},
	// kubernetes/autoscaler, cluster-autoscaler/cloudprovider/aws/aws_cloud_provider.go,
	// AwsRefFromProviderId and NodeGroupForNode at commit 02c2210 (none: since pull request 921).
	"cluster-autoscaler, AWS, to 2025-04": {autoscalerAWS(stops), stops, notMine},
	// The same since pull request 8047 (2025-04): NodeGroupForNode returns no group.
	"cluster-autoscaler, AWS, NodeGroupForNode": {autoscalerAWS(notMine), notMine, notMine},
	// The same, HasInstance, as pull request 9801 (open in 2026-06) describes it. Its caller
	// clusterstate.go, hasCloudProviderInstance, logs the error, and takes the node for alive.
	"cluster-autoscaler, AWS, HasInstance": {autoscalerAWS(logs), logs, logs},
	// kubernetes/autoscaler, cluster-autoscaler/cloudprovider/azure/azure_cloud_provider.go,
	// NodeGroupForNode at commit 01f711d; HasInstance calls it.
	"cluster-autoscaler, Azure": {ofScheme("azure://"), notMine, notMine},
	// kubernetes/autoscaler, cluster-autoscaler/cloudprovider/clusterapi,
	// clusterapi_utils.go, normalizedProviderString, and clusterapi_controller.go,
	// findMachineByProviderID at commit 00b87cc: ids without a last part are in no index.
	"cluster-autoscaler, Cluster API, NodeGroupForNode": {clusterAPI, notMine, notMine},
	// The same, clusterapi_provider.go, HasInstance at commit 027c79f: by annotations of the
	// Node. Its error is logged as that of AWS.
	"cluster-autoscaler, Cluster API, HasInstance": {func(string) verdict { return logs }, logs, logs},
	// kubernetes-sigs/karpenter, pkg/utils/node/node.go, GetNodeClaims at commit 007859a: the
	// NodeClaim with the same id. Issue 2505: without an id, those that have none yet.
	"Karpenter, NodeClaim of a Node": {karpenter, notMine, confuses},
	// aws/karpenter-provider-aws, pkg/utils/utils.go, ParseInstanceID, and
	// pkg/controllers/interruption/controller.go, makeNodeInstanceIDMap at commit 0175586.
	"Karpenter, AWS, interruptions": {matching(`aws:///.*/.*`, notMine), notMine, notMine},
	// For the three clouds below: kubernetes/cloud-provider,
	// controllers/nodelifecycle/node_lifecycle_controller.go, MonitorNodes and
	// ensureNodeExistsByProviderID at commit 9cbe875. It deletes a Node that is not Ready and
	// that the cloud says not to exist; an error of the cloud is logged. So does
	// controllers/node/node_controller.go, UpdateNodeStatus at commit 2ddc635, with addresses.
	//
	// kubernetes/cloud-provider-gcp, providers/gce/gce_instances.go, InstanceExists at commit
	// 01ad1dc, and gce_util.go, splitProviderID. Without an id it looks for the name.
	"node lifecycle, GCP": {byName(matching(`^gce://([^/]+)/([^/]+)/([^/]+)$`, logs)), logs, deletes},
	// kubernetes/cloud-provider-aws, pkg/providers/v1/aws.go, InstanceExistsByProviderID at
	// commit 007b18e, and instances.go, MapToAWSInstanceID at commit 29747fb.
	"node lifecycle, AWS": {byName(lifecycleAWS), logs, deletes},
	// kubernetes-sigs/cloud-provider-azure, pkg/provider/azure_instances.go,
	// InstanceExistsByProviderID at commit 05f5ce8: an unmanaged Node exists. Then
	// InstanceShutdownByProviderID returns an error. azureNodeProviderIDRE is of the managed ones.
	"node lifecycle, Azure": {byName(matching(`^azure:///subscriptions/(?:.*)/resourceGroups/(?:.*)/providers/Microsoft.Compute/(?:.*)`, logs)), logs, deletes},
}

// TestProviderID: the providerID of a virtual node stops no autoscaler but that of AWS before
// 2025-04, and no cloud controller deletes its Node. Neither is true without one.
func TestProviderID(t *testing.T) {
	for name, r := range idRules {
		t.Run(name, func(t *testing.T) {
			for _, node := range []string{"milan", "milan-1.example.com", "i-0123456789abcdef0"} {
				require.Equal(t, r.chosen, r.rule(ProviderID("milan", node)), node)
			}
			require.Equal(t, r.none, r.rule(""))
			require.NotContains(t, []verdict{deletes, confuses}, r.chosen)
		})
	}
}

func autoscalerGCE(id string) verdict {
	if len(id) < 6 {
		return stops // or panics, in older versions
	}
	parts := strings.Split(id[6:], "/")
	if len(parts) != 3 {
		return stops
	}
	if parts[0] != "" {
		return confuses
	}
	return notMine
}

func autoscalerAWS(others verdict) func(id string) verdict {
	ref := matching(`^aws:///[-0-9a-z]*/[-0-9a-z]*(/[-0-9a-z.]*)?$`, others)
	return func(id string) verdict {
		if id == "" && others == stops {
			return notMine
		}
		return ref(id)
	}
}

// clusterAPI looks for a machine whose id has the same last part, here docker:////machine-7: no
// form of the id prevents that a virtual node of this name is taken for it.
func clusterAPI(id string) verdict {
	if id[strings.LastIndex(id, "/")+1:] == "machine-7" {
		return confuses
	}
	return notMine
}

func karpenter(id string) verdict {
	if id == "" {
		return confuses
	}
	return notMine
}

func lifecycleAWS(id string) verdict {
	if !strings.HasPrefix(id, "aws://") {
		id = "aws:////" + id
	}
	u, err := url.Parse(id)
	if err != nil {
		return logs
	}
	parts := strings.Split(strings.Trim(u.Path, "/"), "/")
	if len(parts) > 2 || !strings.HasPrefix(parts[len(parts)-1], "i-") {
		return logs
	}
	return deletes
}

// byName is the rule of a cloud that looks for an instance with the name of a Node without an id.
func byName(rule func(id string) verdict) func(id string) verdict {
	return func(id string) verdict {
		if id == "" {
			return deletes
		}
		return rule(id)
	}
}

// ofScheme is the rule of one that passes over each id of another scheme.
func ofScheme(scheme string) func(id string) verdict {
	return matching("^"+regexp.QuoteMeta(scheme), notMine)
}

// matching is the rule of one that takes the ids that match a pattern for its own.
func matching(pattern string, others verdict) func(id string) verdict {
	own := regexp.MustCompile(pattern)
	return func(id string) verdict {
		if own.MatchString(id) {
			return confuses
		}
		return others
	}
}
