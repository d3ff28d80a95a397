package scenarios

import (
	"testing"

	"github.com/stretchr/testify/require"

	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

// TestNetworkKept: of two clusters of one organisation with ranges that do not overlap, pods keep
// their addresses, and reach each other as those of TestNetwork do. Their external ranges are equal,
// so these are translated.
func TestNetworkKept(t *testing.T) {
	pods := map[string]string{"rome": "10.44.0.0/16", "milan": "10.45.0.0/16"}
	w := newNetworkWorldOf(t, site.World{
		Clusters: []string{"rome", "milan"}, RealNodes: []int{2, 2}, Fabric: site.FabricProcesses,
		Settings: []map[string]any{{"sharing": map[string]any{"trust": "Organisation"}}},
		Adjust:   func(o *lab.ClusterOptions) { o.Audit, o.PodCIDR = false, pods[o.Name] },
	})
	w.peer(t)
	w.deploy(t)
	w.reached(t, "with kept addresses")
	for _, p := range must(w.netPods(t.Context()))(t) {
		require.Equal(t, p.seen["rome"], p.seen["milan"], p.name)
	}
	for s, peer := range map[*site.Site]string{w.rome: "milan", w.milan: "rome"} {
		c := kubetest.Get(t, s.Liqod().NetworkingV1beta1().Connections("liqo-tenant-"+peer), peer)
		for _, m := range c.Spec.Remote {
			if m.Use == networkingv1beta1.RangePod {
				require.Equal(t, networkingv1beta1.CIDR(pods[peer]), m.Own)
			}
			require.Equal(t, m.Use == networkingv1beta1.RangePod, m.Own == m.View, "%s sees %+v", s.Name, m)
		}
	}
	networkRestarts(t, w)
}
