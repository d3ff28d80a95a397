package health

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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
