package timed

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
)

const (
	alarmNamespace = "alarm"
	// One of the gateways is paused so often and for so long: half of gateway.probe.silence, as on
	// a machine that has more to do.
	pauseEvery, pauseFor = 10 * time.Second, time.Second
	// lossTable drops one in ten of the packets that a machine gets from the other cluster.
	lossTable = "alarmloss"
)

// TestAlarm: while every core is busy, the gateways are paused for a second in turns, and one of
// ten packets between the clusters is lost, no status changes. The settings are the defaults.
func TestAlarm(t *testing.T) {
	if !*all {
		t.Skip("NOT RUN: only with -all; make alarm runs it")
	}
	w := newAlarmWorld(t)
	require.NoError(t, w.dropPackets(t.Context(), w.Rome, w.Milan))
	require.NoError(t, w.dropPackets(t.Context(), w.Milan, w.Rome))
	occupyCores(t)
	lasts := *duration
	seen := w.watch(t)
	t.Logf("for %s these stay: %s", lasts, strings.Join(seen.all(), ", "))
	w.pauseGateways(t, time.Now().Add(lasts))
	w.requireLoss(t)
	require.Empty(t, seen.changes(), "statuses that changed")
}

// alarmWorld is rome, which uses milan, each with a real node and a gateway. A Service has a pod in
// each cluster. The kubelets do not probe them: a kubelet that is late would change a status.
type alarmWorld struct{ *site.Pair }

func newAlarmWorld(t *testing.T) alarmWorld {
	t.Helper()
	w := alarmWorld{site.World{
		RealNodes: []int{1, 1}, Fabric: site.FabricProcesses, Settings: []map[string]any{chartDefaults()},
		Adjust: func(o *lab.ClusterOptions) { o.Audit, o.NodeGrace = false, time.Minute },
	}.StartPair(t)}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	require.NoError(t, w.Sites.PeerByToken(ctx, w.Rome, w.Milan))
	require.NoError(t, deployAll(ctx, w.Rome, alarmNamespace, testDeployment("here", 1, "", "serve"), testDeployment("there", 1, "milan", "serve")))
	require.NoError(t, lab.Eventually(ctx, w.healthy))
	return w
}

// healthy requires that all statuses are Ready, and both pods ready endpoints in both clusters.
func (w alarmWorld) healthy(ctx context.Context) error {
	for s, namespace := range w.namespaces() {
		list, err := s.Client().DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		ready := 0
		for i := range list.Items {
			ready += len(readyEndpoints(s.Name, &list.Items[i]))
		}
		if ready != 2 {
			return fmt.Errorf("%d endpoints are ready in %s, not 2", ready, s.Name)
		}
		if err := statusesReady(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

func (w alarmWorld) namespaces() map[*site.Site]string {
	return map[*site.Site]string{w.Rome: alarmNamespace, w.Milan: twinOf(alarmNamespace)}
}

// dropPackets lets the machines of a cluster drop one of ten packets of the other: of tunnels and of
// connections to API servers, requests and answers.
func (w alarmWorld) dropPackets(ctx context.Context, s, other *site.Site) error {
	rules := fmt.Sprintf(`table inet %s { chain loss { type filter hook prerouting priority raw; ip saddr %s numgen random mod 10 < 1 counter drop; }; }
`, lossTable, addressesOf(machinesOf(w.Sites, other)))
	for _, m := range machinesOf(w.Sites, s) {
		if _, err := m.Command(ctx, "nft", rules); err != nil {
			return err
		}
	}
	return nil
}

// requireLoss requires that every machine has dropped packets.
func (w alarmWorld) requireLoss(t *testing.T) {
	t.Helper()
	for s := range w.namespaces() {
		for _, m := range machinesOf(w.Sites, s) {
			out, err := m.Command(t.Context(), "nft", "list table inet "+lossTable)
			require.NoError(t, err)
			require.NotContains(t, out, "counter packets 0", "machine %s has dropped no packet", m.Name)
			require.Contains(t, out, "counter packets")
		}
	}
}

// occupyCores keeps every core busy until the test ends.
func occupyCores(t *testing.T) {
	t.Helper()
	for range runtime.NumCPU() {
		cmd := exec.Command("sh", "-c", "while :; do :; done")
		require.NoError(t, cmd.Start())
		t.Cleanup(func() {
			_ = cmd.Process.Kill() // it does not end by itself
			_ = cmd.Wait()
		})
	}
}

// pauseGateways pauses the gateways in turns until a time.
func (w alarmWorld) pauseGateways(t *testing.T, until time.Time) {
	t.Helper()
	for i := 0; time.Now().Add(pauseEvery).Before(until); i++ {
		waitUntil(t, time.Now().Add(pauseEvery-pauseFor))
		gateway := []*site.Site{w.Rome, w.Milan}[i%2].Fabric.Gateway()
		gateway.Pause()
		waitUntil(t, time.Now().Add(pauseFor))
		gateway.Resume()
	}
	waitUntil(t, until)
}
