package kernel

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/liqod/liqod/netfabric/plan"
)

func TestDrops(t *testing.T) {
	s := newSpace(t)
	k, c := kernelAt(t, s.fd)
	drops, err := k.Drops()
	require.NoError(t, err)
	require.Empty(t, drops, "there is no table")
	s.run(t, "sh", "-ec", "ip addr add 192.168.0.11/24 dev lo")
	state, err := plan.Node(plan.Input{
		Self: "node-1", Pods: prefixes("10.244.0.0/16"), External: prefixes("10.70.0.0/16"),
		Nodes: []plan.Host{{Name: "node-1", Addrs: []netip.Addr{addr("192.168.0.11")}, Pods: prefixes("10.244.1.0/24")}},
		Ports: plan.Ports{Overlay: plan.OverlayPort, Tunnel: plan.TunnelPort}, MTU: 1500,
	})
	require.NoError(t, err)
	applied(t, k, c, state)
	drops, err = k.Drops()
	require.NoError(t, err)
	require.Equal(t, map[string]uint64{"guard_in": 0}, drops)
}
