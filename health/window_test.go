package health

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWindow(t *testing.T) {
	for name, tc := range map[string]struct {
		probes string // . success, x failure
		want   string // the verdict after each: ? unknown, U up, D down
	}{
		"one success is enough at first":            {".", "U"},
		"three failures at first":                   {"xxx", "??D"},
		"a success after two failures at first":     {"xx.", "??U"},
		"three of five, not in a row":               {".x.x.x", "UUUUUD"},
		"three of six are too far apart":            {".x..x..x", "UUUUUUUU"},
		"one failure in ten changes nothing":        {"." + strings.Repeat("x.........", 4), strings.Repeat("U", 41)},
		"one failure in five changes nothing":       {"." + strings.Repeat("x....", 4), strings.Repeat("U", 21)},
		"back after two successes in a row":         {".xxx.x..", "UUUDDDDU"},
		"old failures do not count twice":           {".xxx..x.x", "UUUDDUUUU"},
		"down again after three more":               {".xxx..xxx", "UUUDDUUUD"},
		"one success in ten while down is not news": {"xxx" + strings.Repeat(".xxxxxxxxx", 3), "??D" + strings.Repeat("D", 30)},
		"alternating turns down, and stays there":   {".x.x.x.x.x.x", "UUUUUDDDDDDD"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := Window{Size: 5, Failures: 3, Successes: 2}
			var got strings.Builder
			before := w.State().Verdict
			for _, p := range tc.probes {
				var err error
				if p == 'x' {
					err = errors.New("refused")
				}
				changed := w.Add(err)
				now := w.State().Verdict
				require.Equal(t, now != before, changed)
				before = now
				got.WriteByte("?UD"[now])
			}
			require.Equal(t, tc.want, got.String())
		})
	}
}

func TestReasons(t *testing.T) {
	w := Window{Size: 5, Failures: 3, Successes: 2}
	require.Equal(t, State{Unknown, "no probe has finished yet"}, w.State())
	w.Add(errors.New("connection refused"))
	require.Equal(t, State{Unknown, "no probe succeeded yet: connection refused"}, w.State())
	w.Add(nil)
	require.Equal(t, State{Up, "the first probe that answered succeeded"}, w.State())
	for range 3 {
		w.Add(errors.New("connection refused"))
	}
	require.Equal(t, State{Down, "3 of the last 3 probes failed: connection refused"}, w.State())
	w.Add(nil)
	w.Add(nil)
	require.Equal(t, State{Up, "the last 2 probes succeeded"}, w.State())
	require.Equal(t, []string{"Unknown", "Up", "Down"}, []string{Unknown.String(), Up.String(), Down.String()})
}
