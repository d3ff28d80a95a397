// Package timed has the tests that take long: they make faults for a while, and then compare
// both clusters.
//
// TestChaos and TestPeerings kill and pause the roles at each write that they make for pods and
// for peerings, hold their watches back, and kill them at random. The tests check the events of
// their own watches in both clusters: the UIDs of pods, the start times of their containers, and
// their ends.
//
// TestAnarchy makes random faults in three clusters of real nodes, several at a time, while all
// pods send requests to each other. Each pod reports to the test which run of its program it is.
//
// TestSoak makes random changes to objects of every reflected kind in both clusters. Meanwhile it
// kills vkubelets, changes policies, pauses API servers, creates events in the provider, and runs
// a pod there that needs a valid token. Then it compares both clusters object by object, with the
// writers of each object and the events.
//
// TestAlarm slows a machine and a network down, and requires that no status changes.
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
	all    = flag.Bool("all", false, "every case instead of a sample")
	seed   = flag.Uint64("seed", 1, "where the random choices begin")
	sample = flag.Int("sample", sampleOf(os.Getenv(sampleVariable)), "which cases a sample takes, 0 to 9")
	only   = flag.String("only", "", "only the scenarios whose name contains this, and of peerings the cases")
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

// logLeftOut logs which cases a sample has left out, and how it is repeated.
func logLeftOut(t *testing.T) {
	t.Helper()
	if !*all {
		t.Logf("left to make test-all: %s: all cases but sample %d of %d (%s=%d repeats it)", t.Name(), *sample, samples, sampleVariable, *sample)
	}
}

// world is a consumer, rome, that uses a provider, milan, with the processes of their roles and
// a watch of all pods.
type world struct {
	*site.Pair
	roles roles
	pods  *podWatch
	// number makes names unique.
	number atomic.Int64
}

// newWorld is newClusters whose consumer uses the provider, with all roles under test.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := newClusters(t, nil)
	w.Peer(t, site.PeerOptions{})
	var err error
	w.roles, err = newRoles(w, vkubelet, romeController, milanController, romeWebhook)
	require.NoError(t, err)
	w.pods = newPodWatch(t, w)
	return w
}

// newClusters starts two clusters that are not peered, and installs liqod with more settings.
// Their simulated nodes stay Ready while processes are paused.
func newClusters(t *testing.T, settings map[string]any) *world {
	t.Helper()
	return &world{Pair: site.World{
		Settings: []map[string]any{settings}, Adjust: func(o *lab.ClusterOptions) { o.NodeGrace = time.Minute },
	}.StartPair(t)}
}

// offload creates an offloaded namespace, all of whose pods run in the provider.
func (w *world) offload(ctx context.Context, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return w.Rome.Offload(ctx, namespace, offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsRemote})
}

func twinOf(namespace string) string { return namespace + "-rome" }
