package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"
)

const (
	// relayed is the number of connections that one address has at a time. More are closed at once.
	relayed = 2048
	// relayDial is the longest wait for the other end of a connection.
	relayDial = 10 * time.Second
)

// Relay leads TCP connections from addresses of this host to another server. The bytes pass
// unchanged: TLS is between the client and that server. Its methods may be called concurrently.
type Relay struct {
	dial func(context.Context) (net.Conn, error)
	log  *zap.Logger
	most int            // connections of one address
	told rate.Sometimes // spaces the lines about connections that are not served: clients open them without end

	mu   sync.Mutex
	open map[netip.AddrPort]func() // that end what is served
}

// NewRelay returns a Relay that opens the other ends of connections with dial.
func NewRelay(dial func(context.Context) (net.Conn, error), log *zap.Logger) *Relay {
	return &Relay{dial: dial, log: log, most: relayed, told: rate.Sometimes{First: 1, Interval: time.Minute}, open: map[netip.AddrPort]func(){}}
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

// serve serves an address until end is called.
func (r *Relay) serve(at netip.AddrPort) (end func(), err error) {
	listener, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
	if err != nil {
		return nil, fmt.Errorf("listening for connections that are led on: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	wait.Go(func() { r.accept(ctx, listener, &wait) })
	return func() {
		cancel()
		_ = listener.Close()
		wait.Wait()
	}, nil
}

func (r *Relay) accept(ctx context.Context, listener *net.TCPListener, wait *sync.WaitGroup) {
	room := make(chan struct{}, r.most)
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
		select {
		case room <- struct{}{}:
			wait.Go(func() {
				defer func() { <-room }()
				r.lead(ctx, client)
			})
		default:
			r.told.Do(func() {
				r.log.Warn("connections are closed: too many are open", zap.Stringer("address", listener.Addr()), zap.Int("open", r.most))
			})
			_ = client.Close()
		}
	}
}

// lead connects a client with the server until both directions have ended.
func (r *Relay) lead(ctx context.Context, client net.Conn) {
	defer client.Close()
	dialing, cancel := context.WithTimeout(ctx, relayDial)
	server, err := r.dial(dialing)
	cancel()
	if err != nil {
		r.log.Debug("the server was not reached for a client", zap.Error(err))
		return
	}
	defer server.Close()
	defer context.AfterFunc(ctx, func() { _, _ = client.Close(), server.Close() })()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		both.Go(func() {
			_, _ = io.Copy(way[1], way[0]) // an error of one direction ends both
			if half, ok := way[1].(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
				_ = way[1].Close()
			}
		})
	}
	both.Wait()
}
