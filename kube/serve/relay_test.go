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

// dials returns a function that connects to where address says.
func dials(address func() string) func(context.Context, netip.AddrPort) (net.Conn, error) {
	return func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", address())
	}
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
	r := NewRelay(dials(func() string { return server.Load().(string) }), func(string) {}, zap.NewNop())
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
	require.ErrorContains(t, r.Follow([]netip.AddrPort{at, other}), "address already in use")
	require.Equal(t, []netip.AddrPort{other}, r.Served())
	require.NoError(t, r.Follow(nil))
}

// TestRelayFlooded: of connections without end those that fit are led on, and the log has one line a minute.
func TestRelayFlooded(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	r := NewRelay(func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }, func(string) {}, zap.New(core))
	r.bounds.most = 2
	at := free(t)
	require.NoError(t, r.Follow([]netip.AddrPort{at}))
	defer func() { require.NoError(t, r.Follow(nil)) }()
	for range r.bounds.most {
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

// TestRelayShares: a client address has its share of the connections, and the others have the rest. One that
// leaves makes room.
func TestRelayShares(t *testing.T) {
	t.Parallel()
	var closed atomic.Int64
	server := echo(t)
	r := NewRelay(dials(func() string { return server }), func(why string) {
		if why == "relay" {
			closed.Add(1)
		}
	}, zap.NewNop())
	r.bounds.share = 3
	at := free(t)
	require.NoError(t, r.Follow([]netip.AddrPort{at}))
	defer func() { require.NoError(t, r.Follow(nil)) }()
	var kept []net.Conn
	for range 50 {
		c, err := net.Dial("tcp", at.String())
		require.NoError(t, err)
		defer c.Close()
		kept = append(kept, c)
	}
	require.Eventually(t, func() bool { return closed.Load() == 47 }, time.Minute, time.Millisecond)
	other := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	c, err := other.Dial("tcp", at.String())
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, "another client")
	require.NoError(t, err)
	require.NoError(t, c.(*net.TCPConn).CloseWrite())
	answer, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Equal(t, "ANOTHER CLIENT", string(answer))
	for _, c := range kept {
		_ = c.Close()
	}
	require.Eventually(t, func() bool { answer, err := through(at, "again"); return err == nil && answer == "AGAIN" }, time.Minute, time.Millisecond)
}

// TestRelayEndsWhatIsIdleOrSlow: a connection without a byte ends, and so does one whose client does not read what it
// has asked for. One that has a byte from time to time, as a watch with bookmarks, goes on.
func TestRelayEndsWhatIsIdleOrSlow(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { // it sends without end as soon as it is asked, slowly or as fast as it can
				defer c.Close()
				asked := make([]byte, 1)
				_, err := c.Read(asked)
				for piece := make([]byte, 1<<10); err == nil; {
					if asked[0] == 'w' {
						<-time.After(100 * time.Millisecond)
						piece = piece[:1]
					}
					_, err = c.Write(piece)
				}
			}()
		}
	}()
	closed := make(chan string, 1)
	r := NewRelay(dials(func() string { return listener.Addr().String() }), func(why string) { closed <- why }, zap.NewNop())
	r.bounds.idle, r.bounds.slow = 2*time.Second, 100*time.Millisecond
	at := free(t)
	require.NoError(t, r.Follow([]netip.AddrPort{at}))
	defer func() { require.NoError(t, r.Follow(nil)) }()
	dial := func(ask string) net.Conn {
		c, err := net.Dial("tcp", at.String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		_, err = io.WriteString(c, ask)
		require.NoError(t, err)
		return c
	}
	watch := dial("w")
	_ = dial("everything") // and it never reads
	require.Equal(t, "relay-slow", <-closed)
	_ = dial("")
	require.Equal(t, "relay-idle", <-closed)
	require.NoError(t, watch.SetDeadline(time.Now().Add(time.Minute)))
	_, err = io.ReadFull(watch, make([]byte, 30)) // three seconds
	require.NoError(t, err)
}
