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

// TestNetnsRates: of a set of plan.Rate, a rule finds an element for packets above the rate. Packets of a connection
// after the first one do not count.
func TestNetnsRates(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	k, c := kernelAt(t, s.FD)
	applied(t, k, c, plan.State{Table: plan.Table{
		Name:     plan.TableName,
		Sets:     []plan.Set{{Name: "rate4", Family: plan.V4, Keys: 1, Value: plan.Rate, Rate: 5}},
		Elements: []plan.Element{{Set: "rate4", A: prefix("127.0.0.0/8")}},
		Chains: []plan.Chain{{Name: "first", Hook: plan.HookOutput, Priority: plan.ManglePriority - 1, Rules: []plan.Match{
			{Family: plan.V4, Proto: "udp", Port: 7001, CT: plan.First, Set: plan.Lookup{Name: "rate4", Key: plan.Src}, Do: plan.Drop, Name: "over"},
		}}},
	}})
	send := func(connections, packets int) {
		for range connections {
			var conn net.Conn
			var err error
			s.do(func() { conn, err = net.Dial("udp", "127.0.0.1:7001") })
			require.NoError(t, err)
			for range packets {
				_, _ = conn.Write([]byte("x"))
			}
			require.NoError(t, conn.Close())
		}
	}
	send(1, 1000)
	got, err := k.Counters(t.Context())
	require.NoError(t, err)
	require.Zero(t, got["over"])
	send(1000, 1)
	got, err = k.Counters(t.Context())
	require.NoError(t, err)
	require.Positive(t, got["over"])
}
