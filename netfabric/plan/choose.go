package plan

import (
	"slices"
	"time"
)

// Candidate is a gateway that could be used.
type Candidate struct {
	Number int
	Alive  bool      // answers probes
	Since  time.Time // when Alive last changed
}

// Choice is the gateway in use.
type Choice struct {
	Number int       // 0: none yet
	Since  time.Time // when it was chosen
}

// Choose returns which gateway to use at the time now, given the one in use. Candidates are
// in order of preference, the same order for all nodes and peers, so that in the end all use
// the same gateway: both directions of a connection then pass it.
//
// A dead gateway is left at once, and rather for one that has been alive for hold. One that
// is preferred gets the traffic back when it has been alive for hold, and the one in use has
// been in use for as long. If all are dead nothing changes: none would be better.
func Choose(now time.Time, hold time.Duration, have Choice, candidates []Candidate) Choice {
	in := slices.IndexFunc(candidates, func(c Candidate) bool { return c.Number == have.Number })
	alive := slices.IndexFunc(candidates, func(c Candidate) bool { return c.Alive })
	steady := slices.IndexFunc(candidates, func(c Candidate) bool { return c.Alive && now.Sub(c.Since) >= hold })

	switch {
	case len(candidates) == 0:
		return Choice{}
	case in >= 0 && (alive < 0 || candidates[in].Alive && !(steady >= 0 && steady < in && now.Sub(have.Since) >= hold)):
		return have
	case steady >= 0:
		return Choice{candidates[steady].Number, now}
	}
	return Choice{candidates[max(alive, 0)].Number, now}
}
