package host

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/netfabric/check"
)

const (
	// resolveEvery is the time between two lookups of a name.
	resolveEvery = 30 * time.Second
	// resolveAgain is the least time between two lookups of a name of a gateway that is down.
	resolveAgain = 3 * time.Second
	// resolveTimeout bounds a lookup.
	resolveTimeout = 5 * time.Second
	// maxLookups is how many names are looked up at once: one of each peer.
	maxLookups = 8
	// maxNames and maxAddresses are how many names of one peer are looked up, and how many
	// addresses of them are kept.
	maxNames, maxAddresses = 8, 16
	// forgetNames is how long a name is looked up that nobody has asked for.
	forgetNames = 10 * time.Minute
	// replaceNames is the same where a peer has maxNames and another one is asked for. It is
	// longer than the time between two plans.
	replaceNames = 3 * verifyEvery
)

// Resolver knows the addresses of the endpoints of peers' gateways. Names are looked up by
// Run: whoever asks gets the last good answer at once. A peer whose names are not answered
// delays no other one. It is safe for concurrent use.
type Resolver struct {
	lookup   func(ctx context.Context, host string) ([]netip.Addr, error)
	clock    clock.WithTicker
	log      *zap.Logger
	onChange func()
	news     loop.Signal
	slots    chan struct{} // one for each lookup at once

	mu    sync.Mutex
	peers map[string]map[string]*answer // by id and name
	busy  map[string]bool               // peers whose names are looked up now
	turns map[string]*turn              // by public key: two may have the same
}

// answer is what is known of a name.
type answer struct {
	addrs  []netip.Addr
	asked  time.Time // the last lookup; zero: none yet
	wanted time.Time // the last question
}

// turn says which endpoint of a gateway is in use.
type turn struct {
	peer   string
	keys   []string
	names  []string         // of its endpoints
	all    []netip.AddrPort // its endpoints
	at     int              // the index in all
	wanted time.Time        // the last question
}

// NewResolver starts nothing. lookup is that of a *net.Resolver; onChange is called when an
// answer has changed, and returns at once.
func NewResolver(lookup func(ctx context.Context, host string) ([]netip.Addr, error), clk clock.WithTicker, log *zap.Logger, onChange func()) *Resolver {
	return &Resolver{
		lookup: lookup, clock: clk, log: log, onChange: onChange, news: loop.NewSignal(), slots: make(chan struct{}, maxLookups),
		peers: map[string]map[string]*answer{}, busy: map[string]bool{}, turns: map[string]*turn{},
	}
}

// Endpoint returns the address to send to of a peer's gateway: the first one that is known
// and that accept allows, or the one that Use has chosen. An address that was not known before comes
// first: a gateway that has moved is there. It is not valid where there is none: then the gateway
// has to dial.
func (r *Resolver) Endpoint(peer string, g networkingv1beta1.Gateway, accept func(netip.Addr) error) netip.AddrPort {
	all := r.candidates(peer, g, accept)
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.turns[g.PublicKey]
	if t == nil {
		t = &turn{}
	}
	for _, key := range t.keys {
		delete(r.turns, key)
	}
	t.peer, t.keys, t.names, t.wanted = peer, g.Keys(), nil, r.clock.Now()
	for _, key := range t.keys {
		r.turns[key] = t
	}
	for _, e := range g.Endpoints {
		t.names = append(t.names, e.Address)
	}
	t.follow(all)
	if len(all) == 0 {
		return netip.AddrPort{}
	}
	return all[t.at]
}

// follow replaces the endpoints.
func (t *turn) follow(all []netip.AddrPort) {
	if slices.Equal(all, t.all) {
		return
	}
	at := slices.IndexFunc(all, func(e netip.AddrPort) bool { return !slices.Contains(t.all, e) })
	if at < 0 && t.at < len(t.all) {
		at = slices.Index(all, t.all[t.at])
	}
	t.all, t.at = all, max(at, 0)
}

// Endpoints returns the endpoints of the gateway with a key, as Endpoint has found them, and the
// index of the one in use.
func (r *Resolver) Endpoints(key string) (all []netip.AddrPort, at int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.turns[key]; t != nil {
		return t.all, t.at
	}
	return nil, 0
}

// Use makes Endpoint return this address of the gateway with a key, as long as the gateway has it.
func (r *Resolver) Use(key string, e netip.AddrPort) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.turns[key]; t != nil {
		t.at = max(slices.Index(t.all, e), 0)
	}
}

// Again has the names of the gateway with a key looked up now, and not after resolveEvery.
func (r *Resolver) Again(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.turns[key]
	if t == nil {
		return
	}
	for _, name := range t.names {
		if a := r.peers[t.peer][name]; a != nil && r.clock.Now().Sub(a.asked) >= resolveAgain {
			a.asked = time.Time{}
			r.news.Notify()
		}
	}
}

// candidates returns the addresses of a gateway to try, at most maxAddresses.
func (r *Resolver) candidates(peer string, g networkingv1beta1.Gateway, accept func(netip.Addr) error) (out []netip.AddrPort) {
	for _, e := range g.Endpoints[:min(len(g.Endpoints), check.MaxEndpoints)] {
		for _, addr := range r.addresses(peer, e.Address) {
			if len(out) < maxAddresses && e.Port >= 1 && e.Port <= 65535 && accept(addr) == nil {
				out = append(out, netip.AddrPortFrom(addr, uint16(e.Port)))
			}
		}
	}
	return out
}

func (r *Resolver) addresses(peer, host string) []netip.Addr {
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr}
	}
	if ipamv1alpha1.HostName(host) != nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.name(peer, host)
	if a == nil {
		return nil
	}
	a.wanted = r.clock.Now()
	return a.addrs
}

// name returns what is known of a name, and nil where the peer has too many. The lock is held.
func (r *Resolver) name(peer, host string) *answer {
	names := r.peers[peer]
	if names == nil {
		names = map[string]*answer{}
		r.peers[peer] = names
	}
	if a := names[host]; a != nil {
		return a
	}
	if len(names) >= maxNames {
		oldest := slices.MinFunc(slices.Sorted(maps.Keys(names)), func(a, b string) int { return names[a].wanted.Compare(names[b].wanted) })
		if r.clock.Now().Sub(names[oldest].wanted) <= replaceNames {
			return nil
		}
		delete(names, oldest)
	}
	names[host] = &answer{}
	r.news.Notify()
	return names[host]
}

// Run looks names up until ctx is done.
func (r *Resolver) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	for range loop.Ticks(ctx, r.clock, resolveEvery/3, r.news) {
		for peer, hosts := range r.due() {
			running.Go(func() { r.askAll(ctx, peer, hosts) })
		}
	}
	return nil
}

// due returns the names that are to be looked up, by peer, and notes that they are. Peers
// whose names are looked up already are left out. It forgets what nobody asks for any more.
func (r *Resolver) due() map[string][]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, out := r.clock.Now(), map[string][]string{}
	maps.DeleteFunc(r.turns, func(_ string, t *turn) bool { return now.Sub(t.wanted) > forgetNames })
	for peer, names := range r.peers {
		maps.DeleteFunc(names, func(_ string, a *answer) bool { return now.Sub(a.wanted) > forgetNames })
		if len(names) == 0 {
			delete(r.peers, peer)
		}
		for host, a := range names {
			if !r.busy[peer] && (a.asked.IsZero() || now.Sub(a.asked) >= resolveEvery) {
				out[peer] = append(out[peer], host)
			}
		}
	}
	for peer, hosts := range out {
		r.busy[peer] = true
		slices.Sort(hosts)
	}
	return out
}

// askAll looks names of one peer up, one after the other.
func (r *Resolver) askAll(ctx context.Context, peer string, hosts []string) {
	for _, host := range hosts {
		select {
		case <-ctx.Done():
			return
		case r.slots <- struct{}{}:
		}
		changed := r.lookUp(ctx, peer, host)
		<-r.slots
		if changed {
			r.onChange()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.busy, peer)
	r.news.Notify() // others may have become due
}

// lookUp looks a name up. A failure leaves the last answer in force.
func (r *Resolver) lookUp(ctx context.Context, peer, host string) (changed bool) {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	addrs, err := r.lookup(ctx, host)
	for i := range addrs {
		addrs[i] = addrs[i].Unmap()
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.peers[peer][host]
	if a == nil {
		return false
	}
	a.asked = r.clock.Now()
	if err != nil || len(addrs) == 0 {
		r.log.Debug("resolving an endpoint failed", zap.String("host", host), zap.Error(err))
		return false
	}
	addrs = addrs[:min(len(addrs), r.room(peer, host))]
	changed = !slices.Equal(addrs, a.addrs)
	a.addrs = addrs
	return changed
}

// room returns how many addresses of a name are kept beside those of the peer's other
// names. The lock is held.
func (r *Resolver) room(peer, host string) int {
	room := maxAddresses
	for other, a := range r.peers[peer] {
		if other != host {
			room -= len(a.addrs)
		}
	}
	return max(room, 0)
}
