package join

import (
	"hash/fnv"
	"time"
)

// A step is the next action on the identity in a peer.
type step int

const (
	// stepNone: there is no identity, and none is wanted.
	stepNone step = iota
	// stepGiven: people have provided the credentials.
	stepGiven
	// stepUnasked: an identity is wanted, but there is no token.
	stepUnasked
	// stepEnrol: exchange a token for an identity.
	stepEnrol
	// stepRenew: renew the identity.
	stepRenew
	// stepKeep: the identity is valid.
	stepKeep
)

// jitter is the maximum fraction of the time before renewal by which an identity is renewed
// earlier, so that many renewals do not coincide.
const jitter = 0.1

// decide returns the next step. It is pure. wanted means that this cluster wants to use the
// peer, invited that there is a token. renewAt is Config.RenewAt. An existing identity is
// renewed even if it is no longer wanted, because virtual nodes that are being drained
// still need it.
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

// renewal returns the time at which an identity is renewed. It is deterministic.
func (i *identity) renewal(renewAt float64) time.Time {
	h := fnv.New32a()
	_, _ = h.Write([]byte(i.grant.User + i.issued.String())) // never fails
	early := 1 - jitter*float64(h.Sum32()%1000)/1000
	life := i.grant.NotAfter.Sub(i.issued)
	return i.issued.Add(time.Duration(float64(life) * renewAt * early))
}
