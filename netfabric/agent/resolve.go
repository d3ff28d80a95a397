package agent

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
)

const (
	// resolveEvery is the time between two lookups of a name.
	resolveEvery = 30 * time.Second
	// resolveTimeout bounds a lookup.
	resolveTimeout = 5 * time.Second
)

// Resolver knows the addresses of the endpoints of peers' gateways. Names are looked up by
// Run: whoever asks gets the last good answer at once. It is safe for concurrent use.
type Resolver struct {
	lookup   func(ctx context.Context, host string) ([]netip.Addr, error)
	clock    clock.WithTicker
	log      *zap.Logger
	onChange func()
	news     chan struct{}

	mu    sync.Mutex
	names map[string]*answer
	turn  map[string]int // by public key: which endpoint is tried
}

// answer is what is known of a name.
type answer struct {
	addrs  []netip.Addr
	asked  time.Time // the last lookup; zero: none yet
	wanted time.Time // the last question
}

// NewResolver starts nothing. lookup is that of a *net.Resolver; onChange is called when an
// answer has changed, and returns at once.
func NewResolver(lookup func(ctx context.Context, host string) ([]netip.Addr, error), clk clock.WithTicker, log *zap.Logger, onChange func()) *Resolver {
	return &Resolver{lookup: lookup, clock: clk, log: log, onChange: onChange, news: make(chan struct{}, 1), names: map[string]*answer{}, turn: map[string]int{}}
}

// Endpoint returns the address to send to of a gateway: the first one that is known and that
// accept allows, or one after it when Next has been called. It is not valid where there is
// none: then the gateway has to dial.
func (r *Resolver) Endpoint(g networkingv1beta1.Gateway, accept func(netip.Addr) error) netip.AddrPort {
	all := r.candidates(g, accept)
	if len(all) == 0 {
		return netip.AddrPort{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return all[r.turn[g.PublicKey]%len(all)]
}

// Next makes Endpoint return another address of the gateway with that key, if it has one.
func (r *Resolver) Next(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn[key]++
}

func (r *Resolver) candidates(g networkingv1beta1.Gateway, accept func(netip.Addr) error) (out []netip.AddrPort) {
	for _, e := range g.Endpoints {
		for _, addr := range r.addresses(e.Address) {
			if e.Port >= 1 && e.Port <= 65535 && accept(addr) == nil {
				out = append(out, netip.AddrPortFrom(addr, uint16(e.Port)))
			}
		}
	}
	return out
}

func (r *Resolver) addresses(host string) []netip.Addr {
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr}
	}
	if checkHost(host) != nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.names[host]
	if a == nil {
		a = &answer{}
		r.names[host] = a
		select {
		case r.news <- struct{}{}:
		default:
		}
	}
	a.wanted = r.clock.Now()
	return a.addrs
}

// Run looks names up until ctx is done.
func (r *Resolver) Run(ctx context.Context) error {
	ticker := r.clock.NewTicker(resolveEvery / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		case <-r.news:
		}
		changed := false
		for _, host := range r.due() {
			changed = r.ask(ctx, host) || changed
		}
		if changed {
			r.onChange()
		}
	}
}

// forgetNames is how long a name is looked up that nobody has asked for.
const forgetNames = 10 * time.Minute

// due returns the names that are to be looked up.
func (r *Resolver) due() (hosts []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	for host, a := range r.names {
		switch {
		case now.Sub(a.wanted) > forgetNames:
			delete(r.names, host)
		case a.asked.IsZero() || now.Sub(a.asked) >= resolveEvery:
			hosts = append(hosts, host)
		}
	}
	slices.Sort(hosts)
	return hosts
}

// ask looks a name up. A failure leaves the last answer in force.
func (r *Resolver) ask(ctx context.Context, host string) (changed bool) {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	addrs, err := r.lookup(ctx, host)
	for i := range addrs {
		addrs[i] = addrs[i].Unmap()
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.names[host]
	if a == nil {
		return false
	}
	a.asked = r.clock.Now()
	if err != nil || len(addrs) == 0 {
		r.log.Debug("resolving an endpoint failed", zap.String("host", host), zap.Error(err))
		return false
	}
	changed = !slices.Equal(addrs, a.addrs)
	a.addrs = addrs
	return changed
}
