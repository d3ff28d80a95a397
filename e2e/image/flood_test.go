package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestFlood: the server has all connections until the flood ends.
func TestFlood(t *testing.T) {
	const n = 300
	var have atomic.Int64
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			have.Add(1)
		case http.StateClosed:
			have.Add(-1)
		case http.StateActive, http.StateIdle, http.StateHijacked:
		}
	}
	server.Start()
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	var open atomic.Int64
	go func() { ended <- openAll(ctx, server.Listener.Addr().String(), n, &open) }()
	require.Eventually(t, func() bool { return open.Load() == n }, time.Minute, time.Millisecond)
	require.Eventually(t, func() bool { return have.Load() == n }, time.Minute, time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
	require.Eventually(t, func() bool { return have.Load() == 0 }, time.Minute, time.Millisecond)
	require.ErrorContains(t, openAll(t.Context(), "127.0.0.1:1", 3, &open), "refused")
}
