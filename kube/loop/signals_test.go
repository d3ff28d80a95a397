package loop

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestListenersAreToldInOrder(t *testing.T) {
	var l Listeners[string]
	l.Tell("nobody listens")
	var got []string
	for _, name := range []string{"a", "b"} {
		l.Subscribe(func(what string) { got = append(got, name+" "+what) })
	}
	l.Tell("x")
	require.Equal(t, []string{"a x", "b x"}, got)
}

func TestAListenerMaySubscribeAnother(t *testing.T) {
	var l Listeners[int]
	calls := 0
	l.Subscribe(func(int) { l.Subscribe(func(int) { calls++ }) })
	l.Tell(1)
	require.Zero(t, calls)
	l.Tell(2)
	require.Equal(t, 1, calls)
}

func TestSignalsAreOne(t *testing.T) {
	s := NewSignal()
	s.Notify()
	s.Notify()
	require.Len(t, s, 1)
	<-s
	s.Notify()
	require.Len(t, s, 1)
}

func TestStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan string, 2)
		work := func(name string) func(context.Context) {
			return func(ctx context.Context) {
				<-ctx.Done()
				ended <- name
			}
		}
		stop := Start(t.Context(), work("a"), work("b"))
		synctest.Wait()
		require.Empty(t, ended)
		stop()
		require.Len(t, ended, 2)
		stop()
	})
}

func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		require.NoError(t, Pause(t.Context(), time.Hour))
		require.Equal(t, time.Hour, time.Since(begun))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, Pause(ctx, time.Hour), context.Canceled)
		require.Equal(t, time.Hour, time.Since(begun))
	})
}
