package health

import (
	"errors"
	"strings"
	"testing"
	"time"

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

// TestDwell plays verdicts, one a second unless a digit before says for how many.
func TestDwell(t *testing.T) {
	t.Parallel()
	many := strings.Repeat
	for name, tc := range map[string]struct{ said, want string }{
		"the first one counts":            {"D", "D"},
		"one outage":                      {"UUUDDDUUU", "UUUDDDUUU"},
		"through Unknown":                 {"UDD?UU", "UDD?UU"},
		"Unknown is worse than Up":        {"UU?UU", "UU?UU"},
		"the second return waits":         {"UDUD" + many("U", 12), "UDUD" + many("D", 9) + "UUU"},
		"what is worse does not":          {"U?U?D" + many("?", 21), "U?U?D" + many("D", 19) + "??"},
		"a return that does not last":     {"UDUDUUUUUD" + many("U", 22), "UDUD" + many("D", 5) + "D" + many("D", 19) + "UUU"},
		"no wait is longer than the last": {many("UD", 50) + many("U", 31), "UDU" + many("D", 97+29) + "UU"},
		"long ago does not count":         {"UD" + many("U", 121) + "DU", "UD" + many("U", 121) + "DU"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var d Dwell
			var got strings.Builder
			now := time.Unix(1e9, 0)
			for _, c := range tc.said {
				v := Verdict(strings.IndexRune("?UD", c))
				passed, again := d.Pass(v, now)
				require.Equal(t, passed != v, again > 0)
				got.WriteByte("?UD"[passed])
				now = now.Add(time.Second)
			}
			require.Equal(t, tc.want, got.String())
		})
	}
}

// TestDwellOfAFlood: of 50 turns a second the first one counts, and no other one until they end.
func TestDwellOfAFlood(t *testing.T) {
	t.Parallel()
	for name, verdicts := range map[string][]Verdict{
		"up and down": {Up, Down}, "up and unknown": {Up, Unknown}, "all": {Up, Down, Unknown}, "all, upwards": {Down, Unknown, Up},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var d Dwell
			now, changes, worst := time.Unix(1e9, 0), 0, verdicts[0]
			have, _ := d.Pass(Up, now)
			for i := range 50 * 600 {
				now = now.Add(20 * time.Millisecond)
				v := verdicts[i%len(verdicts)]
				if v.rank() < worst.rank() {
					worst = v
				}
				if passed, _ := d.Pass(v, now); passed != have {
					have = passed
					changes++
				}
			}
			require.Equal(t, worst, have)
			require.LessOrEqual(t, changes, 2, "Up, Unknown, Down")
			passed, again := d.Pass(Up, now.Add(lastDwell))
			require.Equal(t, Up, passed)
			require.Zero(t, again)
		})
	}
}

// TestDwellOfSlowTurns: whatever the time between the turns is, there is one change in ten seconds,
// beside those of a first outage.
func TestDwellOfSlowTurns(t *testing.T) {
	t.Parallel()
	for _, every := range []time.Duration{100, 200, 500, 1000, 3000, 6000, 9000, 11000, 21000, 31000} {
		var d Dwell
		now, have, changes := time.Unix(1e9, 0), Up, 0
		const whole = 10 * time.Minute
		for at := time.Duration(0); at < whole; at += every * time.Millisecond {
			v := Up
			if at/(every*time.Millisecond)%2 == 1 {
				v = Down
			}
			if passed, _ := d.Pass(v, now.Add(at)); passed != have {
				have = passed
				changes++
			}
		}
		require.LessOrEqual(t, changes, 3+int(whole/nextDwell), every)
	}
}
