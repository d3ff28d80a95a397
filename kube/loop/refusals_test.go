package loop

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRefusals(t *testing.T) {
	var r Refusals
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	require.Zero(t, r.NotBefore("a", 1))
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		require.Equal(t, want*time.Second, r.Refused("a", 1, now))
		require.Equal(t, now.Add(want*time.Second), r.NotBefore("a", 1))
	}
	require.Zero(t, r.NotBefore("a", 2), "a new generation is due at once")
	require.Equal(t, time.Second, r.Refused("a", 2, now), "and begins anew")
	require.Equal(t, time.Second, r.Refused("b", 2, now), "each object apart")
	require.Equal(t, 2, r.Len())
	r.Forget("a")
	require.Zero(t, r.NotBefore("a", 2))
	require.Equal(t, 1, r.Len())
}
