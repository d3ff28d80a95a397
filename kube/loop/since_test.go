package loop

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSince(t *testing.T) {
	var s Since[string]
	dawn := time.Unix(1000, 0)
	require.Zero(t, s.Begun("a"))
	s.End("a")
	require.Equal(t, dawn, s.Begin("a", dawn))
	require.Equal(t, dawn, s.Begin("a", dawn.Add(time.Minute)), "the first time counts")
	require.Equal(t, dawn, s.Begun("a"))
	require.Equal(t, dawn.Add(time.Minute), s.Begin("b", dawn.Add(time.Minute)), "each key has its own")
	require.Equal(t, 2, s.Len())
	s.End("a")
	require.Zero(t, s.Begun("a"))
	require.Equal(t, dawn.Add(time.Hour), s.Begin("a", dawn.Add(time.Hour)), "it begins anew")
}
