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

// A peer that is wrong costs no other one anything.
func TestAWrongPeerCostsOthersNothing(t *testing.T) {
	t.Parallel()
	for name, wrong := range map[string]func(*Peer){
		"in the own pods":         func(p *Peer) { p.Theirs.Pods = prefixes("10.244.0.0/16") },
		"around another":          func(p *Peer) { p.Theirs.Pods = prefixes("10.192.0.0/10") },
		"in another":              func(p *Peer) { p.Theirs.Transit = prefixes("10.200.3.0/24") },
		"over the nodes":          func(p *Peer) { p.Theirs.Pods = prefixes("192.168.0.0/16") },
		"with another's key":      func(p *Peer) { p.Gateways[0].Key = key(11) },
		"with no key":             func(p *Peer) { p.Gateways[0].Key = "" },
		"with a strange view":     func(p *Peer) { p.Ours[0].View = prefix("169.254.0.0/16") },
		"with a gateway too many": func(p *Peer) { p.Gateways[0].Number = MaxReplicas + 1 },
		"with a strange size":     func(p *Peer) { p.MTU = 68 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := clone(rome())
			in.Peers = append(in.Peers, Peer{
				ID:       "turin",
				Theirs:   Ranges{Pods: prefixes("10.8.0.0/16")},
				Ours:     maps("10.244.0.0/16", "10.200.0.0/16"),
				Gateways: []Remote{{Number: 1, Key: key(31)}},
			})
			require.NoError(t, in.Check())
			wrong(&in.Peers[2])
			errs := fieldErrors(in.Check())
			require.NotEmpty(t, errs)
			for _, e := range errs {
				require.Equal(t, "turin", e.Peer, "%v", e)
			}
			left, _ := leaveOut(in, errs)
			for self, build := range map[string]func(Input) (State, error){"rome-1": Node, "gw-a": Gateway} {
				require.Equal(t, planHost(t, build, rome(), self), planHost(t, build, left, self))
			}
		})
	}
}
