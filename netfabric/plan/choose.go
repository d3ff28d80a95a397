package plan

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
)

// Candidate is a gateway that could be used.
type Candidate struct {
	Number int
	Alive  bool // answers probes
	Serves bool // reports that it carries the packets in question: it does not end, and its own tunnels are steady
}

// Choose returns the number of the gateway to use, given that of the one in use; 0: none.
// Candidates are in the order of Prefer. A gateway that serves goes before one that is alive
// alone, so a gateway moves nodes and peers at the same time by what it reports. Without any
// that is alive, the one in use stays: none would be better.
//
// The choice follows from the candidates alone where one is alive. So nodes and peers that
// see the same choose the same, and both directions of a connection pass one gateway.
func Choose(have int, candidates []Candidate) int {
	best := slices.IndexFunc(candidates, func(c Candidate) bool { return c.Alive && c.Serves })
	if best < 0 {
		best = slices.IndexFunc(candidates, func(c Candidate) bool { return c.Alive })
	}
	switch {
	case best >= 0:
		return candidates[best].Number
	case len(candidates) == 0:
		return 0
	case slices.ContainsFunc(candidates, func(c Candidate) bool { return c.Number == have }):
		return have
	}
	return candidates[0].Number
}

// Prefer sorts candidates, gateways of the cluster owner, by preference for the packets
// between it and the cluster peer. Nodes of owner and gateways of peer sort them alike, and
// the first ones of many peers are spread over all gateways.
func Prefer(owner, peer string, candidates []Candidate) {
	rank := func(c Candidate) string {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %d", owner, peer, c.Number))
		return string(sum[:])
	}
	slices.SortFunc(candidates, func(a, b Candidate) int { return cmp.Compare(rank(a), rank(b)) })
}
