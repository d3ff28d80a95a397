package scenarios

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
)

// apart drops the tunnel between two clusters, and nothing else, until together.
func (w hubWorld) apart(t *testing.T, a, b *site.Site) {
	t.Helper()
	for _, pair := range [][2]*site.Site{{a, b}, {b, a}} {
		from := w.sites.Full.Nodes(pair[1].Cluster)[0].Machine.Address
		drops := lab.Drops{Arriving: []string{fmt.Sprintf("ip saddr %s meta l4proto udp", from)}}
		require.NoError(t, w.sites.Full.Nodes(pair[0].Cluster)[0].Machine.Drop(t.Context(), "apart", drops))
	}
}

func (w hubWorld) together(t *testing.T) {
	t.Helper()
	for _, s := range w.list {
		require.NoError(t, w.sites.Full.Nodes(s.Cluster)[0].Machine.Pass(t.Context(), "apart"))
	}
}

// legDown: the pod in turin is no ready endpoint in milan while the tunnel of the hub to either of the two is
// down, and is one again when it is back.
func (w hubWorld) legDown(t *testing.T) {
	for _, leg := range w.list[1:] {
		w.apart(t, w.rome, leg)
		within(t, longest, "milan knows that turin is not reached while rome and "+leg.Name+" are apart", func(ctx context.Context) error {
			known, err := w.endpoints(ctx, w.list[1])
			if err == nil && len(known["turin"]) > 0 {
				err = fmt.Errorf("it has %v", known)
			}
			return lab.Wrong(err, len(known["milan"]) == 0, "its own pod is not ready: %v", known)
		})
		w.together(t)
		w.reached(t)
	}
}

// ways waits until milan and turin know each other's pod by their own peering, or by rome.
func (w hubWorld) ways(t *testing.T, through string) {
	t.Helper()
	for _, pair := range [][2]*site.Site{{w.list[1], w.list[2]}, {w.list[2], w.list[1]}} {
		within(t, longest, fmt.Sprintf("%s reaches the pod in %s by its tunnel to %s", pair[0].Name, pair[1].Name, through), func(ctx context.Context) error {
			peer := through
			if peer == "each other" {
				peer = pair[1].Name
			}
			c, err := pair[0].Liqod().NetworkingV1beta1().Connections(corev1beta1.TenantNamespace(peer)).Get(ctx, peer, metav1.GetOptions{})
			if err != nil {
				return err
			}
			known, err := w.endpoints(ctx, pair[0])
			addresses := known[pair[1].Name]
			return lab.Wrong(err, len(addresses) == 0 || slices.ContainsFunc(addresses, func(a string) bool { return !viewed(c, a) }),
				"%s knows %v, and sees %s as %v, behind it %v", pair[0].Name, known, peer, c.Spec.Remote, c.Spec.Behind)
		})
	}
}

// viewed reports whether an address is in a range of a peer.
func viewed(c *networkingv1beta1.Connection, address string) bool {
	a, err := netip.ParseAddr(address)
	for _, m := range c.Spec.Remote {
		if p, ok := m.View.Prefix(); ok && err == nil && p.Contains(a) {
			return true
		}
	}
	return false
}

// direct: two clusters that become peers reach each other's pods of the hub's namespace without the hub, and
// by the hub while their own tunnel is down. They reach no more than before.
func (w hubWorld) direct(t *testing.T) {
	w.ways(t, "rome")
	w.peer(t, w.list[1], w.list[2])
	w.ways(t, "each other")
	w.reached(t)
	w.shared(t)
	w.apart(t, w.list[1], w.list[2])
	w.ways(t, "rome")
	w.reached(t)
	w.together(t)
	w.ways(t, "each other")
	w.reached(t)
}
