package roles

import (
	"testing"

	"github.com/stretchr/testify/require"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
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

// TestAcceptsOfOffers: an offer shows each consumer what its trust opens, and no longer lists than the API takes.
func TestAcceptsOfOffers(t *testing.T) {
	t.Parallel()
	var cfg config.Config
	cfg.Sharing.Trust, cfg.Sharing.Annotations, cfg.Controller.VolumeTypes = corev1beta1.TrustStrict, make([]string, 600), []string{"emptyDir"}
	have := acceptsOf(cfg)
	require.Equal(t, corev1beta1.TrustStrict, have.Trust)
	require.Len(t, have.Annotations, sharingv1alpha1.MostAccepted)
	require.Equal(t, []string{"emptyDir"}, have.VolumeTypes)
}
