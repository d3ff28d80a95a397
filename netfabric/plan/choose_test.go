package plan

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestChoose(t *testing.T) {
	t.Parallel()
	const hold = 30 * time.Second
	now := time.Unix(1_000_000, 0)
	ago := func(seconds int) time.Time { return now.Add(-time.Duration(seconds) * time.Second) }
	up := func(n, seconds int) Candidate { return Candidate{n, true, ago(seconds)} }
	down := func(n, seconds int) Candidate { return Candidate{n, false, ago(seconds)} }

	for name, tc := range map[string]struct {
		have       Choice
		candidates []Candidate
		want       int
		kept       bool // the time of the choice too
	}{
		"nothing to choose":                   {want: 0, kept: true},
		"the last one is gone":                {have: Choice{1, ago(99)}, want: 0},
		"the first choice":                    {candidates: []Candidate{up(1, 1), up(2, 1)}, want: 1},
		"the first choice prefers the steady": {candidates: []Candidate{up(1, 1), up(2, 99)}, want: 2},
		"the first choice skips the dead":     {candidates: []Candidate{down(1, 99), up(2, 1)}, want: 2},
		"all are dead at first":               {candidates: []Candidate{down(2, 99), down(1, 99)}, want: 2},
		"it lives":                            {have: Choice{1, ago(99)}, candidates: []Candidate{up(1, 99), up(2, 99)}, want: 1, kept: true},
		"another order of preference":         {have: Choice{1, ago(99)}, candidates: []Candidate{up(2, 99), up(1, 99)}, want: 2},
		"it died":                             {have: Choice{1, ago(99)}, candidates: []Candidate{down(1, 0), up(2, 99)}, want: 2},
		"it died right after the choice":      {have: Choice{1, ago(1)}, candidates: []Candidate{down(1, 0), up(2, 99)}, want: 2},
		"it died, and only a new one lives":   {have: Choice{1, ago(99)}, candidates: []Candidate{down(1, 0), up(2, 0)}, want: 2},
		"it died, and one is steady":          {have: Choice{1, ago(99)}, candidates: []Candidate{down(1, 0), up(2, 0), up(3, 99)}, want: 3},
		"it is gone":                          {have: Choice{1, ago(99)}, candidates: []Candidate{up(2, 99)}, want: 2},
		"it is gone, and the rest is dead":    {have: Choice{1, ago(99)}, candidates: []Candidate{down(2, 99)}, want: 2},
		"all are dead":                        {have: Choice{2, ago(99)}, candidates: []Candidate{down(1, 0), down(2, 0)}, want: 2, kept: true},
		"the better one is back":              {have: Choice{2, ago(99)}, candidates: []Candidate{up(1, 30), up(2, 99)}, want: 1},
		"the better one is just back":         {have: Choice{2, ago(99)}, candidates: []Candidate{up(1, 29), up(2, 99)}, want: 2, kept: true},
		"the choice is young":                 {have: Choice{2, ago(29)}, candidates: []Candidate{up(1, 99), up(2, 99)}, want: 2, kept: true},
		"a worse one is no reason":            {have: Choice{1, ago(99)}, candidates: []Candidate{up(1, 1), up(2, 99)}, want: 1, kept: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Choose(now, hold, tc.have, tc.candidates)
			require.Equal(t, tc.want, got.Number)
			if tc.kept {
				require.Equal(t, tc.have, got)
			} else if len(tc.candidates) > 0 {
				require.Equal(t, now, got.Since)
			}
			require.Equal(t, got, Choose(now, hold, got, tc.candidates), "chosen again at once")
		})
	}
}

// However gateways come and go, one that lives is not left more often than every hold, and
// all who see the same end with the same choice.
func TestChooseSettles(t *testing.T) {
	t.Parallel()
	const hold = 30 * time.Second
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		now := time.Unix(1_000_000, 0)
		candidates := []Candidate{{1, true, now}, {2, true, now}, {3, false, now}}
		a, b := Choice{}, Choice{3, now}
		var left time.Time
		for range 500 {
			now = now.Add(time.Duration(1+r.IntN(9)) * time.Second)
			if i := r.IntN(len(candidates) * 3); i < len(candidates) {
				candidates[i].Alive, candidates[i].Since = !candidates[i].Alive, now
			}
			before := a
			a, b = Choose(now, hold, a, candidates), Choose(now, hold, b, candidates)
			if before.Number != 0 && a.Number != before.Number && candidates[before.Number-1].Alive {
				require.GreaterOrEqual(t, now.Sub(left), hold, "seed %d", seed)
			}
			if a.Number != before.Number {
				left = now
			}
		}
		for range 5 {
			now = now.Add(hold)
			a, b = Choose(now, hold, a, candidates), Choose(now, hold, b, candidates)
		}
		if candidates[0].Alive || candidates[1].Alive || candidates[2].Alive {
			require.Equal(t, a.Number, b.Number, "seed %d", seed)
		}
	}
}
