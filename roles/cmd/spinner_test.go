package cmd

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A spinner shows a read that takes long, and leaves nothing behind.
func TestSpinner(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		takes time.Duration
		drawn int
	}{
		"short": {400 * time.Millisecond, 0},
		"long":  {750 * time.Millisecond, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				spin(&out, "reading the cluster", func() { time.Sleep(tc.takes) })
				text := out.String()
				require.Equal(t, tc.drawn, strings.Count(text, "reading the cluster"))
				require.True(t, text == "" || strings.HasSuffix(text, clearLine))
			})
		})
	}
}

// Files and pipes get no spinner.
func TestSpinnerNeedsATerminal(t *testing.T) {
	t.Parallel()
	require.False(t, spins(&bytes.Buffer{}, ""))
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = reader.Close(), writer.Close() })
	require.False(t, spins(writer, ""))
}
