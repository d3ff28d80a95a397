package v1alpha1

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOfferNames(t *testing.T) {
	t.Parallel()
	for n := 1; n <= MaxVirtualNodes; n++ {
		require.True(t, ValidOfferName("milan", OfferName("milan", n)), n)
	}
	require.Equal(t, "milan", OfferName("milan", 1))
	require.Equal(t, "milan-2", OfferName("milan", 2))
	for _, name := range []string{"", "mil", "milano", "milan-", "milan-1", "milan-0", "milan-02", "milan--2", "milan-+2", "milan-17", "milan-x", "rome", "milan-2-3", "Milan"} {
		require.False(t, ValidOfferName("milan", name), name)
	}
	require.False(t, ValidOfferName("", ""))
}
