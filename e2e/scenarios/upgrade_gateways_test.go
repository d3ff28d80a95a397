package scenarios

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

// TestUpgradeGateways brings the pods of two clusters from the last release to this tree: one cluster
// after the other with one gateway each, then rome with two, back, and again to this tree. A pod sends
// a datagram each millisecond all the time. Packets come back by themselves after each step, and
// peering, keys and pods are those from before.
func TestUpgradeGateways(t *testing.T) {
	w := replicasWorld{networkWorld: newNetworkWorldOf(t, site.World{
		Clusters: []string{"rome", "milan"}, RealNodes: []int{2, 1}, Fabric: site.FabricPods, Commit: releasedCommit(t),
		Adjust: func(o *lab.ClusterOptions) { o.Audit = false },
	})}
	last, tree := w.sites.Installs, w.sites.Tree
	w.peer(t)
	w.deployReplicas(t)
	w.crossed(t, "at first", "rome-1", "rome-2")
	peering, pods := w.linked(t), w.offloaded(t)
	for _, step := range []struct {
		state    string
		of       *site.Site
		to       site.Version
		gateways int
		most     time.Duration
	}{
		{"milan is new, rome old", w.milan, tree, 1, 0},
		{"both are new", w.rome, tree, 1, 0},
		{"rome has a second gateway", w.rome, tree, 2, 0},
		{"both gateways of rome are old", w.rome, last, 2, 0},
		{"both gateways of rome are new again", w.rome, tree, 2, plannedPause},
	} {
		w.rolledOut(t, step.state, step.most, func(ctx context.Context) error {
			gateways := map[string]any{"replicas": step.gateways}
			return step.of.UpgradePods(ctx, step.to, map[string]any{"networking": map[string]any{"gatewayTemplates": gateways}})
		})
		require.Equal(t, peering, w.linked(t), step.state)
		w.kept(t, pods)
	}
}

// rolledOut upgrades while packets flow, and logs the longest time in which none came back. With -all
// that is most at most; 0: as long as it takes.
func (w replicasWorld) rolledOut(t *testing.T, state string, most time.Duration, upgrade func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*longest)
	defer cancel()
	stop := w.streams(ctx, t, "rome-1")
	begin := time.Now()
	require.NoError(t, upgrade(ctx), state)
	took := time.Since(begin)
	w.crossed(t, state, "rome-1", "rome-2")
	holes := stop()
	hole := streamed{Holes: holes}.longest()
	t.Logf("%s after %s; the longest time without a packet: %s, with those that follow within 5 s %s", state, took.Round(time.Second),
		hole.Round(time.Millisecond), longestPause(holes).Length.Round(10*time.Millisecond))
	if *all && most > 0 {
		require.LessOrEqual(t, hole, most, state)
	}
}

// streams has the pod on a node of rome send a datagram each millisecond to one in milan, until stop is
// called, which returns the times in which none came back.
func (w replicasWorld) streams(ctx context.Context, t *testing.T, node string) (stop func() []hole) {
	t.Helper()
	pods, err := w.pods(ctx, replicasNamespace)
	require.NoError(t, err)
	i := slices.IndexFunc(pods, func(p corev1.Pod) bool { return p.Spec.NodeName == node })
	j := slices.IndexFunc(pods, func(p corev1.Pod) bool { return p.Spec.NodeName == "milan" })
	require.True(t, i >= 0 && j >= 0)
	var flow errgroup.Group
	var holes []hole
	done := make(chan struct{})
	flow.Go(func() error {
		for {
			begin := time.Now()
			said, err := w.rome.Exec(ctx, replicasNamespace, pods[i].Name, "stream", "udp://"+pods[j].Status.PodIP+":8080", "20s")
			var s streamed
			if err := errors.Join(err, json.Unmarshal([]byte(said), &s)); err != nil {
				t.Logf("counted as a time without a packet: %v", err)
				s.Holes = []hole{{Began: begin, Length: time.Since(begin)}}
			}
			holes = append(holes, s.Holes...)
			select {
			case <-done:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			default:
			}
		}
	})
	return func() []hole {
		close(done)
		require.NoError(t, flow.Wait())
		return holes
	}
}

// longestPause returns the longest of the holes in streams that follow each other. One at the end of a
// stream goes on in the next one, which begins some time later on a busy machine: with less than 5 s
// between them, holes count as one.
func longestPause(holes []hole) (out hole) {
	var began, ended time.Time
	for _, h := range holes {
		if h.Began.Sub(ended) > 5*time.Second {
			began = h.Began
		}
		ended = h.Began.Add(h.Length)
		if length := ended.Sub(began); length > out.Length {
			out = hole{began, length}
		}
	}
	return out
}

// linked returns the UIDs of the Connections, and of the key of number 1, in each cluster.
func (w replicasWorld) linked(t *testing.T) map[string]types.UID {
	t.Helper()
	out := map[string]types.UID{}
	for _, s := range []*site.Site{w.rome, w.milan} {
		connections := kubetest.List(t, s.Liqod().NetworkingV1beta1().Connections(metav1.NamespaceAll))
		for _, c := range connections.Items {
			out[s.Name+"/"+c.Name] = c.UID
		}
		key := kubetest.Get(t, s.Client().CoreV1().Secrets(site.Namespace), "liqod-gateway-key")
		out[s.Name+"/key"] = key.UID
	}
	require.Len(t, out, 4)
	return out
}
