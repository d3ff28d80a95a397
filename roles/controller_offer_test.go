package roles

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/liqod/liqod/roles/config"
	"github.com/liqod/liqod/shadow/rules"
)

func TestLabelsOfOffers(t *testing.T) {
	t.Parallel()
	metadata := func(string) rules.Metadata { return rules.Metadata{Labels: rules.LeftOutLabels{"karpenter.sh/*"}} }
	has := leftOut(metadata, (&config.Reflection{SharedZones: []string{"milan"}}).SharesZones)
	for label, providers := range map[string]map[string]bool{
		"topology.kubernetes.io/zone":   {"milan": false, "oslo": true},
		"topology.kubernetes.io/region": {"milan": false, "oslo": false},
		"karpenter.sh/nodepool":         {"milan": true, "oslo": true},
	} {
		for provider, want := range providers {
			require.Equal(t, want, has(provider, label), "%s of %s", label, provider)
		}
	}
	require.True(t, (&config.Reflection{SharedZones: []string{"*"}}).SharesZones("oslo"))
}
