package auth

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// mostAddresses is the number of addresses with a limit of their own. Only an attack uses
// more at a time, and the common limit covers that.
const mostAddresses = 4096

// limits are the rate limits of the endpoint. It is safe for concurrent use.
type limits struct {
	all        *rate.Limiter
	lines      *rate.Limiter // log lines about refused requests
	perAddress int           // requests per minute

	mu   sync.Mutex
	each map[netip.Prefix]*rate.Limiter
}

func perMinute(n int) *rate.Limiter { return rate.NewLimiter(rate.Limit(n)/60, n) }

func newLimits(all, perAddress int) *limits {
	return &limits{all: perMinute(all), lines: perMinute(all), perAddress: perAddress, each: map[netip.Prefix]*rate.Limiter{}}
}

// address reports whether a request from an address is within its limit, and counts it.
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

// makeRoom drops the limiters of addresses that have been idle long enough to have their
// full allowance, and others if that is not enough.
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

// neighbourhood returns the range of addresses that shares one limit: a single IPv4
// address, or an IPv6 /64, which a single client usually has as a whole.
func neighbourhood(remote netip.Addr) netip.Prefix {
	remote = remote.Unmap().WithZone("")
	bits := remote.BitLen()
	if remote.Is6() {
		bits = 64
	}
	return netip.PrefixFrom(remote, bits).Masked()
}
