package auth

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// mostAddresses is how many addresses are told from each other; more than that are not
// there at once but in an attack, which the common limit is for.
const mostAddresses = 4096

// limits bounds the rates of requests. It is safe for concurrent use.
type limits struct {
	all        *rate.Limiter
	lines      *rate.Limiter // of the log, about what was refused
	perAddress int           // each minute

	mu   sync.Mutex
	each map[netip.Prefix]*rate.Limiter
}

func perMinute(n int) *rate.Limiter { return rate.NewLimiter(rate.Limit(n)/60, n) }

func newLimits(all, perAddress int) *limits {
	return &limits{all: perMinute(all), lines: perMinute(all), perAddress: perAddress, each: map[netip.Prefix]*rate.Limiter{}}
}

// address reports whether one more request may come from an address now.
func (l *limits) address(remote netip.Addr, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := neighbourhood(remote)
	one := l.each[key]
	if one == nil {
		l.makeRoom(now)
		one = perMinute(l.perAddress)
		l.each[key] = one
	}
	return one.AllowN(now, 1)
}

// makeRoom forgets who has been silent for long enough to be a stranger again; if that is
// nobody, anybody.
func (l *limits) makeRoom(now time.Time) {
	if len(l.each) < mostAddresses {
		return
	}
	for key, one := range l.each {
		if one.TokensAt(now) >= float64(l.perAddress) {
			delete(l.each, key)
		}
	}
	for key := range l.each {
		if len(l.each) < mostAddresses {
			return
		}
		delete(l.each, key)
	}
}

// neighbourhood is what one party has: of IPv6 a /64.
func neighbourhood(remote netip.Addr) netip.Prefix {
	remote = remote.Unmap().WithZone("")
	bits := remote.BitLen()
	if remote.Is6() {
		bits = 64
	}
	return netip.PrefixFrom(remote, bits).Masked()
}
