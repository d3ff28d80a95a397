package serve

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func newLimited(most, perAddress int) *limited {
	return &limited{most: most, perAddress: perAddress, count: func() {}, each: map[netip.Prefix][]*connection{}}
}

// pipe is a listener's connection that does nothing.
type pipe struct{ net.Conn }

func (pipe) Close() error { return nil }

// dial returns a connection of an address that is not admitted yet.
func (l *limited) dial(from string) *connection {
	address := netip.MustParseAddr(from)
	return &connection{Conn: pipe{}, all: l, from: address, near: Neighbourhood(address)}
}

func TestConnections(t *testing.T) {
	t.Parallel()
	admit := func(t *testing.T, l *limited, from string, want ...*connection) *connection {
		t.Helper()
		one := l.dial(from)
		require.Equal(t, want, l.admit(one))
		return one
	}
	t.Run("the heaviest address gives way, its oldest first", func(t *testing.T) {
		t.Parallel()
		l := newLimited(3, 3)
		admit(t, l, "192.0.2.1")
		one := admit(t, l, "192.0.2.2")
		admit(t, l, "192.0.2.2")
		admit(t, l, "192.0.2.3", one)
		require.Equal(t, 3, l.waiting)
	})
	t.Run("the oldest of all addresses with one connection", func(t *testing.T) {
		t.Parallel()
		l := newLimited(3, 3)
		one, two := admit(t, l, "192.0.2.1"), admit(t, l, "192.0.2.2")
		admit(t, l, "192.0.2.3")
		admit(t, l, "192.0.2.4", one)
		admit(t, l, "192.0.2.5", two)
	})
	t.Run("idle ones first", func(t *testing.T) {
		t.Parallel()
		l := newLimited(9, 3)
		admit(t, l, "192.0.2.2")
		two := admit(t, l, "192.0.2.2")
		admit(t, l, "192.0.2.2")
		Working(withConnection(t.Context(), two))()
		admit(t, l, "192.0.2.2", two)
	})
	t.Run("a request in work keeps its connection, and takes no place", func(t *testing.T) {
		t.Parallel()
		l := newLimited(2, 2)
		one, two := admit(t, l, "192.0.2.1"), admit(t, l, "192.0.2.1")
		doneOne, doneTwo := Working(withConnection(t.Context(), one)), Working(withConnection(t.Context(), two))
		three := admit(t, l, "192.0.2.1")
		admit(t, l, "192.0.2.1")
		doneOne()
		doneTwo()
		require.Equal(t, 4, l.waiting, "the next new one makes room")
		admit(t, l, "192.0.2.1", one, two, three)
		require.NoError(t, two.Close())
		require.Equal(t, 2, l.waiting)
	})
	t.Run("a connection that is closed while it works", func(t *testing.T) {
		t.Parallel()
		l := newLimited(2, 2)
		one := admit(t, l, "192.0.2.1")
		done := Working(withConnection(t.Context(), one))
		require.NoError(t, one.Close())
		done()
		require.NoError(t, one.Close())
		require.Zero(t, l.waiting)
		require.Empty(t, l.each)
	})
	t.Run("a neighbour with few keeps them", func(t *testing.T) {
		t.Parallel()
		l := newLimited(100, 3)
		probe := admit(t, l, "2001:db8::1")
		Working(withConnection(t.Context(), probe))() // also after an answer
		last := []*connection{admit(t, l, "2001:db8::2"), admit(t, l, "2001:db8::2")}
		for range 100 {
			last = append(last[1:], admit(t, l, "2001:db8::2", last[0]))
		}
		require.Contains(t, l.each[probe.near], probe)
	})
}

// TestEveryAddressGetsAPlace: a flood from more addresses than there are places closes no
// connection before its turn.
func TestEveryAddressGetsAPlace(t *testing.T) {
	t.Parallel()
	const most = 50
	l := newLimited(most, 5)
	var all []*connection
	for i := range 500 {
		one := l.dial(fmt.Sprintf("10.0.%d.%d", i/250, i%250))
		dropped := l.admit(one)
		all = append(all, one)
		if len(all) <= most {
			require.Empty(t, dropped)
			continue
		}
		require.Equal(t, []*connection{all[len(all)-most-1]}, dropped)
	}
}
