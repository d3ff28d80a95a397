package serve

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// echo answers each connection with what it has sent, in capitals, once it has sent all. It
// returns its address.
func echo(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				all, _ := io.ReadAll(c)
				_, _ = c.Write(bytes.ToUpper(all))
			}()
		}
	}()
	return listener.Addr().String()
}

// free returns an address on which nothing listens.
func free(t *testing.T) netip.AddrPort {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return netip.MustParseAddrPort(listener.Addr().String())
}

// through sends text through a relay and returns the answer.
func through(at netip.AddrPort, text string) (string, error) {
	c, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(at))
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return "", err
	}
	_, errWrite := io.WriteString(c, text)
	errHalf := c.CloseWrite()
	answer, err := io.ReadAll(c)
	return string(answer), errors.Join(errWrite, errHalf, err)
}

// TestRelay: bytes pass in both directions, each with its own end; the next connection goes where
// the server is then; and nothing is served that is not wanted any more.
func TestRelay(t *testing.T) {
	t.Parallel()
	var server atomic.Value
	server.Store(echo(t))
	r := NewRelay(func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", server.Load().(string))
	}, zap.NewNop())
	at, other := free(t), free(t)
	require.NoError(t, r.Follow([]netip.AddrPort{at, other}))
	large := string(bytes.Repeat([]byte("liqod"), 1<<18))
	answer, err := through(at, large)
	require.NoError(t, err)
	require.Equal(t, string(bytes.ToUpper([]byte(large))), answer)

	open, err := net.Dial("tcp", other.String())
	require.NoError(t, err)
	defer open.Close()
	server.Store(free(t).String())
	answer, _ = through(at, "nobody listens") // the connection ends with or without a reset
	require.Empty(t, answer)
	server.Store(echo(t))
	answer, err = through(at, "again")
	require.NoError(t, err)
	require.Equal(t, "AGAIN", answer)

	require.NoError(t, r.Follow([]netip.AddrPort{at}))
	_, err = through(other, "gone")
	require.Error(t, err)
	require.NoError(t, open.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err = open.Read(make([]byte, 1))
	require.Error(t, err)
	var late net.Error
	require.False(t, errors.As(err, &late) && late.Timeout(), "a connection ends with its address")
	require.NoError(t, r.Follow(nil))
	_, err = through(at, "gone")
	require.Error(t, err)

	taken, err := net.Listen("tcp", at.String())
	require.NoError(t, err)
	defer taken.Close()
	require.ErrorContains(t, r.Follow([]netip.AddrPort{at}), "address already in use")
}

// TestRelayFlooded: of connections without end those that fit are led on, and the log has one line a minute.
func TestRelayFlooded(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	r := NewRelay(func(ctx context.Context) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }, zap.New(core))
	r.most = 2
	at := free(t)
	require.NoError(t, r.Follow([]netip.AddrPort{at}))
	defer func() { require.NoError(t, r.Follow(nil)) }()
	for range r.most {
		kept, err := net.Dial("tcp", at.String())
		require.NoError(t, err)
		defer kept.Close()
	}
	for range 50 {
		_, err := through(at, "")
		require.False(t, errors.Is(err, os.ErrDeadlineExceeded), "it is closed at once")
	}
	require.Len(t, logs.All(), 1)
}
