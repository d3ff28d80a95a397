package host

import (
	"math"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/netfabric/plan"
)

// refusing is a host that has dropped packets of milan.
type refusing struct {
	fakeHost
	packets atomic.Uint64
}

func (h *refusing) Refused() (map[netip.Prefix]uint64, error) {
	return map[netip.Prefix]uint64{netip.MustParsePrefix("10.201.0.0/16"): h.packets.Load(), netip.MustParsePrefix("10.9.0.0/16"): 7}, nil
}

// A host has one event about a peer, and writes it when the number has doubled, or seldom.
func TestRefusalsAreRecorded(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		ctx, host := t.Context(), &refusing{}
		a := apisWith(t, *hostNode("node-1", "192.0.2.11", "10.244.1.0/24"))
		n := NewNode(NodeConfig{
			ClusterID: "rome", Name: "node-1", Overlay: plan.OverlayPort, MTU: 1500, Host: &countingHost{}, Sources: a.sources, Clock: clock.RealClock{}, Log: zap.NewNop(),
		})
		a.start(ctx.Done())
		go func() { _ = n.Run(ctx) }()
		require.NoError(t, a.connect(ctx, linked("milan", 1, publicKeys(t, 1)[0])))
		kubetest.Settled(time.Second)
		go func() {
			_ = n.RecordRefusals(ctx, host, a.kube.CoreV1(), corev1.EventSource{Component: "liqod-route", Host: "node-1"})
		}()
		synctest.Wait()
		for _, step := range []struct {
			why     string
			packets uint64
			after   time.Duration
			count   int32
			writes  int
		}{
			{"nothing is refused", 0, time.Hour, 0, 0},
			{"the first packets", 3, time.Minute, 3, 2}, // there is no event to patch
			{"more, but not twice as many", 5, time.Minute, 3, 0},
			{"still", 5, 30 * time.Minute, 5, 1},
			{"twice as many", 10, time.Minute, 10, 1},
			{"no more", 10, 2 * time.Hour, 10, 0},
			{"the table was replaced", 2, time.Minute, 2, 1},
			{"the table was replaced, and nothing is refused", 0, time.Hour, 2, 0},
			{"more than an event can say", 1 << 40, time.Minute, math.MaxInt32, 1},
		} {
			a.kube.ClearActions()
			host.packets.Store(step.packets)
			require.Equal(t, step.writes, kubetest.Settled(step.after, a.kube), step.why)
			events := kubetest.List(t, a.kube.CoreV1().Events("liqo-tenant-milan"))
			if step.count == 0 {
				require.Empty(t, events.Items)
				continue
			}
			require.Len(t, events.Items, 1)
			e := events.Items[0]
			require.Equal(t, step.count, e.Count, step.why)
			require.Equal(t, networkingv1beta1.ReasonPacketsRefused, e.Reason)
			require.Equal(t, "milan", e.InvolvedObject.Name)
		}
	})
}
