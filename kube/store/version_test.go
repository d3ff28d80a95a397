package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	testingclock "k8s.io/utils/clock/testing"
)

func TestBefore(t *testing.T) {
	for name, c := range map[string]struct {
		a, b string
		want bool
	}{
		"before":          {"99", "100", true},
		"the same":        {"100", "100", false},
		"after":           {"200", "100", false},
		"not known":       {"", "100", false},
		"not told":        {"100", "", false},
		"not a number":    {"a1", "b2", false},
		"more than int64": {"18446744073709551614", "18446744073709551615", true},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, OlderVersion(c.a, c.b)) })
	}
}

func TestHead(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(time.Unix(1000, 0))
	h := NewHead(clock)
	for _, version := range []string{"5", "7", "7", "30"} {
		h.Saw(version)
		require.Zero(t, h.Lost())
	}
	h.Saw("8")
	require.Equal(t, time.Unix(1000, 0), h.Lost())
	clock.SetTime(time.Unix(2000, 0))
	h.Saw("31")
	require.Equal(t, time.Unix(1000, 0), h.Lost(), "what was lost is not back")
	h.Saw("9")
	require.Equal(t, time.Unix(2000, 0), h.Lost())
	clock.SetTime(time.Unix(3000, 0))
	h.WentBack()
	require.Equal(t, time.Unix(3000, 0), h.Lost())
}
