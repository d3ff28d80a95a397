package main

import (
	"cmp"
	"iter"
	"path"
	"slices"
	"strings"
	"time"
)

// scenario is a test on clusters. It runs as a process of its own.
type scenario struct {
	// folder is the package of the test, relative to the root.
	folder, test string
	// when says which targets run it.
	when when
	// covers are the folders whose changes make `make test-more` run the test, separated by
	// spaces. A change in the folder of the test does so too.
	covers string
}

// when says which targets run a scenario.
type when int

const (
	more when = iota // make test-more and make test-all
	core             // make test and make test-all
	long             // make test-all, since it has no short form
	own              // a target of its own, which make test-all calls
)

// name is the name of the test in tables and in the history.
func (s scenario) name() string { return s.folder + " " + s.test }

// scenarios are all tests on clusters.
func scenarios() []scenario {
	const (
		all     = "api kube charts roles peering reflect shadow netfabric health"
		pods    = "shadow reflect kube"
		peers   = "peering roles charts kube"
		network = "netfabric charts roles/route.go roles/gateway.go"
	)
	s, t, l := scenariosFolder, "e2e/timed", "e2e/lab"
	return []scenario{
		{s, "TestApplication", core, all},
		{s, "TestChart", core, "charts"},
		{s, "TestPeerRights", core, "charts shadow reflect"},
		{s, "TestUpgrade", core, all},

		{s, "TestBareHost", more, network},
		{s, "TestClocks", long, "peering health shadow"},
		{s, "TestFaultsHome", more, pods},
		{s, "TestFaultsProvider", more, pods},
		{s, "TestFull", more, pods},
		{s, "TestMesh", more, "peering reflect netfabric"},
		{s, "TestNamespaces", more, "shadow/namespace shadow/rules reflect/kinds reflect/replication roles/cmd"},
		{s, "TestNegotiation", more, "peering/offer peering/link roles/cmd"},
		{s, "TestNegotiationByHand", more, "peering/offer roles/cmd"},
		{s, "TestNetwork", more, network + " shadow/namespace"},
		{s, "TestNetworkKept", more, "netfabric/ipam netfabric/exchange roles/ipam.go"},
		{s, "TestNetworks", more, network},
		{s, "TestNetworkCheck", more, "roles/cmd/network netfabric"},
		{s, "TestOfferCapacity", more, "peering/offer"},
		{s, "TestNodesLost", more, "kube/lease netfabric/host charts shadow/virtualnode"},
		{s, "TestPartition", more, "netfabric peering/link health shadow/endpoints"},
		{s, "TestPods", core, pods + " health"},
		{s, "TestPostgres", more, pods + " netfabric"},
		{s, "TestQuota", more, "shadow/pod shadow/quota shadow/rules"},
		{s, "TestRecordedAlerts", more, ""},
		{s, "TestReflection", core, "reflect"},
		{s, "TestReplicas", more, "kube/lease kube/serve charts netfabric"},
		{s, "TestReplicasLost", more, "kube/lease kube/serve netfabric shadow/endpoints health charts"},
		{s, "TestRolesLost", more, "kube/lease peering/link shadow/endpoints health charts"},
		{s, "TestSlowEtcd", more, "kube shadow reflect"},
		{s, "TestThirdCluster", more, network + " shadow/endpoints"},
		{s, "TestThirdClusterNetworks", more, ""},
		{s, "TestTokenPeering", more, peers},
		{s, "TestTokenProviders", long, peers},
		{s, "TestStorageMove", more, "roles/cmd/move roles/cmd/transfer reflect/kinds shadow/namespace"},
		{s, "TestTokens", more, "reflect/kinds peering/auth"},
		{s, "TestUpgradeGateways", more, network + " kube/lease"},
		{s, "TestVirtualNodes", more, "shadow/virtualnode shadow/kubelet peering/offer"},
		{s, "TestWebhookRules", more, "roles/webhook.go kube/serve charts peering/discovery"},

		{t, "TestAlarm", own, ""},
		{t, "TestAnarchy", more, "netfabric health shadow/endpoints"},
		{t, "TestChaos", more, pods},
		{t, "TestPeerings", more, peers},
		{t, "TestSoak", more, "reflect shadow"},

		{l, "TestLabEtcdFront", more, ""},
		{l, "TestLabFullCloseLeavesNothing", more, ""},
		{l, "TestLabFullCrash", more, ""},
		{l, "TestLabFullNetwork", more, ""},
		{l, "TestLabFullTwoClusters", more, ""},
		{l, "TestLabSimulatedPods", more, ""},
		{l, "TestLabTwoClusters", more, ""},
		{l, "TestRenderAndInstall", more, "charts"},
	}
}

// folders returns the files and folders whose changes concern the test.
func (s scenario) folders() iter.Seq[string] {
	return slices.Values(append(strings.Fields(s.covers), s.folder))
}

// touched reports whether a change of these files, relative to the root, concerns the test.
func (s scenario) touched(files []string) bool {
	for folder := range s.folders() {
		for _, file := range files {
			if file == folder || strings.HasPrefix(file, folder+"/") {
				return true
			}
		}
	}
	return false
}

// coreScenarios returns the tests of `make test`, the longest first.
func coreScenarios(h history) []scenario {
	return longestFirst(h, slices.DeleteFunc(scenarios(), func(s scenario) bool { return s.when != core }))
}

// moreScenarios returns the tests of `make test-more`: those that files concern, then a third
// of the others, but for long ones. The order is that of their last runs, because time may end
// before the list.
// rotation decides among others that never ran.
func moreScenarios(h history, files []string, rotation int) []scenario {
	var concerned, others []scenario
	turn := map[string]int{}
	for i, s := range slices.DeleteFunc(scenarios(), func(s scenario) bool { return s.when != more }) {
		turn[s.name()] = (i + rotation) % 3
		if s.touched(files) {
			concerned = append(concerned, s)
		} else {
			others = append(others, s)
		}
	}
	slices.SortStableFunc(others, func(a, b scenario) int {
		return cmp.Or(h.ran(a).Compare(h.ran(b)), cmp.Compare(turn[a.name()], turn[b.name()]))
	})
	concerned = longestFirst(h, concerned)
	slices.SortStableFunc(concerned, func(a, b scenario) int { return h.ran(a).Compare(h.ran(b)) })
	return append(concerned, longestFirst(h, others[:(len(others)+2)/3])...)
}

// longestFirst sorts by the duration of the last run. A test without one counts as long.
func longestFirst(h history, list []scenario) []scenario {
	slices.SortStableFunc(list, func(a, b scenario) int { return cmp.Compare(h.took(b), h.took(a)) })
	return list
}

// importPath returns the import path of a folder of the project.
func importPath(folder string) string { return path.Join("github.com/liqod/liqod", folder) }

// scenariosFolder has scenarios only. Other folders have tests that need no cluster too.
const scenariosFolder = "e2e/scenarios"

// unknownDuration is assumed of a test that has not run on this machine.
const unknownDuration = 4 * time.Minute
