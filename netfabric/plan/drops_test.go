package plan

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEveryDropHasACounter(t *testing.T) {
	t.Parallel()
	hosts := map[string][]Chain{"gateway": gatewayChains(Ports{1, 2}), "node": nodeChains(Ports{1, 2})}
	var have [][]string
	for host, chains := range hosts {
		for _, c := range chains {
			for _, m := range c.Rules {
				require.Equal(t, m.Do == Drop, m.Name != "", "%s: %s: %s", host, c.Name, m)
				if m.Do == Drop {
					have = append(have, []string{m.Name, host})
				}
			}
		}
	}
	slices.SortFunc(have, slices.Compare)
	have = slices.CompactFunc(have, slices.Equal)
	var names []string
	for _, h := range have {
		names = append(names, h[0])
	}
	slices.Sort(names)
	require.ElementsMatch(t, []string{
		DropFromPeer, DropToPeer, DropToGateway, DropToNode, DropToPod, DropOverlay, DropToPort,
		DropToOutside, DropTooMany, DropFromOutside, DropFromNode, DropFromGateway, DropInvalid,
	}, slices.Compact(names))
	var page [][]string
	for _, row := range rows(t, "drops") {
		page = append(page, row[:2])
	}
	require.ElementsMatch(t, have, page)
}
