package listen

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func newLimited(most, perAddress int) *Limited {
	return New(Config{Most: most, PerAddress: perAddress, Count: func(string) {}})
}

// pipe is a listener's connection from an address.
type pipe struct {
	net.Conn
	from net.Addr
}

func (p pipe) RemoteAddr() net.Addr { return p.from }

func (p pipe) Close() error { return nil }

func TestConnections(t *testing.T) {
	t.Parallel()
	make := func(c *Limited, from string) *connection {
		conn := pipe{from: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 1000))}
		return &connection{Conn: conn, all: c, from: Neighbourhood(netip.MustParseAddr(from))}
	}
	admit := func(t *testing.T, c *Limited, one, want *connection, ok bool) {
		t.Helper()
		dropped, admitted := c.admit(one)
		require.Equal(t, ok, admitted)
		require.Same(t, want, dropped)
	}
	t.Run("several requests of one connection", func(t *testing.T) {
		t.Parallel()
		c := newLimited(1, 1)
		one := make(c, "2001:db8::1")
		admit(t, c, one, nil, true)
		first, second := Working(Context(t.Context(), one)), Working(Context(t.Context(), one))
		first()
		admit(t, c, make(c, "2001:db8::2"), nil, false)
		second()
		admit(t, c, make(c, "2001:db8::2"), one, true)
	})
	t.Run("the heaviest address gives way, its oldest first", func(t *testing.T) {
		t.Parallel()
		c := newLimited(3, 3)
		few, one, two := make(c, "192.0.2.1"), make(c, "192.0.2.2"), make(c, "192.0.2.2")
		admit(t, c, few, nil, true)
		admit(t, c, one, nil, true)
		admit(t, c, two, nil, true)
		admit(t, c, make(c, "192.0.2.3"), one, true)
		require.Equal(t, 3, c.open)
	})
	t.Run("idle ones first", func(t *testing.T) {
		t.Parallel()
		c := newLimited(9, 3)
		one, two, three := make(c, "192.0.2.2"), make(c, "192.0.2.2"), make(c, "192.0.2.2")
		admit(t, c, one, nil, true)
		admit(t, c, two, nil, true)
		admit(t, c, three, nil, true)
		Working(Context(t.Context(), two))()
		admit(t, c, make(c, "192.0.2.2"), two, true)
	})
	t.Run("a request in work keeps its connection", func(t *testing.T) {
		t.Parallel()
		c := newLimited(2, 2)
		one, two := make(c, "192.0.2.1"), make(c, "192.0.2.2")
		admit(t, c, one, nil, true)
		admit(t, c, two, nil, true)
		doneOne, doneTwo := Working(Context(t.Context(), one)), Working(Context(t.Context(), two))
		admit(t, c, make(c, "192.0.2.3"), nil, false)
		doneTwo()
		admit(t, c, make(c, "192.0.2.3"), two, true)
		doneOne()
		require.NoError(t, one.Close())
		require.NoError(t, one.Close())
		require.NoError(t, two.Close())
		require.Equal(t, 1, c.open)
		require.Len(t, c.each, 1)
	})
}

// TestListenerUnderIdleConnections: connections that nobody uses do not add up.
func TestListenerUnderIdleConnections(t *testing.T) {
	t.Parallel()
	const most, flood = 10, 200
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	counts := map[string]int{}
	c := New(Config{Listener: inner, Most: most, PerAddress: most, Count: func(result string) { counts[result]++ }})
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		for {
			if _, err := c.Accept(); err != nil {
				return
			}
		}
	}()
	var idle []net.Conn
	for range flood {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", inner.Addr().String())
		require.NoError(t, err)
		defer conn.Close()
		idle = append(idle, conn)
	}
	for _, conn := range idle[:flood-most] {
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
		_, err := conn.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
	}
	require.NoError(t, c.Close())
	<-accepted
	require.Equal(t, map[string]int{Dropped: flood - most}, counts)
	require.Equal(t, most, c.open)
}
