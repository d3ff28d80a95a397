package plan

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDiff(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ want, have, add, del string }{
		"nothing":              {},
		"equal":                {want: "abc", have: "abc"},
		"another order":        {want: "abc", have: "cab"},
		"all new":              {want: "abc", add: "abc"},
		"all old":              {have: "abc", del: "cba"},
		"some of each":         {want: "abd", have: "bce", add: "ad", del: "ec"},
		"twice in want":        {want: "aab", have: "b", add: "a"},
		"twice in have":        {want: "b", have: "aab", del: "a"},
		"twice in both, equal": {want: "aa", have: "aa"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			add, del := Diff([]byte(tc.want), []byte(tc.have))
			require.Equal(t, tc.add, string(add))
			require.Equal(t, tc.del, string(del))
		})
	}
}

func TestMarkerNamesTheFixedPart(t *testing.T) {
	t.Parallel()
	table := func() Table {
		return Table{
			Name:   TableName,
			Sets:   []Set{{Name: "a", Family: V4, Keys: 1}},
			Chains: []Chain{{Name: "c", Hook: HookForward, Rules: []Match{{In: TunnelDevice, Do: Drop}}}},
		}
	}
	same := table()
	same.Elements = []Element{{Set: "a"}}
	require.Equal(t, table().Marker(), same.Marker(), "elements are not part of it")

	for name, change := range map[string]func(*Table){
		"a key":       func(t *Table) { t.Sets[0].Keys = 2 },
		"a set":       func(t *Table) { t.Sets = append(t.Sets, Set{Name: "b"}) },
		"a priority":  func(t *Table) { t.Chains[0].Priority = 1 },
		"a condition": func(t *Table) { t.Chains[0].Rules[0].Set = Lookup{Name: "a", Key: Src, Not: true} },
		"an action":   func(t *Table) { t.Chains[0].Rules[0].Do = Accept },
		"a name":      func(t *Table) { t.Chains[0].Rules[0].Name = DropInvalid },
	} {
		other := table()
		change(&other)
		require.NotEqual(t, table().Marker(), other.Marker(), name)
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	for _, name := range []string{OverlayDevice, TunnelDevice} {
		require.LessOrEqual(t, len(name), 15, name)
		require.Regexp(t, "^"+DevicePrefix, name)
	}
	require.IsIncreasing(t, []int{0, SkipPriority, PeersPriority, InsidePriority, EndPriority, 100})
	require.IsIncreasing(t, []int{RawPriority, -200, ManglePriority, DNATPriority, FilterPriority, SNATPriority, 100, LastGuardPriority})
	require.Less(t, GatewayOffset+MaxReplicas, ReservedAddresses)
	require.NotEqual(t, OverlayPort, ProbePort)
}
