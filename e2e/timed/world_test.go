// Package timed has the tests that take long: they attack liqod for a while, and then
// compare both clusters.
//
// TestChaos and TestPeerings kill, pause and mislead the roles at every single write in the
// life of pods and of peerings, and at random. They judge the result by their own watches in
// both clusters: the UIDs of pods, the start times of their containers, their ends.
//
// TestAnarchy breaks three clusters of real nodes at random, several parts at a time, while all
// pods ask each other. The pods themselves tell an observer which run of their program it is.
//
// TestSoak makes random changes to objects of every reflected kind in both clusters. It
// kills vkubelets, changes policies and stops API servers meanwhile, reports events in the
// provider, and runs a pod there that needs a valid token. Then a checker compares both
// clusters object by object, with the writers of each object and the events.
package timed

import (
	"context"
	"flag"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
)

var (
	all       = flag.Bool("all", false, "every case instead of a sample")
	seed      = flag.Uint64("seed", 1, "where the random choices begin")
	sample    = flag.Int("sample", sampleOf(os.Getenv(sampleVariable)), "which cases a sample takes, 0 to 9")
	onlyLives = flag.String("lives", "", "play only the lives whose name contains this, and of peerings the cases")
	tableFile = flag.String("table", "", "add the tables of cases to this file, as Markdown")
)

const (
	// sampleVariable is set by make test, which takes it from the content of the tree.
	sampleVariable = "LAB_SAMPLE"
	// samples are how many there are. One after the other they take different cases.
	samples = 10
)

func sampleOf(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return n % samples
}

// leaveToAll says which cases a sample has left out, and how it is repeated.
func leaveToAll(t *testing.T) {
	t.Helper()
	if !*all {
		t.Logf("left to make test-all: %s: all cases but sample %d of %d (%s=%d repeats it)", t.Name(), *sample, samples, sampleVariable, *sample)
	}
}

// world is a consumer, rome, that uses a provider, milan, with roles that can be attacked
// and an observer that sees all pods.
type world struct {
	*site.Pair
	sites       *site.Sites
	rome, milan *site.Site
	roles       *roles
	seen        *observer
	// number makes names unique.
	number atomic.Int64
}

// newWorld is newClusters whose consumer uses the provider, with all roles under attack.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := newClusters(t, nil)
	w.Peer(t, site.PeerOptions{})
	var err error
	w.roles, err = newRoles(w, vkubelet, romeController, milanController, romeWebhook)
	require.NoError(t, err)
	w.seen = newObserver(t, w)
	return w
}

// newClusters starts two clusters that do not know each other, with simulated nodes that
// outlive what is done to the processes, and installs liqod with more settings.
func newClusters(t *testing.T, settings map[string]any) *world {
	t.Helper()
	p := site.World{Settings: []map[string]any{settings}, Adjust: func(o *lab.ClusterOptions) { o.NodeGrace = time.Minute }}.StartPair(t)
	return &world{Pair: p, sites: p.Sites, rome: p.Rome, milan: p.Milan}
}

// offload makes an offloaded namespace, all of whose pods run in the provider.
func (w *world) offload(ctx context.Context, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return w.rome.Offload(ctx, namespace, offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsRemote})
}

func twinOf(namespace string) string { return namespace + "-rome" }
