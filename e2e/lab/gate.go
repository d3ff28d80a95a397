package lab

import (
	"net"
	"sync"
)

// gatedListener accepts connections whose bytes stop moving, both ways, while the
// gate is shut. It may be used concurrently.
type gatedListener struct {
	net.Listener
	mu    sync.Mutex
	gate  chan struct{} // closed while the gate is open
	conns map[*gatedConn]struct{}
}

func newGatedListener(listener net.Listener) *gatedListener {
	gate := make(chan struct{})
	close(gate)
	return &gatedListener{Listener: listener, gate: gate, conns: map[*gatedConn]struct{}{}}
}

// Accept returns the next connection; a shut gate does not hold it back.
func (l *gatedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	gated := &gatedConn{Conn: conn, listener: l, closed: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[gated] = struct{}{}
	return gated, nil
}

func (l *gatedListener) shut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.gate:
		l.gate = make(chan struct{})
	default:
	}
}

func (l *gatedListener) open() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.gate:
	default:
		close(l.gate)
	}
}

func (l *gatedListener) cut() {
	l.mu.Lock()
	conns := make([]*gatedConn, 0, len(l.conns))
	for conn := range l.conns {
		conns = append(conns, conn)
	}
	l.mu.Unlock()
	for _, conn := range conns {
		_ = conn.Close()
	}
}

func (l *gatedListener) current() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gate
}

type gatedConn struct {
	net.Conn
	listener *gatedListener
	once     sync.Once
	closed   chan struct{}
}

// Read hands over what arrived once the gate is open.
func (c *gatedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if waitErr := c.pass(); waitErr != nil {
		return 0, waitErr
	}
	return n, err
}

// Write sends once the gate is open.
func (c *gatedConn) Write(b []byte) (int, error) {
	if err := c.pass(); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// Close closes the connection and releases whoever waits at the gate.
func (c *gatedConn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.listener.mu.Lock()
		delete(c.listener.conns, c)
		c.listener.mu.Unlock()
	})
	return c.Conn.Close()
}

func (c *gatedConn) pass() error {
	select {
	case <-c.listener.current():
		return nil
	case <-c.closed:
		return net.ErrClosed
	}
}
