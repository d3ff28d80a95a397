package client

import (
	"fmt"
	"net/http"
)

// Gate decides whether this process may write now. Its method is called from many
// goroutines.
type Gate interface {
	// Allow returns nil, or the reason why a write must not be sent.
	Allow() error
}

// gated rejects writes that its gate does not allow. Reads and upgraded connections pass.
type gated struct {
	wrapped

	gate Gate
}

// RoundTrip implements http.RoundTripper.
func (g *gated) RoundTrip(req *http.Request) (*http.Response, error) {
	if isWrite(req) {
		if err := g.gate.Allow(); err != nil {
			closeBody(req)
			return nil, fmt.Errorf("refusing to %s: %w", verbOf(req), err)
		}
	}
	return g.next.RoundTrip(req)
}

// capped bounds the number of concurrent writes.
type capped struct {
	wrapped

	slots chan struct{}
}

func newSlots(n int) chan struct{} {
	if n <= 0 {
		return nil
	}
	return make(chan struct{}, n)
}

// RoundTrip implements http.RoundTripper.
func (c *capped) RoundTrip(req *http.Request) (*http.Response, error) {
	if !isWrite(req) {
		return c.next.RoundTrip(req)
	}
	select {
	case c.slots <- struct{}{}:
	case <-req.Context().Done():
		closeBody(req)
		return nil, req.Context().Err()
	}
	// The server has finished the write when its response begins, so the slot is free
	// before the body is read.
	defer func() { <-c.slots }()
	return c.next.RoundTrip(req)
}

// closeBody fulfils a duty of http.RoundTripper: it must close the body of a request,
// even of one that it does not send.
func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}
