package client

import (
	"context"
	"net"
	"sync/atomic"
	"time"
)

const (
	dialTimeout = 3 * time.Second
	// The kernel of a paused server still accepts connections. Only the first byte
	// received, which over TLS answers the ClientHello, shows that the server process is
	// running.
	firstByteTimeout = 5 * time.Second
	keepAlive        = 15 * time.Second
)

// dialer opens connections with a bound on the time to connect and on the time until the
// first byte from the server. It requires TLS, because only then does the server answer
// before a request is sent. client-go has no setting for the timeout of a TLS handshake.
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

// greeted removes the read deadline when the first byte arrives.
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
