package kernel

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/liqod/liqod/netfabric/plan"
)

func TestNetnsWatch(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.address(t, "lo", "192.168.0.10/32", "fd00:1::10/128")
	k, _ := kernelAt(t, s.FD)
	want, err := plan.Node(fixed())
	require.NoError(t, err)
	require.NoError(t, k.Apply(t.Context(), want))

	var calls atomic.Int32
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- k.Watch(ctx, func() { calls.Add(1) }) }()
	require.Eventually(t, func() bool {
		s.run(t, "ip", "link", "set", plan.OverlayDevice, "alias", time.Now().String())
		return calls.Load() > 0
	}, 10*time.Second, 2*settle)

	rest(t, &calls, 20*settle)
	before := calls.Load()
	s.run(t, "sh", "-ec", foreignThings)
	require.Never(t, func() bool { return calls.Load() > before }, 3*settle, settle, "others' things are none of ours")

	for _, name := range []string{
		"a rule deleted", "routes flushed", "the table deleted", "the rules flushed", "an element deleted", "an element added",
		"the overlay set down", "the overlay deleted", "an address more", "neighbours flushed", "a forwarding entry more",
	} {
		before := calls.Load()
		s.run(t, "sh", "-ec", damage[name])
		require.Eventually(t, func() bool { return calls.Load() > before }, time.Minute, settle/10, name)
		require.NoError(t, k.Apply(t.Context(), want))
		rest(t, &calls, 2*settle)
	}

	rest(t, &calls, 20*settle)
	before = calls.Load()
	require.NoError(t, k.Apply(t.Context(), want))
	require.Never(t, func() bool { return calls.Load() > before }, 3*settle, settle, "nothing was to be applied")

	cancel()
	require.NoError(t, <-ended)
}

// rest waits until there has been no call for a while.
func rest(t *testing.T, calls *atomic.Int32, while time.Duration) {
	t.Helper()
	last, since := calls.Load(), time.Now()
	require.Eventually(t, func() bool {
		if n := calls.Load(); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > while
	}, time.Minute, settle/4)
}
