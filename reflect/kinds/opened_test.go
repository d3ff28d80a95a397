package kinds

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFollow(t *testing.T) {
	open := map[string]string{"stays": "stays-rome", "moves": "moves-rome", "goes": "goes-rome"}
	var started []string
	closing := follow(open, map[string]string{"stays": "stays-rome", "moves": "moved", "comes": "comes-rome"},
		func(have string) string { return have },
		func(local, remote string) string { started = append(started, local); return remote })
	require.ElementsMatch(t, []string{"moves-rome", "goes-rome"}, closing)
	require.ElementsMatch(t, []string{"moves", "comes"}, started)
	require.Equal(t, map[string]string{"stays": "stays-rome", "moves": "moved", "comes": "comes-rome"}, open)
	require.Len(t, follow(open, nil, func(have string) string { return have }, nil), 3)
	require.Empty(t, open)
}
