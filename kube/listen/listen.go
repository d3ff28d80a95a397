// Package listen limits the open connections of a server.
package listen

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
)

// Results of Config.Count.
const (
	// Dropped: a waiting connection was closed for a new one.
	Dropped = "dropped"
	// Refused: a new connection was closed, because none was waiting.
	Refused = "refused"
)

// Config is the input of New. All fields are required.
type Config struct {
	// Listener accepts the connections.
	Listener net.Listener
	// Most limits the open connections, PerAddress those of a single Neighbourhood. Both
	// are positive.
	Most, PerAddress int
	// Count is called for each connection that is closed for a limit, with Dropped or
	// Refused.
	Count func(result string)
}

// Limited is a listener with a limited number of open connections. Beyond it, a new
// connection takes the place of one that waits for its client. A connection with a request
// in work keeps its place. It is safe for concurrent use.
type Limited struct {
	net.Listener
	most, perAddress int
	count            func(result string)

	mu   sync.Mutex
	open int
	each map[netip.Prefix][]*connection // the oldest first
}

// New returns a Limited.
func New(cfg Config) *Limited {
	return &Limited{Listener: cfg.Listener, most: cfg.Most, perAddress: cfg.PerAddress, count: cfg.Count, each: map[netip.Prefix][]*connection{}}
}

// connection is an open connection of a client.
type connection struct {
	net.Conn
	all      *Limited
	from     netip.Prefix
	busy     atomic.Int32 // requests in work; HTTP/2 has several on one connection
	answered atomic.Bool  // a request has been
	closed   sync.Once
}

// Accept implements net.Listener. It closes connections beyond the limits.
func (c *Limited) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		next := &connection{Conn: conn, all: c, from: Neighbourhood(Address(conn.RemoteAddr().String()))}
		dropped, ok := c.admit(next)
		if dropped != nil {
			c.count(Dropped)
			_ = dropped.Close() // its client is gone or will retry
		}
		if ok {
			return next, nil
		}
		c.count(Refused)
		_ = conn.Close() // the client will retry
	}
}

// admit records a new connection, and returns the one that has to be closed for it. ok is
// false if there is no place.
func (c *Limited) admit(next *connection) (dropped *connection, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case len(c.each[next.from]) >= c.perAddress:
		dropped = waiting(c.each[next.from])
	case c.open >= c.most:
		dropped = c.heaviest()
	default:
		c.add(next)
		return nil, true
	}
	if dropped == nil {
		return nil, false
	}
	c.remove(dropped)
	c.add(next)
	return dropped, true
}

// heaviest returns a waiting connection of the address that has the most connections, so
// that a client with few keeps them.
func (c *Limited) heaviest() (found *connection) {
	most := 0
	for _, all := range c.each {
		if len(all) <= most {
			continue
		}
		if one := waiting(all); one != nil {
			found, most = one, len(all)
		}
	}
	return found
}

// waiting returns the oldest connection that has had its answer, or else the oldest one
// without a request in work.
func waiting(all []*connection) (found *connection) {
	for _, one := range all {
		switch {
		case one.busy.Load() > 0:
		case one.answered.Load():
			return one
		case found == nil:
			found = one
		}
	}
	return found
}

func (c *Limited) add(one *connection) {
	c.each[one.from] = append(c.each[one.from], one)
	c.open++
}

// remove forgets a connection, if it is known.
func (c *Limited) remove(one *connection) {
	all := c.each[one.from]
	for i := range all {
		if all[i] != one {
			continue
		}
		c.open--
		// A copy of the rest, so that no closed connection is kept.
		if rest := append(append([]*connection{}, all[:i]...), all[i+1:]...); len(rest) > 0 {
			c.each[one.from] = rest
		} else {
			delete(c.each, one.from)
		}
		return
	}
}

// Close implements net.Conn.
func (c *connection) Close() (err error) {
	c.closed.Do(func() {
		c.all.mu.Lock()
		c.all.remove(c)
		c.all.mu.Unlock()
		err = c.Conn.Close()
	})
	return err
}

// connectionKey is the key of a request's connection in its context.
type connectionKey struct{}

// Context adds a connection to the context of its requests. It is for the field ConnContext
// of an http.Server.
func Context(ctx context.Context, conn net.Conn) context.Context {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	return context.WithValue(ctx, connectionKey{}, conn)
}

// Working marks the connection of a request as busy, until done is called. ctx is the
// context of the request.
func Working(ctx context.Context) (done func()) {
	one, ok := ctx.Value(connectionKey{}).(*connection)
	if !ok {
		return func() {}
	}
	one.busy.Add(1)
	return func() {
		one.answered.Store(true)
		one.busy.Add(-1)
	}
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
