package join

import (
	"hash/fnv"
	"time"
)

// A step is what is to be done about the identity in a peer.
type step int

const (
	// stepNone: none is there, and none is wanted.
	stepNone step = iota
	// stepGiven: people have given one.
	stepGiven
	// stepUnasked: one is wanted, and nothing says how to get it.
	stepUnasked
	// stepEnrol: a token is to be exchanged for one.
	stepEnrol
	// stepRenew: it is to be renewed.
	stepRenew
	// stepKeep: it is good.
	stepKeep
)

// jitter is how much earlier than configured an identity may be renewed, as a part of that
// time, so that many do not come at once.
const jitter = 0.1

// decide is pure. wanted says that an identity is to be had, invited that there is a way to
// get one, and renewAt after which part of its lifetime it is renewed. One that is there
// is kept good for as long as it is there: what drains needs it.
func decide(have *identity, now time.Time, wanted, invited bool, renewAt float64) step {
	switch {
	case have.given():
		if wanted {
			return stepGiven
		}
		return stepNone
	case have.usable(now):
		if !now.Before(have.renewal(renewAt)) {
			return stepRenew
		}
		return stepKeep
	case !wanted:
		return stepNone
	case !invited:
		return stepUnasked
	}
	return stepEnrol
}

// renewal is when an identity is renewed. It is the same each time it is computed.
func (i *identity) renewal(renewAt float64) time.Time {
	h := fnv.New32a()
	_, _ = h.Write([]byte(i.grant.User + i.issued.String())) // never fails
	early := 1 - jitter*float64(h.Sum32()%1000)/1000
	life := i.grant.NotAfter.Sub(i.issued)
	return i.issued.Add(time.Duration(float64(life) * renewAt * early))
}
