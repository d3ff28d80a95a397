package main

import (
	"cmp"
	"path"
	"slices"
	"time"
)

// scenario is a test on clusters. It runs as a process of its own.
type scenario struct {
	// folder is the package of the test, relative to the root.
	folder, test string
	// when says which targets run it.
	when when
}

// when says which targets run a scenario.
type when int

const (
	more  when = iota // make test-more and make test-all
	core              // make test and make test-all
	first             // every target, before the others: it builds what they need
	long              // make test-all, since it has no short form
	own               // a command of its own
)

// name is the name of the test in tables and in the history.
func (s scenario) name() string { return s.folder + " " + s.test }

// scenarios are all tests on clusters. A folder's are in the order of their durations, the longest
// first: on a machine without a history they run in this order.
func scenarios() []scenario {
	const s, t, l = scenariosFolder, "e2e/timed", "e2e/lab"
	return []scenario{
		{s, "TestBuilds", first},

		{s, "TestApplication", core},
		{s, "TestPeerRights", core},
		{s, "TestUpgrade", core},
		{s, "TestChart", core},

		{s, "TestFull", more},
		{s, "TestNamespaces", more},
		{s, "TestTokenPeering", more},
		{s, "TestNetworkCheck", more},
		{s, "TestReplicas", more},
		{s, "TestStorageMove", more},
		{s, "TestReplicasLost", more},
		{s, "TestRolesLost", more},
		{s, "TestPods", more},
		{s, "TestUpgradeGateways", more},
		{s, "TestThirdCluster", more},
		{t, "TestAnarchy", more},
		{t, "TestChaos", more},
		{t, "TestPeerings", more},
		{s, "TestNetwork", more},
		{s, "TestQuota", more},
		{s, "TestFaultsProvider", more},
		{s, "TestPartition", more},
		{s, "TestPostgres", more},
		{s, "TestNodesLost", more},
		{s, "TestThirdClusterNetworks", more},
		{s, "TestNetworks", more},
		{s, "TestFaultsHome", more},
		{s, "TestTokens", more},
		{s, "TestNegotiation", more},
		{s, "TestMesh", more},
		{s, "TestSlowEtcd", more},
		{s, "TestWebhookRules", more},
		{s, "TestBareHost", more},
		{s, "TestVirtualNodes", more},
		{s, "TestReflection", more},
		{t, "TestSoak", more},
		{s, "TestNetworkKept", more},
		{s, "TestNegotiationByHand", more},
		{s, "TestOfferCapacity", more},
		{"e2e/demo", "TestDemo", more},

		{l, "TestLabFullNetwork", more},
		{l, "TestLabFullCrash", more},
		{l, "TestLabFullCloseLeavesNothing", more},

		{s, "TestClocks", long},
		{s, "TestTokenProviders", long},
		{s, "TestVersions", long},

		{t, "TestAlarm", own},
		{s, "TestRecordedAlerts", own},
		{"e2e/conformance", "TestConformance", own},
	}
}

// scenariosOf returns the tests of a set, the longest first.
func scenariosOf(set string, h history) []scenario {
	sets := map[string][]when{setCore: {core}, setMore: {more}, setAll: {core, more, long}}
	return longestFirst(h, slices.DeleteFunc(scenarios(), func(s scenario) bool { return !slices.Contains(sets[set], s.when) }))
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
