package v1beta1

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExplainBound(t *testing.T) {
	t.Parallel()
	const exceeded = `configmaps "c" is forbidden: exceeded quota: liqod-twin, requested: configmaps=1, used: configmaps=5000, limited: configmaps=5000`
	require.Contains(t, ExplainBound(exceeded), "sharing.twinLimits")
	for _, other := range []string{"", "exceeded quota: liqod-twins, requested", "exceeded quota: compute, requested: pods=1"} {
		require.Equal(t, other, ExplainBound(other))
	}
}
