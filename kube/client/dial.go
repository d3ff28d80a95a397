package client

import (
	"context"
	"net"
	"sync/atomic"
	"time"
)

const (
	dialTimeout = 3 * time.Second
	// A paused server's kernel still accepts connections: what shows life is its first
	// byte, which over TLS answers our greeting.
	firstByteTimeout = 5 * time.Second
	keepAlive        = 15 * time.Second
)

// dialer connects in bounded time, and expects the other side's first byte in bounded
// time. It is meant for TLS: client-go offers no setting for the handshake's time.
type dialer struct{ firstByte time.Duration }

func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if err := conn.SetReadDeadline(time.Now().Add(d.firstByte)); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return &greeted{Conn: conn}, nil
}

// greeted lifts the read deadline with the first byte.
type greeted struct {
	net.Conn

	heard atomic.Bool
}

// Read implements net.Conn.
func (c *greeted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && c.heard.CompareAndSwap(false, true) {
		if unset := c.Conn.SetReadDeadline(time.Time{}); err == nil {
			err = unset
		}
	}
	return n, err
}
