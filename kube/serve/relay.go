package serve

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"
)

// relayDial is the longest wait for the other end of a connection.
const relayDial = 10 * time.Second

// relayBounds bound what clients of a Relay cost, and none of them in steady use.
type relayBounds struct {
	most, share int // connections at a time of one address, and of those from one client address; more are closed at once
	// idle is how long a connection without a byte in either direction lives. A watch has a bookmark each minute.
	idle time.Duration
	// slow is the longest wait for one end to take a piece of what the other has sent.
	slow time.Duration
	// The kernel keeps twice as many bytes for each end of a connection. The client is further away than the server.
	piece, sent, received int
}

func usualBounds() relayBounds {
	return relayBounds{most: 2048, share: 128, idle: 5 * time.Minute, slow: 30 * time.Second, piece: 4 << 10, sent: 32 << 10, received: 16 << 10}
}

// Relay leads TCP connections from addresses of this host to another server. The bytes pass
// unchanged: TLS is between the client and that server. Its methods may be called concurrently.
type Relay struct {
	dial   func(ctx context.Context, at netip.AddrPort) (net.Conn, error)
	closed func(why string)
	log    *zap.Logger
	bounds relayBounds
	told   rate.Sometimes // spaces the lines about connections that are not served: clients open them without end

	mu   sync.Mutex
	open map[netip.AddrPort]func() // that end what is served
}

// NewRelay returns a Relay that opens the other ends of connections with dial, by the address at which they came.
// closed is called for each connection that the Relay ends: relay for one too many, relay-idle, or relay-slow.
func NewRelay(dial func(ctx context.Context, at netip.AddrPort) (net.Conn, error), closed func(why string), log *zap.Logger) *Relay {
	return &Relay{
		dial: dial, closed: closed, log: log, bounds: usualBounds(),
		told: rate.Sometimes{First: 1, Interval: time.Minute}, open: map[netip.AddrPort]func(){},
	}
}

// Follow serves these addresses, which this host has, and no others. Connections of the others end.
func (r *Relay) Follow(want []netip.AddrPort) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for at, end := range r.open {
		if !slices.Contains(want, at) {
			end()
			delete(r.open, at)
		}
	}
	var errs []error
	for _, at := range want {
		if r.open[at] != nil {
			continue
		}
		end, err := r.serve(at)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		r.open[at] = end
	}
	return errors.Join(errs...)
}

// Served returns the addresses that are served: those of Follow, but for those that another process has.
func (r *Relay) Served() []netip.AddrPort {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.open))
}

// serve serves an address until end is called.
func (r *Relay) serve(at netip.AddrPort) (end func(), err error) {
	listener, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
	if err != nil {
		return nil, fmt.Errorf("listening for connections that are led on: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	wait.Go(func() { r.accept(ctx, at, listener, &wait) })
	return func() {
		cancel()
		_ = listener.Close()
		wait.Wait()
	}, nil
}

func (r *Relay) accept(ctx context.Context, at netip.AddrPort, listener *net.TCPListener, wait *sync.WaitGroup) {
	var room Places[netip.Prefix] // of the open connections of this address
	for {
		client, err := listener.Accept()
		if ctx.Err() != nil {
			return
		}
		if err != nil { // too many open files, or a client that has left already
			r.told.Do(func() {
				r.log.Warn("a connection was not accepted", zap.Stringer("address", listener.Addr()), zap.Error(err))
			})
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		from := Neighbourhood(Address(client.RemoteAddr().String()))
		free := room.Take(from, r.bounds.most, r.bounds.share)
		if free == nil {
			r.told.Do(func() {
				r.log.Warn("connections are closed: too many are open", zap.Stringer("address", listener.Addr()), zap.Stringer("client", from))
			})
			r.closed("relay")
			_ = client.Close()
			continue
		}
		wait.Go(func() {
			defer free()
			r.lead(ctx, at, client)
		})
	}
}

// lead connects a client with the server until both directions have ended.
func (r *Relay) lead(ctx context.Context, at netip.AddrPort, client net.Conn) {
	defer client.Close()
	dialing, cancel := context.WithTimeout(ctx, relayDial)
	server, err := r.dial(dialing, at)
	cancel()
	if err != nil {
		r.log.Debug("the server was not reached for a client", zap.Error(err))
		return
	}
	defer server.Close()
	end := func() { _, _ = client.Close(), server.Close() }
	defer context.AfterFunc(ctx, end)()
	r.size(client, r.bounds.received, r.bounds.sent)
	r.size(server, r.bounds.received, r.bounds.received)
	alive := func() {
		until := time.Now().Add(r.bounds.idle)
		_, _ = client.SetReadDeadline(until), server.SetReadDeadline(until) // one that is closed needs none
	}
	alive()
	var both sync.WaitGroup
	var told sync.Once
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		both.Go(func() {
			if why := r.pass(way[0], way[1], alive); why != "" {
				told.Do(func() { r.closed(why) })
				end()
				return
			}
			if half, ok := way[1].(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
				_ = way[1].Close()
			}
		})
	}
	both.Wait()
}

// size bounds what the kernel keeps for one end of a connection.
func (r *Relay) size(end net.Conn, received, sent int) {
	if tcp, ok := end.(*net.TCPConn); ok {
		_, _ = tcp.SetReadBuffer(received), tcp.SetWriteBuffer(sent) // the usual size serves too
	}
}

// pass copies one direction until it ends, which ends the other one if it is an error. It returns why the Relay
// has to end the connection: nothing came in either direction, or to does not take what from has sent.
func (r *Relay) pass(from, to net.Conn, alive func()) (why string) {
	piece := make([]byte, r.bounds.piece)
	for {
		n, errRead := from.Read(piece)
		if errors.Is(errRead, os.ErrDeadlineExceeded) {
			return "relay-idle"
		}
		if n > 0 {
			alive()
			_ = to.SetWriteDeadline(time.Now().Add(r.bounds.slow)) // one that is closed needs none
			_, err := to.Write(piece[:n])
			if errors.Is(err, os.ErrDeadlineExceeded) {
				if tcp, ok := to.(*net.TCPConn); ok {
					_ = tcp.SetLinger(0) // what it has not taken goes at once
				}
				return "relay-slow"
			}
			if err != nil {
				return ""
			}
		}
		if errRead != nil {
			return ""
		}
	}
}
