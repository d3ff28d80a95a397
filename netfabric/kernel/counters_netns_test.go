package kernel

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/liqod/liqod/netfabric/plan"
)

// Packets of both families count under one name, as often as they are dropped, and begin
// again when the table is replaced.
func TestNetnsCounters(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	k, c := kernelAt(t, s.FD)
	got, err := k.Counters(t.Context())
	require.NoError(t, err)
	require.Empty(t, got, "there is no table")
	refused, err := k.Refused()
	require.NoError(t, err)
	require.Empty(t, refused, "there is no table")

	want := plan.State{Table: plan.Table{Name: plan.TableName, Chains: []plan.Chain{
		{Name: "first", Hook: plan.HookOutput, Rules: []plan.Match{
			{Family: plan.V4, Proto: "udp", Port: 7001, Do: plan.Drop, Name: "both"},
			{Family: plan.V6, Proto: "udp", Port: 7001, Do: plan.Drop, Name: "both"},
			{Proto: "udp", Port: 7003, Do: plan.Drop},
		}},
		{Name: "second", Hook: plan.HookInput, Rules: []plan.Match{{Proto: "udp", Port: 7002, Do: plan.Drop, Name: "other"}}},
	}}}
	applied(t, k, c, want)
	for to, n := range map[string]int{"127.0.0.1:7001": 2, "[::1]:7001": 3, "127.0.0.1:7002": 4, "127.0.0.1:7003": 5} {
		var conn net.Conn
		s.do(func() { conn, err = net.Dial("udp", to) })
		require.NoError(t, err)
		for range n {
			_, _ = conn.Write([]byte("dropped")) // the output hook refuses it with an error
		}
		require.NoError(t, conn.Close())
	}
	got, err = k.Counters(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]uint64{"both": 5, "other": 4}, got)

	applied(t, k, c, want)
	again, err := k.Counters(t.Context())
	require.NoError(t, err)
	require.Equal(t, got, again)

	want.Table.Chains = want.Table.Chains[:1]
	applied(t, k, c, want)
	got, err = k.Counters(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]uint64{"both": 0}, got)
}
