package serve

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/utils/clock"

	"github.com/liqod/liqod/kube/loop"
)

// limited is a listener with a limited number of connections that wait for their clients.
// Beyond it, the one that has waited for longest is closed, and never a new one. A connection
// with a request in work counts no longer, and keeps its place: the handler bounds those. It is
// safe for concurrent use.
type limited struct {
	net.Listener
	most, perAddress int
	count            func() // called for each connection that is closed

	mu      sync.Mutex
	turn    uint64 // numbers the connections in the order in which they began to wait
	waiting int
	each    map[netip.Prefix][]*connection // those that wait, for longest first
}

// connection is an open connection of a client. Its listener's mutex guards the last fields.
type connection struct {
	net.Conn
	all  *limited
	from netip.Addr
	near netip.Prefix

	since    uint64
	working  bool // a request is in work
	answered bool // a request has been
	closed   bool
}

// Accept implements net.Listener. It closes connections beyond the limits.
func (l *limited) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	from := Address(conn.RemoteAddr().String())
	next := &connection{Conn: conn, all: l, from: from, near: Neighbourhood(from)}
	for _, one := range l.admit(next) {
		l.count()
		_ = one.Conn.Close() // its client is gone or will retry
	}
	return next, nil
}

// admit adds a new connection, and returns those that have to be closed for it.
func (l *limited) admit(next *connection) (dropped []*connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(next)
	for len(l.each[next.near]) > l.perAddress {
		dropped = append(dropped, l.drop(oldest(l.each[next.near])))
	}
	for l.waiting > l.most {
		dropped = append(dropped, l.drop(l.heaviest()))
	}
	return dropped
}

// heaviest returns a connection of the neighbourhood that has the most, so that a client with
// few keeps them. Among several, it takes the one that has waited for longest.
func (l *limited) heaviest() *connection {
	var found []*connection
	for _, all := range l.each {
		if len(all) > len(found) || len(all) == len(found) && all[0].since < found[0].since {
			found = all
		}
	}
	return oldest(found)
}

// oldest returns the connection that has waited for longest after an answer, or else without
// one. It is of the address that has the most: a probe and a client that floods may be
// neighbours.
func oldest(all []*connection) (found *connection) {
	each := map[netip.Addr]int{}
	if !all[0].near.IsSingleIP() {
		for _, one := range all {
			each[one.from]++
		}
	}
	for _, one := range all {
		switch {
		case found == nil || each[one.from] > each[found.from]:
			found = one
		case each[one.from] == each[found.from] && one.answered && !found.answered:
			found = one
		}
	}
	return found
}

func (l *limited) add(one *connection) {
	l.turn++
	one.since = l.turn
	l.each[one.near] = append(l.each[one.near], one)
	l.waiting++
}

func (l *limited) drop(one *connection) *connection {
	l.remove(one)
	one.closed = true
	return one
}

// remove takes a connection from those that wait.
func (l *limited) remove(one *connection) {
	all := l.each[one.near]
	for i := range all {
		if all[i] != one {
			continue
		}
		l.waiting--
		// A copy of the rest, so that no closed connection is kept.
		if rest := append(append([]*connection{}, all[:i]...), all[i+1:]...); len(rest) > 0 {
			l.each[one.near] = rest
		} else {
			delete(l.each, one.near)
		}
		return
	}
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.all.mu.Lock()
	c.all.remove(c)
	c.closed = true
	c.all.mu.Unlock()
	return c.Conn.Close()
}

// connectionKey is the key of a request's connection in its context.
type connectionKey struct{}

// withConnection adds a connection to the context of its requests.
func withConnection(ctx context.Context, conn net.Conn) context.Context {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	return context.WithValue(ctx, connectionKey{}, conn)
}

// Working keeps the connection of a request open until done is called, whatever its client
// does. A handler calls it as soon as it has reason to work for the client, and limits how often
// it does. ctx is the context of the request.
func Working(ctx context.Context) (done func()) {
	one, ok := ctx.Value(connectionKey{}).(*connection)
	if !ok {
		return func() {}
	}
	one.set(true)
	return func() { one.set(false) }
}

func (c *connection) set(working bool) {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	if c.closed || c.working == working {
		return
	}
	c.working = working
	if working {
		c.all.remove(c)
		return
	}
	c.answered = true
	c.all.add(c)
}

// Address returns the address in a text of an address and a port, or the unspecified one.
func Address(text string) netip.Addr {
	address, err := netip.ParseAddrPort(text)
	if err != nil {
		return netip.IPv6Unspecified()
	}
	return address.Addr()
}

// Neighbourhood returns the range of addresses that shares one limit: a single IPv4
// address, or an IPv6 /64, which a single client usually has as a whole.
func Neighbourhood(remote netip.Addr) netip.Prefix {
	remote = remote.Unmap().WithZone("")
	bits := remote.BitLen()
	if remote.Is6() {
		bits = 64
	}
	return netip.PrefixFrom(remote, bits).Masked()
}

// Places are those of what clients have at a time. The zero value is ready to use. It is safe for
// concurrent use.
type Places[K comparable] struct {
	mu    sync.Mutex
	taken int
	each  map[K]int
}

// Take returns the function that frees the place of a client. It returns nil if there is none: most
// are taken in all, or share by this client.
func (p *Places[K]) Take(client K, most, share int) (free func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken >= most || p.each[client] >= share {
		return nil
	}
	if p.each == nil {
		p.each = map[K]int{}
	}
	p.taken++
	p.each[client]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.taken--
		if p.each[client]--; p.each[client] == 0 {
			delete(p.each, client)
		}
	}
}

const (
	// smallest is the number of bytes for which each review counts at least.
	smallest = 64 << 10
	// mostSources is the number of sources with limits of their own. Only an attack has more.
	mostSources = 1024
	// mostWaiting limits the reviews of one source that wait or are in work.
	mostWaiting = 1024
	// retryAfter is the time after which an API server sends a refused review again, as long
	// as the timeout of the webhook allows, in seconds.
	retryAfter = "1"
	// hurry is how long the body of a review may take while many bytes are in work. API servers
	// send it together with the headers.
	hurry = 500 * time.Millisecond
)

// GuardConfig is the input of Guard. All fields are required.
type GuardConfig struct {
	// PerSecond limits the reviews per second of one source, which is an address or an IPv6
	// /64. Four times as many may come at once.
	PerSecond int
	// Bytes limits the size of all reviews in work, SourceBytes those of one source. Both
	// are at least LargestReview. Half of Bytes is for reviews whose clients take their time: a
	// client that sends no body holds the other half for less than a second.
	Bytes, SourceBytes int64
	// Wait is how long a review waits for its turn.
	Wait time.Duration
	// Count is called for each review that is refused for a limit.
	Count func()
	Clock clock.PassiveClock
}

// Guard limits the reviews that next has in work. Reviews beyond the limits wait for their
// turn, and are then refused with a message that names the limit. An API server sends a
// refused review again, and applies the failure policy of the webhook when its time is over.
func Guard(cfg GuardConfig, next http.Handler) http.Handler {
	g := &guard{cfg: cfg, all: semaphore.NewWeighted(cfg.Bytes), calm: semaphore.NewWeighted(cfg.Bytes / 2), each: map[netip.Prefix]*source{}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		free, code, why := g.enter(w, r)
		if free == nil {
			cfg.Count()
			w.Header().Set("Retry-After", retryAfter)
			http.Error(w, "the webhook has too much to do: "+why, code)
			return
		}
		defer free()
		next.ServeHTTP(w, r)
	})
}

type guard struct {
	cfg       GuardConfig
	all, calm *semaphore.Weighted
	rates     loop.Pace

	mu   sync.Mutex
	each map[netip.Prefix]*source // those with requests
}

// source has the requests of one address.
type source struct {
	bytes *semaphore.Weighted
	users int // requests that wait or are in work
}

// enter waits for the turn of a request, and returns the function that ends it. If the
// request has to be refused, free is nil, and enter returns an HTTP status and the limit.
func (g *guard) enter(w http.ResponseWriter, r *http.Request) (free func(), code int, why string) {
	from := Neighbourhood(Address(r.RemoteAddr))
	one, leave := g.source(from)
	if one == nil {
		return nil, http.StatusTooManyRequests, fmt.Sprintf("more than %d clients or %d reviews of one client at a time", mostSources, mostWaiting)
	}
	if g.rates.Take(from.String(), 4*g.cfg.PerSecond, time.Second/time.Duration(g.cfg.PerSecond), g.cfg.Clock.Now()) > 0 {
		leave()
		return nil, http.StatusTooManyRequests, fmt.Sprintf("more than %d reviews per second of one client", g.cfg.PerSecond)
	}
	size := r.ContentLength
	if size < 0 || size > LargestReview {
		size = LargestReview
	}
	size = max(size, smallest)
	ctx, cancel := context.WithTimeout(r.Context(), g.cfg.Wait)
	defer cancel()
	if one.bytes.Acquire(ctx, size) != nil {
		leave()
		return nil, http.StatusServiceUnavailable, fmt.Sprintf("reviews of one client with more than %d bytes in work for %s", g.cfg.SourceBytes, g.cfg.Wait)
	}
	if g.all.Acquire(ctx, size) != nil {
		one.bytes.Release(size)
		leave()
		return nil, http.StatusServiceUnavailable, fmt.Sprintf("reviews with more than %d bytes in work for %s", g.cfg.Bytes, g.cfg.Wait)
	}
	calm := g.calm.TryAcquire(size)
	if !calm {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(hurry)) // else the server's own limit holds
	}
	return func() {
		if calm {
			g.calm.Release(size)
		}
		g.all.Release(size)
		one.bytes.Release(size)
		leave()
	}, 0, ""
}

// source returns the requests of an address with one more, and the function that ends it. It returns
// nil if too many addresses have requests, or the address itself has too many.
func (g *guard) source(from netip.Prefix) (one *source, leave func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	one = g.each[from]
	switch {
	case one == nil && len(g.each) >= mostSources, one != nil && one.users >= mostWaiting:
		return nil, func() {}
	case one == nil:
		one = &source{bytes: semaphore.NewWeighted(g.cfg.SourceBytes)}
		g.each[from] = one
	}
	one.users++
	return one, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if one.users--; one.users == 0 {
			delete(g.each, from)
		}
	}
}
