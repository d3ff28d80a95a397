package kernel

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/liqod/liqod/netfabric/plan"
)

// foreign are things that resemble ours and are not.
const foreignThings = `
ip link add liqo0 type bridge
ip link set liqo0 up
ip address add 10.70.0.1/32 dev liqo0
ip neigh add 10.70.0.9 lladdr 02:00:00:00:00:01 dev liqo0 nud permanent
ip rule add priority 91 lookup 6171
ip rule add priority 90 from 10.9.9.9 goto 93 protocol 109
ip rule add priority 94 lookup 6172 protocol 108
ip -6 rule add priority 92 lookup 6172
ip route add 10.1.0.0/16 dev liqo0 proto 108
ip route add 10.92.0.0/16 dev liqo0 table 6171
ip route add 10.3.0.0/16 dev liqo0 table 6172 proto static
ip route add 10.4.0.0/16 dev liqo0 table 6173 proto 108
ip -6 route add fd00:a5::/64 dev liqo0 table 6171
nft add table ip liqod
nft add chain ip liqod guard_in '{ type filter hook prerouting priority -300; }'
nft add table inet other
nft add set inet other peers4 '{ type ipv4_addr; flags interval; elements = { 10.1.0.0/16 }; }'
`

// host is all that there is in the network of a host, but for what the kernel does by itself
// in its own time.
func (s *space) host(t *testing.T) string {
	t.Helper()
	out := s.run(t, "sh", "-ec", `
ip link; ip address; ip rule; ip -6 rule; ip neigh show nud permanent; bridge fdb
ip route show table all; ip -6 route show table all; nft list ruleset`)
	own := regexp.MustCompile(`fe80|ff00::/8|^33:33|^01:00:5e|valid_lft`)
	var kept []string
	for line := range strings.Lines(out) {
		if !own.MatchString(line) {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// Nothing of others is touched while states change, nor at the end.
func TestNetnsCleanupLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.address(t, "lo", "192.168.0.10/32", "fd00:1::10/128")
	s.run(t, "sh", "-ec", foreignThings)
	before := s.host(t)
	k, c := kernelAt(t, s.FD)
	walkPlans(t, k, c, plan.Node)
	want, err := plan.Node(fixed())
	require.NoError(t, err)

	require.NoError(t, k.Apply(t.Context(), want))
	require.Contains(t, s.host(t), plan.OverlayDevice)
	s.run(t, "ip", "link", "add", "liqod-old", "type", "bridge") // of an older version, say
	require.NoError(t, k.Apply(t.Context(), plan.State{}))
	require.Equal(t, before, s.host(t))

	n := c.total()
	require.NoError(t, k.Apply(t.Context(), plan.State{}))
	require.Equal(t, n, c.total(), "the second time writes")
}

func TestNetnsCleanupOfAGateway(t *testing.T) {
	t.Parallel()
	if !alone(t) {
		return
	}
	s := here(t)
	s.run(t, "sh", "-ec", foreignThings)
	before := s.host(t)
	k, _ := kernelAt(t, 0)
	want, err := plan.Gateway(fixed())
	require.NoError(t, err)
	require.NoError(t, k.Apply(t.Context(), want))
	require.Contains(t, s.host(t), plan.TunnelDevice)
	require.NoError(t, k.Apply(t.Context(), plan.State{}))
	require.Equal(t, before, s.host(t))
}

// A route of somebody else in one of our tables is told of, and stays.
func TestNetnsRouteOfAnother(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.address(t, "lo", "192.168.0.10/32", "fd00:1::10/128")
	s.run(t, "sh", "-ec", "ip route add 10.1.0.0/16 dev lo table 6171; ip -6 route add fd00:b1::/64 dev lo table 6171")
	k, c := kernelAt(t, s.FD)
	want, err := plan.Node(fixed())
	require.NoError(t, err)
	err = k.Apply(t.Context(), want)
	require.ErrorIs(t, err, unix.EEXIST)
	require.ErrorContains(t, err, "setting route table 6171 10.1.0.0/16")
	require.ErrorContains(t, err, "setting route table 6171 fd00:b1::/64")
	require.Contains(t, s.run(t, "ip", "route", "show", "table", "6171"), "10.1.0.0/16 dev lo")
	require.Contains(t, s.run(t, "ip", "-6", "route", "show", "table", "6171"), "fd00:b1::/64 dev lo")

	s.run(t, "sh", "-ec", "ip route del 10.1.0.0/16 table 6171; ip -6 route del fd00:b1::/64 table 6171")
	applied(t, k, c, want)
}

func TestNetnsACancelledApplyStops(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	k, c := kernelAt(t, s.FD)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, k.Apply(ctx, plan.State{Table: plan.Table{Name: plan.TableName}}), context.Canceled)
	require.Zero(t, c.total())
}
