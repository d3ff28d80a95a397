package kubelet

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
)

// tied makes the request's context end when the caller's connection does. Once a
// connection is taken over by SPDY or WebSocket the HTTP server no longer watches it,
// and a command that says nothing would run on for ever in the provider after its
// caller has gone. The returned function must be called at the end.
func tied(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, *http.Request, context.CancelFunc) {
	ctx, cancel := context.WithCancel(r.Context())
	return tiedWriter{w, cancel}, r.WithContext(ctx), cancel
}

type tiedWriter struct {
	http.ResponseWriter
	gone context.CancelFunc
}

// Hijack hands out the connection, watched.
func (w tiedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, fmt.Errorf("taking over the connection: %w", err)
	}
	watched := watchedConn{conn, w.gone}
	early, err := buffered.Reader.Peek(buffered.Reader.Buffered())
	if err != nil {
		_ = conn.Close() // the error that matters is the other
		return nil, nil, fmt.Errorf("taking over the connection: %w", err)
	}
	reader := bufio.NewReader(io.MultiReader(bytes.NewReader(bytes.Clone(early)), watched))
	return watched, bufio.NewReadWriter(reader, bufio.NewWriter(watched)), nil
}

type watchedConn struct {
	net.Conn
	gone context.CancelFunc
}

func (c watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.gone()
	}
	return n, err
}

// Close is what SPDY does when the caller says farewell and keeps the connection.
func (c watchedConn) Close() error {
	c.gone()
	return c.Conn.Close()
}
