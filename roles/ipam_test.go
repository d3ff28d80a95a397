package roles

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestIPAM(t *testing.T) {
	t.Parallel()
	parts := must(buildIPAM(t.Context(), hostEnv(t, "ipam")))
	require.NotNil(t, parts.Leader)
	var leased []string
	for _, a := range parts.Actors {
		if a.Leased {
			leased = append(leased, a.Name)
		}
	}
	require.Equal(t, []string{"allocator"}, leased)

	given := givenRanges(hostEnv(t, "ipam", "--networking.podCIDRs=10.244.0.0/16,fd00:10:244::/48", "--networking.serviceCIDRs=10.96.0.0/12",
		"--networking.nodeCIDRs=192.0.2.0/24", "--networking.reservedSubnets=192.168.0.0/24").Config.Networking)
	require.Len(t, given.Pods, 2)
	require.Equal(t, "[10.96.0.0/12] [192.0.2.0/24 192.168.0.0/24]", fmt.Sprint(given.Services, given.Reserved))
}
