package plan

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestChoose(t *testing.T) {
	t.Parallel()
	serves := func(n int) Candidate { return Candidate{n, true, true} }
	alive := func(n int) Candidate { return Candidate{n, true, false} }
	dead := func(n int) Candidate { return Candidate{n, false, false} }
	for name, tc := range map[string]struct {
		have       int
		candidates []Candidate
		want       int
	}{
		"nothing to choose":                {want: 0},
		"the last one is gone":             {have: 1, want: 0},
		"the first choice":                 {candidates: []Candidate{serves(1), serves(2)}, want: 1},
		"in the order of preference":       {have: 1, candidates: []Candidate{serves(2), serves(1)}, want: 2},
		"the first one is new":             {have: 2, candidates: []Candidate{alive(1), serves(2)}, want: 2},
		"the first one ends":               {have: 1, candidates: []Candidate{alive(1), serves(2)}, want: 2},
		"all are new":                      {have: 2, candidates: []Candidate{alive(1), alive(2)}, want: 1},
		"the first one is dead":            {have: 1, candidates: []Candidate{dead(1), serves(2)}, want: 2},
		"dead, though it served":           {have: 1, candidates: []Candidate{{1, false, true}, alive(2)}, want: 2},
		"dead, and only a new one is left": {have: 1, candidates: []Candidate{dead(1), alive(2)}, want: 2},
		"all are dead":                     {have: 2, candidates: []Candidate{dead(1), dead(2)}, want: 2},
		"all are dead at first":            {candidates: []Candidate{dead(2), dead(1)}, want: 2},
		"it is gone, and the rest is dead": {have: 1, candidates: []Candidate{dead(2)}, want: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, Choose(tc.have, tc.candidates))
		})
	}
}

// Nodes and peers that see the same choose the same, whatever they have used before.
func TestChoicesAgree(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		var one, other []Candidate
		for n := range 1 + r.IntN(MaxReplicas) {
			one = append(one, Candidate{n + 1, r.IntN(3) > 0, r.IntN(2) > 0})
		}
		other = append(other, one...)
		r.Shuffle(len(other), func(i, j int) { other[i], other[j] = other[j], other[i] })
		Prefer("rome", "milan", one)
		Prefer("rome", "milan", other)
		require.Equal(t, one, other)
		first := Choose(1+r.IntN(MaxReplicas), one)
		for have := range MaxReplicas {
			for _, c := range one {
				if c.Alive {
					require.Equal(t, first, Choose(have, other), "seed %d", seed)
				}
			}
		}
	}
}

// The peers of a cluster are spread over its gateways, and the loss of one moves only its own.
func TestPreferSpreads(t *testing.T) {
	t.Parallel()
	const peers, gateways = 3000, 3
	counts := map[int]int{}
	for i := range peers {
		var all []Candidate
		for n := range gateways {
			all = append(all, Candidate{Number: n + 1})
		}
		Prefer("rome", fmt.Sprintf("cluster-%d", i), all)
		counts[all[0].Number]++
		left := append([]Candidate{}, all[:2]...)
		Prefer("rome", fmt.Sprintf("cluster-%d", i), left)
		require.Equal(t, all[:2], left)
	}
	for n := range gateways {
		require.InDelta(t, peers/gateways, counts[n+1], peers/gateways/5, "gateway %d: %v", n+1, counts)
	}
}
