package main

import (
	"bytes"
	"encoding/json"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A stream reports when nothing came back, also at its end.
func TestStream(t *testing.T) {
	t.Parallel()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	defer conn.Close()
	var answered atomic.Int64
	go func() {
		buffer := make([]byte, 100)
		for {
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			if answered.Load() < 50 {
				answered.Add(1)
				_, _ = conn.WriteTo(buffer[:n], from)
			}
		}
	}()
	var out bytes.Buffer
	require.NoError(t, stream(t.Context(), "udp://"+conn.LocalAddr().String(), 2*time.Second, &out))
	var got streamed
	require.NoError(t, json.Unmarshal(out.Bytes(), &got))
	require.EqualValues(t, 50, got.Received)
	require.Greater(t, got.Sent, got.Received)
	require.NotEmpty(t, got.Holes)
	require.Greater(t, got.Holes[len(got.Holes)-1].Length, 50*time.Millisecond)
	require.ErrorContains(t, stream(t.Context(), "tcp://127.0.0.1:1", time.Second, &out), "udp://HOST:PORT is accepted")
}
