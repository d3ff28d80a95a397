package loop

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBackoff(t *testing.T) {
	b := Backoff{First: 2, Longest: 10}
	for last, want := range map[time.Duration]time.Duration{0: 2, 1: 2, 2: 4, 4: 8, 8: 10, 10: 10, 20: 10} {
		require.Equal(t, want, b.Next(last), last)
	}
}
