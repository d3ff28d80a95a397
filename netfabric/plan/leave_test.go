package plan

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// leaveOut is what a loop does with errors: it leaves out the peers, nodes and gateways
// that they name, and reports whether there was any.
func leaveOut(in Input, errs []FieldError) (Input, bool) {
	in = clone(in)
	found := false
	named := func(e FieldError, peer, host, field string) bool {
		hit := e.Peer == peer && e.Host == host && strings.HasPrefix(e.Field, field)
		found = found || hit
		return hit
	}
	for _, e := range errs {
		in.Peers = slices.DeleteFunc(in.Peers, func(p Peer) bool { return named(e, p.ID, "", "peers") })
		in.Nodes = slices.DeleteFunc(in.Nodes, func(h Host) bool { return named(e, "", h.Name, "nodes") })
		in.Gateways = slices.DeleteFunc(in.Gateways, func(r Replica) bool { return named(e, "", r.Name, "gateways") })
	}
	if !slices.ContainsFunc(in.Gateways, func(r Replica) bool { return r.Name == in.Via }) {
		in.Via = ""
	}
	return in, found
}

// Whatever is wrong with peers and hosts, leaving out those that errors name ends with what
// can be planned, unless the cluster itself is wrong.
func TestLeavingOutEnds(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(12, 13))
	for range 300 {
		in := randomTape(r, 300).input()
		in.Pods, in.External, in.IPs = prefixes("10.244.0.0/16"), prefixes("10.70.0.0/16"), nil
		in.Ports, in.MTU, in.Via = Ports{OverlayPort, TunnelPort}, 1500, ""
		for rounds := 0; ; rounds++ {
			require.Less(t, rounds, 10)
			err := in.Check()
			if err == nil {
				break
			}
			errs := fieldErrors(err)
			require.NotEmpty(t, errs, "%v", err)
			next, found := leaveOut(in, errs)
			require.True(t, found, "%v", err)
			in = next
		}
	}
}
