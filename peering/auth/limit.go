package auth

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/liqod/liqod/kube/serve"
)

// mostAddresses is the number of addresses with a limit of their own. Only an attack uses
// more at a time, and the common limit covers that.
const mostAddresses = 4096

// limits are the rate limits of the endpoint. It is safe for concurrent use.
type limits struct {
	all        *rate.Limiter
	lines      *rate.Limiter // log lines about refused requests
	perAddress int           // requests per minute

	mu     sync.Mutex
	each   map[netip.Prefix]*rate.Limiter
	proofs map[netip.Prefix]*rate.Limiter // chains of certificates that proved nothing
	users  map[string]*rate.Limiter       // of verified certificates; there are few
}

func perMinute(n int) *rate.Limiter { return rate.NewLimiter(rate.Limit(n)/60, n) }

func newLimits(all, perAddress int) *limits {
	return &limits{
		all: perMinute(all), lines: perMinute(all), perAddress: perAddress,
		each: map[netip.Prefix]*rate.Limiter{}, proofs: map[netip.Prefix]*rate.Limiter{}, users: map[string]*rate.Limiter{},
	}
}

// client reports whether a request is within its limit, and counts it: that of the user, or
// that of the address if user is empty.
func (l *limits) client(user string, remote netip.Addr, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if user != "" {
		return limiter(l.users, user, l.perAddress, now).AllowN(now, 1)
	}
	return limiter(l.each, serve.Neighbourhood(remote), l.perAddress, now).AllowN(now, 1)
}

// proof counts a chain of certificates from an address, before it is verified. It returns nil
// beyond the limit, and else what takes the count back. Requests without certificates do not
// count, so that they keep no peer with the same address out.
func (l *limits) proof(remote netip.Addr, now time.Time) (valid func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	place := limiter(l.proofs, serve.Neighbourhood(remote), l.perAddress, now).ReserveN(now, 1)
	if place.DelayFrom(now) > 0 {
		place.CancelAt(now)
		return nil
	}
	return func() { place.CancelAt(now) }
}

func limiter[K comparable](each map[K]*rate.Limiter, key K, perMin int, now time.Time) *rate.Limiter {
	one := each[key]
	if one == nil {
		makeRoom(each, perMin, now)
		one = perMinute(perMin)
		each[key] = one
	}
	return one
}

// makeRoom drops the limiters of clients that have been idle long enough to have their
// full allowance, and others if that is not enough.
func makeRoom[K comparable](each map[K]*rate.Limiter, full int, now time.Time) {
	if len(each) < mostAddresses {
		return
	}
	for key, one := range each {
		if one.TokensAt(now) >= float64(full) {
			delete(each, key)
		}
	}
	for key := range each {
		if len(each) < mostAddresses {
			return
		}
		delete(each, key)
	}
}

// places are those of the requests in work. It is safe for concurrent use.
type places struct {
	mu               sync.Mutex
	strangers, peers int
	each             map[string]int // of each verified user
}

// take returns the function that frees the place of a request, or nil if there is none.
// user is the verified user, or empty.
func (p *places) take(user string) (free func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if user == "" {
		if p.strangers == atOnce {
			return nil
		}
		p.strangers++
		return func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.strangers--
		}
	}
	if p.peers == peersAtOnce || p.each[user] == eachAtOnce {
		return nil
	}
	p.peers++
	p.each[user]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.peers--
		if p.each[user]--; p.each[user] == 0 {
			delete(p.each, user)
		}
	}
}
